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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.errors import nearest
from attribution_sched.journal.faults import fault
from attribution_sched.journal.file import draft_of
from attribution_sched.journal.kinds import checked, load
from attribution_sched.journal.rows import Row, check
from attribution_sched.journal.schema import TABLES, VERSION, columns

if TYPE_CHECKING:
    import pandas as pd

    from attribution_sched.journal.reader import Reader

TERMS = ("r_eff", "r_util", "r_cost", "reward", "step_s", "bill_usd", "energy_j", "code")

NAMES = """
sequence:int decision_id task_id task_kind task_tenant task_priority:int task_deadline_s:float task_devices:int
cluster_time_s:float policy source slot:int plan:dict action:dict attribution:dict view_digest latencies_s:dict
w_eff:float w_util:float w_cost:float provenance:dict recorded_at hash
r_eff:float r_util:float r_cost:float reward:float step_s:float bill_usd:float energy_j:float code:int
outcome_provenance outcome_details:dict outcome_hash
"""

COLUMNS: dict[str, type] = {
    name: {"int": int, "float": float, "dict": dict, "": str}[kind]
    for name, _, kind in (word.partition(":") for word in NAMES.split())
}
"""Columns and what they hold; ``dict`` is JSON. From ``r_eff`` on they are the outcome's, empty while it is pending.
Priority, deadline (on the cluster's clock) and devices are what whoever handed the task in asked for, else empty."""

ROW_GROUP = 8192
"""Rows of one Parquet row group."""

UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
"""Characters that a reader does not see and a terminal or editor may obey: controls, marks of direction, separators."""

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""


def rows(journal: Reader, start: int = 0, stop: int | None = None) -> Iterator[Row]:
    """One row per decision in the order of :data:`COLUMNS`, JSON as text; every row is checked by its digest."""
    for entry in journal.joined(("outcomes", "tasks"), start, stop):
        decision, outcome, task = map(_stored, ("decisions", "outcomes", "tasks"), entry)
        meta = checked("meta", load, task["meta"] or "{}")
        wishes = meta if (more := meta.get("asked")) is None else {"tenant": meta.get("tenant"), **more}
        values = decision | {"decision_id": decision["id"], "task_kind": task["kind"]}
        values |= {f"task_{name}": wishes.get(name) for name in ("tenant", "priority", "deadline_s", "devices")}
        values |= {f"outcome_{name}": outcome[name] for name in ("provenance", "details", "hash")}
        values |= {name: outcome[name] for name in TERMS}
        yield tuple(values[name] for name in COLUMNS)


def _stored(table: str, row: Row) -> dict[str, Any]:
    """A row's values as they are in the file, all None where there is no such row."""
    if row[0] is not None:
        check(table, row)
        row = (*row[:-1], row[-1].hex())
    return dict(zip(columns(table), row, strict=True))


def frame(journal: Reader, start: int = 0, stop: int | None = None) -> pd.DataFrame:
    """The table in memory, indexed by ``sequence``.

    JSON columns hold plain objects, and each latency has a column of its own, ``latency_<part>_s``.
    """
    import pandas as pd

    kinds = {str: "string", int: "Int64", float: "float64", dict: "object"}
    by_column = zip(*rows(journal, start, stop), strict=True)
    table: dict[str, pd.Series[Any]] = {}
    for name, kind in COLUMNS.items():
        values: Any = next(by_column, ())
        if kind is dict:
            values = [value and checked(name, load, value) for value in values]
        if name == "latencies_s":
            for part in dict.fromkeys(part for value in values for part in value):
                table[f"latency_{part}_s"] = pd.Series([value.get(part) for value in values], dtype="float64")
        elif not name.endswith("hash"):  # It covers clocks, too: two runs that are alike in all else differ in it.
            table[name] = pd.Series(values, dtype="int64" if name == "sequence" else kinds[kind])
    return pd.DataFrame(table).set_index("sequence")


