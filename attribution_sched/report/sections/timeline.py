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
from attribution_sched.report.saying import plural, say, signed

TITLE = ("Reward over time", "奖励随时间的变化")
NONE = ("No plan was put in force yet.", "尚无方案生效。")
LEAD = (
    "R = w_eff·R_eff + w_util·R_util − w_cost·R_cost of every plan put in force. R_eff is the share of the baseline's "
    "step "
    "time that is saved, R_util compute time over step time, R_cost the cost over the baseline's. The best was {best} "
    "({best_kind}, {best_r}), the worst {worst} ({worst_kind}, {worst_r}).",
    "每个生效方案的 R = w_eff·R_eff + w_util·R_util − w_cost·R_cost。R_eff 为相对基线节省的单步时间比例，"
    "R_util 为计算时间占单步时间的比例，R_cost 为相对基线的成本。最佳为 {best}（{best_kind}，{best_r}），"
    "最差为 {worst}（{worst_kind}，{worst_r}）。",
)
CAPTION = (
    "{plans} put in force ({moved} of them moves of running tasks). A bar is stacked from the weighted "
    "components, "
    "the diamond is their sum R. Simulated.",
    "{count} 个生效方案（其中 {moved} 个为运行中任务的迁移）。每条由加权分量堆叠而成，菱形为其总和 R。仿真值。",
)
OLDER = (" {count} older ones are left out.", "较早的 {count} 个未列出。")
ALT = (
    "Stacked bars of {count} decisions over {hours} hours. R lies between {low} and {high}, with mean {mean}.",
    "{hours} 小时内 {count} 次决策的堆叠条形图。R 介于 {low} 与 {high} 之间，均值 {mean}。",
)
HEAD = (
    ("decision", "model", "hour", "R_eff", "R_util", "R_cost", "R"),
    ("决策", "模型", "时刻（h）", "R_eff", "R_util", "R_cost", "R"),
)


def section(report: Report, lang: str) -> Section:
    """The picture, its numbers below."""
    moments, title = report.timeline.moments, say(TITLE, lang)
    if not moments:
        return Section("timeline", title, (Text(say(NONE, lang), "note"),))
    best, worst = (pick(moments, key=lambda one: one.reward) for pick in (max, min))
    lead = say(
        LEAD, lang, best=best.decision, best_kind=best.kind, best_r=signed(best.reward), worst=worst.decision,
        worst_kind=worst.kind, worst_r=signed(worst.reward),
    )  # fmt: skip
    # Feedback says after how many decisions it changed something; a decision's id counts those before it.
    names = [one.decision for one in moments]
    after = sorted({change.after_decisions for change in report.changes.changes})
    marks = sorted({bisect_left(names, f"d{number_:06d}") for number_ in after})
    draw = partial(
        plots.rewards, np.array([one.terms for one in moments]), np.array([one.weights for one in moments]),
        [one.time_s / 3600.0 for one in moments], changes=marks, lang=lang,
    )  # fmt: skip
    rewards = np.array([one.reward for one in moments])
    alt = say(
        ALT, lang, count=len(moments), hours=number((moments[-1].time_s - moments[0].time_s) / 3600.0),
        low=signed(float(rewards.min())), high=signed(float(rewards.max())), mean=signed(float(rewards.mean())),
    )  # fmt: skip
    caption = say(
        CAPTION,
        lang,
        count=len(moments),
        plans=plural(len(moments), "plan", "plans"),
        moved=sum(one.moved for one in moments),
    )
    if report.timeline.left_out:
        caption += say(OLDER, lang, count=report.timeline.left_out)
    rows = tuple(
        (one.decision, one.kind, number(one.time_s / 3600.0), *(signed(term) for term in one.terms), signed(one.reward))
        for one in moments[-2 * MOST_BARS :]
    )
    numbers = Table(HEAD[lang == "zh"], rows, text_columns=2)
    return Section("timeline", title, (Text(lead), Picture("reward-timeline", draw, alt, caption, numbers)))
