"""Explanations for the report: the consequential decisions in depth, a sample of placements for the drivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.errors import AttributionSchedError
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.overview import Overview
from attribution_sched.explain.stacking import stack
from attribution_sched.explain.wording import output_unit
from attribution_sched.report.collect.consequence import consequential, spread
from attribution_sched.report.data import Driver, Moment, Number, Reasons, Why
from attribution_sched.scheduler.policy import Appraiser

if TYPE_CHECKING:
    from attribution_sched.report.source import Source

DEEP: dict[str, Any] = {"rows": "standard"}
SAMPLED: dict[str, Any] = {"rows": "quick", "precision": 0.1, "sure": False}
"""Options of the two sorts of explanation, for a policy that judges thousands of situations at once."""

SLOW_DEEP, SLOW_SAMPLED = 1_200, 240
"""Rows of the two for any other policy, which decides anew in every situation. Rows, not seconds: explanations are
journaled and read by feedback, and a busy machine must not learn otherwise."""

SAMPLE, SLOW_SAMPLE = 40, 16
"""Placements that are explained for the drivers at most."""

TOLD = 12
"""Drivers that are told."""


def reasons(system: Source, moments: Sequence[Moment], most: int) -> Reasons:
    """Explain what matters, and some of the rest."""
    placed = [moment for moment in moments if not moment.moved]
    quick = isinstance(system.policy, Appraiser)
    sample = _sample(system, spread(placed, (SAMPLE if quick else SLOW_SAMPLE) if most else 0), quick)
    # The deep ones come last: one explanation per target is journaled, and theirs say more.
    deep = _deep(system, consequential(moments, most), quick)
    explanations = [Explanation.from_dict(why.explanation) for why in sample if why.explanation is not None]
    output, drivers = _drivers(explanations)
    return Reasons(deep, sample, len(placed), output, drivers)


def _sample(system: Source, chosen: Sequence[Moment], quick: bool) -> tuple[Why, ...]:
    """Explanations in the order of the run."""
    how = SAMPLED | ({"target": "terms"} if quick else {"target": "choice", "rows": SLOW_SAMPLED})
    return tuple(_known_or_quick(system, moment.decision, how) for moment in chosen)


def _deep(system: Source, chosen: Sequence[Moment], quick: bool) -> tuple[Why, ...]:
    """Explanations with thresholds and flips, which a policy that decides anew in every situation is not asked for."""
    how = DEEP | ({"target": "terms"} if quick else {"target": "choice", "rows": SLOW_DEEP}) | {"tipping": quick}
    return tuple(replace(_why(system, moment.decision, how), flips_sought=quick) for moment in chosen)


def _known_or_quick(system: Source, decision: str, how: dict[str, Any]) -> Why:
    """What the journal has of a decision; else a quick explanation."""
    recorded = [one for one in system.journal.explanations(decision) if one.target in ("terms", "choice")]
    if recorded and not recorded[0].explanation.get("against"):
        return Why(decision, recorded[0].explanation)
    return _why(system, decision, how)


def _why(system: Source, decision: str, how: dict[str, Any]) -> Why:
    try:
        return Why(decision, system.explain(decision, **how).to_dict())
    except AttributionSchedError as error:
        return Why(decision, None, str(error))


def _drivers(explanations: Sequence[Explanation]) -> tuple[str, tuple[Driver, ...]]:
    """Inputs by how often they lead, then by how often they are certain."""
    targets = [each.target for each in explanations]
    main = max(set(targets), key=targets.count) if targets else ""
    alike = [each for each in explanations if each.target == main]
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
