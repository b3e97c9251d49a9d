"""Many decisions of a journal explained, by this process or by workers beside it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.errors import AttributionSchedError
from attribution_sched.executors.live import onlooker
from attribution_sched.executors.workers import check_workers, spread
from attribution_sched.journal import Journal
from attribution_sched.journal.file import dispose_of
from attribution_sched.journal.journal import temporary_copy

if TYPE_CHECKING:
    from attribution_sched.system.system import System

DECISION = "decision"
"""What is explained by default."""


@dataclass(frozen=True)
class ManyExplained:
    """What came of explaining many decisions.

    Attributes:
        explained: Ids of those that were explained now.
        known: Ids of those that the journal had such an explanation of.
        failed: Id → why it cannot be explained.
    """

    explained: tuple[str, ...]
    known: tuple[str, ...]
    failed: Mapping[str, str]


def unexplained(
    journal: Journal, ids: Sequence[str] | None, options: Mapping[str, Any]
) -> tuple[list[str], tuple[str, ...]]:
    """Decisions of a journal that have no such explanation yet, and those that have.

    Raises:
        JournalError: If there is no such decision; the message names the nearest.
    """
    names = [each.id for each in journal.decisions()] if ids is None else [journal.decision(name).id for name in ids]
    target = options.get("target") or ("" if options.get("against") else DECISION)
    # One that is compared with something has a target of its own, by the policy: it is always explained.
    known = {name for name in names if any(each.target == target for each in journal.explanations(name))}
    return [name for name in dict.fromkeys(names) if name not in known], tuple(n for n in names if n in known)


BLOCKS = 8
"""Decisions that a worker is handed at a time: neighbours share most of what has to be lived through again."""

Aside = tuple[str, dict[str, bytes], Any, Any, dict[str, Any]]
"""A journal's name and files, its policy and attributor where they cannot be made by their names, how to explain."""


def explain_aside(
    path: Path, todo: Sequence[str], workers: int | str, options: Mapping[str, Any], policy: Any, attributor: Any
) -> Iterator[tuple[str, str, dict[str, Any] | str]]:
    """Explain decisions of a journal in workers; the journal itself is only read.

    Returns:
        Id, target and explanation of each as it is ready, or in the explanation's place why there is none.
    """
    who = check_workers(workers)
    if not todo:
        return
    with temporary_copy(path) as copy:
        files = {each.name: each.read_bytes() for each in copy.parent.iterdir()}
        shared: Aside = (copy.name, files, policy, attributor, dict(options))
    jobs = [todo[at : at + BLOCKS] for at in range(0, len(todo), BLOCKS)]
    for _, block in spread(who, _explain_block, shared, jobs):
        yield from block


_rebuilt: dict[str, System] = {}


def _explain_block(run: str, shared: Aside, names: Sequence[str]) -> list[tuple[str, str, dict[str, Any] | str]]:
    """Explain some decisions in a worker, which keeps the system that it built again from one block to the next."""
    journal, files, policy, attributor, options = shared
    from attribution_sched.system.system import System

    if run not in _rebuilt:
        for old in _rebuilt.values():
            old.close()
        _rebuilt.clear()
        folder = Path(tempfile.mkdtemp(prefix="explain-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        dispose_of(folder)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        path = folder / journal
        # What is pending in a real cluster's journal is not ours to carry out.
        _rebuilt[run] = System.resume(path, policy=policy, attributor=attributor, cluster=onlooker(path))
    explanations: list[tuple[str, str, dict[str, Any] | str]] = []
    for name in names:
        try:
            explanation = _rebuilt[run].explain(name, **options)
            explanations.append((name, explanation.target, explanation.to_dict()))
        except AttributionSchedError as error:
            explanations.append((name, "", str(error)))
    return explanations
