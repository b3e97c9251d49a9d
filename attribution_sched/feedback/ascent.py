"""Dual ascent: how multipliers of targets follow what is missed, with a dead band and bounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from attribution_sched.feedback.settings import FeedbackSettings
from attribution_sched.feedback.targets import KINDS
from attribution_sched.feedback.wording import Miss


def certain(miss: Miss, level: float) -> bool:
    """Whether what was measured differs from the target beyond chance."""
    low, high = miss.measured.interval(level)
    return high < miss.limit or low > miss.limit


def pursued(misses: Sequence[Miss], active: Collection[str], settings: FeedbackSettings) -> tuple[str, ...]:
    """Targets to pursue: those missed by more than the dead band, beyond chance, and those not yet met since then."""
    found = []
    for miss in misses:
        begins = miss.violation > settings.deadband and certain(miss, settings.level)
        if begins or (miss.target in active and miss.violation > 0.0):
            found.append(miss.target)
    return tuple(found)


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
