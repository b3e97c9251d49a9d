"""The log-odds of a choice against the best other one, asked of the agents in many situations at once.

Hi-PPO takes the most probable choice at each head: which task, which domain, where to cut, on how many devices. So a
plan is what they choose exactly if at every head it is more probable than whatever else is on offer there, and
the *log-odds* of the plan are the least of these margins: above 0 where they choose it, below 0 where it does
something else. What is on offer is what the situation offers: a domain that is emptied enters the competition.
Details that a search settles afterwards (layout, numeric format, microbatch) are no part of it.

The search has the last word on where: among plans on as many devices it takes the one of highest R. A task that
waiting would not help while nobody else waits, and a model that no single domain holds, are placed by it alone: the
plan of highest R on any number of devices, less what these cost those that wait. There the margin is that of R.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import DOMAIN, DP, PP, TP, Plan
from attribution_sched.cluster.reward import value
from attribution_sched.kernels import one_thread
from attribution_sched.planning.domain_orders import best_by_domains
from attribution_sched.planning.instance import Instance
from attribution_sched.planning.segment_table import plans_inside
from attribution_sched.scheduler.hi_ppo.agents import CERTAIN, Weighed, log_odds_of, only_choice, weighed_by
from attribution_sched.scheduler.hi_ppo.appraisal import agents_choices, appraise, checked, stays, waiting_is_futile
from attribution_sched.scheduler.hi_ppo.decode import Planner
from attribution_sched.scheduler.policy import Preferred
from attribution_sched.types import BoolArray, FloatArray

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo

RIVALS = 12
"""Plans at most that the wide search is taken to compare: the best of each set of domains and number of devices."""

TIE = 1e-4
"""R by which the plan that was settled on counts as better than one with the same price."""

SEARCH_ODDS = 10.0
"""Log-odds of a unit of R between two plans that the search compares; only their sign decides."""


@dataclass(frozen=True, eq=False)
class Rivals:
    """Plans for the view's task that the wide search compares.

    Attributes:
        plans: Over different domains, or on different numbers of devices.
        flattered: By how much each is priced above what the search settled on at the decision itself, and not chosen.
        settled: What it settled on there; None where others decide.
        settled_worth: R of that, less what its devices cost others.
    """

    plans: tuple[Plan, ...]
    flattered: FloatArray
    settled: Plan | None = None
    settled_worth: float = math.inf

    @classmethod
    def of(cls, policy: HiPpo, view: Decision, plan: Plan | None = None, *, settled: bool = False) -> Rivals:
        """The best plans with what is free now and with all devices, and what the search itself finds.

        Args:
            policy: Whose search.
            view: The decision.
            plan: What was decided, if that is known; where no rival is worth more, the search need not be asked.
            settled: Whether it is known that the search settled on it.
        """
        empty = replace(view, free_devices=np.array(view.cost.domains.rows.devices, dtype=np.int64))
        listed = [*_inside(view), *_inside(empty)]
        if policy.planner(view).spanning[view.kind_index]:
            listed = [*_across(view), *_across(empty)]
        plans = list({_kind_of(plan): plan for plan in reversed(listed)}.values())
        own = policy.perceive(view)
        found = None
        if policy.search and not view.replanning:
            found = None if plan is None else plan.uncapped()
            if found is None or not (settled or _worth_most(policy, view, own, [found, *plans])):
                found = policy.redecide([view], own)[0]
        if found is not None:
            plans = [found, *(plan for plan in plans if _kind_of(plan) != _kind_of(found))]
        worth = _worth(policy, view, own, plans)[0]
        best = np.argsort(-np.where(np.isneginf(worth), -1e9, worth), kind="stable")[:RIVALS]
        limit = math.inf if found is None else float(worth[0])
        above = _above(worth, limit)
        if found is not None:
            above[0] = 0.0
        kept = np.union1d(best, [0]) if plans else best
        return cls(tuple(plans[i] for i in kept.tolist()), above[kept], found, limit)

    def worth(self, policy: HiPpo, view: Decision, situations: Decisions) -> FloatArray:
        """R of each in every situation, less what its devices cost others; −inf without room, shape ``(n, P)``."""
        return _worth(policy, view, situations, self.plans) - self.flattered

    def best(self, worth: FloatArray, plan: Plan | None, *, wide: bool) -> Plan | None:
        """What the search makes of a proposal in one situation, by the worth ``(P,)`` of each plan there."""
        if plan is None:
            return None
        size = _kind_of(plan)[1]
        able = [wide or (len(set(each.domains)) == 1 and _kind_of(each)[1] == size) for each in self.plans]
        found = np.where(np.array(able, dtype=np.bool_), worth, -np.inf)
        return self.plans[int(found.argmax())] if np.isfinite(found).any() else plan

    def margin(self, policy: HiPpo, view: Decision, situations: Decisions, plan: Plan, wide: BoolArray) -> FloatArray:
        """By how much a plan is better than the best other one, as log-odds, shape ``(n,)``.

        Where the search is not ``wide``, only plans inside one domain on as many devices are compared.
        """
        own = _kind_of(plan)
        others = [i for i, each in enumerate(self.plans) if _kind_of(each) != own]
        alike = np.array(
            [len(set(self.plans[i].domains)) == 1 and _kind_of(self.plans[i])[1] == own[1] for i in others]
        )
        if not wide.any():
            # Nobody asks about the rest.
            others, alike = [i for i, same in zip(others, alike, strict=True) if same], alike[alike]
        plans = (plan, *(self.plans[i] for i in others))
        worth = _worth(policy, view, situations, plans)
        mine, worth = worth[:, 0], worth[:, 1:] - self.flattered[others]
        if others:
            worth = np.where(wide[:, None] | alike, worth, -np.inf)
        rest = worth.max(axis=1, initial=-np.inf)
        if self.settled is not None and _kind_of(plan) != _kind_of(self.settled):
            mine -= _above(_worth(policy, view, policy.perceive(view), (plan,))[0], self.settled_worth)
        with np.errstate(invalid="ignore"):
            found = np.where(np.isneginf(rest), CERTAIN, SEARCH_ODDS * (mine - rest))
        return np.asarray(np.clip(np.where(np.isneginf(mine), -CERTAIN, found), -CERTAIN, CERTAIN))


def _worth_most(policy: HiPpo, view: Decision, own: Decisions, plans: Sequence[Plan]) -> bool:
    """Whether no plan is worth more at a decision than the first."""
    worth = _worth(policy, view, own, plans)[0]
    return bool(np.isfinite(worth[0]) and (worth <= worth[0]).all())


def _above(worth: FloatArray, limit: float) -> FloatArray:
    """By how much plans are overpriced: the search knows more, and at the decision found nothing better."""
    with np.errstate(invalid="ignore"):
        above = np.where(np.isfinite(worth) & np.isfinite(limit), worth - limit, -1.0)
    return np.where(above >= 0.0, above + TIE, 0.0)


def _kind_of(plan: Plan) -> tuple[frozenset[int], int]:
    """What two plans share that the wide search does not tell apart here: their domains and number of devices."""
    return frozenset(plan.domains), sum(segment.device_count for segment in plan.segments)


def _across(view: Decision) -> list[Plan]:
    return best_by_domains(view)[:RIVALS]


def _inside(view: Decision) -> list[Plan]:
    """The plan of highest R inside each domain on each number of devices."""
    batch = plans_inside(Instance.of(view), np.flatnonzero(np.asarray(view.free_devices) > 0))
    if len(batch) == 0:
        return []
    rows, rewards = batch.segments[:, 0], value(view, batch).reward
    keys = rows[:, DOMAIN] * (1 << 20) + rows[:, DP] * rows[:, TP] * rows[:, PP]
    order = np.argsort(-rewards, kind="stable")
    _, first = np.unique(keys[order], return_index=True)
    return [batch.plan(int(i)) for i in order[first] if np.isfinite(rewards[i])]


def _worth(policy: HiPpo, view: Decision, situations: Decisions, plans: Sequence[Plan]) -> FloatArray:
    if not plans:
        return np.zeros((len(situations), 0))
    need = np.zeros((len(plans), situations.free.shape[1]), dtype=np.int64)
    for row, each in enumerate(plans):
        for segment in each.segments:
            need[row, segment.domain] += segment.device_count
    terms = appraise(policy, view, situations, plans, log_probability=False).terms
    weights = situations.weights * np.array([1.0, 1.0, -1.0])
    waiting = np.maximum(0, situations.waiting - 1)[:, None] / view.cost.domains.rows.devices.sum()
    held = weights[:, :1] * waiting * need.sum(axis=1) * (1.0 - terms[:, :, 0])
    room = (situations.free[:, None, :] >= need).all(axis=2)
    return np.where(room, (terms * weights[:, None, :]).sum(axis=2) - held, -np.inf)


def _weigh(policy: HiPpo, view: Decision, planner: Planner, situations: Decisions) -> Weighed:
    agents = policy.agents_actor(view, planner, situations)
    return weighed_by(agents.agents, situations, agents.believed, _fitting(planner, situations), agents.releases)


def _searched(policy: HiPpo, planner: Planner, situations: Decisions, weighed: Weighed) -> BoolArray:
    """Where the wide search places candidate 0, shape ``(n,)``."""
    if not policy.search:
        return np.zeros(len(situations), dtype=np.bool_)
    alone = (situations.waiting <= 1) | (weighed.chosen < 0)
    found: BoolArray = planner.spanning[situations.kind[:, 0]] | (
        waiting_is_futile(policy, planner, situations) & alone
    )
    return found


def log_odds(policy: HiPpo, view: Decision, situations: Decisions, plan: Plan | None) -> FloatArray:
    """Log-odds ``(n,)`` of a plan (None: of waiting, or of staying) against the best other choice of each situation."""
    planner, situations = policy.planner(view), checked(view, situations)
    weighed = _weigh(policy, view, planner, situations)
    wide = _searched(policy, planner, situations, weighed)
    margin = _search_margin(policy, view, situations, plan, wide)
    return log_odds_of(weighed, view.replanning, plan, waiting_is_futile(policy, planner, situations), margin, wide)


def _search_margin(
    policy: HiPpo, view: Decision, situations: Decisions, plan: Plan | None, wide: BoolArray
) -> FloatArray:
    """By how much the search, ``wide`` or not, prefers a plan, shape ``(n,)``; NaN where there is none."""
    if plan is None or view.replanning or not policy.search:
        return np.full(len(situations), np.nan)
    return policy.rivals(view, plan).margin(policy, view, situations, plan, wide)


def forced(policy: HiPpo, view: Decision, situations: Decisions, plan: Plan | None) -> BoolArray:
    """Where a plan is all that is on offer in a situation, shape ``(n,)``; never where nothing is done or moved."""
    if plan is None or view.replanning:
        return np.zeros(len(situations), dtype=np.bool_)
    planner, situations = policy.planner(view), checked(view, situations)
    weighed = _weigh(policy, view, planner, situations)
    wide = _searched(policy, planner, situations, weighed)
    margin = _search_margin(policy, view, situations, plan, wide)
    preferred = np.isnan(margin) | (margin >= CERTAIN)
    return only_choice(weighed, plan, waiting_is_futile(policy, planner, situations)) & preferred


def prefer(policy: HiPpo, view: Decision, situations: Decisions) -> list[Preferred]:
    """What is chosen for the view's task in each situation: by the agents, or by the wide search where it decides."""
    planner, situations = policy.planner(view), checked(view, situations)
    found: list[Preferred] = []
    with one_thread(torch=False):
        for part, made in agents_choices(policy, view, planner, situations):
            rows = [row for row, one in enumerate(made) if one.plan is not None]
            if rows and policy.search and not view.replanning:
                some = part.take(np.array(rows))
                wide = _searched(policy, planner, some, _weigh(policy, view, planner, some))
                rivals = policy.rivals(view)
                worth = rivals.worth(policy, view, some)
                for i, row in enumerate(rows):
                    made[row] = Preferred(rivals.best(worth[i], made[row].plan, wide=bool(wide[i])))
            found += [Preferred(None) if stays(view, one.plan) else one for one in made]
    return found


def _fitting(planner: Planner, situations: Decisions) -> BoolArray:
    """Candidates of which a plan can be begun, shape ``(n, Q)``."""
    state, _ = planner.describe(situations)
    found: BoolArray = state.mask[:, :-1]
    return found
