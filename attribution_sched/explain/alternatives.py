"""What else a policy might have done, and how sure it was of what it did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.decision_arrays import Decisions
from attribution_sched.cluster.plan import Plan
from attribution_sched.explain.findings import Confidence
from attribution_sched.explain.situations import Blender
from attribution_sched.explain.targets import chosen, proposals
from attribution_sched.explain.watch import Decided
from attribution_sched.explain.wording import describe_plan
from attribution_sched.scheduler.policy import Appraiser, Policy

TRIED = 32
"""Situations in which a policy is asked for what it would do instead."""


@dataclass(frozen=True)
class Alternative:
    """A plan the policy makes in a like situation.

    Attributes:
        plan: The plan; None waits or stays.
        share: Share of the situations in which it is made.
        log_probability: In the decision itself; NaN if the policy cannot tell.
    """

    plan: Plan | None
    share: float
    log_probability: float


@dataclass(frozen=True)
class Alternatives:
    """What the policy does in situations like the decision.

    Attributes:
        others: Plans other than the one that was chosen, the likeliest first.
        agreement: Share of the situations in which the choice is the same.
        log_probability: Of the chosen plan; NaN if the policy cannot tell.
    """

    others: tuple[Alternative, ...]
    agreement: float
    log_probability: float


def like_situations(blend: Blender, n_players: int, seed: int = 0, tried: int = TRIED) -> Decisions:
    """Variations of a decision: every input is its own or a background state's with equal chance."""
    rng = np.random.default_rng([seed, tried])
    coalitions = rng.random((tried, n_players)) < 0.5
    return blend(coalitions, rng.integers(len(blend.background), size=tried), np.zeros(tried, dtype=np.int64))


def alternatives(policy: Policy, decided: Decided, seen: Decisions, situations: Decisions) -> Alternatives:
    """Ask a policy what it would do in like situations, and how likely these plans were in the decision itself.

    Args:
        policy: It.
        decided: The decision.
        seen: The decision as the policy saw it.
        situations: Like situations.
    """
    own = chosen(decided.plan)
    made: dict[object, tuple[Plan | None, int]] = {}
    for plan in proposals(policy, decided.view, situations):
        key = chosen(plan)
        made[key] = (plan, made.get(key, (plan, 0))[1] + 1)
    same = made.pop(own, (None, 0))[1] / len(situations)
    others = [(plan, count / len(situations)) for plan, count in made.values()]
    if own is not None and None not in made:
        others.append((None, 0.0))
    likely = np.full(1 + len(others), np.nan)
    if isinstance(policy, Appraiser):
        plans = [decided.plan, *(plan for plan, _ in others)]
        likely = policy.appraise(decided.view, seen, plans, returns=False).log_probability[0]
    listed = [Alternative(plan, share, float(p)) for (plan, share), p in zip(others, likely[1:], strict=True)]
    listed.sort(key=lambda one: (-np.nan_to_num(one.log_probability, nan=0.0, neginf=-1e9), -one.share))
    return Alternatives(tuple(listed), same, float(likely[0]))


def confidence(found: Alternatives, domains: list[str], *, replanning: bool) -> Confidence:
    """How sure the policy was, in numbers and names."""
    if not found.others:
        return Confidence(float(np.exp(found.log_probability)), agreement=found.agreement)
    next_ = found.others[0]
    return Confidence(
        float(np.exp(found.log_probability)),
        describe_plan(next_.plan, domains, replanning=replanning),
        float(np.exp(next_.log_probability)),
        found.agreement,
    )
