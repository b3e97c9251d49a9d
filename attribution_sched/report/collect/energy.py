"""Where the joules of the placed tasks go, counter by counter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attribution_sched.report.collect.passing import Passed
from attribution_sched.report.data import Energy, TaskEnergy

if TYPE_CHECKING:
    from attribution_sched.report.source import Source

MOST_TASKS = 500
"""Tasks that are told one by one, the newest."""


def energy(system: Source, journaled: Passed) -> Energy | None:
    """Attributions of the placed tasks; None if there is none."""
    if not journaled.attributions:
        return None
    last = next(reversed(journaled.attributions.values()))
    # A run could be resumed with another attributor: vectors that do not fit the newest are left out.
    alike = [name for name, one in journaled.attributions.items() if _sort(one) == _sort(last)]
    facts = last.get("provenance", {})
    return Energy(
        counters=tuple(last["names"]),
        unit=str(last["units"]),
        provenance="estimated",
        method=str(last["method"]),
        question=str(last.get("question", "conditional")),
        median_error=facts.get("median_error"),
        fitted_on=facts.get("tasks"),
        tasks=tuple(_task(system, journaled, name) for name in alike[-MOST_TASKS:]),
        left_out=len(journaled.attributions) - len(alike[-MOST_TASKS:]),
    )


def _sort(vector: Mapping[str, Any]) -> tuple[Any, ...]:

    return tuple(vector["names"]), vector["units"], vector.get("question", "conditional")


def _task(system: Source, journaled: Passed, name: str) -> TaskEnergy:
    task, vector = journaled.tasks[name], journaled.attributions[name]
    kind = system.world.kinds[int(task.meta["kind_index"])]
    return TaskEnergy(
        task=name,
        kind=task.kind,
        training=kind.training,
        samples=float(task.steps) * kind.batch_size,
        base=float(vector["base"]),
        predicted=float(vector["prediction"]),
        parts=tuple(float(part) for part in vector["values"]),
        errors=tuple(float(error) for error in vector["standard_error"]),
        counters=journaled.counters[name],
    )
