"""Targets met or missed."""

from __future__ import annotations

from attribution_sched.explain.digits import number
from attribution_sched.feedback.targets import KINDS
from attribution_sched.report.data import Report, Standing
from attribution_sched.report.document import Section, Table, Text
from attribution_sched.report.saying import amount, plural, say, share

TITLE = ("Targets", "目标")
NONE = (
    "No targets were set. Give some, for example System(targets={{'utilisation_at_least': 0.85}}), and the report says "
    "whether they are met.",
    "未设定目标。可在创建系统时给出，例如 System(targets={{'utilisation_at_least': 0.85}})，报告即会说明是否达成。",
)
HOW = (
    "Taken over {plans} put in force (placements and moves), simulated; intervals are 95 %, decisions taken "
    "as independent.",
    "按已生效的 {count} 个方案（放置与迁移）统计，为仿真值；区间为 95% 置信区间，视各次决策相互独立。",
)
HEAD = (
    ("target", "verdict", "asked for", "reached", "95 % interval"),
    ("目标", "结论", "要求", "实际", "95% 区间"),
)
MET = ("✓ met, {far} to spare", "✓ 达成，余量 {far}")
MISSED = ("✗ missed by {far}", "✗ 未达成，差 {far}")
MAYBE = (" (may be chance)", "（可能只是偶然）")
UNKNOWN = ("cannot be told", "无法判断")


def section(report: Report, lang: str) -> Section:
    """A table, and a line on how it was measured."""
    if not report.targets:
        return Section("targets", say(TITLE, lang), (Text(say(NONE, lang), "note"),))
    rows = tuple(_row(one, lang) for one in report.targets)
    table = Table(HEAD[lang == "zh"], rows, text_columns=2)
    counted = max(one.decisions for one in report.targets)
    unknown = [
        Text(f"{one.target}: {one.chinese if lang == 'zh' else one.english}", "note")
        for one in report.targets
        if one.violation is None
    ]
    return Section(
        "targets",
        say(TITLE, lang),
        (table, *unknown, Text(say(HOW, lang, count=counted, plans=plural(counted, "plan", "plans")), "note")),
    )


def _row(one: Standing, lang: str) -> tuple[str, ...]:
    kind = KINDS[one.target]
    name = kind.chinese if lang == "zh" else kind.english
    bound = "≥" if kind.at_least else "≤"
    if one.violation is None or one.measured.value is None:
        return name, say(UNKNOWN, lang), f"{bound} {amount(one.limit)}", "–", "–"
    low, high = one.measured.low, one.measured.high
    ends = "–" if low is None or high is None else f"{number(low)} … {number(high)}"
    verdict = say(MISSED if one.violation > 0 else MET, lang, far=share(abs(one.violation), lang))
    if one.violation > 0 and low is not None and high is not None and low <= (one.limit.value or 0.0) <= high:
        verdict += say(MAYBE, lang)
    return name, verdict, f"{bound} {amount(one.limit)}", amount(one.measured), ends
