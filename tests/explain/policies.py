"""Policies with a known mind, and decisions of tiny worlds for them to be explained on."""

import functools

import numpy as np

from attribution_sched.attribution.vector import state_vectors
from attribution_sched.cluster.arrivals import Poisson
from attribution_sched.cluster.decision import from_view, own_first
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.plan import Plan
from attribution_sched.explain.background import Background
from attribution_sched.explain.explainer import Explainer
from attribution_sched.explain.recorder import Decided, Watch, perceived
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.policy import Appraisal

from ..cluster.engine_worlds import BERT, GPT2, chain, restless, tiny_world

WORLD = tiny_world(restless(), (BERT, GPT2), Poisson(300.0), max_segments=2, pool_size=24, queue_capacity=6)


def attributor(counters):
    """Any bounded function of the counters."""
    return np.tanh(np.log1p(np.abs(counters[:, :7])) / 10.0 - 1.0)


class Planted:
    """Reads only the link between domains 0 and 1: above a threshold it cuts the model there, below it stays in 0.

    Args:
        threshold_gbps: Where it changes its mind.
        broken: Name of an answer that is NaN.
    """

    name = "planted"

    def __init__(self, threshold_gbps=5.75, broken=""):
        self.threshold_gbps = threshold_gbps
        self.broken = broken

    def plans(self, kind):
        n = len(kind.model)
        return Plan((chain(kind, (0, n // 2), (1, -1)),)), Plan((chain(kind, (0, -1)),))

    def link(self, situations):
        return 0.5 * (situations.links[:, 0, 0, 1] + situations.links[:, 0, 1, 0])

    def perceive(self, view):
        return own_first(from_view(view, attributor), view.slot)

    def decide(self, view):
        return self.propose(view, self.perceive(view))[0]

    def propose(self, view, situations):
        cut, whole = self.plans(view.kind)
        return [cut if gbps > self.threshold_gbps else whole for gbps in self.link(situations)]

    def appraise(self, view, situations, plans, *, log_probability=True):
        gbps = self.link(situations)[:, None]
        crosses = np.array([[0.0 if plan is None else float(len(plan.segments) > 1) for plan in plans]])
        terms = np.stack([crosses * np.log(gbps), 0.5 + 0.1 * crosses * gbps, crosses / gbps], axis=-1)
        margin = 2.0 * (gbps - self.threshold_gbps)
        likely = -np.log1p(np.exp(np.where(crosses > 0, -margin, margin)))
        if self.broken == "terms":
            terms = terms * np.nan
        if self.broken == "log_probability":
            likely = likely * np.nan
        return Appraisal(terms, likely)


@functools.cache
def views():
    """What there was to decide in an hour of a tiny world that a greedy rule keeps busy."""
    watch = Watch(Greedy(), placed_only=True)
    play(WORLD, watch, 3, attribute=state_vectors(attributor, DEMAND_NAMES))
    return [one.view for one in watch]


def decisions(policy):
    """The same views decided by a policy."""
    return [Decided(str(i), view, policy.decide(view), perceived(policy, view)) for i, view in enumerate(views())]


@functools.cache
def decided_by(policy):
    return decisions(policy())


def explainer(policy, **options):
    """An explainer with these decisions as background, and the decisions."""
    decided = decided_by(type(policy))
    return Explainer(policy, Background.of(decided, "tiny world"), **options), decided
