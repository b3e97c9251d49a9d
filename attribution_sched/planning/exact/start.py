"""Plans for an exact search to start from, improved by local search under its objective."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    MICROBATCH,
    MICROBATCHES,
    PP,
    PRECISION,
    SEGMENT_FIELDS,
    STOP,
    TP,
    PlanBatch,
)
from attribution_sched.cluster.validity import limits_of
from attribution_sched.planning.exact.problem import Problem
from attribution_sched.planning.local_search import Candidate, descend
from attribution_sched.planning.neighbours import ONE_PIPELINE, Neighbourhood

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

ROUNDS = 40
"""Most rounds of small changes."""


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
    value = goal.time * priced.step_s * (1.0 + goal.queue_pressure * devices) - goal.utilisation * priced.utilisation
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


def improve(task: Problem, options: IntArray, plan: IntArray, count: int, value: float) -> tuple[IntArray, int, float]:
    """Change one cut, layout, domain or the microbatch of a pipeline at a time while that lowers the objective."""
    layouts = options[options[:, 3] == options[0, 3], :3]
    near = Neighbourhood(task.free_devices, layouts, task.microbatches, np.unique(options[:, 3]).tolist())

    def worth(rows: IntArray, counts: IntArray) -> FloatArray:
        rows[:, :, MICROBATCHES] = task.batch_size // np.maximum(1, rows[:, :, MICROBATCH])
        return -evaluate(task, rows, counts)

    found = descend(
        Candidate(plan, count, -value), functools.partial(near.one_change, moves=ONE_PIPELINE),
        limits_of(task.cost, task.model, task.free_devices), worth, ROUNDS,
    )  # fmt: skip
    return found.rows, found.used, -found.reward
