"""Plans to start from, and the improvement of a plan by small changes, everything priced in batches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MICROBATCH,
    MICROBATCHES,
    PP,
    PRECISION,
    SEGMENT_FIELDS,
    STOP,
    TP,
    PlanBatch,
)
from attribution_sched.planning.exact.problem import Problem

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

ROUNDS = 40
"""Most rounds of small changes."""

SHIFTS = (-4, -2, -1, 1, 2, 4)
"""How far a cut is moved."""


def evaluate(task: Problem, rows: IntArray, counts: IntArray) -> FloatArray:
    """Objective of many single-pipeline plans; infinite for those that do not fit, shape ``(n,)``."""
    if len(rows) == 0:
        return np.zeros(0)
    batch = PlanBatch(rows, counts, np.zeros(len(rows), dtype=np.int64))
    priced = task.cost.score(
        batch, task.model, bandwidth_gbps=task.bandwidth / BYTES_PER_GBIT, latency_s=task.latency_s, breakdown=False
    )
    goal = task.objective
    used = np.arange(rows.shape[1]) < counts[:, None]
    devices = (rows[:, :, DP] * rows[:, :, TP] * rows[:, :, PP] * used).sum(axis=1)
    value = goal.time * priced.step_s * (1.0 + goal.crowding * devices) - goal.utilisation * priced.utilisation
    value = value + goal.dollar * priced.bill_usd + goal.joule * priced.energy_j + goal.gram * priced.carbon_g
    return np.where(priced.fits & (priced.bill_usd <= goal.max_bill_usd), value, np.inf)


def single_plans(task: Problem, options: IntArray, allowed: BoolArray) -> tuple[IntArray, IntArray]:
    """Every plan inside one domain: rows ``(n, P, 10)`` and counts ``(n,)``."""
    levels = np.array(sorted(set(task.microbatches)))
    domain, option, level = (axis.ravel() for axis in np.indices((len(allowed), len(options), len(levels))))
    micro = levels[level]
    sound = allowed[domain, option] & (micro % options[option, 0] == 0)
    rows = np.zeros((int(sound.sum()), task.max_segments, len(SEGMENT_FIELDS)), dtype=np.int64)
    rows[:, 0, DOMAIN] = domain[sound]
    rows[:, 0, STOP] = task.n_layers
    rows[:, 0, [DP, TP, PP, PRECISION]] = options[option[sound]]
    rows[:, 0, MICROBATCH] = micro[sound]
    rows[:, 0, MICROBATCHES] = task.batch_size // micro[sound]
    return rows, np.ones(len(rows), dtype=np.int64)


def improve(
    task: Problem, options: IntArray, allowed: BoolArray, plan: IntArray, count: int, value: float
) -> tuple[IntArray, int, float]:
    """Change one cut, layout, domain or the microbatch of a plan at a time while that helps."""
    layout_fits = _layout_table(options, allowed)
    for _ in range(ROUNDS):
        rows = _neighbours(task, options, plan, count)
        rows = rows[_sound(rows[:, :count], layout_fits)]
        values = evaluate(task, rows, np.full(len(rows), count, dtype=np.int64))
        if len(values) == 0 or not values.min() < value:
            break
        plan, value = rows[int(np.argmin(values))], float(values.min())
    return plan, count, value


def _layout_table(options: IntArray, allowed: BoolArray) -> BoolArray:
    """Which layouts a domain may use, by log2 of dp, tp and pp, and format."""
    powers = np.log2(options[:, :3]).astype(int)
    table = np.zeros((len(allowed), *(powers.max(axis=0) + 1), int(options[:, 3].max()) + 1), dtype=bool)
    for domain, mask in enumerate(allowed):
        table[domain, powers[mask, 0], powers[mask, 1], powers[mask, 2], options[mask, 3]] = True
    return table


def _sound(rows: IntArray, layout_fits: BoolArray) -> BoolArray:
    """Which plans are well formed, shape ``(n,)``."""
    length = rows[:, :, STOP] - rows[:, :, FIRST]
    powers = np.log2(rows[:, :, [DP, TP, PP]]).astype(int)
    fits = layout_fits[rows[:, :, DOMAIN], powers[..., 0], powers[..., 1], powers[..., 2], rows[:, :, PRECISION]]
    divides = rows[:, :, MICROBATCH] % rows[:, :, DP] == 0
    sound: BoolArray = (fits & divides & (length >= rows[:, :, PP])).all(axis=1)
    return sound


def _neighbours(task: Problem, options: IntArray, plan: IntArray, count: int) -> IntArray:
    """All plans one small change away, sound or not, shape ``(n, P, 10)``."""
    found = []
    idle = np.setdiff1d(np.flatnonzero(task.free_devices > 0), plan[:count, DOMAIN])
    for p in range(count):
        layouts = np.repeat(plan[None], len(options), axis=0)
        layouts[:, p, [DP, TP, PP, PRECISION]] = options
        moved = np.repeat(plan[None], len(idle), axis=0)
        moved[:, p, DOMAIN] = idle
        found += [layouts, moved]
        if p + 1 < count:
            shifted = np.repeat(plan[None], len(SHIFTS) + 1, axis=0)
            shifted[:-1, p, STOP] += SHIFTS
            shifted[:-1, p + 1, FIRST] += SHIFTS
            shifted[-1, [p, p + 1], DOMAIN] = plan[[p + 1, p], DOMAIN]
            found.append(shifted)
    levels = np.array(sorted(set(task.microbatches)))
    others = np.repeat(plan[None], len(levels), axis=0)
    others[:, :count, MICROBATCH] = levels[:, None]
    others[:, :count, MICROBATCHES] = (task.batch_size // levels)[:, None]
    return np.concatenate([*found, others])
