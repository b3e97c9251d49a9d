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


def energy(system: Source, found: Passed) -> Energy | None:
    """Attributions of the placed tasks; None if there is none."""
    if not found.attributions:
        return None
    last = next(reversed(found.attributions.values()))
    # A run could be resumed with another attributor: vectors that do not fit the newest are left out.
    alike = [name for name, one in found.attributions.items() if _sort(one) == _sort(last)]
    facts = last.get("provenance", {})
    return Energy(
        counters=tuple(last["names"]),
        unit=str(last["units"]),
        provenance="estimated",
        method=str(last["method"]),
        question=str(last.get("question", "conditional")),
        median_error=facts.get("median_error"),
        fitted_on=facts.get("tasks"),
        tasks=tuple(_task(system, found, name) for name in alike[-MOST_TASKS:]),
        left_out=len(found.attributions) - len(alike[-MOST_TASKS:]),
    )


def _sort(told: Mapping[str, Any]) -> tuple[Any, ...]:

    return tuple(told["names"]), told["units"], told.get("question", "conditional")


def _task(system: Source, found: Passed, name: str) -> TaskEnergy:
    task, told = found.tasks[name], found.attributions[name]
    kind = system.world.kinds[int(task.meta["kind_index"])]
    return TaskEnergy(
        task=name,
        kind=task.kind,
        training=kind.training,
        samples=float(task.steps) * kind.batch_size,
        base=float(told["base"]),
        predicted=float(told["prediction"]),
        parts=tuple(float(part) for part in told["values"]),
        errors=tuple(float(error) for error in told["standard_error"]),
        counters=found.counters[name],
    )
