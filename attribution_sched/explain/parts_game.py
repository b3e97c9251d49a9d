"""A plan as a game of its own parts and of the links it crosses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import worth
from attribution_sched.explain.explanation import COMPONENTS, TOTAL
from attribution_sched.explain.masked_states import Blender
from attribution_sched.explain.plan_mixtures import Hybrids
from attribution_sched.explain.shapley.exact import coalition_block
from attribution_sched.explain.shapley.plan import STANDARD_ROWS
from attribution_sched.explain.targets import with_total
from attribution_sched.planning.candidates import taken
from attribution_sched.scheduler.policy import Appraiser, BatchAppraiser

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_CHUNK_ROWS = 4096


class Valued(Protocol):
    """Says what plans are worth in situations."""

    def __call__(self, plans: PlanBatch, rows: IntArray, situations: Decisions) -> FloatArray:
        """R_eff, R_util and R_cost ``(n, 3)`` of plan ``rows[i]`` in situation ``i``."""
        ...


@dataclass(frozen=True, eq=False)
class SimulatedPlans:
    """As the simulator works them out.

    Attributes:
        view: The decision.
        factors: The task's demand multipliers, shape ``(3,)``; ones for a nominal task.
    """

    view: Decision
    factors: FloatArray

    def __call__(self, plans: PlanBatch, rows: IntArray, situations: Decisions) -> FloatArray:
        """Components ``(n, 3)``."""
        batch, kind = taken(plans, rows), self.view.kind_index
        priced = self.view.cost.score(
            batch, kind, bandwidth_gbps=situations.links[:, 0], latency_s=situations.links[:, 1], factors=self.factors,
            breakdown=False,
        )  # fmt: skip
        found = worth(self.view, batch, priced, kind)
        return np.column_stack([found.r_eff, found.r_util, found.r_cost])


@dataclass(frozen=True, eq=False)
class AppraisedPlans:
    """As a policy expects them."""

    view: Decision
    policy: Appraiser

    def __call__(self, plans: PlanBatch, rows: IntArray, situations: Decisions) -> FloatArray:
        """Components ``(n, 3)``."""
        asked, owner = np.unique(rows, return_inverse=True)
        listed = [plans.plan(int(row)) for row in asked]
        if isinstance(self.policy, BatchAppraiser):
            return self.policy.appraise_each([self.view] * len(listed), situations, owner, listed).terms[:, 0]
        found = np.empty((len(rows), len(COMPONENTS)))
        for at, plan in enumerate(listed):
            own = np.flatnonzero(owner == at)
            said = self.policy.appraise(
                self.view, situations.take(own), [plan], log_probability=False
            )  # fmt: skip
            found[own] = said.terms[:, 0]
        return found


@dataclass(frozen=True, eq=False)
class PartsGame:
    """Who is present is as in the decision: a part as in its plan, a link as it was.

    An absent part is that of another plan, an absent link is as in a background state. Background number ``b`` is one
    state with ``repeats`` other plans of its own, over which the value is averaged: few states do not mean few plans,
    and the spread between states still counts all that was drawn. The value is the plan's own, or the difference to
    the other plan in the same situation.

    Attributes:
        players: Parts first, then links.
        hybrids: Mixtures of the plan with ``B · repeats`` others.
        seats: Where the links stand in the line-up that ``blend`` knows.
        n_seats: Players of that line-up.
        blend: Puts situations together.
        states: Background state of each of the B, shape ``(B,)``.
        valued: What a plan is worth.
        weights: Frozen weights, shape ``(3,)``.
        contrast: Whether the difference to the other plan is asked for.
        population: Whether the background is all there is, not a sample.
        repeats: Other plans for each state.
    """

    players: tuple[str, ...]
    hybrids: Hybrids
    seats: IntArray
    n_seats: int
    blend: Blender
    states: IntArray
    valued: Valued
    weights: FloatArray
    contrast: bool
    population: bool = False
    repeats: int = 1
    outputs: tuple[str, ...] = (*COMPONENTS, TOTAL)

    @property
    def n_background(self) -> int:
        """Number of states, each with its other plans."""
        return len(self.states)

    def __call__(self, coalitions: BoolArray, background: IntArray) -> FloatArray:
        """Components and total ``(n, 4)``."""
        if self.n_background << len(self.players) > STANDARD_ROWS:
            return self._play(coalitions, background)
        return self._table[background, coalitions @ (1 << np.arange(len(self.players)))]

    @cached_property
    def _table(self) -> FloatArray:
        """Every coalition with every background, ``(B, 2^d, 4)``: shares and interactions ask for the same ones."""
        d, states = len(self.players), self.n_background
        every, background = np.tile(coalition_block(0, 1 << d, d), (states, 1)), np.repeat(np.arange(states), 1 << d)
        parts = [slice(start, start + _CHUNK_ROWS) for start in range(0, len(every), _CHUNK_ROWS)]
        return np.concatenate([self._play(every[p], background[p]) for p in parts]).reshape(states, 1 << d, -1)

    def _play(self, coalitions: BoolArray, background: IntArray) -> FloatArray:
        parts = len(self.hybrids.blocks)
        code = coalitions[:, :parts] @ (1 << np.arange(parts))
        everybody = np.ones((len(coalitions), self.n_seats), dtype=np.bool_)
        everybody[:, self.seats] = coalitions[:, parts:]
        situations = self.blend(everybody, self.states[background], np.zeros(len(coalitions), dtype=np.int64))
        terms = np.zeros((len(coalitions), len(COMPONENTS)))
        for turn in range(self.repeats):
            first = background * self.repeats + turn << parts
            terms += self.valued(self.hybrids.plans, first + code, situations)
            if self.contrast:
                terms -= self.valued(self.hybrids.plans, first, situations)
        return with_total(terms / self.repeats, self.weights)
