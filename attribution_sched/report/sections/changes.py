"""What feedback changed, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attribution_sched.explain.digits import number
from attribution_sched.report.data import FeedbackStep, Report
from attribution_sched.report.document import Block, Section, Table, Text
from attribution_sched.report.format import counted
from attribution_sched.words.say import Phrase, say, say_all, say_name


def section(report: Report, lang: str) -> Section:
    """A table, then every reason in words."""
    steps, title = report.changes, say("report.changes.title", lang)
    blocks: list[Block] = []
    if not steps.changes:
        words = (
            say("report.changes.left", lang, times=counted("count.times", steps.steps))
            if steps.steps
            else say("report.changes.nothing", lang)
        )
        blocks.append(Text(words, "plain" if steps.steps else "note"))
    else:
        undone = sum(change.rolled_back for change in steps.changes)
        words = say(
            "report.changes.lead",
            lang,
            times=counted("count.times", steps.steps),
            made=counted("count.changes", len(steps.changes)),
            undone=Phrase("count.undone.some" if undone else "count.undone.none", count=undone),
        )
        blocks.append(Text(words))
        blocks.append(
            Table(say_all("report.changes.head", lang), tuple(_row(one, lang) for one in steps.changes), text_columns=6)
        )
        blocks += [
            Text(say("report.changes.why", lang, number=one.number, reason=_reason(one, lang))) for one in steps.changes
        ]
    for count, english, chinese in steps.verdicts:
        reason = chinese or english if lang == "zh" else english
        blocks.append(Text(say("report.changes.still", lang, count=count, reason=reason), "note"))
    return Section("feedback", title, tuple(blocks))


def _row(one: FeedbackStep, lang: str) -> tuple[str, ...]:
    state = say("report.changes.state.undone" if one.rolled_back else "report.changes.state.force", lang)
    if one.undoes is not None:
        state = say("report.changes.state.undoes", lang, number=one.undoes)
    what = say_name("report.changes.changed", one.changed, lang)
    return str(one.number), str(one.after_decisions), what, _value(one.before), _value(one.after), state


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_value(each) for each in value)
    return number(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _reason(one: FeedbackStep, lang: str) -> str:
    if lang == "zh" and not one.chinese:
        return say("report.changes.english", lang, reason=one.english)
    return one.chinese if lang == "zh" else one.english
