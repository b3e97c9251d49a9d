"""Traffic between domains, with the cut points of each plan."""

from __future__ import annotations

from functools import partial

import numpy as np

from attribution_sched.explain import plots
from attribution_sched.explain.digits import number
from attribution_sched.explain.plots.traffic import cuts
from attribution_sched.report.data import Report, Traffic
from attribution_sched.report.document import Block, Picture, Section, Table, Text
from attribution_sched.report.format import counted, listed, recorded_plan
from attribution_sched.system.decision_records import plan_of
from attribution_sched.words.say import say


def section(report: Report, lang: str) -> Section:
    """Heatmaps, or a sentence that says why there are none."""
    title, all_ = say("report.traffic.title", lang), len(report.timeline.moments) + report.timeline.left_out
    if len(report.run.domains) < 2:
        return Section("traffic", title, (Text(say("report.traffic.alone", lang), "note"),))
    if not all_:
        return Section("traffic", title, (Text(say("report.traffic.nothing", lang), "note"),))
    taken = [one for one in report.traffic if one.taken]
    lead = (
        "report.traffic.lead"
        if report.cross_domain
        else "report.traffic.avoided"
        if report.traffic
        else "report.traffic.none_avoided"
    )
    blocks: list[Block] = [Text(say(lead, lang, crossing=report.cross_domain, plans=counted("count.plans", all_)))]
    for one in taken or report.traffic:
        words = "report.traffic.taken" if one.taken else "report.traffic.split"
        plan = recorded_plan(one.plan, report.run.domains, lang)
        blocks.append(Text(say(words, lang, id=one.decision, kind=one.kind, plan=plan)))
        blocks.append(_picture(one, report.run.domains, lang))
    return Section("traffic", title, tuple(blocks))


def _picture(one: Traffic, domains: tuple[str, ...], lang: str) -> Picture:
    made, gb = plan_of(one.plan, domains), np.array(one.bytes_per_step) / 1e9
    draw = partial(plots.traffic, np.array(one.bytes_per_step), domains, made, lang=lang)
    cut_at = [] if made is None else cuts(made)
    labels = [
        say("report.traffic.one_cut", lang, layer=layer, one=domains[i], other=domains[j]) for i, j, layer in cut_at
    ]
    cut = say("report.traffic.cut", lang, cuts=listed(labels, lang)) if labels else say("report.traffic.uncut", lang)
    hours = (
        ""
        if one.device_hours is None or not one.taken
        else say("report.traffic.hours", lang, hours=number(one.device_hours))
    )
    caption = say(
        "report.traffic.caption",
        lang,
        cuts=cut,
        total=number(float(gb.sum())),
        bill=number(one.bill_usd_per_step),
        hours=hours,
        provenance=say("report.traffic.provenance", lang, variant=one.provenance),
    )
    i, j = np.unravel_index(int(gb.argmax()), gb.shape)
    alt = say(
        "report.traffic.alt",
        lang,
        count=len(domains),
        one=domains[i],
        other=domains[j],
        value=number(float(gb[i, j])),
        cuts=cut,
    )
    rows = tuple(
        (domains[a], domains[b], number(float(gb[a, b])))
        for a in range(len(domains))
        for b in range(len(domains))
        if gb[a, b] > 0
    )
    numbers = Table(
        (say("report.traffic.from", lang), say("report.traffic.to", lang), say("report.traffic.gb", lang)),
        rows,
        text_columns=2,
    )
    return Picture(f"traffic-{one.decision}", draw, alt, caption, numbers)
