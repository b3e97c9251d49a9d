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
from attribution_sched.explain.table_words import cells_of
from attribution_sched.explain.wording import output_unit
from attribution_sched.report.collect.passing import consequential, spread
from attribution_sched.report.data import Driver, Moment, Number, Reasons, Why
from attribution_sched.scheduler.policy import Appraiser
from attribution_sched.words.say import in_language

if TYPE_CHECKING:
    from attribution_sched.explain.decision_table import DecisionTable
    from attribution_sched.report.source import Source

DECISION: dict[str, Any] = {"target": "decision"}
"""What is explained: why the policy did this and not the best other choice; rows as they are by default."""

SAMPLE, SLOW_SAMPLE = 40, 16
"""Placements that are explained for the drivers at most."""

TOLD = 12
"""Drivers that are told."""


def reasons(system: Source, moments: Sequence[Moment], most: int) -> Reasons:
    """Explain what matters, and some of the rest."""
    placed = [moment for moment in moments if not moment.moved]
    quick = isinstance(system.policy, Appraiser)
    chosen = spread(placed, (SAMPLE if quick else SLOW_SAMPLE) if most else 0)
    sample = tuple(_known_or_quick(system, moment.decision) for moment in chosen)
    # The deep ones come last: one explanation per target is journaled, and theirs say more.
    deep = tuple(_deep(system, moment.decision, quick) for moment in consequential(moments, most))
    found = [Explanation.from_dict(why.explanation) for why in sample if why.explanation is not None]
    output, drivers = _drivers(found)
    return Reasons(deep, sample, len(placed), output, drivers)


def _deep(system: Source, decision: str, quick: bool) -> Why:
    """An explanation with thresholds, which a policy that decides anew in every situation is not asked for."""
    why = replace(_why(system, decision, DECISION | {"tipping": quick}), flips_sought=quick)
    try:
        table = system.alternatives(decision)
    except AttributionSchedError:
        return why
    return replace(why, instead={lang: _instead(table, lang) for lang in ("en", "zh")})


def _instead(table: DecisionTable, lang: str) -> dict[str, Any]:
    heads, rows, note = cells_of(table, lang)
    return {"sentence": in_language(table.sentence, lang), "heads": heads, "rows": rows, "note": note}


def _known_or_quick(system: Source, decision: str) -> Why:
    """What the journal has of a decision; else a quick explanation."""
    kept = [one for one in system.journal.explanations(decision) if one.target == "decision"]
    return Why(decision, kept[0].explanation) if kept else _why(system, decision, DECISION | {"sure": False})


def _why(system: Source, decision: str, how: dict[str, Any]) -> Why:
    try:
        return Why(decision, system.explain(decision, **how).to_dict())
    except AttributionSchedError as error:
        return Why(decision, None, str(error))


def commonest(found: Sequence[Explanation]) -> list[Explanation]:
    """Those of the main output that most of them have: log-odds and yes or no are not added up."""
    outputs = [told.main for told in found]
    return [told for told in found if told.main == max(sorted(set(outputs)), key=outputs.count)]


def _drivers(found: Sequence[Explanation]) -> tuple[str, tuple[Driver, ...]]:
    """Inputs by how often they lead, then by how often they are certain."""
    alike = commonest(found)
    if not alike:
        return "", ()
    overview = Overview.of(alike)
    output = overview.main
    shares, stacked = overview.shares(output), stack(alike, output)
    names = [player.name for player in stacked.players]
    certain = dict(zip(names, np.nan_to_num(stacked.certain).mean(axis=0).tolist(), strict=True))
    unit = output_unit(output, alike[0].target)
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
