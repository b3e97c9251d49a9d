"""What the rule reads of a decision: numbers of every candidate by name, free of the scale of cluster and task."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.decision import ATTRIBUTIONS, Decisions
from attribution_sched.kernels import kernel
from attribution_sched.planning.memory_feasibility import PlannerTables
from attribution_sched.scheduler.hi_ppo.action_masks import (
    PartialPlans,
    bounded_log,
    can_begin,
    fastest_inside,
    open_partial_plans,
)
from attribution_sched.types import BoolArray, Float32Array, FloatArray, IntArray

CANDIDATE_NAMES: tuple[str, ...] = (
    "nominal_hours", "baseline_hours", "slowed", "runs", "time_now", "gain", "devices_held",
)  # fmt: skip
"""A task that may be placed or moved: quarters of the logarithms of its hours alone in an empty domain and on the
baseline; half of how much longer the fastest layout takes that is free now; of one that runs 1, half of how much longer
it takes than on the baseline, what it could gain, and the share of all devices that it holds."""

(HOURS, BASELINE_HOURS, SLOWED, RUNS, TIME_NOW, GAIN, HELD) = range(len(CANDIDATE_NAMES))

PACE = 2 * ATTRIBUTIONS + 1
"""Numbers of a kind's plane: attributions of a nominal task before the tanh, slopes, and the logarithm of the pace at
that point. A pace is how much longer than a nominal task one computes."""

_SLOWEST = 0.7
"""Logarithms of paces stay within this: far from all tasks it was laid through a plane means nothing."""

_EDGE = 1.0 - 1e-6

UTILISATION_SHARE = 0.5
"""How much of w_util counts in the estimated worth of a layout: using few devices well leaves others idle."""


@dataclass(frozen=True, eq=False)
class State:
    """What the rule reads of B decisions before anything is chosen.

    Attributes:
        candidates: Shape ``(B, Q, len(CANDIDATE_NAMES))``.
        waiting: Tasks that wait, shape ``(B,)``.
        mask: Tasks that can be placed now; the last column does nothing, shape ``(B, Q + 1)``.
    """

    candidates: Float32Array
    waiting: IntArray
    mask: BoolArray


def nominal_step_s(t: PlannerTables) -> FloatArray:
    """Step time of every kind alone in the largest empty domain; the baseline's where none holds it."""
    found = np.array(t.base_step_s)
    domain = int(np.argmax(t.domains.rows.devices))
    for kind in range(len(found)):
        n = int(t.cost.n_layers[kind])
        least = fastest_inside(t, kind, domain, int(t.domains.rows[domain].devices), 0, 0, n)
        if np.isfinite(least):
            found[kind] = least
    return found


def spanning(t: PlannerTables, rooms: IntArray) -> BoolArray:
    """Kinds that no domain holds alone even when it is empty and offers ``rooms`` devices, shape ``(n_kinds,)``."""
    held = np.zeros(len(t.batch), dtype=np.bool_)
    for kind in range(len(held)):
        n = int(t.cost.n_layers[kind])
        for domain in range(len(t.domain_class)):
            if np.isfinite(fastest_inside(t, kind, domain, int(rooms[domain]), 0, 0, n)):
                held[kind] = True
                break
    return ~held


@kernel
def log_pace(plane: FloatArray, attribution: Float32Array) -> float:
    """Logarithm of a task's pace; 0 for one that was not measured, whose attributions are all 0."""
    measured = False
    found = plane[2 * ATTRIBUTIONS]
    for a in range(ATTRIBUTIONS):
        measured |= attribution[a] != 0.0
        bounded = max(-_EDGE, min(_EDGE, float(attribution[a])))
        found += plane[ATTRIBUTIONS + a] * (math.atanh(bounded) - plane[a])
    return max(-_SLOWEST, min(_SLOWEST, found)) if measured else 0.0


