"""Both agents as a policy of decisions: what they choose, with what log-odds, in one situation or in thousands.

The same compiled :func:`~attribution_sched.scheduler.hi_ppo.upper_agent.weigh` decides in simulated days (where it is
learnt), in the cluster, and in whatever situations an explanation asks about.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.plan import DOMAIN, DP, PP, TP, Plan
from attribution_sched.scheduler.hi_ppo.action_masks import L_SIZE, L_TIME, L_USE, PartialPlans
from attribution_sched.scheduler.hi_ppo.decode import Choices, Decoded, ShortestFirst
from attribution_sched.scheduler.hi_ppo.features import UTILISATION_SHARE, State
from attribution_sched.scheduler.hi_ppo.moment import NEVER_H
from attribution_sched.scheduler.hi_ppo.upper_agent import (
    LAYOUT_ODDS,
    MOVE_ODDS,
    TASK_ODDS,
    WAIT_ODDS,
    Agents,
    Said,
    Seen,
    make_said,
    make_seen,
    weigh_rows,
)
from attribution_sched.types import BoolArray, FloatArray, IntArray

TIE = 1e-3
"""Log-odds of the first of choices that are worth the same."""

CERTAIN = 12.0
"""Log-odds are cut here, either way: e^12 to 1 is as good as certain, and nothing beyond it is a preference."""


@dataclass(frozen=True, eq=False)
class Releases:
    """What is about to be free.

    Attributes:
        hours: Until the next task of every domain ends, shape ``(K,)``.
        devices: That it gives back there, shape ``(K,)``.
        running: Tasks at work, one that is decided on not counted.
    """

    hours: FloatArray
    devices: IntArray
    running: int

    @classmethod
    def of(cls, view: Decision) -> Releases:
        """What a decision's moment tells; nothing if it carries none."""
        k = len(view.free_devices)
        hours, devices, count = np.full(k, NEVER_H), np.zeros(k, dtype=np.int64), 0
        if view.moment is None:
            return cls(hours, devices, count)
        state, now = view.moment.state, view.moment.now_s
        for slot in np.flatnonzero(state.slots[0, :, st.STATUS] == st.RUNNING).tolist():
            if view.replanning and slot == view.slot:
                continue
            count += 1
            task = state.tasks[0, slot]
            left_h = (task[st.LEFT] * task[st.STEP] + max(0.0, float(task[st.PAUSED]) - now)) / 3600.0
            for segment in state.plans[0, slot, : state.slots[0, slot, st.SEGMENTS]]:
                if left_h < hours[segment[DOMAIN]]:
                    hours[segment[DOMAIN]] = left_h
                    devices[segment[DOMAIN]] = segment[DP] * segment[TP] * segment[PP]
        return cls(hours, devices, count)


@dataclass(frozen=True, eq=False)
class Weighed:
    """What the agents say of B decisions; see :class:`~.upper_agent.Said`.

    Attributes:
        chosen: Candidate to place or to move, −1 for none, shape ``(B,)``.
        score: Shape ``(B, Q)``.
        patience: Shape ``(B, Q)``.
        domain: Shape ``(B, Q)``.
        size: Shape ``(B, Q)``.
        layout: Shape ``(B, Q, K, J)``.
        move: Shape ``(B,)``.
    """

    chosen: IntArray
    score: FloatArray
    patience: FloatArray
    domain: IntArray
    size: IntArray
    layout: FloatArray
    move: FloatArray


