"""A hybrid: a rule proposes and something learnt corrects.

What is learnt comes through a small protocol; without it :class:`ValueCorrection` ranks by what plans are worth, which
makes the rule a local search of one step.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import MICROBATCHES, Plan, PlanBatch, layout_table
from attribution_sched.cluster.reward import value
from attribution_sched.cluster.validity import VALID, limits_of, validity
from attribution_sched.errors import PlanError, problem
from attribution_sched.planning.candidates import taken
from attribution_sched.planning.instance import Instance
from attribution_sched.planning.local_search import SAME_FORMATS, Neighbourhood
from attribution_sched.rivals.exact_policy import switching_gain
from attribution_sched.scheduler.policy import Episodic, Policy, QueueOrder
from attribution_sched.scheduler.rules import ShortestJobFirst
from attribution_sched.types import FloatArray

MOVES_WEIGHED = 8
"""Neighbours of highest reward whose cost of moving is worked out."""


@runtime_checkable
class Correction(Protocol):
    """Ranks the neighbourhood of what a rule proposes."""

    def correct(self, view: Decision, proposal: Plan, candidates: PlanBatch) -> FloatArray:
        """Score the candidates, larger is better, shape ``(n,)``; the first of them is the proposal."""
        ...


class ValueCorrection:
    """The correction that knows no more than the cost model: a plan's score is its reward, moving charged."""

    def correct(self, view: Decision, proposal: Plan, candidates: PlanBatch) -> FloatArray:
        """Score by reward; for a running task by what moving there gains, of the few best and the proposal."""
        reward = value(view, candidates).reward
        if view.current_plan is None:
            return reward
        weighed = {0, *(int(i) for i in np.argsort(-reward, kind="stable")[:MOVES_WEIGHED])}
        gains = np.full(len(reward), -np.inf)
        for at in weighed:
            gains[at] = switching_gain(view, candidates.plan(at))
        return gains


class RuleCorrection:
    """A rule proposes; a learnt correction picks from the proposal and its small changes.

    Candidates are priced in one call and only those that fit are shown to the correction. Where the rule waits or
    keeps a running task in place, so does the hybrid.

    Args:
        rule: Proposes plans.
        correct: Ranks the neighbourhood; by reward by default.
    """

    def __init__(self, rule: Policy, correct: Correction | None = None) -> None:
        self.rule = rule
        self.correction: Correction = ValueCorrection() if correct is None else correct
        self.name = f"{rule.name}+correct"

    def select(self, view: Decision) -> int:
        """Choose the waiting task as the rule does; the pending one if it has no say."""
        return self.rule.select(view) if isinstance(self.rule, QueueOrder) else view.slot

    def reset(self, seed: int) -> None:
        """Tell all parts that remember that an episode begins."""
        for part in (self.rule, self.correction):
            if isinstance(part, Episodic):
                part.reset(seed)

    def decide(self, view: Decision) -> Plan | None:
        """Correct what the rule proposes."""
        proposal = self.rule.decide(view)
        if proposal is None:
            return None
        candidates = neighbourhood(view, proposal)
        scores = np.asarray(self.correction.correct(view, proposal, candidates))
        if scores.shape != (len(candidates),) or np.isnan(scores.astype(np.float64)).any():
            rule = f"must give {len(candidates)} numbers, one per candidate"
            raise PlanError(problem("correct.correct", scores.tolist(), rule, "Mend the correction"))
        best = int(np.argmax(scores))
        return proposal if best == 0 else candidates.plan(best)


def neighbourhood(view: Decision, plan: Plan) -> PlanBatch:
    """List a plan and its small changes that fit memory and free devices; the plan itself comes first.

    A change moves one cut, exchanges two domains, moves one segment to another domain, gives one segment another layout
    or takes another microbatch; formats and the number of segments stay (``SAME_FORMATS``).
    """
    instance = Instance.of(view)
    start = PlanBatch.of([plan]).segments[0]
    layouts = layout_table(view.cost.cluster, sharing=False)[:, :3]
    near = Neighbourhood(instance.free_devices, layouts, instance.microbatches, ())
    rows, counts = near.one_change(start, len(start), SAME_FORMATS)
    rows = rows[validity(limits_of(view.cost, view.kind_index, instance.free_devices), rows, counts) == VALID]
    rows = np.unique(rows, axis=0)
    rows = np.concatenate([start[None], rows[(rows != start).any(axis=(1, 2))]])
    batch = PlanBatch(rows, np.full(len(rows), len(start)), np.full(len(rows), int(plan.schedule)))
    rows[1:, :, MICROBATCHES] = view.cost.microbatch_counts(view.kind_index, instance.batch_size, batch)[1:]
    keep = np.isfinite(value(view, batch).reward)
    keep[0] = True
    return taken(batch, np.flatnonzero(keep))


def corrected_sjf() -> RuleCorrection:
    """Make the hybrid that the registry offers: shortest job first, corrected by reward."""
    return RuleCorrection(ShortestJobFirst())
