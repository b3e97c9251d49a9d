"""The upper agent: which task goes next or whether to wait, in which domain, and whether a running task is moved.

    s_high = (free devices and next release of every domain, hour, tasks that wait: hours left as believed, on the
              baseline, waited)
    a_high = wait | (task, domain) | move the running task
    R_high = −α·T_step − β·C_comm,   α = w_eff/T_base, β = w_cost/C_base

R_high is R without utilisation up to a constant: R_eff = 1 − T_step/T_base. So both levels serve the one R.

Each choice has the form of the rule's, with learnt numbers; with those of :func:`rule_theta` it is the rule's. A task
is *patient* if it is worth waiting for the next release of devices: it would be done sooner, or hold less. The shortest
task that is not patient goes first. Models that no domain holds alone are cut as the rule cuts them; whether one of
them goes before others, and whether others leave whole domains to one that waits, is learnt (``span``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import free_devices, kind_of
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.fork import believed_left
from attribution_sched.cluster.plan import DOMAIN, DP, PP, TP
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.scheduler.glass_box.trees import WIDEST, Trees, weigh_by_trees
from attribution_sched.scheduler.hi_ppo.action_masks import bounded_log, log2_floor
from attribution_sched.scheduler.hi_ppo.decode import (
    EARNING,
    FEW,
    LARGE,
    LONG_HOURS,
    MANY,
    MUCH,
    SOME_HOURS,
)
from attribution_sched.scheduler.hi_ppo.lower_agent import (
    FACTORS,
    PRESSURE,
    PRICE,
    PRICE_OF_THE_RULE,
    SHORTEST_H,
    LayoutTable,
    layout_score,
    pressure,
    step_s,
)
from attribution_sched.scheduler.hi_ppo.moment import NEVER_H, end_after_release, fastest_s, write_moment
from attribution_sched.types import BoolArray, FloatArray, IntArray

TASK: tuple[str, ...] = (
    "hours_now", "devices", "slowed", "waited", "fills_domain", "baseline_hours", "pace", "device_share",
)  # fmt: skip
WAIT: tuple[str, ...] = (
    "one", "sooner_if_waiting", "next_release", "waiting", "slowed", "hours_now", "free_share", "running",
)  # fmt: skip
PLACE: tuple[str, ...] = ("room", "fills_domain", "left", "release_within")
MOVE: tuple[str, ...] = ("gain", "hours", "waiting", "held_share", "held_hours", "held_waiting", "margin", "per_hour")
ORDER: tuple[str, ...] = ("hours", "baseline_hours")
SPAN: tuple[str, ...] = (
    "one", "waited", "waiting", "baseline_hours", "free_share", "patience_of_others", "patience_by_hours", "price",
)  # fmt: skip
HEADS: dict[str, tuple[str, ...]] = {
    "pressure": PRESSURE, "task": TASK, "wait": WAIT, "place": PLACE, "move": MOVE, "price": PRICE, "order": ORDER,
    "span": SPAN,
}  # fmt: skip
"""What is learnt: one number for each of these names, in this order."""

_begins = np.cumsum([0, *map(len, HEADS.values())]).tolist()
P, T, W, D, M, U, R, S, SIZE = _begins
"""Where each head's numbers begin in θ, and how many there are in all."""

SCALES = np.concatenate([
    np.repeat([0.25, 0.25, 0.3, 0.03, 0.3], list(map(len, HEADS.values()))[:5]), [0.3, 0.05, 0.1, 0.005, 0.05, 0.05],
    np.full(len(SPAN), 0.3),
])  # fmt: skip
"""How far the numbers of each head are moved to see what they do."""

TASK_ODDS, WAIT_ODDS, LAYOUT_ODDS, MOVE_ODDS = 4.0, 4.0, 20.0, 8.0
"""Log-odds per unit of each head's score: one unit of R's share of a step, or of a logarithm of hours."""