@kernel(allocates=True)
def _describe(
    t: PlannerTables, d: PartialPlans, nominal_s: FloatArray, paces: FloatArray, kind: IntArray, left: FloatArray,
    step_s: FloatArray, holding: IntArray, attribution: Float32Array, out: Float32Array, mask: BoolArray,
) -> None:  # fmt: skip
    """Describe every candidate; drafts hold each decision's free devices and are left as they were."""
    n_kinds, domains = t.batch.size, d.free.shape[1]
    devices, largest = 0, 0
    for k in range(domains):
        devices += t.domains.rows[k].devices
        largest = max(largest, t.domains.rows[k].devices)
    # The same few numbers of free devices come back in every decision of a batch.
    quickest = np.full((n_kinds, domains, largest + 1), np.nan)
    known = np.zeros(n_kinds, dtype=np.bool_)
    fits = np.zeros(n_kinds, dtype=np.bool_)
    best = np.zeros(n_kinds)
    for b in range(kind.shape[0]):
        known[:] = False
        mask[b, :] = False
        mask[b, kind.shape[1]] = True
        out[b] = 0.0
        before_kind, before_stop = d.kind[b], d.stop[b]
        for q in range(kind.shape[1]):
            m = kind[b, q]
            if m < 0:
                continue
            n = t.cost.n_layers[m]
            if not known[m]:
                d.kind[b], d.stop[b] = m, n
                fits[m] = can_begin(t, d, b)
                best[m] = np.inf
                for k in range(domains):
                    if d.free[b, k] > 0:
                        room = min(largest, d.free[b, k])
                        if np.isnan(quickest[m, k, room]):
                            quickest[m, k, room] = fastest_inside(t, m, k, d.free[b, k], 0, 0, n)
                        best[m] = min(best[m], quickest[m, k, room])
                known[m] = True
            base = t.base_step_s[m]
            row = out[b, q]
            mask[b, q] = fits[m]
            # A model that no domain holds alone takes as long as on the baseline: there is nothing to be faster than.
            slower = log_pace(paces[m], attribution[b, q]) if nominal_s[m] != base else 0.0
            row[HOURS] = bounded_log(left[b, q] * nominal_s[m] * np.exp(slower) / 3600.0) / 4.0
            row[BASELINE_HOURS] = bounded_log(left[b, q] * base / 3600.0) / 4.0
            row[SLOWED] = min(4.0, bounded_log(best[m] / nominal_s[m])) / 2.0
            if step_s[b] > 0.0:
                row[RUNS] = 1.0
                row[TIME_NOW] = bounded_log(step_s[b] / base) / 2.0
                row[GAIN] = max(-2.0, min(2.0, bounded_log(step_s[b] / best[m]) - slower))
                row[HELD] = holding[b] / devices
        d.kind[b], d.stop[b] = before_kind, before_stop


def wishes_of(t: PlannerTables, decisions: Decisions) -> FloatArray:
    """What is wanted of a plan: weights of time and utilisation, and what holding a device costs others, ``(B, 3)``."""
    # With q others waiting and D devices, a device held for a second makes them wait q/D seconds together.
    others = np.maximum(0, decisions.waiting - ~decisions.replanning)
    devices = np.asarray(t.domains.rows.devices).sum()
    return np.column_stack([decisions.weights[:, 0], UTILISATION_SHARE * decisions.weights[:, 1], others / devices])


def describe(
    t: PlannerTables, decisions: Decisions, nominal_s: FloatArray, paces: FloatArray
) -> tuple[State, PartialPlans]:
    """Turn decisions into what the rule reads and open an empty draft for each.

    Args:
        t: Tables of the cluster.
        decisions: B of its decisions.
        nominal_s: Output of :func:`nominal_step_s`.
        paces: What attributions say of the time tasks take, shape ``(n_kinds, PACE)``.
    """
    b, q = decisions.kind.shape
    drafts = open_partial_plans(t, np.zeros(b, dtype=np.int64), decisions.free, wishes_of(t, decisions))
    candidates = np.zeros((b, q, len(CANDIDATE_NAMES)), dtype=np.float32)
    mask = np.zeros((b, q + 1), dtype=np.bool_)
    _describe(
        t, drafts, nominal_s, paces, decisions.kind, decisions.left, decisions.step_s, decisions.holding,
        decisions.attribution, candidates, mask,
    )  # fmt: skip
    return State(candidates, decisions.waiting, mask), drafts


def choose_task(t: PlannerTables, drafts: PartialPlans, rows: IntArray, kind: IntArray) -> None:
    """Let drafts be plans of the chosen kinds of tasks."""
    drafts.kind[rows] = kind
    drafts.stop[rows] = t.cost.n_layers[kind]
