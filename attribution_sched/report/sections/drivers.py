"""What drives decisions over the whole run."""

from __future__ import annotations

from functools import partial

from attribution_sched.explain import plots
from attribution_sched.explain.digits import number
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.overview import Overview
from attribution_sched.explain.words import say as say_message
from attribution_sched.explain.wording import output_name
from attribution_sched.report.data import Number, Report
from attribution_sched.report.document import Block, Picture, Section, Table, Text
from attribution_sched.report.saying import player, say, share, signed

TITLE = ("What drives placements", "放置决策的驱动因素")
NONE = ("No placement was explained{why}", "没有已解释的放置决策{why}")
LEAD = (
    "{count} of {all} placements, spread evenly over the run, were explained quickly; explained is {target}. An input "
    "counts as a driver only where its 95 % interval excludes 0.",
    "在 {all} 次放置决策中均匀抽取 {count} 次作快速解释，解释对象为{target}。仅当某输入份额的 95% 置信区间不含 0 时，"
    "才视为驱动因素。",
)
CAPTION = (
    "Mean size of each input's share of {output} (bars), mean share (diamonds), and how often it is the largest "
    "certain "
    "driver (right). Intervals are bootstrapped over decisions. Estimated.",
    "各输入对{output}份额的平均绝对值（条）、平均值（菱形）以及作为最大可确认驱动因素的比例（右列）。"
    "区间由决策自助抽样得到。估计值。",
)
ALT = (
    "Bar chart of {count} inputs; the largest on average is {name} ({size}).",
    "{count} 个输入的条形图；平均最大的是{name}（{size}）。",
)
OVER_TIME = (
    "The same shares decision by decision: blue raises {output}, orange lowers it, white is not certain.",
    "逐次决策的份额：蓝色提高{output}，橙色降低，白色表示不能确认。",
)
TIME_ALT = ("Heatmap of the strongest inputs over {count} decisions.", "最强输入在 {count} 次决策中的热图。")
HEAD = (
    ("input", "leads in", "certain in", "mean size", "95 % interval", "mean share"),
    ("输入", "居首", "可确认", "平均绝对值", "95% 区间", "平均份额"),
)

FOR_HEATMAP = 5
"""Fewer explanations than this are not worth a heatmap."""


def section(report: Report, lang: str) -> Section:
    """Influence over the sample, in a picture and a table."""
    why, title = report.reasons, say(TITLE, lang)
    found = [Explanation.from_dict(one.explanation) for one in why.sample if one.explanation is not None]
    if not found or not why.drivers:
        reason = next((f": {one.missing}" for one in why.sample if one.missing), ".")
        return Section("drivers", title, (Text(say(NONE, lang, why=reason), "note"),))
    targets = [told.target for told in found]
    main = max(set(targets), key=targets.count)
    alike = [told for told in found if told.target == main]
    target = say_message(f"target.{main}", lang)
    name, first = output_name(why.output, lang), max(why.drivers, key=lambda one: one.mean_size.value or 0.0)
    alt = say(
        ALT, lang, count=len(why.drivers), name=player(first.name, lang), size=number(first.mean_size.value or 0.0, 2)
    )
    rows = tuple(
        (
            player(one.name, lang), share(one.top, lang), share(one.certain, lang), number(one.mean_size.value or 0.0),
            _ends(one.mean_size), signed(one.mean),
        )
        for one in why.drivers
    )  # fmt: skip
    blocks: list[Block] = [
        Text(say(LEAD, lang, count=len(alike), all=why.placements, target=target)),
        Picture(
            "drivers-overview", partial(plots.influence, Overview.of(alike), most=8, lang=lang), alt,
            say(CAPTION, lang, output=name), Table(HEAD[lang == "zh"], rows),
        ),
    ]  # fmt: skip
    if len(alike) >= FOR_HEATMAP:
        draw = partial(plots.timeline, alike, most=8, lang=lang)
        words = say(TIME_ALT, lang, count=len(alike))
        blocks.append(Picture("drivers-timeline", draw, words, say(OVER_TIME, lang, output=name)))
    return Section("drivers", title, tuple(blocks))


def _ends(told: Number) -> str:
    return "–" if told.low is None or told.high is None else f"{number(told.low)} … {number(told.high)}"