def weighed_by(
    agents: Agents, decisions: Decisions, believed: FloatArray, fits: BoolArray, releases: Releases,
    buffers: tuple[Seen, Said] | None = None,
) -> Weighed:  # fmt: skip
    """Let the agents weigh decisions of one cluster.

    Args:
        agents: Who weighs.
        decisions: B of them.
        believed: Logarithms of compute, memory and host time of every candidate over nominal, shape ``(B, Q, 3)``.
        fits: Candidates of which a plan can be begun, shape ``(B, Q)``.
        releases: What is about to be free.
        buffers: Where what they see and say of the last decision is left.
    """
    b, q = decisions.kind.shape
    k, j = len(agents.devices), agents.table.seconds.shape[2]
    seen, said = (make_seen(q, k), make_said(q, k, j)) if buffers is None else buffers
    seen.release_h[:] = releases.hours
    weights = np.column_stack([decisions.weights[:, 0], UTILISATION_SHARE * decisions.weights[:, 1]])
    moment = np.column_stack([
        decisions.waiting, decisions.event[:, 2], decisions.event[:, 3], np.full(b, releases.running),
        decisions.step_s, decisions.holding,
    ]).astype(np.float64)  # fmt: skip
    found = Weighed(
        np.zeros(b, dtype=np.int64), np.zeros((b, q)), np.zeros((b, q)), np.zeros((b, q), dtype=np.int64),
        np.zeros((b, q), dtype=np.int64), np.zeros((b, q, k, j)), np.zeros(b),
    )  # fmt: skip
    weigh_rows(
        agents, seen, said, np.ascontiguousarray(decisions.free), releases.devices, decisions.kind,
        np.ascontiguousarray(decisions.left, dtype=np.float64), np.ascontiguousarray(believed),
        np.ascontiguousarray(decisions.waited_s, dtype=np.float64), np.ascontiguousarray(fits), weights, moment,
        decisions.replanning, found.chosen, found.score, found.patience, found.domain, found.size, found.layout,
        found.move,
    )  # fmt: skip
    return found


class AgentsActor(ShortestFirst):
    """Leads plans through all their choices as the agents have weighed them; what they leave open is the rule's.

    Args:
        agents: Who weighs.
        decisions: What there is to decide.
        believed: As for :func:`weighed_by`.
        releases: What is about to be free.
        must_act: Whether waiting is out of the question.
    """

    def __init__(
        self, agents: Agents, decisions: Decisions, believed: FloatArray, releases: Releases, *, must_act: bool = False
    ) -> None:
        self.agents, self.decisions, self.believed, self.releases = agents, decisions, believed, releases
        self.must_act = must_act
        self._weighed: Weighed | None = None
        self._task: IntArray = np.zeros(0, dtype=np.int64)

    def task(self, state: State) -> IntArray:
        """The candidate that the upper agent places or moves, or one past the last for nothing."""
        rows, nothing = len(state.mask), state.mask.shape[1] - 1
        weighed = self._weighed = self._weigh(state)
        found = np.where(weighed.chosen >= 0, weighed.chosen, nothing)
        if self.must_act:
            likeliest = np.where(state.mask[:, :-1], weighed.score, -np.inf)
            first = np.where(np.isfinite(likeliest).any(axis=1), likeliest.argmax(axis=1), state.mask.argmax(axis=1))
            found = np.where((found == nothing) & state.mask[:, :-1].any(axis=1), first, found)
        self._task = np.asarray(np.where(state.mask[np.arange(rows), found], found, nothing), dtype=np.int64)
        return self._task

    def _weigh(self, state: State) -> Weighed:
        decisions, believed, rows = self.decisions, self.believed, len(state.mask)
        if len(decisions) == 1 and rows > 1:
            # The same decision many times over, to be changed in one thing each.
            decisions, believed = decisions.take(np.zeros(rows, dtype=np.int64)), np.repeat(believed, rows, axis=0)
        return weighed_by(self.agents, decisions, believed, state.mask[:, :-1], self.releases)

    def retask(self, state: State, task: IntArray) -> None:
        """Go on with these tasks."""
        self._task = task

    def choose(self, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray) -> IntArray:
        """Domain and number of devices as weighed; cuts, formats and levels are the rule's."""
        found = super().choose(head, offer, drafts, rows)
        weighed = self._weighed
        if weighed is None or head not in ("domain", "layout"):
            return found
        task = np.minimum(self._task[rows], weighed.domain.shape[1] - 1)
        wanted, size = weighed.domain[rows, task], weighed.size[rows, task]
        if head == "domain":
            fresh = (wanted >= 0) & (drafts.written[rows] == 0)
            there = fresh & offer.mask[np.arange(len(rows)), np.maximum(wanted, 0)]
            return np.asarray(np.where(there, wanted, found), dtype=np.int64)
        exact = offer.mask & (np.abs(4.0 * offer.choices[:, :, L_SIZE] - size[:, None]) < 0.25) & (wanted >= 0)[:, None]
        for i in np.flatnonzero(exact.any(axis=1)).tolist():
            own = offer.choices[i]
            worth = drafts.wishes[rows[i], 1] * own[:, L_USE] - np.exp(2.0 * own[:, L_TIME])
            found[i] = int(np.where(exact[i], worth, -np.inf).argmax())
        return found

    def log_probability(self, found: Decoded) -> FloatArray:
        """Of what was chosen, at the upper and at the lower level, shape ``(B, 2)``."""
        weighed, chosen = self._weighed, found.task
        if weighed is None or len(weighed.chosen) != len(chosen):
            weighed = self._weigh(found.state)
        upper = task_log_probabilities(weighed, np.broadcast_to(self.decisions.replanning[:1], (len(chosen),)))
        rows, nothing = np.arange(len(chosen)), upper.shape[1] - 1
        odds = np.zeros((len(rows), 2))
        odds[:, 0] = upper[rows, np.minimum(chosen, nothing)]
        devices = np.maximum(1, np.where(found.batch.counts > 0, found.drafts.devices, 0))
        size = np.clip(np.round(np.log2(devices)).astype(np.int64), 0, weighed.layout.shape[3] - 1)
        task = np.minimum(chosen, weighed.domain.shape[1] - 1)
        own = layout_log_probabilities(weighed, task)[rows, :, size].max(axis=1)
        odds[:, 1] = np.where((chosen < nothing) & np.isfinite(own), own, 0.0)
        return odds


