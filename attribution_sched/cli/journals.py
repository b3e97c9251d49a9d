"""Journals on the command line: finding a decision, and a system as it was, without touching the file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from attribution_sched.cli.console import Stages, notes
from attribution_sched.errors import JournalError, problem

if TYPE_CHECKING:
    from attribution_sched.journal import Journal
    from attribution_sched.system import System

REHEARSED = 2000
"""Decisions up to which a policy with a memory is asked all of them again; it takes about 20 ms for each."""

LISTED = 4
"""Ids that a message about an ambiguous one names."""


def decision_of(journal: Journal, wanted: str) -> str:
    """The id that a user means: itself, a prefix of it that no other has, its number, or ``last``.

    ``last`` is the newest decision that put a plan in force, or the newest of all if none did.

    Raises:
        JournalError: If there is no such decision, or there are several.
    """
    if journal.count() == 0:
        rule = "the journal has no decisions yet"
        raise JournalError(problem("decision id", wanted, rule, "Let some tasks be placed first"))
    if wanted == "last":
        return _last(journal)
    if wanted.isdigit() and int(wanted) < journal.count():
        return next(iter(journal.decisions(int(wanted), int(wanted) + 1))).id
    try:
        return journal.decision(wanted).id
    except JournalError:
        found = [each.id for each in journal.decisions() if wanted and each.id.startswith(wanted)]
        if not found:
            raise
        if len(found) > 1:
            listed = ", ".join(found[:LISTED]) + (" ..." if len(found) > LISTED else "")
            rule = f"fits {len(found)} decisions ({listed})"
            raise JournalError(problem("decision id", wanted, rule, "Give more of it")) from None
        return found[0]


def _last(journal: Journal) -> str:
    stop = journal.count()
    while stop > 0:
        start = max(0, stop - 256)
        for decision, outcome in reversed(list(journal.entries(start, stop))):
            if outcome is not None and outcome.code > 0:
                return decision.id
        stop = start
    newest = journal.last()
    return "" if newest is None else newest.id


@contextlib.contextmanager
def rebuilt(path: Path, stages: Stages, policy: str | None = None) -> Iterator[System]:
    """The system that wrote a journal, built again from a copy of it; the journal itself is only read.

    Raises:
        JournalError: If the journal cannot be read, or does not come out as recorded.
    """
    from attribution_sched.journal import Journal
    from attribution_sched.session.snapshot import snapshot

    with Journal.read(path) as found:
        count = found.count()
    with snapshot(path) as copy:
        with stages.stage(f"living through {count} decisions"):
            from attribution_sched.system import System

            system = System.resume(copy, policy=policy, rehearse=count <= REHEARSED)
        if count > REHEARSED:
            told = f"more than {REHEARSED} decisions: a policy with a memory (forecasts) begins it anew"
            notes().print(told, style="yellow")
        with system:
            yield system
