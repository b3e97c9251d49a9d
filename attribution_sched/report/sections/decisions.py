"""The most consequential decisions: the plan, its drivers as a waterfall, the reasoning, and what would flip it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from attribution_sched.explain import facts, plots
from attribution_sched.explain.digits import apart, number
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.plots.counterfactual import gauges
from attribution_sched.explain.reasoning import sections
from attribution_sched.explain.wording import output_name, quantity_of, unit_of
from attribution_sched.explain.words import in_language
from attribution_sched.report.data import Moment, Report, Why
from attribution_sched.report.document import Block, Picture, Section, Table, Text
from attribution_sched.report.saying import moment as moment_
from attribution_sched.report.saying import plan, player, recorded_plan, say, share, signed

TITLE = ("The decisions that matter most", "影响最大的决策")
NONE = ("No plan was put in force, so there is none to explain.", "尚无方案生效，没有可供解释的决策。")
UNASKED = ("No explanation was asked for (explain=0).", "未要求解释（explain=0）。")
LEAD = (
    "Decisions are ranked by the device-hours they commit: devices × step time × steps left, as simulated when the "
    "plan "
    "was put in force. One per model is shown before a second of any; decisions to wait or to stay commit nothing and "
    "are not ranked.",
    "按决策所占用的设备时数排序：设备数 × 单步时间 × 剩余步数（方案生效时的仿真值）。同一模型先取一个；"
    "等待或维持现状的决策不占用设备，不参与排序。",
)
HEAD = (
    ("decision", "model", "at", "device-hours", "step vs baseline", "R"),
    ("决策", "模型", "时刻", "设备时", "单步时间／基线", "R"),
)
NAME = ("{id}: {kind}, {hours} device-hours", "{id}：{kind}，{hours} 设备时")
FACTS = (
    "{verb} {task} at {at} on {devices} devices: {plan}. A step takes {step} s{base} and {energy} J{bill}. Decided by "
    "{source}.",
    "第 {at}{verb}任务 {task}，使用 {devices} 块设备：{plan}。单步 {step} s{base}，耗能 {energy} J{bill}。决策来源："
    "{source}。",
)
BASE = (" ({ratio} of the baseline's)", "（为基线的 {ratio}）")
BILL = (", with {bill} USD of traffic", "，流量费用 {bill} USD")
SOURCES = {
    "policy": ("the policy itself", "策略自身"),
    "policy+search": ("the policy, its details settled by a search", "策略，细节由搜索确定"),
    "search": ("a wide search, because waiting would not help this task", "广域搜索（等待对该任务无益）"),
}
FALLBACK = ("the fallback {name}: {why}", "后备策略 {name}：{why}")
WHYS = (
    ("all tasks were left waiting, none runs", "所有任务都被搁置等待，且没有任务在运行"),
    ("coordination took", "两级协调超过时限"),
)
"""Reasons of a fallback by how they are journaled, and in Chinese."""
PLACED, MOVED = ("Placed", "放置"), ("Moved", "迁移")
MISSING = ("This decision could not be explained: {why}", "该决策无法解释：{why}")
CAPTION = (
    "Waterfall of {output}: from the mean over the background ({base}) to this decision ({value}), one input after the "
    "other; below each name is what it read{scale}. Whiskers are 95 % intervals; grey inputs cannot be told from 0. "
    "Estimated.",
    "{output}的瀑布图：从背景均值（{base}）到本次决策（{value}），逐一加上各输入的份额；名称下方为当时读数{scale}。"
    "须线为 95% 区间；灰色输入与 0 无法区分。估计值。",
)
SCALE = (
    " (attributions: the task's joules by counter, as the policy sees them, from −1 to +1)",
    "（归因：任务能耗按计数器的归因，为策略所见的 −1 至 +1 尺度）",
)
ALT = (
    "Waterfall from {base} to {value}; {drivers}.",
    "从 {base} 到 {value} 的瀑布图；{drivers}。",
)
LARGEST = ("the largest certain driver is {name} with {share}", "最大的可确认驱动因素为{name}（{share}）")
NO_DRIVER = ("no input is certain to drive it", "没有可以确认的驱动因素")
FLIPS = (
    "Where the choice flips. Blue is where it holds, orange where the policy chooses otherwise, all else being "
    "equal.{arrow} Thresholds come from asking the policy anew{verified}.",
    "决策翻转之处。其他条件不变时，蓝色区域维持该选择，橙色区域策略会改选{arrow}。阈值由重新询问策略得到{verified}。",
)
ARROW = (" The arrow is the smallest change found.", "；箭头为所找到的最小改动")
VERIFIED = ("; the smallest change was verified by it", "；最小改动已由策略验证")
FLIP_ALT = ("{count} thresholds and flips of decision {id}. {words}", "决策 {id} 的 {count} 处阈值与翻转。{words}")
NO_FLIP = (
    "No single quantity, turned up or down within what the background shows, and no combination that was tried flips "
    "this "
    "choice.",
    "在背景状态的变动范围内，任何单一数量的增减以及所尝试的组合都不会改变该选择。",
)
UNSOUGHT = (
    "Thresholds and flips of this one were not looked for: this policy takes too long to be asked so often.",
    "未对该决策查找阈值与翻转：该策略单次决策耗时较长，无法反复询问。",
)
INPUT = ("input", "输入"), ("reading", "当前"), ("usually", "通常"), ("share", "份额")
QUANTITY = ("quantity", "数量"), ("was", "当时"), ("flips at", "翻转于"), ("then", "改选")
SMALLEST = ("smallest change", "最小改动")


def section(report: Report, lang: str) -> Section:
    """A table of them, then one part each."""
    title, why = say(TITLE, lang), report.reasons.consequential
    if not report.timeline.moments:
        return Section("decisions", title, (Text(say(NONE, lang), "note"),))
    if not why:
        return Section("decisions", title, (Text(say(UNASKED, lang), "note"),))
    known = {moment.decision: moment for moment in report.timeline.moments}
    moments = [known[one.decision] for one in why]
    rows = tuple(
        (one.decision, one.kind, moment_(one.time_s, lang), number(one.device_hours or 0.0), _ratio(one, lang),
         signed(one.reward))
        for one in moments
    )  # fmt: skip
    parts = tuple(_part(moment, one, report.run.domains, lang) for moment, one in zip(moments, why, strict=True))
    return Section("decisions", title, (Text(say(LEAD, lang)), Table(HEAD[lang == "zh"], rows, text_columns=2)), parts)


def _ratio(moment: Moment, lang: str) -> str:
    return share(moment.step_s / moment.base_step_s, lang) if moment.base_step_s else "–"


def _part(moment: Moment, why: Why, domains: tuple[str, ...], lang: str) -> Section:
    name = say(NAME, lang, id=moment.decision, kind=moment.kind, hours=number(moment.device_hours or 0.0))
    blocks: list[Block] = [Text(_facts(moment, domains, lang))]
    if why.explanation is None:
        blocks.append(Text(say(MISSING, lang, why=why.missing), "bad"))
    else:
        told = Explanation.from_dict(why.explanation)
        parts = sections(told, lang)
        blocks += [Text(parts[name]) for name in ("decision", "worth")]
        blocks.append(_waterfall(told, lang))
        blocks += [Text(parts[name]) for name in ("drivers", "interaction") if name in parts]
        blocks += [*_flips(told, parts, lang, why.flips_sought), Text(parts["method"], "note")]
    return Section(f"decision-{moment.decision}", name, tuple(blocks))


def _facts(moment: Moment, domains: tuple[str, ...], lang: str) -> str:
    base = say(BASE, lang, ratio=_ratio(moment, lang)) if moment.base_step_s else ""
    bill = say(BILL, lang, bill=number(moment.bill_usd)) if moment.bill_usd else ""
    return say(
        FACTS, lang, verb=say(MOVED if moment.moved else PLACED, lang), task=moment.task,
        at=moment_(moment.time_s, lang),
        devices=moment.devices, plan=recorded_plan(moment.plan, domains, lang), step=number(moment.step_s), base=base,
        energy=number(moment.energy_j), bill=bill, source=_source(moment.source, lang),
    )  # fmt: skip


def _source(source: str, lang: str) -> str:
    if source in SOURCES:
        return say(SOURCES[source], lang)
    kind, _, rest = source.partition(":")
    if kind != "fallback":
        return source
    name, _, why = rest.partition(" (")
    words = why.removesuffix(")")
    if lang == "zh":
        words = next((chinese for english, chinese in WHYS if english in words), words)
    return say(FALLBACK, lang, name=name, why=words)


def _waterfall(told: Explanation, lang: str) -> Picture:
    output = told.main
    c = told.column(output)
    ends = {"base": number(float(told.base[c])), "value": number(float(told.value[c]))}
    found = facts.drivers(told, output, 1).named
    if found:
        words = say(LARGEST, lang, name=player(found[0].player.name, lang), share=signed(found[0].share, 2))
    else:
        words = say(NO_DRIVER, lang)
    half = facts.half_widths(told)[:, c]
    rows = tuple(
        (
            player(told.players[i].name, lang), _reading(told.players[i].value, lang),
            _reading(told.players[i].usual, lang), f"{signed(float(told.values[i, c]))} ± {number(float(half[i]), 2)}",
        )
        for i in facts.shown(told, output, 13)
    )  # fmt: skip
    head = tuple(say(pair, lang) for pair in INPUT)
    return Picture(
        f"waterfall-{told.decision}",
        partial(plots.waterfall, told, lang=lang),
        say(ALT, lang, **ends, drivers=words),
        say(CAPTION, lang, output=output_name(output, lang), scale=_scale(told, lang), **ends),
        Table(head, rows, text_columns=3),
    )


def _scale(told: Explanation, lang: str) -> str:
    """What the readings of attributions are; nothing where none is drawn."""
    shown = [told.players[i].name for i in facts.shown(told, told.main, 13)]
    return say(SCALE, lang) if any(name.startswith("attribution ") for name in shown) else ""


def _reading(words: str, lang: str) -> str:
    return in_language(words, lang)


def _flips(told: Explanation, parts: Mapping[str, str], lang: str, sought: bool) -> list[Block]:
    found = gauges(told)
    if not sought:
        return [Text(say(UNSOUGHT, lang), "note")]
    if not found:
        return [Text(say(NO_FLIP, lang), "note")]
    words = (" " if lang == "en" else "").join(parts[name] for name in ("rule", "counterfactual") if name in parts)
    head = tuple(say(pair, lang) for pair in QUANTITY)
    rows = [
        (quantity_of(rule.player, rule.quantity, lang),
         *_ends(rule.value, rule.threshold, rule.quantity, rule.unit, lang),
         plan(rule.plan, lang))
        for rule in told.rules
    ]  # fmt: skip
    flip = told.counterfactual
    if flip is not None:
        rows += [
            (f"{say(SMALLEST, lang)}: {quantity_of(one.player, one.quantity, lang)}",
             *_ends(one.before, one.after, one.quantity, one.unit, lang), plan(flip.plan, lang))
            for one in flip.changes
        ]  # fmt: skip
    added = {"arrow": ARROW, "verified": VERIFIED}
    picture = Picture(
        f"flips-{told.decision}",
        partial(plots.counterfactual, told, lang=lang),
        say(FLIP_ALT, lang, count=len(found), id=told.decision, words=parts.get("counterfactual", "")),
        say(FLIPS, lang, **{key: say(pair, lang) if flip else "" for key, pair in added.items()}),
        Table(head, tuple(rows), text_columns=1, wide=False),
    )
    return [Text(words), picture]


def _ends(value: float, flip: float, quantity: str, unit: str, lang: str) -> tuple[str, str]:
    return apart(value, flip, unit_of(quantity, unit, lang))
