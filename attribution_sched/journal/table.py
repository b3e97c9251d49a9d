"""A journal as a table: one row per decision, with its task's kind and what it came to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from attribution_sched.journal.values import load

if TYPE_CHECKING:
    import pandas as pd

    from attribution_sched.journal.reader import Reader

COLUMNS: dict[str, type] = {
    "sequence": int,
    "decision_id": str,
    "task_id": str,
    "task_kind": str,
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
}
"""Columns and what they hold; ``dict`` is JSON. From ``r_eff`` on they are the outcome's, empty while it is pending."""

ROWS = (
    "SELECT d.sequence, d.id, d.task_id, t.kind, d.cluster_time_s, d.policy, d.source, d.slot, d.plan, d.action, "
    "d.attribution, d.view_digest, d.latencies_s, d.w_eff, d.w_util, d.w_cost, d.provenance, d.recorded_at, "
    "o.r_eff, o.r_util, o.r_cost, o.reward, o.step_s, o.bill_usd, o.energy_j, o.code, o.provenance, o.details "
    "FROM decisions d LEFT JOIN outcomes o ON o.sequence = d.sequence LEFT JOIN tasks t ON t.id = d.task_id "
    "WHERE d.sequence >= ? AND d.sequence < ? ORDER BY d.sequence LIMIT ?"
)


def pages(journal: Reader, start: int = 0, stop: int | None = None) -> Iterator[list[tuple[Any, ...]]]:
    """Rows in the order of :data:`COLUMNS`, JSON as text, a page at a time."""
    return journal.table_pages(ROWS, start, stop)


def frame(journal: Reader, start: int = 0, stop: int | None = None) -> pd.DataFrame:
    """The table in memory, indexed by ``sequence``.

    JSON columns hold plain objects, and each latency has a column of its own, ``latency_<part>_s``.
    """
    import pandas as pd

    kinds = {str: "string", int: "Int64", float: "float64", dict: "object"}
    rows = [row for page in pages(journal, start, stop) for row in page]
    made: dict[str, pd.Series[Any]] = {}
    for at, (name, kind) in enumerate(COLUMNS.items()):
        values = [load(name, row[at]) if kind is dict else row[at] for row in rows]
        if name == "latencies_s":
            for part in dict.fromkeys(part for value in values for part in value):
                made[f"latency_{part}_s"] = pd.Series([value.get(part) for value in values], dtype="float64")
        else:
            made[name] = pd.Series(values, dtype="int64" if name == "sequence" else kinds[kind])
    return pd.DataFrame(made).set_index("sequence")
