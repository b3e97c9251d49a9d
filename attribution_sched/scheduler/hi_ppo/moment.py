"""What is worked out of a decision before anybody weighs it: by both agents, and by the trees that stand for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.kernels import kernel
from attribution_sched.scheduler.hi_ppo.action_masks import log2_floor
from attribution_sched.scheduler.hi_ppo.lower_agent import step_s, write_pace
from attribution_sched.types import FloatArray

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.upper_agent import Agents, Seen

NEVER_H = 48.0
"""Nothing is released within this many hours."""


@kernel
def write_moment(a: Agents, s: Seen, candidates: int, running: bool, z: FloatArray) -> None:
    """Write devices, free ones, hours to the next release, large models that wait for room, hours of those waiting."""
    z[0], z[1], z[2], z[3], z[4] = 0.0, 0.0, NEVER_H, 0.0, 0.0
    for k in range(s.free.size):
        z[0] += a.devices[k]
        z[1] += s.free[k]
        z[2] = min(z[2], s.release_h[k])
    for q in range(candidates):
        if s.kind[q] >= 0:
            write_pace(a, s, q)
            # A model that no domain holds, and for which too few domains are free.
            if a.nominal_s[s.kind[q]] == a.base_s[s.kind[q]] and not s.fits[q]:
                z[3] += 1.0
            if not running:
                z[4] += s.left[q] * a.nominal_s[s.kind[q]] * np.exp(s.pace[q]) / 3600.0


@kernel
def fastest_s(a: Agents, s: Seen, q: int) -> float:
    """Seconds of a step on the fastest layout on offer; infinite if no single domain holds the task now."""
    found = np.inf
    for k in range(s.free.size):
        if s.free[k] > 0:
            for j in range(min(log2_floor(s.free[k]), a.table.seconds.shape[2] - 1) + 1):
                found = min(found, step_s(a.table, s.kind[q], a.domain_class[k], j, s.factors[q]))
    return float(found)


@kernel
def end_after_release(a: Agents, s: Seen, q: int) -> tuple[float, float]:
    """Hours until a task would end if it waited for the release that lets it end first, and until that release."""
    later_h, release_h = NEVER_H, NEVER_H
    for k in range(s.free.size):
        if s.release_h[k] < NEVER_H and s.release_devices[k] > s.free[k]:
            room = min(log2_floor(s.release_devices[k]), a.table.seconds.shape[2] - 1)
            then_s = step_s(a.table, s.kind[q], a.domain_class[k], room, s.factors[q])
            then_h = s.release_h[k] + s.left[q] * then_s / 3600.0
            if then_h < later_h:
                later_h, release_h = then_h, s.release_h[k]
    return later_h, release_h
