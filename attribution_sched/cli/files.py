"""Files of the command line: where a run writes, which decision of a journal is meant, a system built again from it.

Paths are checked first, and a folder is made only when all else is known to be right; a journal is only read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attribution_sched.cli.console import Stages, notes
from attribution_sched.errors import JournalError, SettingsError, nearest, problem

if TYPE_CHECKING:
    from attribution_sched.journal import Journal
    from attribution_sched.system.system import System


REPORTS: tuple[str, ...] = (".html", ".json", ".md")
"""Endings of a report."""

FOLDER = Path("runs")


@dataclass
class RunFiles:
    """Where a run writes.

    Attributes:
        journal: Path of the journal.
        report: Path of the report.
        folder: Folder that was made for them; None if there was no need.
    """

    journal: Path
    report: Path
    folder: Path | None = None

    def discard(self) -> None:
        """Take folders away again, those of jobs too, if nothing was written into them."""
        jobs = self.journal.with_name(f"{self.journal.name}.jobs")
        inner = sorted((each for each in jobs.rglob("*") if each.is_dir()), reverse=True)
        own = [] if self.folder is None else [self.folder, self.folder.parent]
        with contextlib.suppress(OSError):
            for each in [*inner, *([jobs] if jobs.is_dir() else []), *own]:
                each.rmdir()


def check_new_files(journal: Path | None, report: Path | None) -> None:
    """Look at the paths a user named.

    Raises:
        SettingsError: If something is there already, or a folder is not.
    """
    if report is not None:
        check_ending(report, "--report")
    for option, path in (("--journal", journal), ("--report", report)):
        if path is None:
            continue
        if path.exists():
            fix = "Choose another name; `run --resume` goes on with a journal" if option == "--journal" else ""
            raise SettingsError(problem(option, str(path), "is there already", fix or "Choose another name"))
        check_folder(path, option)


def check_ending(path: Path, option: str) -> None:
    """Refuse a report that is in no known format."""
    if path.suffix.lower() not in REPORTS:
        rule = f"must end in {', '.join(REPORTS)}"
        raise SettingsError(problem(option, str(path), rule, nearest(path.suffix or path.name, REPORTS)))


def check_folder(path: Path, option: str) -> None:
    """Refuse a path whose folder is not there."""
    if not path.parent.is_dir():
        fix = f"Make it first: mkdir -p {path.parent}"
        raise SettingsError(problem(option, str(path), f"its folder {str(path.parent)!r} does not exist", fix))


def make_run_files(preset: str, seed: int, journal: Path | None, report: Path | None) -> RunFiles:
    """Where a run writes; a folder of its own is made for what the user did not name.

    Raises:
        SettingsError: If the folder cannot be made.
    """
    if journal is not None:
        return RunFiles(journal, report or report_beside(journal))
    if FOLDER.exists() and not FOLDER.is_dir():
        fix = "Move it away, or name --journal and --report"
        raise SettingsError(problem("folder", str(FOLDER), "is a file", fix))
    number = 1
    while True:
        folder = FOLDER / f"{preset}-{seed}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        except OSError as error:
            rule = f"cannot be made ({error.strerror})"
            fix = "Run it where you may write, or name --journal and --report"
            raise SettingsError(problem("folder", str(folder), rule, fix)) from None
        else:
            return RunFiles(folder / "journal.sqlite", report or folder / "report.html", folder)


def report_beside(journal: Path) -> Path:
    """A name for the report of a journal, beside it and not taken."""
    first = journal.with_suffix(".html")
    number = 1
    path = first
    while path.exists():
        number += 1
        path = first.with_stem(f"{first.stem}-{number}")
    return path


REHEARSED = 2000
"""Decisions up to which a policy with a memory is asked all of them again; it takes about 20 ms for each."""

LISTED = 4
"""Ids that a message about an ambiguous one names."""


def find_decision(journal: Journal, wanted: str) -> str:
    """The id that a user means: itself, a prefix that no other has, its number, the id of its task, or ``last``.

    ``last`` is the newest decision that put a plan in force, or the newest of all if none did.

    Raises:
        JournalError: If there is no such decision, or there are several.
    """
    if journal.count() == 0:
        rule = "the journal has no decisions yet"
        raise JournalError(problem("decision id", wanted, rule, "Let some tasks be placed first"))
    if wanted == "last" and journal.first() < journal.count():
        return _last(journal)
    if wanted.isdecimal() and journal.first() <= int(wanted) < journal.count():
        return next(iter(journal.decisions(int(wanted), int(wanted) + 1))).id
    if journal.knows_task(wanted):
        # People know their jobs: the decision that put the task where it is, else the last that left it waiting.
        own = list(journal.decisions_on(wanted))
        if own:
            return next((each for each in reversed(own) if each.plan is not None), own[-1]).id
    try:
        return journal.decision(wanted).id
    except JournalError:
        matches = [each.id for each in journal.decisions() if wanted and each.id.startswith(wanted)]
        if not matches:
            raise
        if len(matches) > 1:
            listed = ", ".join(matches[:LISTED]) + (" ..." if len(matches) > LISTED else "")
            rule = f"fits {len(matches)} decisions ({listed})"
            raise JournalError(problem("decision id", wanted, rule, "Give more of it")) from None
        return matches[0]


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


def check_order(journal: Path, task: str) -> None:
    """Say so if journal and task were given the other way round.

    Raises:
        SettingsError: If they were.
    """
    if not journal.exists() and Path(task).is_file():
        rule = f"is no journal, but {task} is a file: the journal comes first, then the task"
        raise SettingsError(problem("JOURNAL", str(journal), rule, f"Give {task} {journal}"))


@contextlib.contextmanager
def rebuild_system(path: Path, stages: Stages, policy: str | None = None) -> Iterator[System]:
    """The system that wrote a journal, built again from a copy of it; the journal itself is only read.

    Raises:
        JournalError: If the journal cannot be read, or does not come out as recorded.
    """
    from attribution_sched.journal import Journal
    from attribution_sched.journal.journal import temporary_copy

    with Journal.read(path) as recording:
        count = recording.count()
    with temporary_copy(path) as copy:
        with stages.stage(f"living through {count} decisions"):
            from attribution_sched.executors.live import onlooker
            from attribution_sched.system.system import System

            # Whoever reads a real cluster's journal must not carry on with it: what is pending there is not ours.
            system = System.resume(copy, policy=policy, rehearse=count <= REHEARSED, cluster=onlooker(copy))
        if count > REHEARSED:
            words = f"more than {REHEARSED} decisions: a policy with a memory (forecasts) begins it anew"
            notes().print(words, style="yellow")
        with system:
            yield system
