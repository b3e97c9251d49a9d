"""One decision after another choice: task, then per segment domain, cut, layout, format, microbatch level.

``decode`` leads a batch of decisions through these choices; who chooses is given to it: the agents, or a
teacher whose plan is followed.
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
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.world import BATCH_LEVELS, TaskKind, within_budgets
from attribution_sched.errors import PlanError, problem
from attribution_sched.planning.memory_feasibility import FORMATS, PlannerTables, make_tables
from attribution_sched.scheduler.hi_ppo.action_masks import (
    C_HOLDS,
    C_PART,
    C_ROOM,
    C_WORTH,
    DEAD,
    DOMAIN_CHOICE,
    DONE,
    L_SIZE,
    L_TIME,
    L_USE,
    L_WORTH,
    LARGEST,
    LAYOUT_CHOICE,
    OPEN,
    PartialPlans,
    cut_choices,
    domain_choices,
    finished_plans,
    segment_choices,
    write_segments,
)
from attribution_sched.scheduler.hi_ppo.features import (
    BASELINE_HOURS,
    GAIN,
    HELD,
    HOURS,
    PACE,
    RUNS,
    SLOWED,
    TIME_NOW,
    State,
    choose_task,
    describe,
    nominal_step_s,
    spanning,
)
from attribution_sched.types import BoolArray, Float32Array, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Planner:
    """Everything about a cluster and its kinds of tasks that does not change between decisions.

    Attributes:
        tables: What fits where.
        nominal_s: Step time of every kind alone in an empty domain, shape ``(n_kinds,)``.
        rooms: Devices that every domain offers when it is empty, power budgets considered, shape ``(K,)``.
        spanning: Kinds that no domain holds alone even then, shape ``(n_kinds,)``.
        paces: What attributions say of the time tasks take, see :func:`~.features.log_pace`, shape ``(n_kinds, PACE)``.
    """

    tables: PlannerTables
    nominal_s: FloatArray
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
        said = np.zeros((len(kinds), PACE)) if paces is None else paces
        rooms = within_budgets(cost.cluster, np.array([domain.devices for domain in cost.cluster.domains]))
        return cls(tables, nominal_step_s(tables), rooms, spanning(tables, rooms), said)

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
        """Turn decisions into what the rule reads and open an empty draft for each."""
        return describe(self.tables, decisions, self.nominal_s, self.paces)


@dataclass(frozen=True, eq=False)
class Choices:
    """Choices of one kind, offered to n drafts.

    Attributes:
        choices: Numbers of each, columns ``C_…`` of domains and ``L_…`` of layouts, what formats and levels add to R
            alone, nothing of cuts, shape ``(n, c, f)``.
        mask: What is allowed, shape ``(n, c)``, or ``(n, c + 1)`` with an end.
    """

    choices: Float32Array
    mask: BoolArray


class Actor(Protocol):
    """Who chooses. Every method returns indices into the offer's choices, shape ``(n,)``."""

    def task(self, state: State) -> IntArray:
        """A candidate, or one past the last for nothing."""
        ...

    def choose(self, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray) -> IntArray:
        """A domain (or the end), a first layer, a layout, a format or a level, as ``head`` says."""
        ...


@dataclass(frozen=True, eq=False)
class Decoded:
    """What came of B decisions.

    Attributes:
        state: What was read of them.
        task: Candidate taken, one past the last for nothing, shape ``(B,)``.
        drafts: The plans; ``DEAD`` where the choices led nowhere.
        batch: The plans as records; count 0 where nothing is done.
    """

    state: State
    task: IntArray
    drafts: PartialPlans
    batch: PlanBatch


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
    below = 0.0
    while len(rows):
        rows, domain, first = _segment(planner, drafts, rows, chooser)
        handed = clock()
        if len(rows):
            rows = _lower(planner, drafts, rows, domain, first, chooser)
        below += clock() - handed
    if timings is not None:
        timings["upper"] += clock() - began - below
        timings["lower"] += below
    return Decoded(state, task, drafts, finished_plans(t, drafts))


def _segment(
    planner: Planner, drafts: PartialPlans, rows: IntArray, chooser: Actor
) -> tuple[IntArray, IntArray, IntArray]:
    """The upper agent's choices for one more segment; returns the drafts that get one, its domain and first layer."""
    t = planner.tables
    k, layers = drafts.free.shape[1], t.reach.shape[3] - 1
    mask = np.zeros((len(rows), k + 1), dtype=np.bool_)
    choices = np.zeros((len(rows), k, DOMAIN_CHOICE), dtype=np.float32)
    domain_choices(t, drafts, rows, mask, choices)
    rows, (mask, choices) = _alive(drafts, rows, mask, choices)
    domain = _ask(chooser, "domain", Choices(choices, mask), drafts, rows)
    ended = domain == k
    drafts.status[rows[ended]] = DONE
    rows, domain = rows[~ended], domain[~ended]
    if len(rows) == 0:
        return rows, domain, domain
    mask = np.zeros((len(rows), layers), dtype=np.bool_)
    cut_choices(t, drafts, rows, domain, mask)
    rows, (mask, domain) = _alive(drafts, rows, mask, domain)
    offer = Choices(np.zeros((*mask.shape, 0), dtype=np.float32), mask)
    return rows, domain, _ask(chooser, "cut", offer, drafts, rows)


