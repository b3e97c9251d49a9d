"""How far to turn the weights: what the explained decisions would have been with others, held against the targets.

Dual ascent knows by how much a target is missed, not how far the decisions follow the weights: it feels its way, a
small step a window. Explanations know: :mod:`~attribution_sched.explain.alternatives` asks the policy again, in the
very situations it decided in. With the measured value m of a target over the window and v(w) what its decisions would
have come to with weights w::

    expected(w) = m + credit · (v(w) − v(w in force))

Whether the decisions follow the weights at all is asked once, of all turns together: does the target's value rise from
turn to turn, beyond chance? One turn among many that happens to point the right way is no promise. Then the smallest
turn is taken that is expected to meet all pursued targets, within a bound; if none is, the smallest that comes as near
as the errors can tell. What then comes of it is held against what was expected: explanations that promise more than
outcomes bear out lose credit, and with it the length of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.world import Reward
from attribution_sched.feedback.ascent import Miss, Tilt, toward
from attribution_sched.feedback.targets import KINDS, FeedbackSettings, Targets
from attribution_sched.feedback.window import PER_DAY, DecisionOutcome, Window
from attribution_sched.types import FloatArray

Revisit = Callable[[Sequence[Reward]], Sequence[Sequence[DecisionOutcome | None]]]
"""Rewards → per explained decision, what it would have come to under each of them; None where nothing is placed."""

TURNS = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
"""How much the multipliers of pursued targets may grow at once; tried from the smallest on."""

ASKABLE = frozenset(name for name in KINDS if name not in PER_DAY)
"""Targets whose value follows from the plans alone; a sum per day also needs to know how many there will be."""

SURE = 2.0
"""Decisions follow the weights if the slope over the turns is so many standard errors above 0."""

NEAR = 0.5
"""A smaller turn is as good as the best if it is expected to miss by at most so many standard errors more."""

LEAST_CREDIT = 0.1
"""Explanations are never disbelieved so wholly that they could not earn their credit back."""


@dataclass(frozen=True, eq=False)
class Foreseen:
    """A turn of the weights, and what it is expected to bring.

    Attributes:
        multipliers: λ by target.
        shares: Parts of the sum of weights, (3,).
        violations: Target → by how much it is expected to be missed.
        values: Target → its expected value.
        changed: Explained decisions that would have been others.
        decisions: Explained decisions that were asked again, and placed their task both times.
    """

    multipliers: Mapping[str, float]
    shares: FloatArray
    violations: Mapping[str, float]
    values: Mapping[str, float]
    changed: int
    decisions: int


def foresee(
    misses: Sequence[Miss],
    active: Sequence[str],
    multipliers: Mapping[str, float],
    present: FloatArray,
    tilt: Tilt,
    targets: Targets,
    revisit: Revisit,
    reward_of: Callable[[FloatArray], Reward],
    settings: FeedbackSettings,
    *,
    credit: float = 1.0,
    caution: float = 1.0,
) -> Foreseen | None:
    """The smallest turn that is expected to meet the pursued targets, or what comes nearest; None if none helps.

    Args:
        misses: Where the targets stand.
        active: Those that are pursued.
        multipliers: λ by target, now.
        present: Shares of the weights now, (3,).
        tilt: Where weights may go.
        targets: What is asked for.
        revisit: Asks the explained decisions again.
        reward_of: Shares → reward.
        settings: Bounds.
        credit: How much of what explanations promise is believed.
        caution: Factor on the bound of the step.
    """
    standing = {miss.target: miss for miss in misses if miss.target in active}
    if not ASKABLE.issuperset(standing):
        return None
    turns: list[tuple[dict[str, float], FloatArray]] = []
    for turn in TURNS:
        grown = {name: min(multipliers.get(name, 0.0) + turn, settings.multiplier_cap) for name in standing}
        asked = {**multipliers, **grown}
        goal = tilt.shares(asked, np.eye(3), 0.0)
        shares = toward(present, goal, settings.explained_step * credit * caution)
        if not turns or np.abs(shares - turns[-1][1]).max() > 1e-6:
            turns.append((asked, shares))
    answers = revisit([reward_of(present), *(reward_of(shares) for _, shares in turns)])
    # Only decisions that place their task whatever the weights can be compared.
    every = [[one for one in row if one is not None] for row in answers]
    whole = [row for row in every if len(row) == len(turns) + 1]
    if len(whole) < settings.fewest or not all(_follows(name, whole, targets) for name in standing):
        return None
    most = max(miss.violation for miss in standing.values())
    found: list[Foreseen] = []
    errors: list[float] = []
    for g, (asked, shares) in enumerate(turns, start=1):
        both = [(row[0], row[g]) for row in whole]
        values, violations, error = {}, {}, 0.0
        for name, miss in standing.items():
            change, noise = _change(name, both)
            values[name] = miss.measured.value + credit * change
            violations[name] = targets.violation(name, values[name])
            error = max(error, abs(targets.violation(name, values[name] + credit * noise) - violations[name]))
        found.append(Foreseen(asked, shares, violations, values, sum(a != b for a, b in both), len(both)))
        errors.append(error)
    worst = np.array([max(one.violations.values()) for one in found])
    meets = np.flatnonzero(worst <= 0.0)
    best = int(worst.argmin())
    near = int(meets[0]) if len(meets) else int(np.flatnonzero(worst <= worst[best] + NEAR * errors[best])[0])
    return found[near] if worst[near] < most - settings.deadband else None


def _follows(target: str, rows: Sequence[Sequence[DecisionOutcome]], targets: Targets) -> bool:
    """Whether a target is missed by less and less from turn to turn, beyond chance: its slope and jackknife error."""
    turns = np.arange(len(rows[0]), dtype=np.float64)
    turns -= turns.mean()

    def slope(some: Sequence[Sequence[DecisionOutcome]]) -> float:
        columns = zip(*some, strict=True)
        missed = [targets.violation(target, Window(tuple(each)).measure(target).value) for each in columns]
        return float(-(turns @ np.array(missed)) / (turns @ turns))

    n = len(rows)
    without = np.array([slope([*rows[:i], *rows[i + 1 :]]) for i in range(n)])
    return slope(rows) > SURE * float(np.sqrt((n - 1) * without.var()))


def _change(target: str, both: Sequence[tuple[DecisionOutcome, DecisionOutcome]]) -> tuple[float, float]:
    """By how much a target's value changes from the first to the second of each pair, and its jackknife error."""

    def change(pairs: Sequence[tuple[DecisionOutcome, DecisionOutcome]]) -> float:
        then, now = (Window(tuple(side)) for side in zip(*pairs, strict=True))
        return now.measure(target).value - then.measure(target).value

    n = len(both)
    without = np.array([change([*both[:i], *both[i + 1 :]]) for i in range(n)])
    return change(both), float(np.sqrt((n - 1) * without.var()))


def credited(
    credit: float, before: Mapping[str, float], expected: Mapping[str, float], misses: Sequence[Miss]
) -> float:
    """The credit of explanations after a window in which what they had promised could come true.

    Args:
        credit: Until now.
        before: Target → violation when the weights were turned.
        expected: Target → violation that was promised.
        misses: Where the targets stand now.
    """
    credited_changes = []
    for miss in misses:
        if miss.target in expected:
            promised = before[miss.target] - expected[miss.target]
            credited_changes.append((before[miss.target] - miss.violation) / promised if promised > 0 else 1.0)
    if not credited_changes:
        return credit
    return float(np.clip(0.5 * (credit + np.clip(np.mean(credited_changes), 0.0, 1.0)), LEAST_CREDIT, 1.0))
