"""The log-odds of a choice against the best other one, asked of the agents in many situations at once.

Hi-PPO takes the most probable choice at each head: which task, which domain, where to cut, on how many devices. So a
plan is what they choose exactly if at every head it is more probable than whatever else is on offer there, and
the *log-odds* of the plan are the least of these margins: above 0 where they choose it, below 0 where it does
something else. What is on offer is what the situation offers: a domain that is emptied enters the competition.
Details that a search settles afterwards (layout, numeric format, microbatch) are no part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import Plan
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.agents import log_odds_of, only_choice, weighed_by
from attribution_sched.scheduler.hi_ppo.appraisal import checked
from attribution_sched.scheduler.hi_ppo.decode import Planner, decode
from attribution_sched.scheduler.hi_ppo.partial_plans import DONE
from attribution_sched.scheduler.policy import Preferred
from attribution_sched.types import BoolArray, FloatArray

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo

ROWS = 1024
"""Situations that are gone through together: larger arrays leave the cache."""


def log_odds(policy: HiPpo, view: Decision, situations: Decisions, plan: Plan | None) -> FloatArray:
    """Log-odds ``(n,)`` of a plan (None: of waiting, or of staying) against the best other choice of each situation."""
    planner, situations = policy.planner(view), checked(view, situations)
    agents = policy.agents_actor(view, planner, situations)
    weighed = weighed_by(agents.agents, situations, agents.believed, _fitting(planner, situations), agents.releases)
    return log_odds_of(weighed, view.replanning, plan, _in_vain(policy, planner, situations))


def forced(policy: HiPpo, view: Decision, situations: Decisions, plan: Plan | None) -> BoolArray:
    """Where a plan is all that is on offer in a situation, shape ``(n,)``; never where nothing is done or moved."""
    if plan is None or view.replanning:
        return np.zeros(len(situations), dtype=np.bool_)
    planner, situations = policy.planner(view), checked(view, situations)
    agents = policy.agents_actor(view, planner, situations)
    weighed = weighed_by(agents.agents, situations, agents.believed, _fitting(planner, situations), agents.releases)
    return only_choice(weighed, plan, _in_vain(policy, planner, situations))


def prefer(policy: HiPpo, view: Decision, situations: Decisions) -> list[Preferred]:
    """What the agents choose for the view's task in each situation, before the search.

    Where waiting would not help the task, it is what they would do if it had to act.
    """
    planner, situations = policy.planner(view), checked(view, situations)
    found: list[Preferred] = []
    with one_thread():
        for begin in range(0, len(situations), ROWS):
            part = situations.take(np.arange(begin, min(len(situations), begin + ROWS)))
            walked = decode(planner, part, policy.agents_actor(view, planner, part))
            acts = (walked.trace.task < part.kind.shape[1]) & (walked.drafts.status == DONE)
            made = [
                Preferred(walked.batch.plan(row) if acts[row] and task == 0 else None, bool(acts[row]) and task > 0)
                for row, task in enumerate(walked.trace.task)
            ]
            forced = np.flatnonzero(~acts & walked.trace.state.mask[:, 0] & _in_vain(policy, planner, part))
            if len(forced):
                one = part.take(forced).only(0)
                own = decode(planner, one, policy.agents_actor(view, planner, one, must_act=True))
                for row, at in enumerate(forced):
                    made[at] = Preferred(own.batch.plan(row) if own.batch.counts[row] else None)
            running = view.current_plan.uncapped() if view.current_plan is not None else None
            found += [Preferred(None) if view.replanning and one.plan == running else one for one in made]
    return found


def _fitting(planner: Planner, situations: Decisions) -> BoolArray:
    """Candidates of which a plan can be begun, shape ``(n, Q)``."""
    state, _ = planner.describe(situations)
    found: BoolArray = state.mask[:, :-1]
    return found


def _in_vain(policy: HiPpo, planner: Planner, part: Decisions) -> BoolArray:
    """Where waiting is out of the question for candidate 0, shape ``(n,)``: the search places it then."""
    return planner.waiting_is_futile(part)[:, 0] if policy.search else np.zeros(len(part), dtype=np.bool_)