def _lower(
    planner: Planner, drafts: PartialPlans, rows: IntArray, domain: IntArray, first: IntArray, chooser: Actor
) -> IntArray:
    """The lower agents' choices: layout, format and microbatch level of the segment."""
    t = planner.tables
    allowed = np.zeros((len(rows), len(t.sizes), FORMATS, BATCH_LEVELS), dtype=np.bool_)
    choices = np.zeros((len(rows), len(t.sizes), LAYOUT_CHOICE), dtype=np.float32)
    worth = np.zeros(allowed.shape, dtype=np.float32)
    segment_choices(t, drafts, rows, domain, first, allowed, choices, worth)
    rows, (mask, allowed, choices, worth, domain, first) = _alive(
        drafts, rows, np.asarray(allowed.any(axis=(2, 3))), allowed, choices, worth, domain, first
    )
    n = np.arange(len(rows))
    layout = _ask(chooser, "layout", Choices(choices, mask), drafts, rows)
    allowed = allowed[n, layout]
    worth = np.where(allowed, worth[n, layout], -LARGEST)
    precision = _ask(chooser, "format", Choices(worth.max(axis=2)[..., None], allowed.any(axis=2)), drafts, rows)
    allowed, worth = allowed[n, precision], worth[n, precision]
    level = _ask(chooser, "level", Choices(worth[..., None], allowed), drafts, rows)
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


def _ask(chooser: Actor, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray) -> IntArray:
    """Ask for a choice where there is one."""
    found: IntArray = offer.mask.argmax(axis=1)
    several = np.flatnonzero(offer.mask.sum(axis=1) > 1)
    if len(several):
        asked = offer if len(several) == len(rows) else Choices(offer.choices[several], offer.mask[several])
        found[several] = chooser.choose(head, asked, drafts, rows[several])
        refused = several[~offer.mask[several, found[several]]]
        if len(refused):
            rule = "is not on offer at this point of the plan"
            raise PlanError(problem(f"{head} choice", int(found[refused[0]]), rule, "Choose where the mask is True"))
    return found


# ------ The rule that the agents begin at


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
        size = seen[:, :, HOURS] - EARNING * seen[:, :, BASELINE_HOURS]
        runs = seen[:, 0, RUNS] > 0
        # Hours as on the baseline mark a model that no domain holds even when empty: waiting would not help it.
        patient = (seen[:, :, SLOWED] > NOWHERE) & (seen[:, :, HOURS] != seen[:, :, BASELINE_HOURS]) & ~runs[:, None]
        size = np.where(state.mask[:, :-1] & ~patient, size, np.inf)
        hours_left = np.exp(4.0 * seen[:, 0, BASELINE_HOURS] + 2.0 * seen[:, 0, TIME_NOW])
        held_up = (seen[:, 0, GAIN] > MUCH) & (hours_left > SOME_HOURS) & (state.waiting <= FEW)
        in_the_way = (seen[:, 0, HELD] >= LARGE) & (hours_left > LONG_HOURS) & (state.waiting >= MANY)
        # A model that no domain holds would hold as many devices after it was moved, and its state is sent for nothing.
        in_the_way &= seen[:, 0, HOURS] != seen[:, 0, BASELINE_HOURS]
        nothing = ~np.isfinite(size).any(axis=1) | (runs & ~held_up & ~in_the_way)
        return np.asarray(np.where(nothing, size.shape[1], size.argmin(axis=1)), dtype=np.int64)

    def choose(self, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray) -> IntArray:
        """What is worth most."""
        if head == "cut":
            return np.asarray(offer.mask.argmax(axis=1), dtype=np.int64)
        if head == "domain":
            end = offer.mask[:, -1]
            room, part, holds, worth = (offer.choices[:, :, c] for c in (C_ROOM, C_PART, C_HOLDS, C_WORTH))
            score = np.where(offer.mask[:, :-1], 20.0 * holds + 2.0 * worth + part - 0.1 * room, -np.inf)
            return np.asarray(np.where(end, score.shape[1], score.argmax(axis=1)), dtype=np.int64)
        if head == "layout":
            seconds, log_size, use, worth = (offer.choices[:, :, c] for c in (L_TIME, L_SIZE, L_USE, L_WORTH))
            faster, busier, others = (drafts.wishes[rows, c][:, None] for c in range(3))
            crowded = 1.0 + (CROWD * others + SOON) * 2.0 ** (4.0 * log_size)
            # What the choices carry as their worth decides between layouts of the same devices.
            worth = USE * busier * use - faster * np.exp(2.0 * seconds) * crowded + 1e-3 * worth
        else:
            worth = offer.choices[:, :, 0]
        found: IntArray = np.where(offer.mask, worth, -np.inf).argmax(axis=1)
        return found
