"""How good the explanations are."""

from __future__ import annotations

import numpy as np

from attribution_sched.explain import facts
from attribution_sched.explain.digits import number
from attribution_sched.explain.explanation import Explanation
from attribution_sched.report.data import Report
from attribution_sched.report.document import Block, Section, Table, Text
from attribution_sched.report.format import share
from attribution_sched.words.say import say, say_all, say_name


def section(report: Report, lang: str) -> Section:
    """A sentence over all explanations, a table of the deep ones."""
    why, title = report.reasons, say("report.quality.title", lang)
    deep = [Explanation.from_dict(one.explanation) for one in why.consequential if one.explanation is not None]
    quick = [Explanation.from_dict(one.explanation) for one in why.sample if one.explanation is not None]
    measures = [*deep, *quick]
    asked = (*why.consequential, *why.sample)
    failed = [one for one in asked if one.explanation is None]
    unexplained: list[Block] = []
    if failed:
        told = say("report.quality.failed", lang, count=len(failed), all=len(asked), why=failed[0].missing)
        unexplained.append(Text(told, "note"))
    if not measures:
        return Section("quality", title, (Text(say("report.quality.none", lang), "note"), *unexplained))
    gaps = [float(one.efficiency_gap().max()) for one in measures]
    half = float(np.median([_half(one) for one in measures]))
    lead = say(
        "report.quality.lead",
        lang,
        count=len(measures),
        gap=number(max(gaps), 2),
        half=share(2.0 * half, lang),
        converged=share(sum(one.converged for one in measures) / len(measures), lang),
    )
    blocks: list[Block] = [Text(lead), *unexplained]
    if deep:
        rows = tuple(_row(one, lang) for one in deep)
        blocks.append(
            Table(say_all("report.quality.head", lang), rows, say("report.quality.caption", lang), text_columns=3)
        )
    blocks.append(Text(say("report.quality.found", lang), "note"))
    return Section("quality", title, tuple(blocks))


def _half(one: Explanation) -> float:
    """Median half-width over its largest share, of the inputs that move the main output at all."""
    c = one.column(one.main)
    half = facts.half_widths(one)[:, c]
    largest = float(np.abs(one.values[:, c]).max(initial=0.0)) or 1.0
    moving = half[half > 0.0]
    return float(np.median(moving)) / largest if len(moving) else 0.0


def _row(one: Explanation, lang: str) -> tuple[str, ...]:
    certain = say("report.quality.certain", lang, some=int(one.significant().sum()), all=len(one.players))
    return (
        one.decision,
        say_name("report.quality.explained", one.target, lang),
        say_name("report.quality.method", one.method, lang),
        f"{one.rows:,}",
        f"{one.background:,}",
        number(float(one.efficiency_gap().max()), 2),
        share(_half(one), lang),
        certain,
    )