def export(journal: Reader, path: Path) -> Path:
    """Write a journal in the format its new name ends in; a file of that name is replaced.

    Raises:
        JournalError: If the ending is not known, the target is the journal itself, or it cannot be written.
    """
    ending = path.suffix.lower()
    if ending not in WRITERS:
        raise fault("export", str(path), f"ending {ending!r} is not known", nearest(ending, WRITERS))
    try:
        if path.is_dir() or (journal.path is not None and path.exists() and path.samefile(journal.path)):
            what = "is a folder" if path.is_dir() else "is the journal itself"
            raise fault("export", str(path), what, "Choose another name")
        with draft_of(path) as draft:
            WRITERS[ending](journal, draft)
    except (OSError, ValueError) as error:
        raise fault(
            "export",
            str(path),
            f"cannot be written ({getattr(error, 'strerror', None) or error})",
            "Use a folder with room that can be written",
        ) from error
    return path


def seen(value: Any) -> Any:
    r"""Text with what cannot be seen written as ``\uXXXX``; inside JSON, that is what JSON calls it too."""
    return UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", value) if type(value) is str else value


def _parquet(journal: Reader, draft: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {int: pa.int64(), float: pa.float64(), str: pa.string(), dict: pa.string()}
    table = pa.schema({name: kinds[kind] for name, kind in COLUMNS.items()})
    table = table.with_metadata({"journal": _dumps(_header(journal))})
    with pq.ParquetWriter(draft, table, compression="zstd") as writer:
        lines = rows(journal)
        while group := list(itertools.islice(lines, ROW_GROUP)):
            values = zip(zip(*group, strict=True), table.types, strict=True)
            arrays = [pa.array(map(seen, each), type=kind) for each, kind in values]
            writer.write_batch(pa.record_batch(arrays, schema=table))


def _csv(journal: Reader, draft: Path) -> None:
    with draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows(journal):
            # Python writes a float with the digits that read back as the same number. A mark of a formula that is no
            # printed character is written out by then, and begins none.
            cells = [seen(value) for value in row]
            writer.writerow(f"'{each}" if type(each) is str and each.startswith(FORMULA) else each for each in cells)


def _jsonl(journal: Reader, draft: Path) -> None:
    with draft.open("w", encoding="utf-8") as file:
        file.writelines(_dumps(entry) + "\n" for entry in _entries(journal))


def _json(journal: Reader, draft: Path) -> None:
    parts: dict[str, Iterable[Any]] = {"tasks": _rows(journal, "tasks"), "decisions": _entries(journal)}
    for name in TABLES:
        if name not in ("header", "tasks", "decisions", "outcomes", "explanations"):
            parts[name] = _rows(journal, name)
    with draft.open("w", encoding="utf-8") as file:
        file.write('{"header": ' + _dumps(_header(journal)))
        for name, items in parts.items():
            file.write(f',\n"{name}": [')
            for at, item in enumerate(items):
                file.write((",\n" if at else "\n") + _dumps(item))
            file.write("]")
        file.write("}\n")


def _header(journal: Reader) -> dict[str, Any]:
    return vars(journal.header) | {"schema_version": VERSION}


def _rows(journal: Reader, table: str) -> Iterator[dict[str, Any]]:
    for position, hash_, values in journal.chained(table):
        plain = {name: value.hex() if type(value) is bytes else value for name, value in values.items()}
        yield plain | {"position": position, "hash": hash_}


def _entries(journal: Reader) -> Iterator[dict[str, Any]]:
    """Decisions with outcome and explanations inside."""
    for decision, outcome, hash_, outcome_hash in journal.chained_entries():
        entry = vars(decision) | {"hash": hash_}
        entry["outcome"] = None if outcome is None else vars(outcome) | {"hash": outcome_hash}
        entry["explanations"] = list(map(vars, journal.explanations(decision.id)))
        yield entry


def _dumps(value: Any) -> str:
    return str(seen(json.dumps(value, ensure_ascii=False, allow_nan=False)))


WRITERS: dict[str, Callable[[Reader, Path], None]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _jsonl,
}
"""Ending → how it is written."""
