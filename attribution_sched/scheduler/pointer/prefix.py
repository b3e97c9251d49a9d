"""Unfinished plans: what is placed so far, what may come next, and how each choice looks to the network.

A plan is written as a sequence: a domain, (where a replica begins) its microbatch, a layout, one past the last layer;
then the next domain, or the end. All functions take H unfinished plans of one decision at once. Masks rule out what the
cluster would refuse whatever follows: domains in use or full, layouts without room or hardware, cuts that leave layers
nobody can take.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MICROBATCH,
    PP,
    PRECISION,
    REPLICA,
    SEGMENT_FIELDS,
    STOP,
    TP,
)
from attribution_sched.scheduler.pointer.features import (
    EDGE_NAMES,
    OPTION_NAMES,
    DecisionFeatures,
    log_ratio,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

CONTEXT_NAMES: tuple[str, ...] = (
    "complete", "work_left", "segments", "segments_left", "replica", "slowest", "has_segments", "memory_left",
    "speed_left",
)  # fmt: skip
DOMAIN_NAMES: tuple[str, ...] = (
    *(f"there_{name}" for name in EDGE_NAMES), *(f"back_{name}" for name in EDGE_NAMES),
    "linked", "complete", "time", "fill", "fits", "slower_than_slowest",
)  # fmt: skip
MICRO_NAMES: tuple[str, ...] = ("samples", "microbatches", "level", "time", "slower_than_best", "fill")
OPTION_CHOICE_NAMES: tuple[str, ...] = (
    *OPTION_NAMES,
    "slower_than_best",
    "fill_of_rest",
    "fits",
    "slower_than_slowest",
)
CUT_NAMES: tuple[str, ...] = (
    "depth", "work", "share_of_rest", "last", "time", "fill", "fits", "slower_than_slowest", "boundary", "fill_ratio",
)  # fmt: skip
"""Columns that describe an unfinished plan and each choice."""

CONTEXT, DOMAIN_CHOICE, MICRO_CHOICE, OPTION_CHOICE, CUT_CHOICE = map(
    len, (CONTEXT_NAMES, DOMAIN_NAMES, MICRO_NAMES, OPTION_CHOICE_NAMES, CUT_NAMES)
)


@dataclass(frozen=True, eq=False)
class Prefixes:
    """H unfinished plans of one decision.

    Attributes:
        rows: Segments so far, shape ``(H, P, 10)``, number of microbatches left 0.
        counts: Segments so far, shape ``(H,)``.
        used: Domains in use, shape ``(H, K)``.
        at: Layers covered by the current replica, shape ``(H,)``; all of them when it is complete.
        last: Domain of the last segment, −1 before the first, shape ``(H,)``.
        level: Microbatch size of the current replica as an index, shape ``(H,)``.
        slowest: Longest time of a segment over the baseline's step, as estimated, shape ``(H,)``.
    """

    rows: IntArray
    counts: IntArray
    used: BoolArray
    at: IntArray
    last: IntArray
    level: IntArray
    slowest: FloatArray

    def __len__(self) -> int:
        return len(self.counts)

    def take(self, index: IntArray) -> Prefixes:
        """Pick unfinished plans, possibly several times."""
        return Prefixes(
            self.rows[index], self.counts[index], self.used[index], self.at[index], self.last[index],
            self.level[index], self.slowest[index],
        )  # fmt: skip


def empty(task: DecisionFeatures, n: int = 1) -> Prefixes:
    """Begin ``n`` plans."""
    zero = np.zeros(n, dtype=np.int64)
    rows = np.zeros((n, task.max_segments, len(SEGMENT_FIELDS)), dtype=np.int64)
    return Prefixes(rows, zero, np.zeros((n, len(task.open)), dtype=bool), zero, zero - 1, zero, np.zeros(n))


def complete(task: DecisionFeatures, plans: Prefixes) -> BoolArray:
    """Which plans cover every layer and may end, shape ``(H,)``."""
    done: BoolArray = plans.at == task.n_layers
    return done


def begins(task: DecisionFeatures, plans: Prefixes) -> BoolArray:
    """Which plans begin a replica with their next segment, shape ``(H,)``."""
    fresh: BoolArray = (plans.counts == 0) | complete(task, plans)
    return fresh


def _start(task: DecisionFeatures, plans: Prefixes) -> IntArray:
    """First layer of the next segment, shape ``(H,)``."""
    return np.where(complete(task, plans), 0, plans.at)


def context(task: DecisionFeatures, plans: Prefixes) -> FloatArray:
    """Describe the unfinished plans, shape ``(H, 9)``."""
    start = _start(task, plans)
    left = task.max_segments - plans.counts
    rest, rest_params = 1.0 - task.work[start], 1.0 - task.params[start]
    vacant = task.open & ~plans.used
    holds = _best_sum(np.where(vacant, 1.0 / task.least_fill, 0.0), left)
    speed = _best_sum(np.where(vacant, 1.0 / task.best_time, 0.0), left)
    return np.column_stack([
        complete(task, plans) * 1.0, rest, plans.counts / 4.0, left / 4.0,
        plans.rows[np.arange(len(plans)), np.maximum(0, plans.counts - 1), REPLICA] / 2.0,
        np.where(plans.slowest > 0, log_ratio(plans.slowest), 0.0), (plans.slowest > 0) * 1.0,
        log_ratio(holds / np.maximum(rest_params, 1e-3)), log_ratio(speed / np.maximum(rest, 1e-3)),
    ])  # fmt: skip


def _best_sum(values: FloatArray, counts: IntArray) -> FloatArray:
    """Sum of the ``counts[h]`` largest values of each row."""
    ranked = -np.sort(-values, axis=1)
    total: FloatArray = np.where(np.arange(values.shape[1]) < counts[:, None], ranked, 0.0).sum(axis=1)
    return total


def domain_choices(task: DecisionFeatures, plans: Prefixes) -> tuple[FloatArray, BoolArray]:
    """Describe every domain as the next one, shape ``(H, K, 16)``, and say which may be, shape ``(H, K + 1)``.

    The last column is the end.
    """
    done = complete(task, plans)
    mask = task.open & ~plans.used & (plans.counts < task.max_segments)[:, None]
    linked = plans.last >= 0
    near = np.maximum(0, plans.last)
    there, back = task.edges[near], task.edges[:, near].swapaxes(0, 1)
    start = _start(task, plans)
    rest, rest_params = 1.0 - task.work[start], 1.0 - task.params[start]
    time = np.where(task.open, task.best_time, 1e6) * rest[:, None]
    fill = np.where(task.open, task.least_fill, 1e6) * rest_params[:, None]
    slower = np.where(plans.slowest[:, None] > 0, time / np.maximum(plans.slowest[:, None], 1e-6), 1.0)
    flags = np.broadcast_to(np.column_stack([linked, done])[:, None, :], (*time.shape, 2))
    found = np.concatenate([
        np.where(linked[:, None, None], there, 0.0), np.where(linked[:, None, None], back, 0.0), flags,
        np.stack([log_ratio(time), log_ratio(fill), (fill < 1.0) * 1.0, log_ratio(slower)], axis=-1),
    ], axis=-1)  # fmt: skip
    return found, np.column_stack([mask, done])


def micro_choices(task: DecisionFeatures, plans: Prefixes, domain: IntArray) -> tuple[FloatArray, BoolArray]:
    """Describe every microbatch size of a replica that begins in a domain, shape ``(H, M, 6)``; all may be chosen."""
    usable = task.allowed[:, None, :] & task.divides
    time = np.where(usable, task.time, 1e6).min(axis=2)
    fill = np.where(usable, task.state_fill + task.kept_fill, 1e6).min(axis=2)
    m = len(task.microbatches)
    shape = (len(plans), m)
    own = np.stack([
        np.log2(task.microbatches) / 4.0, np.log2(task.batch_size / task.microbatches) / 4.0,
        np.arange(m) / max(1, m - 1),
    ], axis=-1)  # fmt: skip
    relative = time / time.min(axis=1, keepdims=True)
    looks = np.stack([log_ratio(time), log_ratio(relative), log_ratio(fill)], axis=-1)[domain]
    found = np.concatenate([np.broadcast_to(own, (*shape, 3)), looks], axis=-1)
    return found, np.broadcast_to(np.asarray(usable.any(axis=2))[domain], shape)


def option_choices(
    task: DecisionFeatures, plans: Prefixes, domain: IntArray, level: IntArray
) -> tuple[FloatArray, BoolArray]:
    """Describe every layout for the next segment, shape ``(H, O, 18)``, and say which may be, shape ``(H, O)``."""
    start = _start(task, plans)
    rest, rest_params = 1.0 - task.work[start], 1.0 - task.params[start]
    mask = task.allowed[domain] & task.divides[level] & (task.options[:, 2] <= (task.n_layers - start)[:, None])
    time = task.time[domain, level] * rest[:, None]
    fill = task.state_fill[domain, level] * rest_params[:, None] + task.kept_fill[domain, level] * rest[:, None]
    quickest = np.where(mask, time, np.inf).min(axis=1, keepdims=True)
    slower = np.where(plans.slowest[:, None] > 0, time / np.maximum(plans.slowest[:, None], 1e-6), 1.0)
    found = np.concatenate([
        task.option_rows[domain, level],
        np.stack([log_ratio(time / quickest), log_ratio(fill), (fill < 1.0) * 1.0, log_ratio(slower)], axis=-1),
    ], axis=-1)  # fmt: skip
    return found, mask


def cut_choices(
    task: DecisionFeatures, plans: Prefixes, domain: IntArray, level: IntArray, option: IntArray
) -> tuple[FloatArray, BoolArray]:
    """Describe every layer before which the next segment may stop, shape ``(H, N, 10)``, and say which may be.

    Column n stands for ``stop = n + 1``; the last one completes the replica.
    """
    n = task.n_layers
    start = _start(task, plans)
    stops = np.arange(1, n + 1)
    left = task.max_segments - plans.counts - 1
    others = (task.open & ~plans.used).sum(axis=1) - 1
    last = stops == n
    mask = (stops >= start[:, None] + task.options[option, 2][:, None]) & (last | ((left > 0) & (others > 0))[:, None])
    taken = task.work[1:] - task.work[start][:, None]
    taken_params = task.params[1:] - task.params[start][:, None]
    pick = (domain, level, option)
    time = task.time[pick][:, None] * np.maximum(taken, 0.0)
    fill = task.state_fill[pick][:, None] * np.maximum(taken_params, 0.0)
    fill = fill + task.kept_fill[pick][:, None] * np.maximum(taken, 0.0)
    slower = np.where(plans.slowest[:, None] > 0, time / np.maximum(plans.slowest[:, None], 1e-6), 1.0)
    rest = (1.0 - task.work[start])[:, None]
    shape = time.shape
    found = np.stack([
        np.broadcast_to(task.work[1:], shape), taken, taken / np.maximum(rest, 1e-6),
        np.broadcast_to(last * 1.0, shape), log_ratio(time), log_ratio(fill), (fill < 1.0) * 1.0,
        log_ratio(slower), np.broadcast_to(task.boundary[1:], shape), np.clip(fill, 0.0, 2.0),
    ], axis=-1)  # fmt: skip
    return found, mask


def advance(
    task: DecisionFeatures, plans: Prefixes, domain: IntArray, level: IntArray, option: IntArray, stop: IntArray
) -> Prefixes:
    """Add a segment to every unfinished plan.

    Args:
        task: The decision.
        plans: Unfinished plans.
        domain: Where the segment runs, shape ``(H,)``.
        level: Index of its microbatch size, shape ``(H,)``.
        option: Row of its layout, shape ``(H,)``.
        stop: One past its last layer, shape ``(H,)``.
    """
    h = np.arange(len(plans))
    start = _start(task, plans)
    previous = plans.rows[h, np.maximum(0, plans.counts - 1), REPLICA]
    rows = plans.rows.copy()
    new = np.zeros((len(plans), rows.shape[2]), dtype=np.int64)
    new[:, DOMAIN], new[:, FIRST], new[:, STOP] = domain, start, stop
    new[:, [DP, TP, PP, PRECISION]] = task.options[option]
    new[:, REPLICA] = previous + complete(task, plans)
    new[:, MICROBATCH] = task.microbatches[level]
    rows[h, plans.counts] = new
    used = plans.used.copy()
    used[h, domain] = True
    time = task.time[domain, level, option] * (task.work[stop] - task.work[start])
    return Prefixes(rows, plans.counts + 1, used, stop, domain, level, np.maximum(plans.slowest, time))
