"""What a signal must keep: a finite number at every moment, the same one when asked again, and honest forecasts."""

from __future__ import annotations

import math

from attribution_sched.cluster.signals import HOUR_S, Signal
from attribution_sched.testing.contract import asked, require

HOURS = 400
"""Hours of a check: two weeks and a bit."""


def check_signal(signal: Signal, *, least: float = 0.0) -> None:
    """Ask a signal for every hour of two weeks, twice, and for its forecasts.

    Args:
        signal: The signal: carbon, electricity.
        least: No value may be below it; prices may be negative, carbon may not.

    Raises:
        ContractError: Field, value, rule and fix of the first thing it does not keep.
    """
    for hour in range(HOURS):
        time_s = hour * HOUR_S
        with asked("signal.at"):
            value, again = signal.at(time_s), signal.at(time_s)
        rule = f"must be a finite number of at least {least:g} at {hour} h"
        fix = "Repeat the last value that is known where there is none"
        require(math.isfinite(value) and value >= least, "signal.at", value, rule, fix)
        fix = "A signal is a function of time; draw its noise once, by a seed"
        require(value == again, "signal.at", (value, again), f"must be the same again at {hour} h", fix)
    for ahead in (0, 1, 24):
        with asked("signal.forecast"):
            forecast = signal.forecast(48 * HOUR_S, ahead * HOUR_S)
        sound = math.isfinite(forecast.value) and math.isfinite(forecast.error) and forecast.error >= 0.0
        rule = f"must be a finite value and a standard deviation of at least 0, {ahead} h ahead"
        require(sound, "signal.forecast", tuple(forecast), rule, "Give 0 for what is known exactly")
