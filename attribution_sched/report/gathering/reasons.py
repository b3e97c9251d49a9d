"""Explanations for the report: the consequential decisions in depth, a sample of placements for the drivers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.errors import AttributionSchedError
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.overview import Overview
from attribution_sched.explain.stacking import stack
from attribution_sched.explain.wording import output_unit
from attribution_sched.report.data import Driver, Moment, Number, Reasons, Why
from attribution_sched.report.gathering.consequence import consequential, spread

if TYPE_CHECKING:
    from attribution_sched.report.source import Source

DEEP: dict[str, Any] = {"rows": "standard", "time_s": 3.0}
SAMPLED: dict[str, Any] = {"rows": "quick", "precision": 0.1, "sure": False, "time_s": 0.5}
"""Options of the two sorts of explanation. A learnt policy is asked thousands of times in less than these times; a rule
that takes milliseconds to decide is asked as often as they allow."""

SAMPLE, SAMPLE_S = 40, 10.0
"""Placements that are explained for the drivers at most, and seconds after which no further one is begun."""

TIPPING_S = 15.0
"""Seconds after which thresholds and flips are not looked for any more."""

TOLD = 12
"""Drivers that are told."""


def reasons(system: Source, moments: Sequence[Moment], most: int) -> Reasons:
    """Explain what matters, and some of the rest."""
    placed = [moment for moment in moments if not moment.moved]
    sample = _sample(system, spread(placed, SAMPLE if most else 0))
    # The deep ones come last: one explanation per target is journaled, and theirs say more.
    deep = _deep(system, consequential(moments, most))
    found = [Explanation.from_dict(why.explanation) for why in sample if why.explanation is not None]
    output, drivers = _drivers(found)
    return Reasons(deep, sample, len(placed), output, drivers)


def _sample(system: Source, chosen: Sequence[Moment]) -> tuple[Why, ...]:
    """Explanations in the order of the run; where time runs out, of fewer decisions, still spread over it."""
    bits = max(1, len(chosen) - 1).bit_length()
    # Numbers with their binary digits reversed: every beginning of this order is spread over the whole.
    order = sorted(range(len(chosen)), key=lambda at: int(f"{at:0{bits}b}"[::-1], 2))
    found: dict[int, Why] = {}
    began = time.perf_counter()
    for at in order:
        found[at] = _known_or_quick(system, chosen[at].decision)
        if len(found) == 1:
            # The first one prepares the background for all.
            began = time.perf_counter()
        if time.perf_counter() - began > SAMPLE_S:
            break
    return tuple(found[at] for at in sorted(found))


def _deep(system: Source, chosen: Sequence[Moment]) -> tuple[Why, ...]:
    found: list[Why] = []
    began = time.perf_counter()
    for moment in chosen:
        tipping = time.perf_counter() - began < TIPPING_S
        told = _why(system, moment.decision, DEEP | {"tipping": tipping})
        found.append(replace(told, flips_sought=tipping))
    return tuple(found)


def _known_or_quick(system: Source, decision: str) -> Why:
    """What the journal has of a decision; else a quick explanation."""
    kept = [one for one in system.journal.explanations(decision) if one.target in ("terms", "choice")]
    if kept and not kept[0].explanation.get("against"):
        return Why(decision, kept[0].explanation)
    return _why(system, decision, SAMPLED)


def _why(system: Source, decision: str, how: dict[str, Any]) -> Why:
    try:
        return Why(decision, system.explain(decision, **how).to_dict())
    except AttributionSchedError as error:
        return Why(decision, None, str(error))


def _drivers(found: Sequence[Explanation]) -> tuple[str, tuple[Driver, ...]]:
    """Inputs by how often they lead, then by how often they are certain."""
    targets = [told.target for told in found]
    main = max(set(targets), key=targets.count) if targets else ""
    alike = [told for told in found if told.target == main]
    if not alike:
        return "", ()
    overview = Overview.of(alike)
    output = overview.main
    shares, stacked = overview.shares(output), stack(alike, output)
    names = [player.name for player in stacked.players]
    certain = dict(zip(names, np.nan_to_num(stacked.certain).mean(axis=0).tolist(), strict=True))
    unit = output_unit(output, main)
    drivers = [
        Driver(
            name, int(shares.count[i]), float(shares.top[i]), certain[name],
            _number(shares.size[i], unit, shares.size_low[i], shares.size_high[i]),
            _number(shares.signed[i], unit, shares.signed_low[i], shares.signed_high[i]),
        )
        for i, name in enumerate(shares.names)
    ]  # fmt: skip
    order = sorted(drivers, key=lambda one: (-one.top, -one.certain, -(one.mean_size.value or 0.0)))
    return output, tuple(order[:TOLD])


def _number(value: float, unit: str, low: float, high: float) -> Number:
    ends = (float(low), float(high)) if np.isfinite(low) and np.isfinite(high) else (None, None)
    return Number(float(value), unit, "estimated", *ends)
