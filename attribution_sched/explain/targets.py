"""What is explained of a decision: functions of a situation *and of the plan*, several outputs at once.

A state's value alone does not depend on the plan and would explain nothing about it; everything here does.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from attribution_sched.cluster.cost import JOULES_PER_KWH, joules_by_domain
from attribution_sched.cluster.decision import PER_CANDIDATE, Decision, Decisions
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import total_of, worth
from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.explanation import COMPONENTS, TOTAL
from attribution_sched.explain.masked_states import to_view
from attribution_sched.explain.players import Lineup
from attribution_sched.scheduler.policy import Appraisal, Appraiser, Episodic, Policy, Selective
from attribution_sched.types import BoolArray, FloatArray, IntArray

Chosen = tuple[tuple[object, ...], ...] | None
"""Where and how a plan runs, without what is only bookkeeping."""


class Target(Protocol):
    """A function of situations with named outputs."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        ...

    def movable(self, cast: Lineup, differing: BoolArray) -> BoolArray:
        """Players that can have a share at all, shape ``(P,)``.

        Args:
            cast: All players.
            differing: Whether the background has other numbers for them than the decision.
        """
        ...

    def __call__(self, situations: Decisions, coalitions: BoolArray, background: IntArray) -> FloatArray:
        """Outputs ``(n, C)`` of situations, made of coalitions ``(n, P)`` and background states ``(n,)``."""
        ...


class _AnyInput:
    """Every input may matter."""

    def movable(self, cast: Lineup, differing: BoolArray) -> BoolArray:
        """All that differ."""
        return differing


def with_total(terms: FloatArray, weights: FloatArray) -> FloatArray:
    """Reward components ``(n, 3)`` and, last, their sum R with frozen weights ``(3,)`` or ``(n, 3)``."""
    total = total_of(terms, weights)
    return np.concatenate([terms, total[:, None]], axis=1)


@dataclass(frozen=True, eq=False)
class AppraisedComponents(_AnyInput):
    """R_eff, R_util, R_cost and R of a plan (or of the difference to another) as the policy expects them of it.

    Attributes:
        policy: Whose expectation.
        view: The decision.
        plans: The plan, and the one it is compared with if any.
        weights: w_eff, w_util and w_cost, frozen, shape ``(3,)``.
    """

    policy: Appraiser
    view: Decision
    plans: tuple[Plan | None, ...]
    weights: FloatArray
    outputs: tuple[str, ...] = (*COMPONENTS, TOTAL)

    def movable(self, cast: Lineup, differing: BoolArray) -> BoolArray:
        """All that differ, or of these what the policy says that it reads."""
        if not isinstance(self.policy, Selective):
            return differing
        read = np.zeros(len(differing), dtype=np.bool_)
        for field in self.policy.terms_read(self.plans) & set(cast.owners):
            owner = cast.owners[field][:1] if field in PER_CANDIDATE else cast.owners[field]
            read[owner[owner >= 0]] = True
        return differing & read

    def __call__(self, situations: Decisions, coalitions: BoolArray, background: IntArray) -> FloatArray:
        """Components ``(n, 4)``."""
        terms = self.policy.appraise(self.view, situations, self.plans, log_probability=False).terms
        return with_total(terms[:, 0] - terms[:, 1] if len(self.plans) > 1 else terms[:, 0], self.weights)


