"""Journals for other tools: a data frame, Parquet, CSV, JSON and JSON lines, each written whole or not at all.

Pages go from the journal to the file one by one, so memory does not grow with the journal. What is recorded while an
export runs may or may not be in it. Exported rows carry the hash of their row in the journal. What others wrote (names,
reasons) is made harmless: no cell of a CSV file is a formula, and no control or direction mark reaches a terminal.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.errors import JournalError, nearest, problem
from attribution_sched.journal import store
from attribution_sched.journal.store import draft_of

if TYPE_CHECKING:
    import pandas as pd

    from attribution_sched.journal.journal import Reader

COLUMNS: dict[str, type] = {
    "sequence": int,
    "decision_id": str,
    "task_id": str,
    "task_kind": str,
    "task_tenant": str,
    "task_priority": int,
    "task_deadline_s": float,
    "task_devices": int,
    "cluster_time_s": float,
    "policy": str,
    "source": str,
    "slot": int,
    "plan": dict,
    "action": dict,
    "attribution": dict,
    "view_digest": str,
    "latencies_s": dict,
    "w_eff": float,
    "w_util": float,
    "w_cost": float,
    "provenance": dict,
    "recorded_at": str,
    "hash": str,
    "r_eff": float,
    "r_util": float,
    "r_cost": float,
    "reward": float,
    "step_s": float,
    "bill_usd": float,
    "energy_j": float,
    "code": int,
    "outcome_provenance": str,
    "outcome_details": dict,
    "outcome_hash": str,
}
"""Columns and what they hold; ``dict`` is JSON. From ``r_eff`` on they are the outcome's, empty while it is pending.
Priority, deadline (on the cluster's clock) and devices are what whoever handed the task in asked for, else empty."""

TERMS = ("r_eff", "r_util", "r_cost", "reward", "step_s", "bill_usd", "energy_j", "code")

ROW_GROUP = 8192
"""Rows of one Parquet row group."""

UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
"""Characters that a reader does not see and a terminal or editor may obey: controls, marks of direction, separators."""

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""


ROWS = (
    f"SELECT d.sequence, {store.select('decisions', 'd')}, {store.select('outcomes', 'o')}, "
    f"{store.select('tasks', 't')} FROM decisions d LEFT JOIN outcomes o ON o.sequence = d.sequence "
    "LEFT JOIN tasks t ON t.id = d.task_id WHERE d.sequence >= ? AND d.sequence < ? ORDER BY d.sequence LIMIT ?"
)


def pages(journal: Reader, start: int = 0, stop: int | None = None) -> Iterator[list[tuple[Any, ...]]]:
    """Rows in the order of :data:`COLUMNS`, JSON as text, a page at a time; every row is checked by its digest."""
    widths = [len(store.columns(table)) + 3 for table in ("decisions", "outcomes", "tasks")]
    first, second = 1 + widths[0], 1 + widths[0] + widths[1]
    for entries in journal.pages(ROWS, start, stop):
        page = []
        for row in entries:
            decision = _known("decisions", row[1:first])
            outcome, task = _known("outcomes", row[first:second]), _known("tasks", row[second:])
            values = decision | {f"outcome_{name}": outcome[name] for name in ("provenance", "details", "hash")}
            values |= {name: outcome[name] for name in TERMS}
            values |= {"decision_id": decision["id"], "task_kind": task["kind"]} | _asked_for(task["meta"])
            page.append(tuple(values[name] for name in COLUMNS))
        yield page


def _asked_for(meta: str | None) -> dict[str, Any]:
    """Columns of what a task asked for, from what the journal keeps beside it."""
    details = store.load("meta", meta) or {}
    asked = details if (more := details.get("asked")) is None else {"tenant": details.get("tenant"), **more}
    return {f"task_{name}": asked.get(name) for name in ("tenant", "priority", "deadline_s", "devices")}


def _known(table: str, row: tuple[Any, ...]) -> dict[str, Any]:
    """A row's values as they are in the file, all None where there is no such row."""
    names = (*store.columns(table), "hash")
    if row[0] is None:
        return dict.fromkeys(names)
    store.check(table, row)
    return dict(zip(names, (*row[1:-2], row[-1].hex()), strict=True))


def frame(journal: Reader, start: int = 0, stop: int | None = None) -> pd.DataFrame:
    """The table in memory, indexed by ``sequence``.

    JSON columns hold plain objects, and each latency has a column of its own, ``latency_<part>_s``.
    """
    import pandas as pd

    kinds = {str: "string", int: "Int64", float: "float64", dict: "object"}
    rows = [row for page in pages(journal, start, stop) for row in page]
    made: dict[str, pd.Series[Any]] = {}
    for at, (name, kind) in enumerate(COLUMNS.items()):
        if name.endswith("hash"):
            # It covers clocks, too: two runs that are alike in all else differ in it.
            continue
        values = [store.load(name, row[at]) if kind is dict else row[at] for row in rows]
        if name == "latencies_s":
            for part in dict.fromkeys(part for value in values for part in value):
                made[f"latency_{part}_s"] = pd.Series([value.get(part) for value in values], dtype="float64")
        else:
            made[name] = pd.Series(values, dtype="int64" if name == "sequence" else kinds[kind])
    return pd.DataFrame(made).set_index("sequence")


def export(journal: Reader, path: Path) -> Path:
    """Write a journal in the format its new name ends in; a file of that name is replaced.

    Raises:
        JournalError: If the ending is not known, the target is the journal itself, or it cannot be written.
    """
    ending = path.suffix.lower()
    if ending not in WRITERS:
        raise JournalError(problem("export", str(path), f"ending {ending!r} is not known", nearest(ending, WRITERS)))
    try:
        if path.is_dir() or (journal.path is not None and path.exists() and path.samefile(journal.path)):
            what = "is a folder" if path.is_dir() else "is the journal itself"
            raise JournalError(problem("export", str(path), what, "Choose another name"))
        with draft_of(path) as draft:
            WRITERS[ending](journal, draft)
    except (OSError, ValueError) as error:
        rule = f"cannot be written ({getattr(error, 'strerror', None) or error})"
        raise JournalError(problem("export", str(path), rule, "Use a folder with room that can be written")) from error
    return path


def seen(value: str) -> str:
    r"""Text with what cannot be seen written as ``\uXXXX``; inside JSON, that is what JSON calls it too."""
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", value)


def _clean(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(seen(value) if type(value) is str else value for value in row)


def _cell(value: Any) -> Any:
    return f"'{value}" if type(value) is str and value.startswith(FORMULA) else value


def _parquet(journal: Reader, draft: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {int: pa.int64(), float: pa.float64(), str: pa.string(), dict: pa.string()}
    table = pa.schema({name: kinds[kind] for name, kind in COLUMNS.items()})
    table = table.with_metadata({"journal": _dumps(_header(journal))})
    with pq.ParquetWriter(draft, table, compression="zstd") as writer:
        held: list[tuple[Any, ...]] = []
        for page in itertools.chain(pages(journal), [None]):
            held += map(_clean, page or ())
            if held and (page is None or len(held) >= ROW_GROUP):
                values = zip(zip(*held, strict=True), table.types, strict=True)
                writer.write_batch(pa.record_batch([pa.array(each, type=kind) for each, kind in values], schema=table))
                held = []


def _csv(journal: Reader, draft: Path) -> None:
    with draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for page in pages(journal):
            # Python writes a float with the digits that read back as the same number. A mark of a formula that is no
            # printed character is written out by then, and begins none.
            writer.writerows([_cell(value) for value in _clean(row)] for row in page)


def _jsonl(journal: Reader, draft: Path) -> None:
    with draft.open("w", encoding="utf-8") as file:
        file.writelines(_dumps(entry) + "\n" for entry in _entries(journal))


def _json(journal: Reader, draft: Path) -> None:
    others = [name for name in store.TABLES if name not in ("header", "tasks", "decisions", "outcomes", "explanations")]
    parts: dict[str, Iterable[Any]] = {"tasks": _rows(journal, "tasks"), "decisions": _entries(journal)}
    parts |= {name: _rows(journal, name) for name in others}
    with draft.open("w", encoding="utf-8") as file:
        file.write('{"header": ' + _dumps(_header(journal)))
        for name, items in parts.items():
            file.write(f',\n"{name}": [')
            for at, item in enumerate(items):
                file.write((",\n" if at else "\n") + _dumps(item))
            file.write("]")
        file.write("}\n")


def _header(journal: Reader) -> dict[str, Any]:
    return _plain(journal.header) | {"schema_version": store.VERSION}


def _rows(journal: Reader, table: str) -> Iterator[dict[str, Any]]:
    for position, hash_, values in journal.chained(table):
        plain = {name: value.hex() if type(value) is bytes else value for name, value in values.items()}
        yield plain | {"position": position, "hash": hash_}


def _entries(journal: Reader) -> Iterator[dict[str, Any]]:
    """Decisions with outcome and explanations inside."""
    for decision, outcome, hash_, outcome_hash in journal.chained_entries():
        entry = _plain(decision) | {"hash": hash_}
        entry["outcome"] = None if outcome is None else _plain(outcome) | {"hash": outcome_hash}
        entry["explanations"] = [_plain(each) for each in journal.explanations(decision.id)]
        yield entry


def _plain(record: Any) -> dict[str, Any]:
    """A record as a mapping; what it holds is plain already."""
    return {item.name: getattr(record, item.name) for item in fields(record)}


def _dumps(value: Any) -> str:
    return seen(json.dumps(value, ensure_ascii=False, allow_nan=False))


WRITERS: dict[str, Callable[[Reader, Path], None]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _jsonl,
}
"""Ending → how it is written."""
