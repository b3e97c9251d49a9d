"""One decision after another choice: task, then per segment domain, cut, layout, format, microbatch level.

``decode`` leads a batch of decisions through these choices; who chooses is given to it: the agents, or a
teacher whose plan is followed. What was offered and taken is kept as a :class:`Trace`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.decision import Decisions
from attribution_sched.cluster.plan import (
    PlanBatch,
)
from attribution_sched.cluster.world import BATCH_LEVELS, TaskKind, within_budgets
from attribution_sched.errors import PlanError, problem
from attribution_sched.planning.memory_feasibility import FORMATS, PlannerTables, make_tables
from attribution_sched.scheduler.hi_ppo.action_masks import (
    CUT_CHOICE,
    DEAD,
    DOMAIN_CHOICE,
    DONE,
    FORMAT_CHOICE,
    LAYOUT_CHOICE,
    LEVEL_CHOICE,
    OPEN,
    PartialPlans,
    cut_choices,
    domain_choices,
    draft_features,
    segment_choices,
    write_segments,
)
from attribution_sched.scheduler.hi_ppo.features import (
    CANDIDATE_NAMES,
    GLOBAL_NAMES,
    PACE,
    State,
    choose_task,
    describe,
    nominal_step_s,
    spanning,
)
from attribution_sched.scheduler.hi_ppo.outcomes import PlanLoads, describe_plans
from attribution_sched.types import BoolArray, Float32Array, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Planner:
    """Everything about a cluster and its kinds of tasks that does not change between decisions.

    Attributes:
        tables: What fits where.
        nominal_s: Step time of every kind alone in an empty domain, shape ``(n_kinds,)``.
        task_features: The five task numbers of every kind, shape ``(n_kinds, 5)``.
        rooms: Devices that every domain offers when it is empty, power budgets considered, shape ``(K,)``.
        spanning: Kinds that no domain holds alone even then, shape ``(n_kinds,)``.
        paces: What attributions say of the time tasks take, see :func:`~.paces.read_paces`, shape ``(n_kinds, PACE)``.
    """

    tables: PlannerTables
    nominal_s: FloatArray
    task_features: FloatArray
    rooms: IntArray
    spanning: BoolArray
    paces: FloatArray

    @classmethod
    def of(
        cls,
        cost: CostModel,
        kinds: tuple[TaskKind, ...],
        base_step_s: FloatArray,
        base_cost_usd: FloatArray,
        max_segments: int,
        paces: FloatArray | None = None,
    ) -> Planner:
        """Prepare for the decisions of a cluster; attributions say nothing of the time tasks take by default."""
        tables = make_tables(cost, kinds, base_step_s, base_cost_usd, max_segments)
        features = np.array([kind.features for kind in kinds])
        said = np.zeros((len(kinds), PACE)) if paces is None else paces
        rooms = within_budgets(cost.cluster, np.array([domain.devices for domain in cost.cluster.domains]))
        return cls(tables, nominal_step_s(tables), features, rooms, spanning(tables, rooms), said)

    def waiting_is_futile(self, decisions: Decisions) -> BoolArray:
        """Candidates whom waiting would not help, shape ``(B, Q)``; whether they fit now is not asked.

        No domain will ever hold a model alone that is larger than all of them; and while nothing runs, nothing will
        end. A lost domain looks as if something ran there.
        """
        idle = np.asarray((decisions.free >= self.rooms).all(axis=1))
        there = (decisions.kind >= 0) & ~decisions.replanning[:, None]
        found: BoolArray = there & (self.spanning[decisions.kind] | idle[:, None])
        return found

    def describe(self, decisions: Decisions) -> tuple[State, PartialPlans]:
        """Turn decisions into the upper agent's state and open an empty draft for each."""
        return describe(self.tables, decisions, self.nominal_s, self.task_features, self.paces)