def rule_theta() -> FloatArray:
    """The numbers with which both agents decide as the rule does."""
    found = np.zeros(SIZE)
    found[W], found[W + 1] = -2.0, 2.0
    found[D] = 0.0125
    found[M + 6] = -1.0
    found[U:R] = PRICE_OF_THE_RULE
    found[R], found[R + 1] = 1.0, EARNING
    return found


@by_reference
class Agents(NamedTuple):
    """Both agents for one cluster.

    Attributes:
        theta: What was learnt, shape ``(SIZE,)``, names in :data:`HEADS`.
        table: The best layout of every number of devices.
        nominal_s: Step time of every kind alone in an empty domain, shape ``(n_kinds,)``.
        nominal_shares: Elasticities of that by a task's compute, memory and host time, shape ``(n_kinds, 3)``.
        base_s: Step time of every kind's baseline, shape ``(n_kinds,)``.
        domain_class: Hardware class of every domain, shape ``(K,)``.
        devices: Devices of every domain, shape ``(K,)``.
        trees: Decision trees in the place of ``theta``; none where ``trees.roots`` is empty.
    """

    theta: FloatArray
    table: LayoutTable
    nominal_s: FloatArray
    nominal_shares: FloatArray
    base_s: FloatArray
    domain_class: IntArray
    devices: IntArray
    trees: Trees


@by_reference
class Seen(NamedTuple):
    """One decision as the agents see it; Q candidates, K domains.

    Attributes:
        free: Devices a plan may use, shape ``(K,)``.
        release_h: Hours until the next task there ends, shape ``(K,)``; :data:`NEVER_H` if none does.
        release_devices: Devices free then, shape ``(K,)``.
        kind: Kind of every candidate, −1 for none, shape ``(Q,)``.
        left: Its steps left, shape ``(Q,)``.
        factors: What is believed of it, logarithms of compute, memory and host time over its kind's, shape ``(Q, 3)``.
        pace: Logarithm of how much longer than nominal that makes it, shape ``(Q,)``; written by :func:`weigh`.
        waited_s: Since when it waits, shape ``(Q,)``.
        fits: Whether a plan of it can be begun now, shape ``(Q,)``.
        weights: w_eff and what counts of w_util, shape ``(2,)``.
        moment: Tasks that wait, sine and cosine of the hour, tasks that run, step time and devices of a running task
            that is decided on, shape ``(6,)``.
    """

    free: IntArray
    release_h: FloatArray
    release_devices: IntArray
    kind: IntArray
    left: FloatArray
    factors: FloatArray
    pace: FloatArray
    waited_s: FloatArray
    fits: BoolArray
    weights: FloatArray
    moment: FloatArray


N_WAITING, N_SINE, N_COSINE, N_RUNNING, N_STEP_S, N_HELD = range(6)


@by_reference
class Said(NamedTuple):
    """What the agents say of one decision.

    Attributes:
        score: What speaks for each task, shape ``(Q,)``; −inf where it cannot be placed in one domain now.
        patience: Above 0 where the task had better wait, shape ``(Q,)``.
        domain: Where each would go, −1 if no single domain holds it now, shape ``(Q,)``.
        size: Logarithm of its devices there, shape ``(Q,)``.
        layout: Scores of domain and devices of each, shape ``(Q, K, J)``; −inf where it does not fit.
        move: Above 0 where a running task is to be planned anew, shape ``(1,)``.
        z: Scratch, shape ``(len(PRESSURE),)``.
        best: Score, seconds and devices of the best layout just found, shape ``(3,)``.
        x: Scratch for what a tree reads, shape ``(WIDEST,)``.
    """

    score: FloatArray
    patience: FloatArray
    domain: IntArray
    size: IntArray
    layout: FloatArray
    move: FloatArray
    z: FloatArray
    best: FloatArray
    x: FloatArray


def make_seen(candidates: int, domains: int) -> Seen:
    """Room for what the agents see of one decision."""
    return Seen(
        np.zeros(domains, dtype=np.int64), np.zeros(domains), np.zeros(domains, dtype=np.int64),
        np.full(candidates, -1, dtype=np.int64), np.zeros(candidates), np.zeros((candidates, FACTORS)),
        np.zeros(candidates), np.zeros(candidates),
        np.zeros(candidates, dtype=np.bool_), np.zeros(2), np.zeros(6),
    )  # fmt: skip


