"""From missed targets to reward weights: multipliers by dual ascent, and the user's own weights tilted by them.

Multipliers follow what is missed, with a dead band and bounds. With the user's shares ``s_c`` of the sum S of weights,
multipliers λ_t of targets and the coupling J of components::

    w_c = S · s_c · exp(Σ_t λ_t · J_{c(t), c}) / normaliser          least ≤ w_c / S ≤ most

so λ = 0 gives the user's weights back, and the scale of R stays as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attribution_sched.cluster.world import Reward
from attribution_sched.errors import SettingsError, problem
from attribution_sched.explain.explanation import COMPONENTS
from attribution_sched.feedback.targets import KINDS, FeedbackSettings
from attribution_sched.feedback.window import Measurement
from attribution_sched.types import FloatArray


@dataclass(frozen=True)
class Miss:
    """A target and where it stands.

    Attributes:
        target: Its name.
        limit: What is asked for.
        measured: What was measured.
        violation: By how much of the target it is missed; negative if it is met.
        before: Its multiplier before.
        after: Its multiplier since.
    """

    target: str
    limit: float
    measured: Measurement
    violation: float
    before: float = 0.0
    after: float = 0.0


def certain(miss: Miss, level: float) -> bool:
    """Whether what was measured differs from the target beyond chance."""
    low, high = miss.measured.interval(level)
    return high < miss.limit or low > miss.limit


def pursued(misses: Sequence[Miss], active: Collection[str], settings: FeedbackSettings) -> tuple[str, ...]:
    """Targets to pursue: those missed by more than the dead band, beyond chance, and those not yet met since then."""
    targets = []
    for miss in misses:
        begins = miss.violation > settings.deadband and certain(miss, settings.level)
        if begins or (miss.target in active and miss.violation > 0.0):
            targets.append(miss.target)
    return tuple(targets)


def ascend(
    misses: Sequence[Miss],
    multipliers: Mapping[str, float],
    active: Collection[str],
    full: Collection[str],
    settings: FeedbackSettings,
    caution: float = 1.0,
) -> list[Miss]:
    """Multipliers after a window, as misses with ``before`` and ``after`` filled in.

    Args:
        misses: Where the targets stand.
        multipliers: λ by target.
        active: Targets to pursue.
        full: Weights that are at their upper bound; multipliers behind them do not grow (nothing would come of it
            now, and it would have to be undone later).
        settings: Rates and bounds.
        caution: Factor on the bound per step.
    """
    moved = []
    for miss in misses:
        old = multipliers.get(miss.target, 0.0)
        step = 0.0
        if miss.target in active:
            step = 0.0 if KINDS[miss.target].weight in full else settings.rate * miss.violation
        elif miss.violation < -settings.slack and certain(miss, settings.level):
            step = settings.rate * (miss.violation + settings.slack)
        most = settings.multiplier_step * caution
        new = min(max(old + min(max(step, -most), most), 0.0), settings.multiplier_cap)
        moved.append(replace(miss, before=old, after=new))
    return moved


WEIGHTS: tuple[str, str, str] = ("w_eff", "w_util", "w_cost")
"""Weights of a reward, in the order of the components."""

_BISECTIONS = 80


@dataclass(frozen=True)
class Tilt:
    """Where weights may go.

    Attributes:
        total: Sum of the user's weights, S.
        start: The user's shares of it; a weight of 0 that serves a target starts from the least allowed, (3,).
        low: Smallest shares, (3,).
        high: Largest shares, (3,).
    """

    total: float
    start: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, reward: Reward, served: list[str], settings: FeedbackSettings) -> Tilt:
        """Bounds around a reward's weights.

        Args:
            reward: The user's.
            served: Components that serve a target.
            settings: Bounds.
        """
        weights = np.array([getattr(reward, name) for name in WEIGHTS])
        total = float(weights.sum())
        if not (np.isfinite(total) and total > 0):
            raise SettingsError(
                problem("reward weights", tuple(weights), "one must be > 0", "Raise what you care about")
            )
        shares = weights / total
        needed = np.array([component in served for component in COMPONENTS])
        start = np.where(needed & (shares < settings.least), settings.least, shares)
        # What the user chose is never out of bounds, and what was switched off and serves nothing stays off.
        low = np.minimum(shares, settings.least)
        high = np.where(start > 0, np.maximum(start, settings.most), 0.0)
        return cls(total, start / start.sum(), low, high)

    def shares(self, multipliers: Mapping[str, float], matrix: FloatArray, believed: float) -> FloatArray:
        """Shares that multipliers ask for, shape ``(3,)``.

        Args:
            multipliers: λ by target.
            matrix: Coupling of components, (3, 3).
            believed: Part of the coupling off the diagonal that is believed.
        """
        exponent = np.zeros(3)
        for target, multiplier in multipliers.items():
            served = COMPONENTS.index(KINDS[target].component)
            row = believed * matrix[served]
            row[served] = 1.0
            exponent += multiplier * row
        return bounded(self.start * np.exp(exponent - exponent.max()), self.low, self.high)


def bounded(raw: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Shares that sum to 1 and lie within bounds: ``raw`` times one factor, clipped; the factor by bisection."""
    if not low.sum() <= 1.0 <= high.sum() + 1e-12:
        rule = "must leave room for a sum of 1"
        raise SettingsError(problem("bounds of weights", (low.tolist(), high.tolist()), rule, "Widen least and most"))
    under, over = -60.0, 60.0
    positive = np.maximum(raw, 0.0)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (under + over)
        if np.clip(positive * np.exp(middle), low, high).sum() < 1.0:
            under = middle
        else:
            over = middle
    clipped: FloatArray = np.clip(positive * np.exp(over), low, high)
    shares: FloatArray = clipped / clipped.sum()
    return shares


def toward(old: FloatArray, goal: FloatArray, step: float) -> FloatArray:
    """Move shares toward a goal, no share by more than ``step``; the sum stays 1."""
    far = float(np.abs(goal - old).max())
    if far <= step:
        return goal
    moved: FloatArray = old + (goal - old) * (step / far)
    return moved
