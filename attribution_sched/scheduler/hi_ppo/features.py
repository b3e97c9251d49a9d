"""What Hi-PPO's agents see of a decision: numbers by name, free of the scale of cluster and task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.decision import ATTRIBUTIONS, Decisions
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine.engine import DOMAIN_FEATURES, EVENT_FEATURES, TASK_FEATURES
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

NODE_NAMES: tuple[str, ...] = (*DOMAIN_FEATURES, "free_share", "free_devices", "holds_task")
"""A domain: its 20 system numbers, and what is free for the task."""

EDGE_NAMES: tuple[str, ...] = ("bandwidth", "latency", "price", "forecast")
"""A link: log Gb/s over 4, seconds × 10, USD per GB × 10, expected change of the bandwidth."""

GLOBAL_NAMES: tuple[str, ...] = (
    *EVENT_FEATURES, "queue_length", "queue_hours", "free_share", "w_eff", "w_util", "w_cost",
)  # fmt: skip
"""The moment: the event, the queue, how full the cluster is, and what the user wants."""

CANDIDATE_NAMES: tuple[str, ...] = (
    "nominal_hours", "baseline_hours", "waited", "fits", "best_time", "least_devices_time", "slowed", *TASK_FEATURES,
    "runs", "time_now", "gain", "devices_held", *(f"attribution_{name}" for name in DEMAND_NAMES),
)  # fmt: skip
"""A task that may be placed: its size, how fast it could run now, its 5 task numbers and its 7 attributions."""

PACE = 2 * ATTRIBUTIONS + 1
"""Numbers of a kind's plane: attributions of a nominal task before the tanh, slopes, and the logarithm of the pace at
that point. A pace is how much longer than a nominal task one computes."""

_SLOWEST = 0.7
"""Logarithms of paces stay within this: far from all tasks it was laid through a plane means nothing."""

_EDGE = 1.0 - 1e-6

UTILISATION_SHARE = 0.5
"""How much of w_util counts in the estimated worth of a layout: using few devices well leaves others idle."""

TASK_AT = CANDIDATE_NAMES.index(TASK_FEATURES[0])
ATTRIBUTION_AT = len(CANDIDATE_NAMES) - len(DEMAND_NAMES)


@dataclass(frozen=True, eq=False)
class State:
    """The upper agent's state before anything is chosen.

    Attributes:
        nodes: Shape ``(B, K, len(NODE_NAMES))``.
        edges: Shape ``(B, K, K, len(EDGE_NAMES))``.
        globals: Shape ``(B, len(GLOBAL_NAMES))``.
        candidates: Shape ``(B, Q, len(CANDIDATE_NAMES))``.
        mask: Tasks that can be placed now; the last column does nothing, shape ``(B, Q + 1)``.
        present: Candidates that exist, shape ``(B, Q)``.
    """

    nodes: Float32Array
    edges: Float32Array
    globals: Float32Array
    candidates: Float32Array
    mask: BoolArray
    present: BoolArray


def nominal_step_s(t: PlannerTables) -> FloatArray:
    """Step time of every kind alone in the largest empty domain; the baseline's where none holds it."""
    found = np.array(t.base_step_s)
    domain = int(np.argmax(t.domains.rows.devices))
    for kind in range(len(found)):
        n = int(t.cost.n_layers[kind])
        least, _ = fastest_inside(t, kind, domain, int(t.domains.rows[domain].devices), 0, 0, n)
        if np.isfinite(least):
            found[kind] = least
    return found


def spanning(t: PlannerTables, rooms: IntArray) -> BoolArray:
    """Kinds that no domain holds alone even when it is empty and offers ``rooms`` devices, shape ``(n_kinds,)``."""
    held = np.zeros(len(t.batch), dtype=np.bool_)
    for kind in range(len(held)):
        n = int(t.cost.n_layers[kind])
        for domain in range(len(t.domain_class)):
            least, _ = fastest_inside(t, kind, domain, int(rooms[domain]), 0, 0, n)
            if np.isfinite(least):
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
        found += plane[ATTRIBUTIONS + a] * (np.arctanh(bounded) - plane[a])
    return max(-_SLOWEST, min(_SLOWEST, found)) if measured else 0.0


