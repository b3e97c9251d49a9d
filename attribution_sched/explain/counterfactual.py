"""Where a decision tips: thresholds of single quantities, and the smallest change that flips the choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import Plan
from attribution_sched.explain.findings import Change, Counterfactual, Rule
from attribution_sched.explain.masked_states import Blender, stacked
from attribution_sched.explain.players import Lineup
from attribution_sched.explain.sensitivity import Sweep, copies
from attribution_sched.explain.targets import chosen, proposals
from attribution_sched.explain.wording import describe_plan
from attribution_sched.scheduler.policy import Policy
from attribution_sched.types import FloatArray

NARROWED = 9
"""Values tried at once between the last one that keeps the choice and the first one that flips it."""

ROUNDS = 2
"""How often the gap between these two is narrowed."""


@dataclass(frozen=True, eq=False)
class Flip:
    """A quantity, the value at which the choice flips, and the choice beyond it."""

    sweep: Sweep
    kept: float
    value: float
    plan: Plan | None

    @property
    def size(self) -> float:
        """How far it is from the decision, in standard deviations of the background."""
        return abs(self.value - self.sweep.value) / self.sweep.spread


def find_flips(policy: Policy, view: Decision, seen: Decisions, listed: list[Sweep]) -> list[Flip]:
    """Turn every quantity up and down until the policy's own choice changes; the nearest flip of each, if any.

    What a policy chooses at the decision itself is asked of it anew: where a search settles details afterwards, the
    choice compared is the one before it.
    """
    own = chosen(proposals(policy, view, seen)[0])
    tried = [_around(sweep) for sweep in listed]
    made = _ask(policy, view, seen, listed, tried)
    gaps: list[tuple[Sweep, float, float, Plan | None]] = []
    for sweep, values, plans in zip(listed, tried, made, strict=True):
        gaps += _nearest(sweep, values, plans, own)
    for _ in range(ROUNDS):
        inner = [_between(sweep, kept, value) for sweep, kept, value, _ in gaps]
        made = _ask(policy, view, seen, [sweep for sweep, *_ in gaps], inner)
        narrowed = []
        for (sweep, kept, value, plan), values, plans in zip(gaps, inner, made, strict=True):
            for at, found in zip(values, plans, strict=True):
                if chosen(found) != own:
                    value, plan = float(at), found
                    break
                kept = float(at)
            narrowed.append((sweep, kept, value, plan))
        gaps = narrowed
    flips = [Flip(*gap) for gap in gaps]
    nearest: dict[tuple[str, str], Flip] = {}
    for flip in sorted(flips, key=lambda one: one.size):
        nearest.setdefault((flip.sweep.player, flip.sweep.quantity), flip)
    return list(nearest.values())


def rules(flips: list[Flip], domains: list[str], *, replanning: bool) -> tuple[Rule, ...]:
    """Flips as thresholds: the choice holds on the decision's side of the value midway between kept and flipped."""
    found = []
    for flip in flips:
        sweep = flip.sweep
        threshold = flip.value if sweep.whole else 0.5 * (flip.kept + flip.value)
        side = "above" if sweep.value > flip.value else "below"
        plan = describe_plan(flip.plan, domains, replanning=replanning)
        found.append(Rule(sweep.player, sweep.quantity, sweep.unit, sweep.value, threshold, side, plan))
    return tuple(found)


def smallest_flip(
    policy: Policy,
    view: Decision,
    seen: Decisions,
    flips: list[Flip],
    cast: Lineup,
    blend: Blender,
) -> Counterfactual | None:
    """The smallest change that really flips the decision; None if nothing that was tried does.

    One quantity is tried first, the nearest flip before the farther ones; each is verified by letting the policy decide
    anew. If no single quantity flips it, inputs of a background state with another choice are taken over, and given
    back one by one as long as the choice stays flipped.
    """
    domains = [domain.name for domain in view.cost.cluster.domains]
    for flip in flips:
        situation = copies(seen, 1)
        flip.sweep.apply(situation, np.array([flip.value]))
        plan, flipped = _verify(policy, view, seen, situation)
        if flipped:
            sweep = flip.sweep
            change = Change(sweep.player, sweep.quantity, sweep.value, flip.value, sweep.unit)
            words = describe_plan(plan, domains, replanning=view.replanning)
            return Counterfactual((change,), flip.size, words, verified=True)
    return _taken_over(policy, view, seen, cast, blend, domains)


