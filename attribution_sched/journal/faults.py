"""What is wrong with a journal, said in one shape: the value, the rule and the fix."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attribution_sched.errors import JournalError, problem

DAMAGED = "The journal is damaged: restore it from a copy"


def fault(field: str, value: object, rule: str, fix: str = DAMAGED) -> JournalError:
    """The error for a value that breaks a rule."""
    return JournalError(problem(field, value, rule, fix))


def damaged(table: str, row: Sequence[Any], rule: str, column: str = "", value: object = "") -> JournalError:
    """The one error for a row that is not as it was written."""
    field = f"{table}[{str(row[1])[:80]}]"
    return fault(f"{field}.{column}", value, rule) if column else fault(field, f"row at position {row[0]}", rule)


@contextlib.contextmanager
def readable(path: Path | str) -> Iterator[None]:
    """Turn SQLite's complaints into one clear error."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path | str, error: sqlite3.Error | UnicodeDecodeError) -> JournalError:
    """The one clear error for a complaint of SQLite; it may quote what is damaged, and that may be no text at all."""
    complaint = str(error)
    if type(error) in (sqlite3.DatabaseError, UnicodeDecodeError) or any(
        words in complaint for words in ("decode to UTF-8", "malformed")
    ):
        return fault("journal", str(path), f"is damaged ({error})")
    if "closed" in complaint and isinstance(error, sqlite3.ProgrammingError):
        return fault("journal", str(path), "is closed", "Open it again with Journal.open")
    fix = "Check its folder, the free room and who may write"
    return fault("journal", str(path), f"cannot be used ({error})", fix)