def _log_softmax(logits: FloatArray, axis: int | tuple[int, ...]) -> FloatArray:
    """Log-probabilities; −inf throughout where nothing is possible."""
    top = logits.max(axis=axis, keepdims=True)
    apart = logits - np.where(np.isfinite(top), top, 0.0)
    total = np.exp(apart).sum(axis=axis, keepdims=True)
    return np.asarray(apart - np.log(np.where(total > 0.0, total, 1.0)))


def task_log_probabilities(weighed: Weighed, replanning: BoolArray) -> FloatArray:
    """Log π of every candidate and, last, of nothing, shape ``(B, Q + 1)``; at least e^−12 where it can be placed."""
    going = -np.logaddexp(0.0, WAIT_ODDS * weighed.patience)
    staying = -np.logaddexp(0.0, -WAIT_ODDS * weighed.patience)
    able = np.isfinite(weighed.score)
    tasks = np.where(able, TASK_ODDS * np.where(able, weighed.score, 0.0) + going, -np.inf)
    top = np.where(able.any(axis=1), np.where(able, TASK_ODDS * weighed.score, -np.inf).max(axis=1), 0.0)
    nothing = top + np.where(able, staying, 0.0).sum(axis=1)
    moved = np.zeros_like(tasks)
    moved[:, 1:] = -np.inf
    moved[:, 0] = MOVE_ODDS * weighed.move
    logits = np.where(replanning[:, None], moved, tasks)
    last = np.where(replanning, 0.0, nothing)
    return np.maximum(_log_softmax(np.column_stack([logits, last]), 1), -50.0)


def layout_log_probabilities(weighed: Weighed, task: IntArray) -> FloatArray:
    """Log π of domain and devices of one candidate of each decision, shape ``(B, K, J)``."""
    layout = LAYOUT_ODDS * weighed.layout[np.arange(len(task)), task]
    return _log_softmax(layout, (1, 2))


def plan_place(plan: Plan) -> tuple[int, int]:
    """Domain of a plan's first segment and the logarithm of all its devices."""
    devices = sum(segment.device_count for segment in plan.segments)
    return plan.segments[0].domain, int(np.round(np.log2(devices)))


