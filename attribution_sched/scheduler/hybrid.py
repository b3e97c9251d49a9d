"""Hybrids: an optimiser starts and something learnt adapts; a rule proposes and something learnt corrects.

Both take what is learnt through a small protocol, and both run without it: :class:`KeepPlan` adapts nothing, and
:class:`ValueCorrection` ranks by what plans are worth, which makes the rule a local search of one step.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import DecisionView
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MICROBATCH,
    MICROBATCHES,
    PP,
    PRECISION,
    REPLICA,
    STOP,
    TP,
    Plan,
    PlanBatch,
)
from attribution_sched.cluster.reward import value
from attribution_sched.errors import PlanError, SettingsError, problem
from attribution_sched.planning.candidates import MAX_PP, feasible, microbatch_counts
from attribution_sched.planning.instance import Instance
from attribution_sched.scheduler.exact_policy import switching_gain
from attribution_sched.scheduler.policy import Episodic, Policy, QueueOrder
from attribution_sched.scheduler.rules import ShortestJobFirst

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CUT_SHIFTS = (-4, -2, -1, 1, 2, 4)
"""Layers by which a cut is moved."""

MOVES_WEIGHED = 8
"""Neighbours of highest reward whose cost of moving is worked out."""


@runtime_checkable
class Adaptation(Protocol):
    """Changes the plan of a running task at later events."""

    def adapt(self, view: DecisionView, plan: Plan) -> Plan | None:
        """Return another plan for a task that runs on ``plan``; None keeps it."""
        ...


@runtime_checkable
class Correction(Protocol):
    """Ranks the neighbourhood of what a rule proposes."""

    def correct(self, view: DecisionView, proposal: Plan, candidates: PlanBatch) -> FloatArray:
        """Score the candidates, larger is better, shape ``(n,)``; the first of them is the proposal."""
        ...


class KeepPlan:
    """The adaptation that changes nothing."""

    def adapt(self, view: DecisionView, plan: Plan) -> Plan | None:
        """Keep the plan."""
        return None


class ValueCorrection:
    """The correction that knows no more than the cost model: a plan's score is its reward, moving charged."""

    def correct(self, view: DecisionView, proposal: Plan, candidates: PlanBatch) -> FloatArray:
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

    def select(self, view: DecisionView) -> int:
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

    def decide(self, view: DecisionView) -> Plan | None:
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

    def decide(self, view: DecisionView) -> Plan | None:
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


def neighbourhood(view: DecisionView, plan: Plan) -> PlanBatch:
    """List a plan and its small changes that fit memory and room; the plan itself comes first.

    A change moves one cut, exchanges two domains, moves one segment to another domain with room, shifts a factor of two
    between or into the degrees of parallelism of one segment, or takes the next smaller or larger microbatch.
    """
    instance = Instance.of(view)
    start = PlanBatch.of([plan]).segments[0]
    rows = [start, *_cuts(start), *_domains(start, instance), *_layouts(start), *_microbatches(start, instance)]
    stacked = np.unique(np.stack(rows), axis=0)
    stacked = stacked[_well_formed(stacked, instance)]
    same = (stacked == start).all(axis=(1, 2))
    stacked = np.concatenate([start[None], stacked[~same]])
    batch = PlanBatch(stacked, np.full(len(stacked), len(start)), np.full(len(stacked), int(plan.schedule)))
    if len(plan.replicas) == 1:
        stacked[1:, :, MICROBATCHES] = instance.batch_size // stacked[1:, :, MICROBATCH]
    else:
        shared = microbatch_counts(view.cost, view.kind_index, instance.batch_size, batch)
        stacked[1:, :, MICROBATCHES] = shared[1:]
    keep = np.isfinite(value(view, batch).reward)
    keep[0] = True
    return PlanBatch(stacked[keep], batch.counts[keep], batch.schedules[keep])


def _cuts(rows: IntArray) -> list[IntArray]:
    changed = []
    for s in range(len(rows) - 1):
        if rows[s, REPLICA] == rows[s + 1, REPLICA]:
            for shift in CUT_SHIFTS:
                new = rows.copy()
                new[s, STOP] += shift
                new[s + 1, FIRST] += shift
                changed.append(new)
    return changed


def _domains(rows: IntArray, instance: Instance) -> list[IntArray]:
    changed = []
    vacant = [int(d) for d in instance.open_domains if d not in rows[:, DOMAIN]]
    for s in range(len(rows)):
        for domain in vacant:
            new = rows.copy()
            new[s, DOMAIN] = domain
            changed.append(new)
        for t in range(s + 1, len(rows)):
            new = rows.copy()
            new[[s, t], DOMAIN] = new[[t, s], DOMAIN]
            changed.append(new)
    return changed


def _layouts(rows: IntArray) -> list[IntArray]:
    changed = []
    degrees = (DP, TP, PP)
    for s in range(len(rows)):
        for up in (*degrees, None):
            for down in (*degrees, None):
                if up == down or (down is not None and rows[s, down] == 1):
                    continue
                new = rows.copy()
                if up is not None:
                    new[s, up] *= 2
                if down is not None:
                    new[s, down] //= 2
                changed.append(new)
    return changed


def _microbatches(rows: IntArray, instance: Instance) -> list[IntArray]:
    levels = sorted(set(instance.microbatches))
    changed = []
    for r in range(int(rows[-1, REPLICA]) + 1):
        own = rows[:, REPLICA] == r
        at = levels.index(int(rows[own][0, MICROBATCH]))
        for level in (at - 1, at + 1):
            if 0 <= level < len(levels):
                new = rows.copy()
                new[own, MICROBATCH] = levels[level]
                changed.append(new)
    return changed


def _well_formed(rows: IntArray, instance: Instance) -> NDArray[np.bool_]:
    """Which plans keep to rooms, nodes, formats and the table of layouts, shape ``(n,)``."""
    domain = rows[:, :, DOMAIN]
    dp, tp, pp = rows[:, :, DP], rows[:, :, TP], rows[:, :, PP]
    layers = rows[:, :, STOP] - rows[:, :, FIRST]
    has = instance.cost.domains.peak_flops[domain, rows[:, :, PRECISION]] > 0.0
    right = (
        (layers >= 1) & (pp <= np.minimum(layers, MAX_PP)) & (tp <= np.minimum(8, instance.nodes[domain]))
        & (dp * tp * pp <= instance.rooms[domain]) & (rows[:, :, MICROBATCH] % dp == 0) & has
    )  # fmt: skip
    found: NDArray[np.bool_] = right.all(axis=1)
    return found


def corrected_sjf() -> RuleCorrection:
    """Make the hybrid that the registry offers: shortest job first, corrected by reward."""
    return RuleCorrection(ShortestJobFirst())