@dataclass(frozen=True, eq=False)
class Choices:
    """Choices of one kind, offered to n drafts.

    Attributes:
        decision: The decision each belongs to, shape ``(n,)``.
        choices: What there is, shape ``(n, c, f)``.
        mask: What is allowed, shape ``(n, c)``, or ``(n, c + 1)`` with an end.
        context: What the chooser is told beside, shape ``(n, g)``.
        domain: The domain in question, shape ``(n,)``; −1 while it is open.
    """

    decision: IntArray
    choices: Float32Array
    mask: BoolArray
    context: Float32Array
    domain: IntArray


class Actor(Protocol):
    """Who chooses. Every method returns indices into the offer's choices, shape ``(n,)``."""

    def task(self, state: State) -> IntArray:
        """A candidate, or one past the last for nothing."""
        ...

    def choose(self, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray) -> IntArray:
        """A domain (or the end), a first layer, a layout, a format or a level, as ``head`` says."""
        ...


HEADS: tuple[str, ...] = ("domain", "cut", "layout", "format", "level")
UPPER: tuple[str, ...] = ("domain", "cut")
"""Heads of the upper agent; the others are the lower agents'."""


@dataclass(frozen=True, eq=False)
class Steps:
    """All offers of one head in a batch of decisions, with what was taken."""

    offer: Choices
    taken: IntArray


@dataclass(frozen=True, eq=False)
class Trace:
    """What was seen, offered and taken in B decisions.

    Attributes:
        state: The upper agent's state.
        task: Candidate taken, shape ``(B,)``.
        steps: The later choices by head.
        plans: Numbers that describe the finished plans, shape ``(B, PLAN_FEATURES)``.
    """

    state: State
    task: IntArray
    steps: dict[str, Steps]
    plans: Float32Array


@dataclass(frozen=True, eq=False)
class Decoded:
    """The end of a walk.

    Attributes:
        trace: How it went.
        drafts: The plans; ``DEAD`` where the choices led nowhere.
        batch: The plans as records; count 0 where nothing is done.
        loads: What they ask of links and domains.
    """

    trace: Trace
    drafts: PartialPlans
    batch: PlanBatch
    loads: PlanLoads