def make_said(candidates: int, domains: int, sizes: int) -> Said:
    """Room for what the agents say."""
    return Said(
        np.zeros(candidates), np.zeros(candidates), np.zeros(candidates, dtype=np.int64),
        np.zeros(candidates, dtype=np.int64), np.zeros((candidates, domains, sizes)), np.zeros(1),
        np.zeros(len(PRESSURE)), np.zeros(3), np.zeros(WIDEST),
    )  # fmt: skip


@kernel
def _place(a: Agents, s: Seen, q: int, p: float, hours: float, out: Said) -> None:
    """Find domain and devices of candidate ``q`` at the price ``p`` of a device."""
    th = a.theta
    kind = s.kind[q]
    base = a.base_s[kind]
    out.domain[q], out.size[q] = -1, 0
    most = -np.inf
    for k in range(s.free.size):
        for j in range(out.layout.shape[2]):
            out.layout[q, k, j] = -np.inf
        if s.free[k] <= 0:
            continue
        c, room = a.domain_class[k], log2_floor(s.free[k])
        for j in range(min(room, a.table.seconds.shape[2] - 1) + 1):
            seconds = step_s(a.table, kind, c, j, s.factors[q])
            worth = layout_score(seconds, a.table.use[kind, c, j], j, base, s.weights, th[U:R], p)
            if not np.isfinite(worth):
                continue
            left = s.free[k] - 2.0**j
            score = worth - th[D] * 2.0**room / a.devices[k] + th[D + 2] * left / a.devices[k]
            if left == 0:
                score += th[D + 1]
            if s.release_h[k] < hours:
                score += th[D + 3]
            out.layout[q, k, j] = score
            if score > most:
                most = score
                out.domain[q], out.size[q] = k, j
                out.best[0], out.best[1], out.best[2] = worth, seconds, 2.0**j


@kernel
def weigh(a: Agents, s: Seen, candidates: int, running: bool, out: Said) -> int:
    """Let both agents weigh a decision; returns the candidate to place, −1 for none."""
    if a.trees.roots.size > 0:
        chosen_by_tree: int = weigh_by_trees(a, s, candidates, running, out)
        return chosen_by_tree
    th = a.theta
    z = out.z
    write_moment(a, s, candidates, running, z)
    devices, free, soon, held_back, queue_h = z[0], z[1], z[2], z[3], z[4]
    waiting = s.moment[N_WAITING]
    z[0], z[1], z[3] = 1.0, np.log1p(waiting), free / devices
    z[5], z[6], z[7], z[8] = s.moment[N_SINE], s.moment[N_COSINE], np.log1p(s.moment[N_RUNNING]), np.log1p(soon)
    out.move[0] = -1.0
    if running:
        moved: int = _moves(a, s, waiting, devices, out)
        return moved
    chosen, most = -1, -np.inf
    for q in range(candidates):
        out.score[q], out.patience[q], out.domain[q] = -np.inf, -1.0, -1
        if s.kind[q] < 0 or not s.fits[q]:
            continue
        kind = s.kind[q]
        base, nominal = a.base_s[kind], a.nominal_s[kind]
        hours = s.left[q] * nominal * np.exp(s.pace[q]) / 3600.0
        on_base = bounded_log(s.left[q] * base / 3600.0)
        z[2], z[4] = np.log(hours + SHORTEST_H), np.log1p(max(0.0, queue_h - hours) / devices * 8.0)
        p = pressure(th[P : P + z.size], z, max(0.0, waiting - 1.0), devices, th[U:R])
        p *= np.exp(th[S + 7] * np.log1p(held_back))
        _place(a, s, q, p, hours, out)
        score = th[R + 1] * on_base - th[R] * bounded_log(hours)
        if out.domain[q] < 0:
            if nominal != base:
                # It only needs to wait for room in one domain.
                continue
            score += (
                th[S] + th[S + 1] * min(3.0, s.waited_s[q] / 28800.0) + th[S + 2] * z[1] + th[S + 3] * on_base
                + th[S + 4] * z[3]
            )  # fmt: skip
        else:
            now_h = s.left[q] * out.best[1] / 3600.0
            later_h, release_h = end_after_release(a, s, q)
            sooner = max(-2.0, min(1.0, (now_h - later_h) / (now_h + 1e-6)))
            slowed, log_h = np.log(out.best[1] / nominal) - s.pace[q], np.log(now_h + SHORTEST_H)
            if release_h < NEVER_H:
                out.patience[q] = (
                    th[W] + th[W + 1] * sooner + th[W + 2] * np.log1p(release_h) + th[W + 3] * z[1]
                    + th[W + 4] * slowed + th[W + 5] * log_h + th[W + 6] * z[3] + th[W + 7] * z[7]
                )  # fmt: skip
                if held_back > 0:
                    out.patience[q] += th[S + 5] + th[S + 6] * log_h
            fills = 1.0 if s.free[out.domain[q]] == out.best[2] else 0.0
            score += (
                th[T] * log_h + th[T + 1] * np.log(out.best[2]) + th[T + 2] * slowed
                + th[T + 3] * min(3.0, s.waited_s[q] / 28800.0) + th[T + 4] * fills + th[T + 5] * on_base
                + th[T + 6] * s.pace[q] + th[T + 7] * out.best[2] / devices
            )  # fmt: skip
        out.score[q] = score
        if out.patience[q] <= 0.0 and score > most:
            chosen, most = q, score
    return chosen


