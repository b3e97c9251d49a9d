"""Rows of a journal as the page and the API tell them; nothing of the simulation is loaded for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attribution_sched.journal import DecisionRecord, Journal, OutcomeRecord

CODES: Mapping[int, str] = {1: "placed", 2: "moved"}
OBSERVED = frozenset({"started", "measured", "finished", "failed"})
"""What a real cluster reports of a task, by the word the journal keeps it under."""


def measured_of(journal: Journal, key: str) -> dict[str, Any]:
    """What was reported of a launched decision, the newest of each figure."""
    figures: dict[str, Any] = {}
    for intent in journal.intents():
        if intent.kind in OBSERVED and intent.details.get("key") == key:
            figures |= observed_figures(intent.kind, intent.details)
    return figures


def observed_figures(kind: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one report."""
    moment = ("key", "name", "came", "deciding")
    return {name: value for name, value in details.items() if name not in moment and value is not None} | {
        "state": kind
    }


FIGURES: tuple[tuple[str, str, str], ...] = (
    ("step", "step_s", "step_s"), ("start", "cluster_time_s", "start_s"), ("end", "", "end_s"),
    ("launch", "", "launch_s"), ("bytes", "", "bytes"), ("cpu", "", "cpu_s"), ("job_cpu", "", "job_cpu_s"),
    ("memory", "", "job_max_rss_bytes"), ("energy", "energy_j", ""), ("bill", "bill_usd", ""), ("r_eff", "r_eff", ""),
    ("r_util", "r_util", ""), ("r_cost", "r_cost", ""), ("reward", "reward", ""),
)  # fmt: skip
"""Figures of a card: its name in ``serve.figure``, the field of the decision, the field of what was measured."""


def side_by_side(told: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Figures of a decision, those that are known: the name of each, as predicted, as measured."""
    measured = told["measured"]
    rows = [(name, told.get(predicted), measured.get(other)) for name, predicted, other in FIGURES]
    return [row for row in rows if row[1] is not None or row[2] is not None]


def decision_row(decision: DecisionRecord, outcome: OutcomeRecord | None, key: str) -> dict[str, Any]:
    """A decision as the page and the API tell it."""
    plan = decision.plan or {}
    vector = decision.attribution or {}
    named = zip(vector.get("names", ()), vector.get("values", ()), vector.get("standard_error", ()), strict=False)
    parts = sorted(named, key=lambda part: -abs(part[1]))
    row: dict[str, Any] = {
        "id": decision.id, "key": key, "task": decision.task_id, "cluster_time_s": decision.cluster_time_s,
        "recorded_at": decision.recorded_at, "policy": decision.policy, "source": decision.source,
        "plan": plan.get("words", ""), "segments": [
            {**segment, "replica": at} for at, replica in enumerate(plan.get("replicas", ()))
            for segment in replica["segments"]
        ],
        "attribution": [{"name": str(n), "value": float(v), "standard_error": float(e)} for n, v, e in parts],
        "units": str(vector.get("units", "")),
        "weights": decision.weights, "latencies_s": dict(decision.latencies_s), "pending": outcome is None,
        "result": "pending", "provenance": dict(decision.provenance), "measured": {},
    }  # fmt: skip
    if outcome is not None:
        row |= {
            "result": CODES.get(outcome.code, "kept" if outcome.code >= 0 else "refused"),
            "step_s": outcome.step_s, "energy_j": outcome.energy_j, "bill_usd": outcome.bill_usd,
            "r_eff": outcome.r_eff, "r_util": outcome.r_util, "r_cost": outcome.r_cost, "reward": outcome.reward,
            "base_step_s": outcome.details.get("base_step_s"), "steps": outcome.details.get("steps"),
        }  # fmt: skip
    return row
