"""The log-odds of a choice against the best other one, asked of the network in many situations at once.

Hi-PPO takes the most probable choice at each head: which task, which domain, where to cut, on how many devices. So a
plan is what the network chooses exactly if at every head it is more probable than whatever else is on offer there, and
the *log-odds* of the plan are the least of these margins: above 0 where the network chooses it, below 0 where it does
something else. What is on offer is what the situation offers: a domain that is emptied enters the competition.
Details that a search settles afterwards (layout, numeric format, microbatch) are no part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import Plan
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.agents import CERTAIN, log_odds_of, weighed_by
from attribution_sched.scheduler.hi_ppo.appraisal import checked, chooser_of
from attribution_sched.scheduler.hi_ppo.decode import Choices, Planner, decode
from attribution_sched.scheduler.hi_ppo.evaluate import logits as head_logits
from attribution_sched.scheduler.hi_ppo.evaluate import look, task_scores, with_task
from attribution_sched.scheduler.hi_ppo.features import State
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork
from attribution_sched.scheduler.hi_ppo.partial_plans import DONE, PartialPlans
from attribution_sched.scheduler.policy import Preferred
from attribution_sched.scheduler.ppo.policy import masked_log_softmax
from attribution_sched.types import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo

ROWS = 1024
"""Situations that go through the network together: larger arrays leave the cache."""


class PlanFollower:
    """Leads situations along one plan and keeps the least margin on the way.

    Args:
        network: Who is asked.
        planner: The cluster.
        plan: The plan; None does nothing.
        waiting_is_futile: Rows in which waiting is out of the question if anything can be done, shape ``(n,)``.
    """

    def __init__(
        self, network: HiPpoNetwork, planner: Planner, plan: Plan | None, waiting_is_futile: BoolArray
    ) -> None:
        self.network, self._tables, self._in_vain = network, planner.tables, waiting_is_futile
        self._wanted = [] if plan is None else [
            segment for replica in plan.replicas for segment in reversed(replica.segments)
        ]  # fmt: skip
        self._sizes = np.log2(planner.tables.layouts).sum(axis=1)
        self.margin: FloatArray = np.full(len(waiting_is_futile), CERTAIN)

    @torch.no_grad()
    def task(self, state: State) -> IntArray:
        """Candidate 0, or nothing."""
        seen = look(self.network, state, only_present=True)
        allowed = state.mask.copy()
        allowed[:, -1] &= ~(self._in_vain & allowed[:, 0])
        scores = task_scores(self.network, seen, state.present.shape[1])
        wanted = np.zeros(allowed.shape, dtype=np.bool_)
        wanted[:, 0 if self._wanted else -1] = True
        self._note(np.arange(len(allowed)), scores, allowed, wanted)
        nothing = allowed.shape[1] - 1
        task = np.where(allowed[:, 0] & bool(self._wanted), 0, nothing)
        self._seen = with_task(self.network, seen, state, task)
        return task

    @torch.no_grad()
    def choose(self, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray) -> IntArray:
        """The plan's own choice where it is on offer, else any: that row has lost already."""
        written = int(drafts.written[rows[0]])
        at = torch.from_numpy(offer.decision).to(self._seen.shared.device)
        mask = offer.mask
        last = self._wanted[min(written, len(self._wanted) - 1)]
        wanted = np.zeros(mask.shape, dtype=np.bool_)
        if head == "domain":
            wanted[:, mask.shape[1] - 1 if written == len(self._wanted) else last.domain] = True
        elif head == "cut":
            apart = np.abs(np.arange(mask.shape[1]) - last.first).astype(np.float64)
            # A cut where the plan has none, or none where it has one, would be another plan altogether.
            apart[(np.arange(mask.shape[1]) == 0) != (last.first == 0)] = np.inf
            nearest = np.where(mask, apart, np.inf)
            best = nearest.argmin(axis=1)
            there = np.isfinite(nearest[np.arange(len(mask)), best])
            wanted[np.flatnonzero(there), best[there]] = True
        elif head == "layout":
            wanted[:] = self._sizes == np.log2(last.device_count)
        else:
            return np.asarray(mask.argmax(axis=1))
        scores = head_logits(self.network, head, self._seen, offer, at, only_allowed=True)
        log_probs = self._note(offer.decision, scores, mask, wanted)
        found: IntArray = np.where(wanted & mask, log_probs, np.where(mask, -1e6, -np.inf)).argmax(axis=1)
        return found

    def _note(self, rows: IntArray, scores: Tensor, mask: BoolArray, wanted: BoolArray) -> FloatArray:
        said = masked_log_softmax(scores, torch.from_numpy(mask).to(scores.device))
        log_probs: FloatArray = said.double().cpu().numpy()
        own = _log_sum(np.where(wanted & mask, log_probs, -np.inf))
        # The best other choice; layouts of one size are one choice, so others of the wanted size are none.
        other = np.where(mask & ~wanted, log_probs, -np.inf).max(axis=1)
        with np.errstate(invalid="ignore"):
            margin = np.where(np.isneginf(own), -CERTAIN, np.where(np.isneginf(other), CERTAIN, own - other))
        np.minimum.at(self.margin, rows, np.clip(margin, -CERTAIN, CERTAIN))
        return log_probs


