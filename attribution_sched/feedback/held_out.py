"""Has the held-out return fallen? Paired episodes, a tolerance and a confidence level."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from attribution_sched.errors import ModelFitError, problem

Returns = Sequence[float] | float
"""Return of each held-out episode under the user's objective, the same episodes in the same order every time; or
one number, which has no error bar."""

HeldOut = Callable[[], Returns] | Returns
"""Returns, or what plays the episodes."""


@dataclass(frozen=True)
class Verdict:
    """Held-out returns now against those of an earlier moment.

    Attributes:
        before: Mean then.
        now: Mean now.
        change: Mean of the paired differences.
        high: Upper confidence limit of the change, one-sided; NaN for a single number.
        allowed: Fall that is put up with.
        episodes: How many.
        level: Confidence of the limit.
        fallen: Whether it fell by more than allowed, and not by chance.
        risen: Whether it rose, and not by chance; a single number must rise by more than may fall.
    """

    before: float
    now: float
    change: float
    high: float
    allowed: float
    episodes: int
    level: float
    fallen: bool
    risen: bool


def read(held_out: HeldOut) -> tuple[float, ...]:
    """Returns of the episodes; plays them if asked to.

    Raises:
        ModelFitError: If there is none or one is not finite.
    """
    given = held_out() if callable(held_out) else held_out
    values = tuple(float(value) for value in np.atleast_1d(np.asarray(given, dtype=np.float64)).ravel())
    if not values:
        raise ModelFitError(problem("held_out", (), "there must be at least one return", "Play some episodes"))
    for i, value in enumerate(values):
        if not math.isfinite(value):
            fix = "Leave out episodes that did not end"
            raise ModelFitError(problem(f"held_out[{i}]", value, "must be finite", fix))
    return values


def judge(before: tuple[float, ...], now: tuple[float, ...], tolerance: float, level: float) -> Verdict:
    """Compare the same episodes at two moments.

    Fallen means that the mean fell by more than the tolerance and that, at the given level, it fell at all.

    Args:
        before: Returns then.
        now: Returns now.
        tolerance: Fall that is put up with, as a part of the typical size (root mean square) of a return then.
        level: Confidence, one-sided.
    """
    if len(before) != len(now):
        rule = f"must be {len(before)} as before: the same episodes, in the same order"
        raise ModelFitError(problem("held_out episodes", len(now), rule, "Play them with the same seeds"))
    then, today = np.array(before), np.array(now)
    change = today - then
    n, mean = len(change), float(change.mean())
    # The mean may be near 0 by accident; the typical size of a return is not.
    allowed = tolerance * float(np.sqrt((then**2).mean()))
    if n < 2:
        return Verdict(
            float(then.mean()), float(today.mean()), mean, math.nan, allowed, n, level, mean < -allowed, mean > allowed
        )
    from scipy.special import stdtrit

    half = float(stdtrit(n - 1, level)) * float(change.std(ddof=1)) / math.sqrt(n)
    fallen, risen = mean < -allowed and mean + half < 0.0, mean - half > 0.0
    return Verdict(float(then.mean()), float(today.mean()), mean, mean + half, allowed, n, level, fallen, risen)