def _taken_over(
    policy: Policy, view: Decision, seen: Decisions, cast: Lineup, blend: Blender, domains: list[str]
) -> Counterfactual | None:
    p, m = len(cast.names), min(64, len(blend.background))
    states = np.linspace(0, len(blend.background) - 1, m).astype(np.int64)
    nothing = np.zeros(m, dtype=np.int64)
    own = chosen(proposals(policy, view, seen)[0])
    made = proposals(policy, view, blend(np.zeros((m, p), dtype=np.bool_), states, nothing))
    best: tuple[int, NDArray[np.bool_], int] | None = None
    for row in [row for row, plan in enumerate(made) if chosen(plan) != own][:8]:
        kept = np.zeros(p, dtype=np.bool_)
        for player in range(p):
            given_back = kept.copy()
            given_back[player] = True
            found = proposals(policy, view, blend(given_back[None], states[row : row + 1], nothing[:1]))[0]
            if chosen(found) != own:
                kept = given_back
        if best is None or (~kept).sum() < best[0]:
            best = int((~kept).sum()), kept, int(states[row])
    if best is None:
        return None
    _, kept, state = best
    situation = blend(kept[None], np.array([state]), nothing[:1])
    plan, flipped = _verify(policy, view, seen, situation)
    if not flipped:
        return None
    changes, size = [], 0.0
    for player in [int(i) for i in np.flatnonzero(~kept)]:
        before, after = (float(cast.numbers(player, one)[0]) for one in (seen, situation))
        size = max(size, abs(after - before) / max(float(np.std(cast.numbers(player, blend.background))), 1e-9))
        changes.append(Change(cast.names[player], cast.groups[player], before, after, cast.units[player]))
    return Counterfactual(tuple(changes), size, describe_plan(plan, domains, replanning=view.replanning), verified=True)


def _verify(policy: Policy, view: Decision, seen: Decisions, situation: Decisions) -> tuple[Plan | None, bool]:
    """Let the policy decide on the changed decision, and on the unchanged one for comparison."""
    before, after = proposals(policy, view, stacked([seen, situation]))
    return after, chosen(before) != chosen(after)


def _ask(
    policy: Policy, view: Decision, seen: Decisions, listed: list[Sweep], tried: list[FloatArray]
) -> list[list[Plan | None]]:
    """What the policy does for every value of every sweep, asked in one call."""
    parts = []
    for sweep, values in zip(listed, tried, strict=True):
        if len(values):
            part = copies(seen, len(values))
            sweep.apply(part, values)
            parts.append(part)
    if not parts:
        return [[] for _ in listed]
    made = list(proposals(policy, view, stacked(parts)))
    found, at = [], 0
    for values in tried:
        found.append(made[at : at + len(values)])
        at += len(values)
    return found


def _around(sweep: Sweep) -> FloatArray:
    """Values to try without the decision's own."""
    return sweep.values[~np.isclose(sweep.values, sweep.value, rtol=1e-6, atol=1e-9)]


def _nearest(
    sweep: Sweep, values: FloatArray, plans: list[Plan | None], own: object
) -> list[tuple[Sweep, float, float, Plan | None]]:
    """On each side, the first value that flips the choice and the last one before it that does not."""
    found = []
    for side in (np.flatnonzero(values > sweep.value), np.flatnonzero(values < sweep.value)[::-1]):
        kept = sweep.value
        for at in side:
            if chosen(plans[at]) != own:
                found.append((sweep, kept, float(values[at]), plans[at]))
                break
            kept = float(values[at])
    return found


def _between(sweep: Sweep, kept: float, value: float) -> FloatArray:
    inner = np.linspace(kept, value, NARROWED + 2)[1:-1]
    if not sweep.whole:
        return inner
    whole = np.unique(np.round(inner))
    whole = whole[(whole > min(kept, value)) & (whole < max(kept, value))]
    return whole if value > kept else whole[::-1]
