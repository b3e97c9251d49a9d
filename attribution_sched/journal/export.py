"""Journals for other tools: Parquet, CSV, JSON and JSON lines, each written whole or not at all.

Pages go from the journal to the file one by one, so memory does not grow with the journal. What is recorded while an
export runs may or may not be in it.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.errors import JournalError, nearest, problem
from attribution_sched.journal import schema
from attribution_sched.journal.files import sync
from attribution_sched.journal.table import COLUMNS, pages

if TYPE_CHECKING:
    from attribution_sched.journal.reader import Reader

ROW_GROUP = 8192
"""Rows of one Parquet row group."""


def export(journal: Reader, path: Path) -> Path:
    """Write a journal in the format its new name ends in; a file of that name is replaced.

    Raises:
        JournalError: If the ending is not known, the target is the journal itself, or it cannot be written.
    """
    ending = path.suffix.lower()
    if ending not in WRITERS:
        raise JournalError(problem("export", str(path), f"ending {ending!r} is not known", nearest(ending, WRITERS)))
    if path.is_dir() or (journal.path is not None and path.exists() and path.samefile(journal.path)):
        what = "is a folder" if path.is_dir() else "is the journal itself"
        raise JournalError(problem("export", str(path), what, "Choose another name"))
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        WRITERS[ending](journal, draft)
        sync(draft)
        draft.replace(path)
        sync(path.parent)
    except OSError as error:
        rule = f"cannot be written ({error.strerror or error})"
        raise JournalError(problem("export", str(path), rule, "Use a folder with room that can be written")) from error
    finally:
        draft.unlink(missing_ok=True)
    return path


def _parquet(journal: Reader, draft: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {int: pa.int64(), float: pa.float64(), str: pa.string(), dict: pa.string()}
    header = json.dumps(_header(journal), ensure_ascii=False)
    table = pa.schema({name: kinds[kind] for name, kind in COLUMNS.items()}).with_metadata({"journal": header})
    with pq.ParquetWriter(draft, table, compression="zstd") as writer:
        held: list[tuple[Any, ...]] = []
        for page in pages(journal):
            held += page
            if len(held) >= ROW_GROUP:
                writer.write_batch(_batch(held, table))
                held = []
        if held:
            writer.write_batch(_batch(held, table))


def _batch(rows: list[tuple[Any, ...]], table: Any) -> Any:
    import pyarrow as pa

    arrays = [pa.array(values, type=kind) for values, kind in zip(zip(*rows, strict=True), table.types, strict=True)]
    return pa.record_batch(arrays, schema=table)


def _csv(journal: Reader, draft: Path) -> None:
    with draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for page in pages(journal):
            # Python writes a float with the digits that read back as the same number.
            writer.writerows(page)


def _jsonl(journal: Reader, draft: Path) -> None:
    with draft.open("w", encoding="utf-8") as file:
        file.writelines(_dumps(entry) + "\n" for entry in _entries(journal))


def _json(journal: Reader, draft: Path) -> None:
    parts: dict[str, Iterable[Any]] = {
        "tasks": map(_plain, journal.tasks()),
        "decisions": _entries(journal),
        "feedback": map(_plain, journal.feedback()),
        "events": map(_plain, journal.events()),
    }
    with draft.open("w", encoding="utf-8") as file:
        file.write('{"header": ' + _dumps(_header(journal)))
        for name, items in parts.items():
            file.write(f',\n"{name}": [')
            for at, item in enumerate(items):
                file.write((",\n" if at else "\n") + _dumps(item))
            file.write("]")
        file.write("}\n")


def _header(journal: Reader) -> dict[str, Any]:
    return _plain(journal.header) | {"schema_version": schema.VERSION}


def _entries(journal: Reader) -> Iterator[dict[str, Any]]:
    """Decisions with outcome and explanations inside."""
    for decision, outcome in journal.entries():
        found = _plain(decision)
        found["outcome"] = None if outcome is None else _plain(outcome)
        found["explanations"] = [_plain(each) for each in journal.explanations(decision.id)]
        yield found


def _plain(record: Any) -> dict[str, Any]:
    """A record as a mapping; what it holds is plain already."""
    return {item.name: getattr(record, item.name) for item in fields(record)}


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


WRITERS: dict[str, Callable[[Reader, Path], None]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _jsonl,
}
"""Ending → how it is written."""