@kernel(allocates=True)
def _describe(
    t: PlannerTables,
    d: PartialPlans,
    nominal_s: FloatArray,
    task_features: FloatArray,
    paces: FloatArray,
    kind: IntArray,
    left: FloatArray,
    waited_s: FloatArray,
    step_s: FloatArray,
    holding: IntArray,
    attribution: Float32Array,
    out: Float32Array,
    mask: BoolArray,
    hours: FloatArray,
) -> None:
    """Describe every candidate; drafts hold each decision's free devices and are left as they were."""
    n_kinds, domains = t.batch.size, d.free.shape[1]
    devices, largest = 0, 0
    for k in range(domains):
        devices += t.domains.rows[k].devices
        largest = max(largest, t.domains.rows[k].devices)
    # The same few numbers of free devices come back in every decision of a batch.
    quickest = np.full((n_kinds, domains, largest + 1, 2), np.nan)
    known = np.zeros(n_kinds, dtype=np.bool_)
    fits = np.zeros(n_kinds, dtype=np.bool_)
    best = np.zeros((n_kinds, 2))
    for b in range(kind.shape[0]):
        known[:] = False
        mask[b, :] = False
        mask[b, kind.shape[1]] = True
        out[b] = 0.0
        hours[b] = 0.0
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
                        inside = quickest[m, k, min(largest, d.free[b, k])]
                        if np.isnan(inside[0]):
                            inside[0], inside[1] = fastest_inside(t, m, k, d.free[b, k], 0, 0, n)
                        best[m, 0] = min(best[m, 0], inside[0])
                        best[m, 1] = min(best[m, 1], inside[1])
                known[m] = True
            base = t.base_step_s[m]
            row = out[b, q]
            mask[b, q] = fits[m]
            # A model that no domain holds alone takes as long as on the baseline: there is nothing to be faster than.
            slower = log_pace(paces[m], attribution[b, q]) if nominal_s[m] != base else 0.0
            nominal_h = left[b, q] * nominal_s[m] * np.exp(slower) / 3600.0
            hours[b] += nominal_h
            row[0] = bounded_log(nominal_h) / 4.0
            row[1] = bounded_log(left[b, q] * base / 3600.0) / 4.0
            row[2] = min(3.0, waited_s[b, q] / 28800.0)
            row[3] = 1.0 if fits[m] else 0.0
            row[4] = bounded_log(best[m, 0] / base) / 2.0
            row[5] = bounded_log(best[m, 1] / base) / 4.0
            row[6] = min(4.0, bounded_log(best[m, 0] / nominal_s[m])) / 2.0
            for f in range(5):
                row[TASK_AT + f] = task_features[m, f]
            if step_s[b] > 0.0:
                row[TASK_AT + 5] = 1.0
                row[TASK_AT + 6] = bounded_log(step_s[b] / base) / 2.0
                row[TASK_AT + 7] = max(-2.0, min(2.0, bounded_log(step_s[b] / best[m, 0]) - slower))
                row[TASK_AT + 8] = holding[b] / devices
            for f in range(attribution.shape[2]):
                row[ATTRIBUTION_AT + f] = attribution[b, q, f]
        d.kind[b], d.stop[b] = before_kind, before_stop


def wishes_of(t: PlannerTables, decisions: Decisions) -> FloatArray:
    """What is wanted of a plan: weights of time and utilisation, and what holding a device costs others, ``(B, 3)``."""
    # With q others waiting and D devices, a device held for a second makes them wait q/D seconds together.
    others = np.maximum(0, decisions.waiting - ~decisions.replanning)
    devices = np.asarray(t.domains.rows.devices).sum()
    return np.column_stack([decisions.weights[:, 0], UTILISATION_SHARE * decisions.weights[:, 1], others / devices])


def describe(
    t: PlannerTables, decisions: Decisions, nominal_s: FloatArray, task_features: FloatArray, paces: FloatArray
) -> tuple[State, PartialPlans]:
    """Turn decisions into the upper agent's state and open an empty draft for each.

    Args:
        t: Tables of the cluster.
        decisions: B of its decisions.
        nominal_s: Output of :func:`nominal_step_s`.
        task_features: The five task numbers of every kind, shape ``(n_kinds, 5)``.
        paces: What attributions say of the time tasks take, shape ``(n_kinds, PACE)``.
    """
    b, q = decisions.kind.shape
    devices = np.asarray(t.domains.rows.devices)
    nothing = np.zeros(b, dtype=np.int64)
    drafts = open_partial_plans(t, nothing, decisions.free, decisions.links, decisions.held, wishes_of(t, decisions))
    candidates = np.zeros((b, q, len(CANDIDATE_NAMES)), dtype=np.float32)
    mask = np.zeros((b, q + 1), dtype=np.bool_)
    hours = np.zeros(b)
    _describe(
        t, drafts, nominal_s, task_features, paces, decisions.kind, decisions.left, decisions.waited_s,
        decisions.step_s, decisions.holding, decisions.attribution, candidates, mask, hours,
    )  # fmt: skip
    free = decisions.free
    nodes = np.concatenate(
        [
            decisions.domains,
            np.stack([free / devices, np.log2(1.0 + free) / 4.0, decisions.held], axis=-1).astype(np.float32),
        ],
        axis=-1,
    )
    gbps, latency_s, price, ahead = (decisions.links[:, c] for c in range(4))
    edges = np.stack([np.log(gbps / 4.0), latency_s * 10.0, price * 10.0, ahead / gbps - 1.0], axis=-1)
    general = np.column_stack([
        decisions.event, decisions.waiting / 16.0, np.log1p(hours) / 4.0, free.sum(axis=1) / devices.sum(),
        decisions.weights,
    ]).astype(np.float32)  # fmt: skip
    return State(nodes, edges.astype(np.float32), general, candidates, mask, decisions.kind >= 0), drafts


def choose_task(t: PlannerTables, drafts: PartialPlans, rows: IntArray, kind: IntArray) -> None:
    """Let drafts be plans of the chosen kinds of tasks."""
    drafts.kind[rows] = kind
    drafts.stop[rows] = t.cost.n_layers[kind]
