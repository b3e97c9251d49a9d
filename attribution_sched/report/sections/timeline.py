"""Reward components over the run."""

from __future__ import annotations

from bisect import bisect_left
from functools import partial

import numpy as np

from attribution_sched.explain import plots
from attribution_sched.explain.digits import number
from attribution_sched.explain.plots.rewards import MOST_BARS
from attribution_sched.report.data import Report
from attribution_sched.report.document import Picture, Section, Table, Text
from attribution_sched.report.format import counted, signed
from attribution_sched.words.say import say, say_all


def section(report: Report, lang: str) -> Section:
    """The picture, its numbers below."""
    moments, title = report.timeline.moments, say("report.timeline.title", lang)
    if not moments:
        return Section("timeline", title, (Text(say("report.timeline.none", lang), "note"),))
    best, worst = (pick(moments, key=lambda one: one.reward) for pick in (max, min))
    lead = say(
        "report.timeline.lead",
        lang,
        best=best.decision,
        best_kind=best.kind,
        best_r=signed(best.reward),
        worst=worst.decision,
        worst_kind=worst.kind,
        worst_r=signed(worst.reward),
    )
    # Feedback says after how many decisions it changed something; a decision's id counts those before it.
    names = [one.decision for one in moments]
    after = sorted({change.after_decisions for change in report.changes.changes})
    marks = sorted({bisect_left(names, f"d{number_:06d}") for number_ in after})
    draw = partial(
        plots.rewards,
        np.array([one.terms for one in moments]),
        np.array([one.weights for one in moments]),
        [one.time_s / 3600.0 for one in moments],
        changes=marks,
        lang=lang,
    )
    rewards = np.array([one.reward for one in moments])
    alt = say(
        "report.timeline.alt",
        lang,
        count=len(moments),
        hours=number((moments[-1].time_s - moments[0].time_s) / 3600.0),
        low=signed(float(rewards.min())),
        high=signed(float(rewards.max())),
        mean=signed(float(rewards.mean())),
    )
    caption = say(
        "report.timeline.caption",
        lang,
        count=len(moments),
        plans=counted("count.plans_in_force", len(moments)),
        moved=sum(one.moved for one in moments),
    )
    if report.timeline.left_out:
        caption += say("report.timeline.older", lang, count=report.timeline.left_out)
    rows = tuple(
        (one.decision, one.kind, number(one.time_s / 3600.0), *(signed(term) for term in one.terms), signed(one.reward))
        for one in moments[-2 * MOST_BARS :]
    )
    numbers = Table(say_all("report.timeline.head", lang), rows, text_columns=2)
    return Section("timeline", title, (Text(lead), Picture("reward-timeline", draw, alt, caption, numbers)))
