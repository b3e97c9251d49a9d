"""What feedback changed, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attribution_sched.explain.digits import number
from attribution_sched.report.data import FeedbackStep, Report
from attribution_sched.report.document import Block, Section, Table, Text
from attribution_sched.report.saying import plural, say

TITLE = ("What feedback changed", "反馈所作的修改")
NOTHING = (
    "No changes were made: feedback was not asked to look at this run, and the weights are the preset's own.",
    "没有任何修改：本次运行未调用反馈，奖励权重即预设权重。",
)
LEFT = (
    "Feedback looked {times} and left everything as it was.",
    "反馈检查了 {steps} 次，未作任何修改。",
)
LEAD = (
    "Feedback looked {times} and made {made}, {undone} taken back.",
    "反馈检查了 {steps} 次，作出 {count} 项修改，其中 {undone} 项被撤回。",
)
HEAD = (
    ("no.", "after decisions", "what", "from", "to", "state"),
    ("编号", "此前决策数", "内容", "修改前", "修改后", "状态"),
)
STATE = {
    "force": ("in force", "生效中"),
    "undone": ("rolled back", "已撤回"),
    "undoes": ("takes back no. {number}", "撤回第 {number} 号"),
}
WHY = ("No. {number}: {reason}", "第 {number} 号：{reason}")
STILL = ("After {count} decisions, nothing: {reason}", "第 {count} 次决策之后，未作修改：{reason}")
CHANGED = {"reward weights": ("reward weights", "奖励权重"), "reward.energy_usd_per_kwh": ("energy price", "电价")}
ENGLISH = ("{reason} (recorded in English)", "{reason}（日志仅存英文原文）")


def section(report: Report, lang: str) -> Section:
    """A table, then every reason in words."""
    told, title = report.changes, say(TITLE, lang)
    blocks: list[Block] = []
    if not told.changes:
        words = say(LEFT, lang, **_times(told.steps)) if told.steps else say(NOTHING, lang)
        blocks.append(Text(words, "plain" if told.steps else "note"))
    else:
        undone = sum(change.rolled_back for change in told.changes)
        blocks.append(
            Text(say(LEAD, lang, **_times(told.steps), **_made(len(told.changes)), undone=undone or _none(lang)))
        )
        blocks.append(Table(HEAD[lang == "zh"], tuple(_row(one, lang) for one in told.changes), text_columns=6))
        blocks += [Text(say(WHY, lang, number=one.number, reason=_reason(one, lang))) for one in told.changes]
    for count, english, chinese in told.verdicts:
        reason = chinese or english if lang == "zh" else english
        blocks.append(Text(say(STILL, lang, count=count, reason=reason), "note"))
    return Section("feedback", title, tuple(blocks))


def _times(steps: int) -> dict[str, Any]:
    return {"steps": steps, "times": "once" if steps == 1 else f"{steps} times"}


def _made(changes: int) -> dict[str, Any]:
    return {"count": changes, "made": plural(changes, "change", "changes")}


def _none(lang: str) -> str:
    return "0" if lang == "zh" else "none"


def _row(one: FeedbackStep, lang: str) -> tuple[str, ...]:
    state = say(STATE["undone" if one.rolled_back else "force"], lang)
    if one.undoes is not None:
        state = say(STATE["undoes"], lang, number=one.undoes)
    what = say(CHANGED[one.changed], lang) if one.changed in CHANGED else one.changed
    return str(one.number), str(one.after_decisions), what, _value(one.before), _value(one.after), state


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_value(each) for each in value)
    return number(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _reason(one: FeedbackStep, lang: str) -> str:
    if lang == "zh" and not one.chinese:
        return say(ENGLISH, lang, reason=one.english)
    return one.chinese if lang == "zh" else one.english
