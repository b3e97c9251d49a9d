"""What drives decisions over the whole run."""

from __future__ import annotations

from functools import partial

from attribution_sched.explain import plots
from attribution_sched.explain.digits import number
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.overview import Overview
from attribution_sched.explain.wording import output_name
from attribution_sched.report.collect.reasons import commonest
from attribution_sched.report.data import Number, Report
from attribution_sched.report.document import Block, Picture, Section, Table, Text
from attribution_sched.report.format import player, share, signed
from attribution_sched.words.say import say, say_all

FOR_HEATMAP = 5
"""Fewer explanations than this are not worth a heatmap."""


def section(report: Report, lang: str) -> Section:
    """Influence over the sample, in a picture and a table."""
    why, title = report.reasons, say("report.drivers.title", lang)
    explanations = [Explanation.from_dict(one.explanation) for one in why.sample if one.explanation is not None]
    if not explanations or not why.drivers:
        reason = next((f": {one.missing}" for one in why.sample if one.missing), ".")
        return Section("drivers", title, (Text(say("report.drivers.none", lang, why=reason), "note"),))
    alike = commonest(explanations)
    target = say("target.explained", lang, variant=alike[0].target)
    name, first = output_name(why.output, lang), max(why.drivers, key=lambda one: one.mean_size.value or 0.0)
    alt = say(
        "report.drivers.alt",
        lang,
        count=len(why.drivers),
        name=player(first.name, lang),
        size=number(first.mean_size.value or 0.0, 2),
    )
    rows = tuple(
        (
            player(one.name, lang),
            share(one.top, lang),
            share(one.certain, lang),
            number(one.mean_size.value or 0.0),
            _ends(one.mean_size),
            signed(one.mean),
        )
        for one in why.drivers
    )
    blocks: list[Block] = [
        Text(say("report.drivers.lead", lang, count=len(alike), all=why.placements, target=target)),
        Picture(
            "drivers-overview",
            partial(plots.influence, Overview.of(alike), most=8, lang=lang),
            alt,
            say("report.drivers.caption", lang, output=name),
            Table(say_all("report.drivers.head", lang), rows),
        ),
    ]
    if len(alike) >= FOR_HEATMAP:
        draw = partial(plots.timeline, alike, most=8, lang=lang)
        words = say("report.drivers.time_alt", lang, count=len(alike))
        blocks.append(Picture("drivers-timeline", draw, words, say("report.drivers.over_time", lang, output=name)))
    return Section("drivers", title, tuple(blocks))


def _ends(told: Number) -> str:
    return "–" if told.low is None or told.high is None else f"{number(told.low)} … {number(told.high)}"
