"""What else a policy might have done, and how sure it was of what it did."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import price, worth
from attribution_sched.errors import ExplanationError
from attribution_sched.explain.findings import Confidence
from attribution_sched.explain.masked_states import Blender
from attribution_sched.explain.preference import redecided
from attribution_sched.explain.recorder import Decided
from attribution_sched.explain.targets import chosen, proposals
from attribution_sched.explain.wording import describe_plan
from attribution_sched.planning.candidates import as_carried_out
from attribution_sched.scheduler.policy import Appraiser, Policy
from attribution_sched.types import FloatArray

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
        log_probability: Of the chosen plan, or of the proposal it was settled from; NaN if the policy cannot tell.
    """

    others: tuple[Alternative, ...]
    agreement: float
    log_probability: float


def like_situations(blend: Blender, n_players: int, seed: int = 0, tried: int = TRIED) -> Decisions:
    """Variations of a decision: every input is its own or a background state's with equal chance."""
    rng = np.random.default_rng([seed, tried])
    coalitions = rng.random((tried, n_players)) < 0.5
    return blend(coalitions, rng.integers(len(blend.background), size=tried), np.zeros(tried, dtype=np.int64))


def proposed(policy: Appraiser, decided: Decided, seen: Decisions) -> tuple[Plan | None, bool]:
    """The policy's own choice, whose probability can be told: a search may have settled another plan from it.

    Returns:
        The choice, and whether it is another than what was decided.
    """
    own = policy.propose(decided.view, seen)[0]
    if own is None or chosen(own) == chosen(decided.plan):
        return decided.plan, False
    return own, True


def alternatives(policy: Policy, decided: Decided, seen: Decisions, situations: Decisions) -> Alternatives:
    """Ask a policy what it would do in like situations, and how likely these plans were in the decision itself.

    Args:
        policy: It.
        decided: The decision.
        seen: The decision as the policy saw it.
        situations: Like situations.
    """
    if isinstance(policy, Appraiser):
        plan = proposed(policy, decided, seen)[0]
    else:
        plan = proposals(policy, decided.view, seen)[0]
    own = chosen(plan)
    made: dict[object, tuple[Plan | None, int]] = {}
    for other in proposals(policy, decided.view, situations):
        key = chosen(other)
        made[key] = (other, made.get(key, (other, 0))[1] + 1)
    same = made.pop(own, (None, 0))[1] / len(situations)
    made.pop(chosen(decided.plan), None)
    others = [(other, count / len(situations)) for other, count in made.values()]
    if own is not None and decided.plan is not None and None not in made:
        others.append((None, 0.0))
    likely = np.full(1 + len(others), np.nan)
    if isinstance(policy, Appraiser):
        plans = [plan, *(other for other, _ in others)]
        likely = _log_probabilities(policy, decided, seen, plans)
    # What fits only in another situation was no alternative here.
    listed = [
        Alternative(other, share, float(p))
        for (other, share), p in zip(others, likely[1:], strict=True)
        if not np.isneginf(p)
    ]
    listed.sort(key=lambda one: (-np.nan_to_num(one.log_probability, nan=0.0), -one.share))
    return Alternatives(tuple(listed), same, float("nan") if np.isneginf(likely[0]) else float(likely[0]))


def _log_probabilities(
    policy: Appraiser, decided: Decided, seen: Decisions, plans: list[Plan | None]
) -> NDArray[np.float64]:
    """Log-probabilities of plans at a decision; −∞ for those that were not on offer."""
    try:
        found: NDArray[np.float64] = policy.appraise(decided.view, seen, plans).log_probability[0]
        return found
    except ExplanationError:
        found = np.full(len(plans), -np.inf)
    for i, plan in enumerate(plans):
        with suppress(ExplanationError):
            found[i] = policy.appraise(decided.view, seen, [plan]).log_probability[0, 0]
    return found


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


# ------ What a decision would have been with other reward weights: the driver of a choice that feedback can turn
#
# Of all inputs of a decision the weights are the one that feedback sets. The policy, as it is deployed, is asked
# again in the decision's own situation, with other weights and nothing else changed; what it does instead is priced
# like the plan that was put in force. A decision that hangs on free devices, links or the queue stays as it is
# whatever the weights: it tells feedback that here nothing is to be had.


@dataclass(frozen=True)
class Expectation:
    """What is expected of a plan that was, or would have been, decided on.

    Attributes:
        r_eff: R_eff.
        r_util: R_util.
        r_cost: R_cost.
        step_s: Time of a step.
        bill_usd: Traffic of a step.
        energy_j: Energy of a step.
    """

    r_eff: float
    r_util: float
    r_cost: float
    step_s: float
    bill_usd: float
    energy_j: float


def with_weights(policy: Policy, decided: Decided, weights: FloatArray) -> list[Expectation | None]:
    """What the policy does with its task under each row of weights; None where it waits, stays or prefers another task.

    Args:
        policy: Who decided.
        decided: The decision.
        weights: w_eff, w_util and w_cost, shape ``(n, 3)``.
    """
    view = decided.view
    situations = replace(decided.seen.take(np.zeros(len(weights), dtype=np.int64)), weights=np.asarray(weights))
    return expected_of(view, redecided(policy, view, situations))


def expected_of(view: Decision, plans: Sequence[Plan | None]) -> list[Expectation | None]:
    """What is expected of plans for a decision's task; None where there is none."""
    acting = [as_carried_out(view.cost, view.kind_index, view.kind.batch_size, p) for p in plans if p is not None]
    if not acting:
        return [None] * len(plans)
    batch = PlanBatch.of(acting, view.max_segments)
    costs = price(view, batch)
    values = worth(view, batch, costs, view.kind_index)
    columns = (values.r_eff, values.r_util, values.r_cost, values.step_s, values.bill_usd, costs.energy_j)
    found = (Expectation(*(float(number) for number in row)) for row in zip(*columns, strict=True))
    return [None if plan is None else next(found) for plan in plans]