@kernel
def _moves(a: Agents, s: Seen, waiting: float, devices: float, out: Said) -> int:
    """Whether the running task, candidate 0, is planned anew: 0 if it is, −1 if it stays."""
    th, kind, z = a.theta, s.kind[0], out.z
    out.score[0], out.patience[0], out.domain[0] = -np.inf, -1.0, -1
    if not s.fits[0]:
        return -1
    base = a.base_s[kind]
    own_s, held = s.moment[N_STEP_S], s.moment[N_HELD]
    gain = max(-2.0, min(2.0, bounded_log(own_s / fastest_s(a, s, 0))))
    hours = s.left[0] * own_s / 3600.0
    held_up = min(
        gain - MUCH * np.exp(th[M]),
        min(np.log((hours + 1e-9) / SOME_HOURS) - th[M + 1], (FEW * np.exp(th[M + 2]) + 0.5 - waiting) / 4.0),
    )
    in_the_way = min(
        held / devices - LARGE * np.exp(th[M + 3]) + 1e-9,
        min(np.log((hours + 1e-9) / LONG_HOURS) - th[M + 4], (waiting + 0.5 - MANY * np.exp(th[M + 5])) / 4.0),
    )
    if a.nominal_s[kind] == base:
        # A model that no domain holds would hold as many devices after it was moved.
        in_the_way = -1.0
    out.move[0] = max(held_up, in_the_way)
    z[2], z[4] = np.log(hours + SHORTEST_H), 0.0
    p = pressure(th[P : P + z.size], z, waiting, devices, th[U:R])
    _place(a, s, 0, p, hours, out)
    if out.domain[0] >= 0:
        now = -th[U + 1] * s.weights[0] * own_s / base * (1.0 + p * held)
        better = out.best[0] - now - th[M + 6] - th[M + 7] / max(hours, SHORTEST_H)
        out.move[0] = min(out.move[0], better)
    return 0 if out.move[0] > 0.0 else -1