def _log_sum(values: FloatArray) -> FloatArray:
    peak = values.max(axis=1)
    safe = np.where(np.isneginf(peak), 0.0, peak)
    with np.errstate(divide="ignore"):
        found: FloatArray = safe + np.log(np.exp(values - safe[:, None]).sum(axis=1))
    return found


def log_odds(policy: HiPpo, view: Decision, situations: Decisions, plan: Plan | None) -> FloatArray:
    """Log-odds ``(n,)`` of a plan (None: of waiting, or of staying) against the best other choice of each situation."""
    planner, situations = policy.planner(view), checked(view, situations)
    agents = policy.agents_actor(view, planner, situations)
    if agents is not None:
        weighed = weighed_by(agents.agents, situations, agents.believed, _fitting(planner, situations), agents.releases)
        return log_odds_of(weighed, view.replanning, plan, _in_vain(policy, planner, situations))
    found = np.zeros(len(situations))
    with one_thread():
        for begin in range(0, len(situations), ROWS):
            rows = np.arange(begin, min(len(situations), begin + ROWS))
            part = situations.take(rows)
            follower = PlanFollower(policy.network, planner, plan, _in_vain(policy, planner, part))
            walked = decode(planner, part, follower)
            dead = (walked.drafts.status != DONE) & (plan is not None)
            found[rows] = np.where(dead, -CERTAIN, follower.margin)
    return found


def prefer(policy: HiPpo, view: Decision, situations: Decisions) -> list[Preferred]:
    """What the network chooses for the view's task in each situation, before the search.

    Where waiting would not help the task, it is what the network would do if it had to act.
    """
    planner, situations = policy.planner(view), checked(view, situations)
    found: list[Preferred] = []
    with one_thread():
        for begin in range(0, len(situations), ROWS):
            part = situations.take(np.arange(begin, min(len(situations), begin + ROWS)))
            walked = decode(planner, part, chooser_of(policy, view, planner, part))
            acts = (walked.trace.task < part.kind.shape[1]) & (walked.drafts.status == DONE)
            made = [
                Preferred(walked.batch.plan(row) if acts[row] and task == 0 else None, bool(acts[row]) and task > 0)
                for row, task in enumerate(walked.trace.task)
            ]
            forced = np.flatnonzero(~acts & walked.trace.state.mask[:, 0] & _in_vain(policy, planner, part))
            if len(forced):
                one = part.take(forced).only(0)
                own = decode(planner, one, chooser_of(policy, view, planner, one, must_act=True))
                for row, at in enumerate(forced):
                    made[at] = Preferred(own.batch.plan(row) if own.batch.counts[row] else None)
            found += [Preferred(None) if view.replanning and one.plan == view.current_plan else one for one in made]
    return found


def _fitting(planner: Planner, situations: Decisions) -> BoolArray:
    """Candidates of which a plan can be begun, shape ``(n, Q)``."""
    state, _ = planner.describe(situations)
    found: BoolArray = state.mask[:, :-1]
    return found


def _in_vain(policy: HiPpo, planner: Planner, part: Decisions) -> BoolArray:
    """Where waiting is out of the question for candidate 0, shape ``(n,)``: the search places it then."""
    return planner.waiting_is_futile(part)[:, 0] if policy.search else np.zeros(len(part), dtype=np.bool_)
