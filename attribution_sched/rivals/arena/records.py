"""What the arena keeps of every episode: one JSON line each, so that an interrupted evaluation goes on where it was."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np

from attribution_sched import __version__, cluster
from attribution_sched.cluster.world import World
from attribution_sched.errors import CheckpointError, problem
from attribution_sched.limits import make_folder
from attribution_sched.scheduler.episode import EpisodeSummary
from attribution_sched.scheduler.policy import Policy

FILE_NAME = "episodes.jsonl"
FORMAT = 1

_IMPORT = re.compile(r"^\s*(?:from|import)\s+(attribution_sched(?:\.\w+)+)", re.MULTILINE)

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
    the simulation, of the policy and of what it imports from this package.
    """
    digest = hashlib.sha256()
    kind = type(policy)
    code = (_digest(_package_files(cluster)), _digest(files_behind(kind.__module__)))
    parts = (FORMAT, __version__, code, policy.name, _settings(policy))
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
        make_folder("output", folder)

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


def _settings(thing: object, depth: int = 2) -> dict[str, object]:
    """Class and public plain attributes of an object, and those of the package's own objects inside it."""
    found: dict[str, object] = {"class": type(thing).__qualname__}
    for name, value in getattr(thing, "__dict__", {}).items():
        if name.startswith("_"):
            continue
        if dataclasses.is_dataclass(value) or isinstance(value, bool | int | float | str | None | tuple | Enum):
            found[name] = value
        elif depth and type(value).__module__.startswith("attribution_sched."):
            found[name] = _settings(value, depth - 1)
    return found


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


def files_behind(module: str) -> tuple[Path, ...]:
    """The file of a module and, followed from import to import, those of this package outside the simulation."""
    found: set[Path] = set()
    seen, names = {cluster.__name__}, [module]
    while names:
        name = names.pop()
        if name in seen or name.startswith(cluster.__name__ + "."):
            continue
        seen.add(name)
        path = _file_of(name)
        if path is not None:
            inside = path.parent.rglob("*.py") if path.name == "__init__.py" else [path]
            for file in inside:
                found.add(file)
                names += _IMPORT.findall(file.read_text(encoding="utf-8"))
    return tuple(sorted(found))


def _file_of(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
        origin = spec.origin if spec else None
    except (ImportError, ValueError):
        # A script that is being run has a file but no specification.
        origin = getattr(sys.modules.get(module), "__file__", None)
    return Path(origin) if origin and Path(origin).suffix == ".py" and Path(origin).is_file() else None


def _package_files(package: ModuleType) -> tuple[Path, ...]:
    """Sources and constants of a package."""
    folders = (Path(folder) for folder in package.__path__)
    return tuple(sorted(p for folder in folders for p in folder.rglob("*") if p.suffix in {".py", ".json"}))


@cache
def _digest(files: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
