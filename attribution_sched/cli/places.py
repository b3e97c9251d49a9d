"""Where a run writes: paths are checked first, and a folder is made only when all else is known to be right."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from attribution_sched.errors import SettingsError, nearest, problem

REPORTS: tuple[str, ...] = (".html", ".json", ".md")
"""Endings of a report."""

FOLDER = Path("runs")


@dataclass
class Places:
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
        """Take the folder away again, if nothing was written into it."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                self.folder.parent.rmdir()


def check(journal: Path | None, report: Path | None) -> None:
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


def make(preset: str, seed: int, journal: Path | None, report: Path | None) -> Places:
    """Where a run writes; a folder of its own is made for what the user did not name.

    Raises:
        SettingsError: If the folder cannot be made.
    """
    if journal is not None:
        return Places(journal, report or beside(journal))
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
            return Places(folder / "journal.sqlite", report or folder / "report.html", folder)


def beside(journal: Path) -> Path:
    """A name for the report of a journal, beside it and not taken."""
    first = journal.with_suffix(".html")
    number = 1
    path = first
    while path.exists():
        number += 1
        path = first.with_stem(f"{first.stem}-{number}")
    return path