def only_choice(weighed: Weighed, plan: Plan, waiting_is_futile: BoolArray) -> BoolArray:
    """Where a plan for candidate 0 is all that is on offer, shape ``(B,)``: no weight has a say there.

    Nobody else can go, waiting is out of the question, and no other layout fits or the rule cuts the model.
    """
    rows = np.arange(len(weighed.chosen))
    patience = np.where(waiting_is_futile[:, None], -CERTAIN, WAIT_ODDS * weighed.patience)
    others = (np.isfinite(weighed.score) & (patience <= 0.0))[:, 1:].any(axis=1)
    layout = weighed.layout[:, 0].copy()
    k, j = plan_place(plan)
    own = np.isneginf(layout[:, k, min(j, layout.shape[2] - 1)])
    layout[rows, k, min(j, layout.shape[2] - 1)] = -np.inf
    alone = np.isneginf(layout.max(axis=(1, 2)))
    found: BoolArray = ~others & waiting_is_futile & alone & ((weighed.domain[:, 0] < 0) | ~own)
    return found


def log_odds_of(
    weighed: Weighed, replanning: bool, plan: Plan | None, waiting_is_futile: BoolArray, search_margin: FloatArray,
    wide: BoolArray,
) -> FloatArray:  # fmt: skip
    """Log-odds ``(B,)`` of a plan for candidate 0, or of doing nothing, against the best other choice.

    Args:
        weighed: What the agents say.
        replanning: Whether the task runs.
        plan: The plan; None does nothing.
        waiting_is_futile: Where waiting is out of the question if anything can be done, shape ``(B,)``.
        search_margin: By how much the search prefers it to what it may put in its place, or NaN, shape ``(B,)``.
        wide: Where the search may change the number of devices too, shape ``(B,)``.
    """
    rows = np.arange(len(weighed.chosen))
    if replanning:
        acts = MOVE_ODDS * weighed.move
    else:
        able = np.isfinite(weighed.score)
        patience = np.where(waiting_is_futile[:, None], -CERTAIN, WAIT_ODDS * weighed.patience)
        if plan is None:
            return np.asarray(np.clip(np.where(able, patience, CERTAIN).min(axis=1), -CERTAIN, CERTAIN))
        others = np.where(able & (patience <= 0.0), TASK_ODDS * weighed.score, -np.inf)[:, 1:]
        other = others.max(axis=1, initial=-np.inf)
        with np.errstate(invalid="ignore"):
            first = np.where(np.isneginf(other), CERTAIN, TASK_ODDS * weighed.score[:, 0] - other)
        acts = np.where(able[:, 0], np.minimum(first, -patience[:, 0]), -CERTAIN)
    if plan is None:
        return np.asarray(np.clip(-acts, -CERTAIN, CERTAIN))
    k, j = plan_place(plan)
    layout = LAYOUT_ODDS * weighed.layout[:, 0].copy()
    j = min(j, layout.shape[2] - 1)
    own = layout[:, k, j].copy()
    layout[rows, k, j] = -np.inf
    rest = layout.max(axis=(1, 2))
    with np.errstate(invalid="ignore"):
        settled = np.where(np.isneginf(own), -CERTAIN, np.where(np.isneginf(rest), CERTAIN, own - rest))
    searched = np.isfinite(search_margin)
    if searched.any():
        # The agents say how many devices, the search where; where it is wide, both.
        sizes = LAYOUT_ODDS * weighed.layout[:, 0].max(axis=1)
        many = sizes[:, j].copy()
        sizes[:, j] = -np.inf
        with np.errstate(invalid="ignore"):
            fewer_or_more = np.where(np.isneginf(sizes.max(axis=1)), CERTAIN, many - sizes.max(axis=1))
        # Of numbers that are worth the same the agents' own is taken.
        size = np.where(weighed.size[:, 0] == j, np.maximum(fewer_or_more, TIE), fewer_or_more)
        size = np.where(np.isneginf(many) | (len(plan.segments) > 1), -CERTAIN, size)
        settled = np.where(searched, np.where(wide, search_margin, np.minimum(size, search_margin)), settled)
    return np.asarray(np.clip(np.minimum(acts, settled), -CERTAIN, CERTAIN))
