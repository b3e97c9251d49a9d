"""Targets met or missed, over all plans put in force."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attribution_sched.errors import ModelFitError
from attribution_sched.feedback.ascent import Miss
from attribution_sched.feedback.targets import KINDS, Targets
from attribution_sched.feedback.window import Window
from attribution_sched.feedback.words import standing
from attribution_sched.report.collect.passing import Passed
from attribution_sched.report.data import Number, Standing

if TYPE_CHECKING:
    from attribution_sched.report.source import Source


def standings(system: Source, journaled: Passed) -> tuple[Standing, ...]:
    """Where the run stands with each target that was set."""
    targets: Targets | None = getattr(system, "targets", None)
    if targets is None:
        return ()
    known = [outcome for outcome in journaled.outcomes if outcome.r_eff is not None]
    window = Window.of(known, span_s=system.now_s or None) if known else None
    return tuple(_standing(targets, name, limit, window) for name, limit in targets.named().items())


def _standing(targets: Targets, name: str, limit: float, window: Window | None) -> Standing:
    kind = KINDS[name]
    asked = Number(limit, kind.unit, "given")
    if window is None:
        nothing = ("no plan was put in force yet", "尚无方案生效")
        return Standing(name, asked, Number(None, kind.unit, "simulated"), 0, None, *nothing)
    try:
        measured = window.measure(name)
    except ModelFitError as error:
        return Standing(name, asked, Number(None, kind.unit, "simulated"), 0, None, str(error), str(error))
    low, high = measured.interval()
    violation = targets.violation(name, measured.value)
    ends = (low, high) if math.isfinite(low) else (None, None)
    verdict = standing(Miss(name, limit, measured, violation))
    number = Number(measured.value, kind.unit, "simulated", *ends)
    return Standing(name, asked, number, measured.count, violation, *verdict)