@kernel
def weigh_rows(
    a: Agents, s: Seen, out: Said, free: IntArray, released: IntArray, kind: IntArray, left: FloatArray,
    factors: FloatArray, waited_s: FloatArray, fits: BoolArray, weights: FloatArray, moment: FloatArray,
    running: BoolArray, chosen: IntArray, score: FloatArray, patience: FloatArray, domain: IntArray, size: IntArray,
    layout: FloatArray, move: FloatArray,
) -> None:  # fmt: skip
    """Weigh B decisions of one cluster, which have their own everything but the hours of the next releases."""
    candidates = kind.shape[1]
    for b in range(kind.shape[0]):
        for k in range(s.free.size):
            s.free[k] = free[b, k]
            s.release_devices[k] = free[b, k] + released[k]
        for q in range(candidates):
            s.kind[q], s.left[q] = kind[b, q], left[b, q]
            for f in range(FACTORS):
                s.factors[q, f] = factors[b, q, f]
            s.waited_s[q], s.fits[q] = waited_s[b, q], fits[b, q]
            out.layout[q] = -np.inf
            out.score[q], out.patience[q], out.domain[q], out.size[q] = -np.inf, -1.0, -1, 0
        s.weights[0], s.weights[1] = weights[b, 0], weights[b, 1]
        for i in range(moment.shape[1]):
            s.moment[i] = moment[b, i]
        chosen[b] = weigh(a, s, candidates, running[b], out)
        for q in range(candidates):
            score[b, q], patience[b, q], domain[b, q] = out.score[q], out.patience[q], out.domain[q]
            size[b, q] = out.size[q]
            for k in range(s.free.size):
                for j in range(layout.shape[3]):
                    layout[b, q, k, j] = out.layout[q, k, j]
        move[b] = out.move[0]


@kernel
def see_cluster(
    world: WorldArrays, state: StateArrays, e: int, awake: IntArray, believed: FloatArray, s: Seen, slots: IntArray
) -> int:
    """Fill what the agents see of the pending decision of a simulated cluster; returns the number of candidates.

    Whether plans can be begun is left to the caller.
    """
    running = state.event[e, st.EVENT] == st.REPLAN
    own, now = state.event[e, st.SLOT], state.clock[e, st.NOW]
    for k in range(s.free.size):
        many = world.domains.rows[k].devices
        free = free_devices(world, state, e, k, False, own if running else -1)
        s.free[k] = max(0, min(free, awake[k] - (many - free)))
        s.release_h[k], s.release_devices[k] = NEVER_H, s.free[k]
    at_work, waiting, candidates = 0, 0, 0
    for slot in range(state.slots.shape[1]):
        task = state.tasks[e, slot]
        if state.slots[e, slot, st.STATUS] == st.RUNNING and not (running and slot == own):
            at_work += 1
            left = believed_left(world, state, e, slot, believed)
            hours = (left * task[st.STEP] + max(0.0, task[st.PAUSED] - now)) / 3600.0
            for i in range(state.slots[e, slot, st.SEGMENTS]):
                segment = state.plans[e, slot, i]
                k = segment[DOMAIN]
                if hours < s.release_h[k]:
                    s.release_h[k] = hours
                    s.release_devices[k] = s.free[k] + segment[DP] * segment[TP] * segment[PP]
        queued = state.slots[e, slot, st.STATUS] == st.QUEUED
        waiting += queued
        if (queued and not running) or (running and slot == own):
            slots[candidates] = slot
            s.kind[candidates] = kind_of(world, state, e, slot)
            s.left[candidates] = believed_left(world, state, e, slot, believed)
            for f in range(FACTORS):
                s.factors[candidates, f] = believed[state.slots[e, slot, st.POOL], 1 + f]
            s.waited_s[candidates] = 0.0 if running else now - task[st.ARRIVAL]
            candidates += 1
    angle = 2.0 * np.pi * now / 86_400.0
    s.moment[N_WAITING], s.moment[N_SINE], s.moment[N_COSINE] = waiting, np.sin(angle), np.cos(angle)
    s.moment[N_RUNNING], s.moment[N_STEP_S], s.moment[N_HELD] = at_work, 0.0, 0.0
    if running:
        s.moment[N_STEP_S] = state.tasks[e, own, st.STEP]
        for i in range(state.slots[e, own, st.SEGMENTS]):
            segment = state.plans[e, own, i]
            s.moment[N_HELD] += segment[DP] * segment[TP] * segment[PP]
    return candidates
