"""Hybrids: an optimiser starts and something learnt adapts; a rule proposes and something learnt corrects.

Both take what is learnt through a small protocol, and both run without it: :class:`KeepPlan` adapts nothing, and
:class:`ValueCorrection` ranks by what plans are worth, which makes the rule a local search of one step.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import (
    MICROBATCHES,
    VALID,
    Plan,
    PlanBatch,
    layout_table,
    limits_of,
    validity,
)
from attribution_sched.cluster.reward import value
from attribution_sched.errors import PlanError, SettingsError, problem
from attribution_sched.planning.candidates import feasible, microbatch_counts, taken
from attribution_sched.planning.instance import Instance
from attribution_sched.planning.local_search import SAME_FORMATS, Neighbourhood
from attribution_sched.scheduler.exact_policy import switching_gain
from attribution_sched.scheduler.policy import Episodic, Policy, QueueOrder
from attribution_sched.scheduler.rules import ShortestJobFirst
from attribution_sched.types import FloatArray

MOVES_WEIGHED = 8
"""Neighbours of highest reward whose cost of moving is worked out."""


@runtime_checkable
class Adaptation(Protocol):
    """Changes the plan of a running task at later events."""

    def adapt(self, view: Decision, plan: Plan) -> Plan | None:
        """Return another plan for a task that runs on ``plan``; None keeps it."""
        ...


@runtime_checkable
class Correction(Protocol):
    """Ranks the neighbourhood of what a rule proposes."""

    def correct(self, view: Decision, proposal: Plan, candidates: PlanBatch) -> FloatArray:
        """Score the candidates, larger is better, shape ``(n,)``; the first of them is the proposal."""
        ...


class KeepPlan:
    """The adaptation that changes nothing."""

    def adapt(self, view: Decision, plan: Plan) -> Plan | None:
        """Keep the plan."""
        return None


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


class _Guided:
    """What both hybrids pass on to the policy they are built around."""

    def __init__(self, guide: Policy) -> None:
        self._guide = guide

    def select(self, view: Decision) -> int:
        """Choose the waiting task as the inner policy does; the pending one if it has no say."""
        return self._guide.select(view) if isinstance(self._guide, QueueOrder) else view.slot

    def reset(self, seed: int) -> None:
        """Tell all parts that remember that an episode begins."""
        for part in vars(self).values():
            if isinstance(part, Episodic):
                part.reset(seed)


class OptimiserStart(_Guided):
    """An optimiser makes the first placement; a learnt adaptation changes it at later events.

    An adapted plan that the cluster would refuse is not taken: the task stays where it is, and ``refused`` counts it.

    Args:
        optimiser: Places waiting tasks.
        adapt: Changes plans of running tasks; nothing by default.
    """

    def __init__(self, optimiser: Policy, adapt: Adaptation | None = None) -> None:
        _require(optimiser, "optimiser", "name", "decide")
        super().__init__(optimiser)
        self.optimiser = optimiser
        self.adaptation: Adaptation = KeepPlan() if adapt is None else adapt
        _require(self.adaptation, "adapt", "adapt")
        self.name = f"{optimiser.name}+adapt"
        self.refused = 0

    def decide(self, view: Decision) -> Plan | None:
        """Place by the optimiser, adapt afterwards."""
        if view.current_plan is None:
            return _plan_of(self.optimiser.decide(view), "optimiser.decide")
        plan = _plan_of(self.adaptation.adapt(view, view.current_plan), "adapt.adapt")
        if plan is None or plan == view.current_plan:
            return None
        if feasible(view, plan) is not None:
            self.refused += 1
            return None
        return plan


class RuleCorrection(_Guided):
    """A rule proposes; a learnt correction picks from the proposal and its small changes.

    Candidates are priced in one call and only those that fit are shown to the correction. Where the rule waits or
    keeps a running task in place, so does the hybrid.

    Args:
        rule: Proposes plans.
        correct: Ranks the neighbourhood; by reward by default.
    """

    def __init__(self, rule: Policy, correct: Correction | None = None) -> None:
        _require(rule, "rule", "name", "decide")
        super().__init__(rule)
        self.rule = rule
        self.correction: Correction = ValueCorrection() if correct is None else correct
        _require(self.correction, "correct", "correct")
        self.name = f"{rule.name}+correct"

    def decide(self, view: Decision) -> Plan | None:
        """Correct what the rule proposes."""
        proposal = _plan_of(self.rule.decide(view), "rule.decide")
        if proposal is None:
            return None
        candidates = neighbourhood(view, proposal)
        scores = np.asarray(self.correction.correct(view, proposal, candidates))
        if scores.shape != (len(candidates),) or np.isnan(scores.astype(np.float64)).any():
            rule = f"must give {len(candidates)} numbers, one per candidate"
            raise PlanError(problem("correct.correct", scores.tolist(), rule, "Mend the correction"))
        best = int(np.argmax(scores))
        return proposal if best == 0 else candidates.plan(best)


def _require(part: object, name: str, *members: str) -> None:
    missing = [member for member in members if not hasattr(part, member)]
    if missing or isinstance(part, type):
        given = part.__name__ if isinstance(part, type) else type(part).__name__
        rule = "must be an object, not a class" if isinstance(part, type) else f"lacks {', '.join(missing)}"
        raise SettingsError(problem(name, given, rule, f"Give an object with {', '.join(members)}"))


def _plan_of(given: object, where: str) -> Plan | None:
    if given is None or isinstance(given, Plan):
        return given
    raise PlanError(problem(where, type(given).__name__, "must return a Plan or None", "Mend the component"))


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
    rows[1:, :, MICROBATCHES] = microbatch_counts(view.cost, view.kind_index, instance.batch_size, batch)[1:]
    keep = np.isfinite(value(view, batch).reward)
    keep[0] = True
    return taken(batch, np.flatnonzero(keep))


def corrected_sjf() -> RuleCorrection:
    """Make the hybrid that the registry offers: shortest job first, corrected by reward."""
    return RuleCorrection(ShortestJobFirst())
