"""What a system came to, without clocks: two runs of which one was disturbed must give the same account."""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched import System
from attribution_sched.journal import Journal
from attribution_sched.journal.schema import TABLES

CLOCKS = {"recorded_at", "created_at", "seconds", "compute_time", "decision_s", "attribution_s"}
"""Names of what a clock says; it differs between any two runs."""

CLOCK_COLUMNS = {
    "created_at", "recorded_at", "opened_at", "latencies_s",  # what a clock said
    "journal_id", "writer",  # drawn anew for every journal: its keys must not meet those of another
    "digest", "hash",  # of rows, clocks included
}  # fmt: skip
"""Columns of a journal that differ between any two runs."""

SAVED = (*TABLES, "snapshot_data")
"""Tables of a journal."""

LASTING = ("feedback", "learnt")
"""Events that a disturbed run must have as often as one that was left alone; it has others besides (``resumed``)."""


def quick_folder() -> str | None:
    """Where files cost no disk, if there is such a place: kills and exceptions do not ask for one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def timeless(told: Any) -> Any:
    """A value without what clocks said."""
    if isinstance(told, dict):
        return {name: timeless(value) for name, value in told.items() if name not in CLOCKS}
    return [timeless(each) for each in told] if isinstance(told, list | tuple) else told


def decisions(journal: Journal) -> list[tuple[Any, ...]]:
    """Decisions with what they came to."""
    return [
        (d.id, d.sequence, d.task_id, d.cluster_time_s, d.action, d.slot, d.weights, d.plan, d.attribution,
         d.view_digest, None if o is None else (o.code, o.r_eff, o.r_util, o.r_cost, o.reward, o.step_s, o.details))
        for d, o in journal.entries()
    ]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Account:
    """Everything that must not differ.

    Attributes:
        parts: What the journal says, by table, the weights of the reward in force and those that decide.
        state: The cluster, array by array.
    """

    parts: dict[str, Any]
    state: dict[str, Any]

    def difference(self, other: Account) -> str:
        """What is different first; nothing: empty."""
        for name, mine in self.parts.items():
            theirs = other.parts[name]
            if mine != theirs:
                if isinstance(mine, list):
                    at = next((n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), -1)
                    mine, theirs = (
                        f"{len(mine)} rows, {mine[at : at + 1]}",
                        f"{len(theirs)} rows, {theirs[at : at + 1]}",
                    )
                return f"{name} differ: {str(mine)[:300]} | {str(theirs)[:300]}"
        for name, array in self.state.items():
            if not np.array_equal(array, other.state[name], equal_nan=array.dtype.kind == "f"):
                return f"the cluster's {name} differs"
        return ""


def journaled(journal: Journal) -> dict[str, Any]:
    """What a journal says, by table, without clocks."""
    taken = decisions(journal)
    return {
        "decisions": taken,
        "tasks": [(t.id, t.kind, t.steps, t.submitted_s, dict(t.meta)) for t in journal.tasks()],
        "feedback": [timeless(asdict(each)) for each in journal.feedback()],
        "events": [(e.kind, timeless(dict(e.details))) for e in journal.events() if e.kind in LASTING],
        "explanations": [
            timeless([(e.target, dict(e.explanation)) for e in journal.explanations(str(row[0]))]) for row in taken
        ],
    }


def rows(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table of a journal, column by column, but for what clocks said; snapshots by their bytes."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        found = {table: connection.execute(f"SELECT * FROM {table} ORDER BY position").fetchall() for table in SAVED}
    finally:
        connection.close()
    return {
        table: [{name: _timeless_column(row[name]) for name in row.keys() if name not in CLOCK_COLUMNS} for row in each]  # noqa: SIM118
        for table, each in found.items()
    }


def _timeless_column(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "["):
        return timeless(json.loads(value))
    return value


def account(system: System) -> Account:
    """What a system came to."""
    parts = journaled(system.journal) | {"reward": asdict(system.reward)}
    network = getattr(system.policy, "network", None)
    if network is not None:
        parts["weights"] = {name: weight.numpy().tobytes() for name, weight in network.state_dict().items()}
    state = system.cluster.engine.state
    return Account(parts, {name: getattr(state, name).copy() for name in state._fields})


def remove(path: Path) -> None:
    """A journal and what stands beside it."""
    for stale in path.parent.glob(f"{path.name}*"):
        stale.unlink()