def decode(
    planner: Planner,
    decisions: Decisions,
    chooser: Actor,
    timings: dict[str, float] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Decoded:
    """Lead decisions through all their choices.

    Args:
        planner: Their cluster.
        decisions: What is to be decided.
        chooser: Who decides.
        timings: Seconds spent at the ``upper`` and ``lower`` level are added to it.
        clock: Where the time comes from.
    """
    began = clock()
    t = planner.tables
    state, drafts = planner.describe(decisions)
    task = chooser.task(state)
    acting = task < decisions.kind.shape[1]
    rows = np.flatnonzero(acting)
    choose_task(t, drafts, rows, decisions.kind[rows, task[rows]])
    drafts.status[~acting] = DONE
    taken: dict[str, list[Steps]] = {head: [] for head in HEADS}
    below = 0.0
    while len(rows):
        rows, domain, first = _segment(planner, drafts, rows, chooser, taken)
        handed = clock()
        if len(rows):
            rows = _lower(planner, drafts, rows, domain, first, chooser, taken)
        below += clock() - handed
    if timings is not None:
        timings["upper"] += clock() - began - below
        timings["lower"] += below
    plans, batch, loads = describe_plans(t, drafts, np.arange(len(decisions)), decisions.step_s)
    trace = Trace(state, task, {head: _joined(steps) for head, steps in taken.items()}, plans)
    return Decoded(trace, drafts, batch, loads)


def _segment(
    planner: Planner,
    drafts: PartialPlans,
    rows: IntArray,
    chooser: Actor,
    taken: dict[str, list[Steps]],
) -> tuple[IntArray, IntArray, IntArray]:
    """The upper agent's choices for one more segment; returns the drafts that get one, its domain and first layer."""
    t = planner.tables
    k, layers = drafts.free.shape[1], t.reach.shape[3] - 1
    mask = np.zeros((len(rows), k + 1), dtype=np.bool_)
    choices = np.zeros((len(rows), k, DOMAIN_CHOICE), dtype=np.float32)
    domain_choices(t, drafts, rows, mask, choices)
    rows, (mask, choices) = _alive(drafts, rows, mask, choices)
    nowhere = np.full(len(rows), -1, dtype=np.int64)
    offer = Choices(rows, choices, mask, draft_features(t, drafts, rows), nowhere)
    domain = _ask(chooser, "domain", offer, drafts, rows, taken)
    ended = domain == k
    drafts.status[rows[ended]] = DONE
    rows, domain = rows[~ended], domain[~ended]
    if len(rows) == 0:
        return rows, domain, domain
    mask = np.zeros((len(rows), layers), dtype=np.bool_)
    choices = np.zeros((len(rows), layers, CUT_CHOICE), dtype=np.float32)
    cut_choices(t, drafts, rows, domain, mask, choices)
    rows, (mask, choices, domain) = _alive(drafts, rows, mask, choices, domain)
    offer = Choices(rows, choices, mask, draft_features(t, drafts, rows), domain)
    first = _ask(chooser, "cut", offer, drafts, rows, taken)
    return rows, domain, first


def _lower(
    planner: Planner,
    drafts: PartialPlans,
    rows: IntArray,
    domain: IntArray,
    first: IntArray,
    chooser: Actor,
    taken: dict[str, list[Steps]],
) -> IntArray:
    """The lower agents' choices: layout, format and microbatch level of the segment."""
    t = planner.tables
    n_layouts = len(t.sizes)
    allowed = np.zeros((len(rows), n_layouts, FORMATS, BATCH_LEVELS), dtype=np.bool_)
    choices = np.zeros((len(rows), n_layouts, LAYOUT_CHOICE), dtype=np.float32)
    seconds = np.zeros(allowed.shape, dtype=np.float32)
    worth = np.zeros(allowed.shape, dtype=np.float32)
    segment_choices(t, drafts, rows, domain, first, allowed, choices, seconds, worth)
    rows, (mask, allowed, choices, seconds, worth, domain, first) = _alive(
        drafts, rows, np.asarray(allowed.any(axis=(2, 3))), allowed, choices, seconds, worth, domain, first
    )
    n = np.arange(len(rows))
    kind = drafts.kind[rows]
    flops, count = t.cost.sizes[kind, 8], t.cost.n_layers[kind]
    work = (flops[n, drafts.stop[rows]] - flops[n, first]) / flops[n, count]
    stage = np.column_stack([
        draft_features(t, drafts, rows), work, first == 0, drafts.stop[rows] == count,
    ]).astype(np.float32)  # fmt: skip
    layout = _ask(chooser, "layout", Choices(rows, choices, mask, stage, domain), drafts, rows, taken)
    allowed, seconds, worth, own = allowed[n, layout], seconds[n, layout], worth[n, layout], choices[n, layout]
    worth = np.where(allowed, worth, -8.0)
    formats = np.zeros((len(rows), FORMATS, FORMAT_CHOICE), dtype=np.float32)
    formats[:, :, :FORMATS] = np.eye(FORMATS)
    times = np.where(allowed, seconds, 8.0).min(axis=2)
    formats[:, :, 4] = np.clip(8.0 * (times - times.min(axis=1, keepdims=True)), 0.0, 4.0)
    formats[:, :, 5] = times / 2.0
    best = worth.max(axis=2)
    formats[:, :, 6] = np.clip(8.0 * (best - best.max(axis=1, keepdims=True)), -4.0, 0.0)
    context = np.concatenate([stage, own], axis=1)
    precision = _ask(
        chooser, "format", Choices(rows, formats, allowed.any(axis=2), context, domain), drafts, rows, taken
    )
    allowed, seconds, chosen = allowed[n, precision], seconds[n, precision], formats[n, precision]
    worth = worth[n, precision]
    levels = np.zeros((len(rows), BATCH_LEVELS, LEVEL_CHOICE), dtype=np.float32)
    times = np.where(allowed, seconds, 8.0)
    micro = t.micro[kind]
    levels[:, :, 0] = np.log2(micro) / 8.0
    levels[:, :, 1] = np.log2(t.batch[kind, None] / micro) / 8.0
    levels[:, :, 2] = np.clip(8.0 * (times - times.min(axis=1, keepdims=True)), 0.0, 4.0)
    levels[:, :, 3] = times / 2.0
    levels[:, :, 4] = np.clip(8.0 * (worth - worth.max(axis=1, keepdims=True)), -4.0, 0.0)
    context = np.concatenate([stage, own, chosen], axis=1)
    level = _ask(chooser, "level", Choices(rows, levels, allowed, context, domain), drafts, rows, taken)
    write_segments(t, drafts, rows, domain, first, layout, precision, level)
    going_on: IntArray = rows[drafts.status[rows] == OPEN]
    return going_on


def _alive(
    drafts: PartialPlans, rows: IntArray, mask: BoolArray, *others: NDArray[np.generic]
) -> tuple[IntArray, tuple]:  # type: ignore[type-arg]
    """Give up drafts that nothing completes, which a mask that is only sufficient cannot always foresee."""
    alive = mask.any(axis=1)
    if alive.all():
        return rows, (mask, *others)
    drafts.status[rows[~alive]] = DEAD
    return rows[alive], tuple(array[alive] for array in (mask, *others))


def _ask(
    chooser: Actor, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray, taken: dict[str, list[Steps]]
) -> IntArray:
    """Ask for a choice where there is one, and keep what was offered and taken."""
    count = offer.mask.sum(axis=1)
    found: IntArray = offer.mask.argmax(axis=1)
    open_ = np.flatnonzero(count > 1)
    if len(open_):
        asked = offer if len(open_) == len(rows) else Choices(
            offer.decision[open_], offer.choices[open_], offer.mask[open_], offer.context[open_], offer.domain[open_]
        )  # fmt: skip
        found[open_] = chooser.choose(head, asked, drafts, rows[open_])
        if not offer.mask[open_, found[open_]].all():
            wrong = int(np.flatnonzero(~offer.mask[open_, found[open_]])[0])
            rule = "is not on offer at this point of the plan"
            raise PlanError(problem(f"{head} choice", int(found[open_][wrong]), rule, "Choose where the mask is True"))
        taken[head].append(Steps(asked, found[open_]))
    return found


def _joined(steps: list[Steps]) -> Steps:
    """Put the offers of all segments together, in order of their decisions."""
    if not steps:
        none = np.zeros(0, dtype=np.int64)
        empty = np.zeros((0, 1, 1), dtype=np.float32)
        return Steps(Choices(none, empty, np.zeros((0, 1), dtype=np.bool_), empty[:, 0], none), none)
    parts = [(s.offer.decision, s.offer.choices, s.offer.mask, s.offer.context, s.offer.domain, s.taken) for s in steps]
    decision, choices, mask, context, domain, taken = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(decision, kind="stable")
    return Steps(Choices(decision[order], choices[order], mask[order], context[order], domain[order]), taken[order])


# ------ Who is imitated before learning begins: a rule in every cluster at once


_HOURS = CANDIDATE_NAMES.index("nominal_hours")
_BASELINE = CANDIDATE_NAMES.index("baseline_hours")
_RUNS = CANDIDATE_NAMES.index("runs")
_TIME_NOW = CANDIDATE_NAMES.index("time_now")
_GAIN = CANDIDATE_NAMES.index("gain")
_SLOWED = CANDIDATE_NAMES.index("slowed")
_HELD = CANDIDATE_NAMES.index("devices_held")
_QUEUE = GLOBAL_NAMES.index("queue_length")

EARNING = 0.36
MUCH, SOME_HOURS, FEW = 0.3, 0.3, 12
MANY, LONG_HOURS, LARGE = 5, 0.9, 0.2
USE, CROWD, SOON = 1.2, 0.8, 1.1 / 64.0
"""Searched at random on training days of four worlds (seeds from 540,000 on): a broad optimum, so they are rounded."""

NOWHERE = 1.99
"""What ``slowed`` says of a task that no single domain holds now."""


class ShortestFirst:
    """The shortest task that fits, where and as it is worth most by itself.

    Short is a task by its hours alone in an empty domain over the 0.36th power of its hours on the baseline: of two
    that take as long, the one that earns more goes first. A task that only needs to wait for room in one domain is not
    cut over several; a model that no domain holds alone is cut where the domain that holds most of it can begin. Worth
    is utilisation less time, and devices cost more the more tasks wait for them, and a little for those that will come.
    Between domains of equal worth the fuller one is taken. A running task that has some time left is planned anew if it
    could be much faster and not many others wait, or if it holds much and many wait.
    """

    def task(self, state: State) -> IntArray:
        """The shortest waiting task, or a running one that is held up or stands in the way."""
        seen = state.candidates
        size = seen[:, :, _HOURS] - EARNING * seen[:, :, _BASELINE]
        runs = seen[:, 0, _RUNS] > 0
        # Hours as on the baseline mark a model that no domain holds even when empty: waiting would not help it.
        patient = (seen[:, :, _SLOWED] > NOWHERE) & (seen[:, :, _HOURS] != seen[:, :, _BASELINE]) & ~runs[:, None]
        size = np.where(state.mask[:, :-1] & ~patient, size, np.inf)
        hours_left = np.exp(4.0 * seen[:, 0, _BASELINE] + 2.0 * seen[:, 0, _TIME_NOW])
        waiting = 16.0 * state.globals[:, _QUEUE]
        held_up = (seen[:, 0, _GAIN] > MUCH) & (hours_left > SOME_HOURS) & (waiting <= FEW)
        in_the_way = (seen[:, 0, _HELD] >= LARGE) & (hours_left > LONG_HOURS) & (waiting >= MANY)
        # A model that no domain holds would hold as many devices after it was moved, and its state is sent for nothing.
        in_the_way &= seen[:, 0, _HOURS] != seen[:, 0, _BASELINE]
        nothing = ~np.isfinite(size).any(axis=1) | (runs & ~held_up & ~in_the_way)
        return np.asarray(np.where(nothing, size.shape[1], size.argmin(axis=1)), dtype=np.int64)

    def choose(self, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray) -> IntArray:
        """What is worth most."""
        if head == "cut":
            return np.asarray(offer.mask.argmax(axis=1), dtype=np.int64)
        if head == "domain":
            end = offer.mask[:, -1]
            room, part, holds, worth = (offer.choices[:, :, c] for c in (1, 3, 4, 15))
            score = np.where(offer.mask[:, :-1], 20.0 * holds + 2.0 * worth + part - 0.1 * room, -np.inf)
            return np.asarray(np.where(end, score.shape[1], score.argmax(axis=1)), dtype=np.int64)
        column = {"layout": 12, "format": 6, "level": 4}[head]
        worth = offer.choices[:, :, column]
        if head == "layout":
            seconds, log_size, use = (offer.choices[:, :, c] for c in (0, 4, 11))
            faster, busier, others = (drafts.wishes[rows, c][:, None] for c in range(3))
            crowded = 1.0 + (CROWD * others + SOON) * 2.0 ** (4.0 * log_size)
            # What the choices carry as their worth decides between layouts of the same devices.
            worth = USE * busier * use - faster * np.exp(2.0 * seconds) * crowded + 1e-3 * worth
        found: IntArray = np.where(offer.mask, worth, -np.inf).argmax(axis=1)
        return found
