"""What the arena keeps of every episode: one JSON line each, so that an interrupted evaluation goes on where it was."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from attribution_sched import __version__, cluster
from attribution_sched.cluster.world import World
from attribution_sched.errors import CheckpointError, problem
from attribution_sched.scheduler.episode import EpisodeSummary
from attribution_sched.scheduler.policy import Policy

FILE_NAME = "episodes.jsonl"
FORMAT = 1

Key = tuple[str, str, int]
"""Scenario, policy, seed of an episode."""


@dataclass(frozen=True)
class EpisodeRecord:
    """One played episode.

    Attributes:
        scenario: Name of the world.
        policy: Name of the policy.
        seed: Seed of arrivals and network.
        fingerprint: Of world, policy and code, see :func:`fingerprint`.
        summary: What happened; the same whenever it is played.
        plan_us: Wall microseconds of every decision that gave a plan; differs from run to run.
        pass_us: Likewise of every decision that gave none.
    """

    scenario: str
    policy: str
    seed: int
    fingerprint: str
    summary: EpisodeSummary
    plan_us: tuple[int, ...]
    pass_us: tuple[int, ...]

    @property
    def key(self) -> Key:
        """What tells episodes apart."""
        return self.scenario, self.policy, self.seed

    def line(self) -> str:
        """Write the record as one line of JSON."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, separators=(",", ":")) + "\n"

    @classmethod
    def parse(cls, line: str) -> EpisodeRecord:
        """Read a line that :meth:`line` wrote; raises ``ValueError``, ``KeyError`` or ``TypeError`` on any other."""
        found = json.loads(line)
        if found.pop("format") != FORMAT:
            raise ValueError("another format")
        summary = EpisodeSummary(**found.pop("summary"))
        plan_us, pass_us = tuple(found.pop("plan_us")), tuple(found.pop("pass_us"))
        return cls(summary=summary, plan_us=plan_us, pass_us=pass_us, **found)


def fingerprint(world: World, policy: Policy) -> str:
    """Digest of everything that decides how an episode goes, except its seed.

    The world's figures, the policy's class and plain settings, the version of the package, and the sources of
    the simulation and of the policy.
    """
    digest = hashlib.sha256()
    kind = type(policy)
    settings = {name: value for name, value in getattr(policy, "__dict__", {}).items() if _is_plain(name, value)}
    parts = (FORMAT, __version__, _sources(cluster), _source_of(kind), kind.__qualname__, policy.name, settings)
    for part in (*parts, world):
        for piece in _pieces(part):
            digest.update(piece)
            digest.update(b"\0")
    return digest.hexdigest()[:16]


class EpisodeStore:
    """The lines of a folder.

    Args:
        folder: Where they are kept; made if missing.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, wanted: Mapping[Key, str], *, replay: bool = False) -> dict[Key, EpisodeRecord]:
        """Read the wanted episodes that are there; a half-written last line is cut off.

        Args:
            wanted: Key → fingerprint it must have.
            replay: Leave out episodes of another fingerprint, to be played again, instead of raising.

        Raises:
            CheckpointError: If a line is damaged, or an episode was played with other settings or code.
        """
        found: dict[Key, EpisodeRecord] = {}
        stale: list[Key] = []
        for record in self._records():
            expected = wanted.get(record.key)
            if expected == record.fingerprint:
                found[record.key] = record
            elif expected is not None:
                stale.append(record.key)
        missing = [key for key in stale if key not in found]
        if missing and not replay:
            rule = f"episode {missing[0]} was played with another world, policy, setting or version of the code"
            fix = "Give another folder, or have stale episodes played again (replay=True, --replay-stale)"
            raise CheckpointError(problem("results", str(self.path), rule, fix))
        return found

    def append(self, record: EpisodeRecord) -> None:
        """Add a record; it is on disk when this returns."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(record.line())
            file.flush()
            os.fsync(file.fileno())

    def _records(self) -> Iterable[EpisodeRecord]:
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            # The process was stopped while it wrote: the episode is played again.
            with self.path.open("r+b") as file:
                file.truncate(whole)
        for number, line in enumerate(data[:whole].splitlines(), start=1):
            try:
                yield EpisodeRecord.parse(line.decode("utf-8"))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                rule = f"is not an episode this version wrote ({type(error).__name__}: {error})"
                fix = "Delete the line, or give another folder"
                raise CheckpointError(problem(f"{self.path}, line {number}", line[:40], rule, fix)) from None


def _is_plain(name: str, value: object) -> bool:
    return not name.startswith("_") and (
        dataclasses.is_dataclass(value) or isinstance(value, bool | int | float | str | None | tuple | Enum)
    )


def _pieces(value: object) -> Iterable[bytes]:
    """Take a value apart into bytes that are the same in every process."""
    if isinstance(value, np.ndarray):
        yield f"{value.dtype}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield type(value).__name__.encode()
        for field in dataclasses.fields(value):
            yield field.name.encode()
            yield from _pieces(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield b"{"
        for key in sorted(value, key=repr):
            yield repr(key).encode()
            yield from _pieces(value[key])
    elif isinstance(value, tuple | list):
        yield f"[{len(value)}".encode()
        for item in value:
            yield from _pieces(item)
    else:
        yield repr(value).encode()


@cache
def _sources(package: ModuleType) -> str:
    """Digest of the sources and constants of a package."""
    digest = hashlib.sha256()
    for folder in package.__path__:
        for path in sorted(Path(folder).rglob("*")):
            if path.suffix in {".py", ".json", ".yaml", ".csv"}:
                digest.update(path.relative_to(folder).as_posix().encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _source_of(kind: type[Any]) -> str:
    """Digest of the file a class stands in; only its name where there is no file."""
    path = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if path is None or not Path(path).is_file():
        return kind.__module__
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