@dataclass(frozen=True, eq=False)
class ChoiceProbability(_AnyInput):
    """Log-probability of a plan, or the log-odds against another; it has no reward components."""

    policy: Appraiser
    view: Decision
    plans: tuple[Plan | None, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        """One output."""
        return ("log_odds" if len(self.plans) > 1 else "log_probability",)

    def __call__(self, situations: Decisions, coalitions: BoolArray, background: IntArray) -> FloatArray:
        """Shape ``(n, 1)``."""
        said: Appraisal = self.policy.appraise(self.view, situations, self.plans)
        found = said.log_probability
        return found[:, :1] - found[:, 1:2] if len(self.plans) > 1 else found[:, :1]


@dataclass(frozen=True, eq=False)
class Choice(_AnyInput):
    """Whether a policy of any kind makes the same choice: 1 or 0, less 1 where it makes the one compared with."""

    policy: Policy
    view: Decision
    plans: tuple[Plan | None, ...]
    outputs: tuple[str, ...] = ("choice",)

    def __call__(self, situations: Decisions, coalitions: BoolArray, background: IntArray) -> FloatArray:
        """Shape ``(n, 1)``."""
        wanted = [chosen(plan) for plan in self.plans]
        made = [chosen(plan) for plan in proposals(self.policy, self.view, situations)]
        found = np.array([[float(plan == one) for one in wanted] for plan in made])
        return found[:, :1] - found[:, 1:2] if len(wanted) > 1 else found


@dataclass(frozen=True, eq=False)
class Simulated:
    """The plan's own terms as the simulator works them out, with links and the task's latent demands replaced.

    Where grids or prices of electricity change by the hour, they are those of the situation's hour.
    This is the truth that a policy's own expectation is judged by. What has no hand in the simulator's answer for a
    fixed plan (how full other domains are, who else waits) has no share in it.

    Attributes:
        view: The decision.
        plans: The plan, and the one it is compared with if any.
        weights: Frozen weights, shape ``(3,)``.
        own: Demand factors of the task as a function of its seven demand ratios ``(n, 7)``, shape ``(n, 3)``.
        ratio: The task's seven demands over the nominal ones, shape ``(7,)``.
        others: The same of the background's tasks, shape ``(M, 7)``.
        players: Player that stands for each of the seven demands; −1 for none.
    """

    view: Decision
    plans: tuple[Plan | None, ...]
    weights: FloatArray
    own: Callable[[FloatArray], FloatArray]
    ratio: FloatArray
    others: FloatArray
    players: IntArray
    outputs: tuple[str, ...] = (*COMPONENTS, TOTAL)

    def movable(self, cast: Lineup, differing: BoolArray) -> BoolArray:
        """Links if a plan crosses any, and demands that differ."""
        crossing = any(plan is not None and len(plan.segments) > 1 for plan in self.plans)
        found = np.array([crossing and group == "link" for group in cast.groups]) & differing
        demands = (self.others != self.ratio).any(axis=0) & (self.players >= 0)
        found[self.players[demands]] = True
        reward = self.view.reward
        if any(plan is not None for plan in self.plans):
            for family, price in (("carbon", reward.carbon_usd_per_kg), ("electricity", reward.energy_usd_per_kwh)):
                if price > 0.0:
                    found |= np.array([group == family for group in cast.groups]) & differing
        return found

    def __call__(self, situations: Decisions, coalitions: BoolArray, background: IntArray) -> FloatArray:
        """Components ``(n, 4)``."""
        present = np.concatenate([coalitions, np.ones((len(coalitions), 1), dtype=np.bool_)], axis=1)
        ratio = np.where(present[:, self.players], self.ratio, self.others[background])
        factors = self.own(ratio)
        terms = [self._terms(plan, situations, factors) for plan in self.plans]
        return with_total(terms[0] - terms[1] if len(terms) > 1 else terms[0], self.weights)

    def _terms(self, plan: Plan | None, situations: Decisions, factors: FloatArray) -> FloatArray:
        n = len(situations)
        if plan is None:
            return np.zeros((n, len(COMPONENTS)))
        one = PlanBatch.of([plan])
        batch = PlanBatch(*(np.repeat(part, n, axis=0) for part in (one.segments, one.counts, one.schedules)))
        priced = self.view.cost.score(
            batch, self.view.kind_index, bandwidth_gbps=situations.links[:, 0], latency_s=situations.links[:, 1],
            factors=factors, breakdown=False,
        )  # fmt: skip
        # Situations tell prices as the world began with them; feedback may ask another multiple of them by now.
        told_at = self.view.reward if self.view.moment is None else self.view.moment.world.reward
        hourly_price = situations.electricity.shape[1] > 0 and told_at.energy_usd_per_kwh > 0.0
        if situations.carbon.shape[1] or hourly_price:
            joules = joules_by_domain(self.view.cost, batch, priced)
            if situations.carbon.shape[1]:
                priced = replace(priced, carbon_g=(joules * (situations.carbon / JOULES_PER_KWH)).sum(axis=1))
            if hourly_price:
                # Joules at the usual price that cost as much.
                multiples = situations.electricity / told_at.energy_usd_per_kwh
                priced = replace(priced, energy_j=(joules * multiples).sum(axis=1))
        found = worth(self.view, batch, priced, self.view.kind_index)
        return np.column_stack([found.r_eff, found.r_util, found.r_cost])


def chosen(plan: Plan | None) -> Chosen:
    """What two plans must share to be the same choice: domains, layers, devices and numeric formats."""
    if plan is None:
        return None
    return tuple((s.domain, s.first, s.stop, s.device_count, s.precision) for s in plan.segments)


def proposals(policy: Policy, view: Decision, situations: Decisions) -> Sequence[Plan | None]:
    """What a policy would do in each situation, all at once if it can.

    A policy that remembers is asked as at the start of an episode, every time: the answer to one situation must not
    depend on those asked before it. A copy is asked, so that its own memory stays as it is.
    """
    if isinstance(policy, Appraiser):
        return policy.propose(view, situations)
    if not isinstance(policy, Episodic):
        return [policy.decide(to_view(view, situations, row)) for row in range(len(situations))]
    asked = _copied(policy)
    made = []
    for row in range(len(situations)):
        asked.reset(0)  # type: ignore[attr-defined]
        made.append(asked.decide(to_view(view, situations, row)))
    return made


def _copied(policy: Policy) -> Policy:
    try:
        return copy.deepcopy(policy)
    except Exception:  # What a foreign policy holds (a socket, a handle) may refuse to be copied deeply.
        return copy.copy(policy)


def need_appraiser(policy: Policy, target: str) -> Appraiser:
    """The policy, if it can say what it thinks."""
    if not isinstance(policy, Appraiser):
        rule = f"{getattr(policy, 'name', type(policy).__name__)} has no critics or probabilities to ask"
        raise ExplanationError(problem("target", target, rule, "Use target='simulator' or 'choice'"))
    return policy
