"""What moving a running task costs: sending the state of layers to domains that do not hold them yet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.memory import state_bytes_per_parameter
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import TaskKind

FloatArray = NDArray[np.float64]


def move_cost(
    kind: TaskKind, old: Plan, new: Plan, bytes_per_s: FloatArray, usd_per_byte: FloatArray
) -> tuple[float, float]:
    """Seconds and dollars of carrying a task's state from one plan to another.

    A copy comes from the first domain that has it; different links send side by side.

    Args:
        kind: The task.
        old: Plan in force.
        new: Plan to come.
        bytes_per_s: WAN bandwidth now, shape ``(K, K)``.
        usd_per_byte: Egress price, shape ``(K, K)``.
    """
    moved = np.zeros_like(bytes_per_s)
    params = kind.model.column("params")
    for target in new.segments:
        each = state_bytes_per_parameter(float(target.precision.element_bytes), kind.training, 0, 1.0)
        for layer in range(target.first, target.stop):
            holders = [s.domain for s in old.segments if s.first <= layer < s.stop]
            if target.domain not in holders:
                moved[holders[0], target.domain] += params[layer] * each
    sent = moved > 0.0
    return float((moved[sent] / bytes_per_s[sent]).max(initial=0.0)), float((moved * usd_per_byte)[sent].sum())
