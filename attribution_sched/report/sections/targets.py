"""Targets met or missed."""

from __future__ import annotations

from attribution_sched.explain.digits import number
from attribution_sched.feedback.targets import KINDS
from attribution_sched.report.data import Report, Standing
from attribution_sched.report.document import Section, Table, Text
from attribution_sched.report.format import amount, counted, share
from attribution_sched.words.say import say, say_all


def section(report: Report, lang: str) -> Section:
    """A table, and a line on how it was measured."""
    if not report.targets:
        return Section("targets", say("report.targets.title", lang), (Text(say("report.targets.none", lang), "note"),))
    rows = tuple(_row(one, lang) for one in report.targets)
    table = Table(say_all("report.targets.head", lang), rows, text_columns=2)
    measured = max(one.decisions for one in report.targets)
    unknown = [
        Text(f"{one.target}: {one.chinese if lang == 'zh' else one.english}", "note")
        for one in report.targets
        if one.violation is None
    ]
    return Section(
        "targets",
        say("report.targets.title", lang),
        (table, *unknown, Text(say("report.targets.how", lang, plans=counted("count.plans", measured)), "note")),
    )


def _row(one: Standing, lang: str) -> tuple[str, ...]:
    kind = KINDS[one.target]
    name = kind.chinese if lang == "zh" else kind.english
    bound = "≥" if kind.at_least else "≤"
    if one.violation is None or one.measured.value is None:
        return name, say("report.targets.unknown", lang), f"{bound} {amount(one.limit)}", "–", "–"
    low, high = one.measured.low, one.measured.high
    ends = "–" if low is None or high is None else f"{number(low)} … {number(high)}"
    verdict = say(
        "report.targets.missed" if one.violation > 0 else "report.targets.met",
        lang,
        far=share(abs(one.violation), lang),
    )
    if one.violation > 0 and low is not None and high is not None and low <= (one.limit.value or 0.0) <= high:
        verdict += say("report.targets.maybe", lang)
    return name, verdict, f"{bound} {amount(one.limit)}", amount(one.measured), ends
