"""The same day played by others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from attribution_sched.explain import plots
from attribution_sched.explain.plots.style import drawn_language
from attribution_sched.report.collect.rivals import NO_RIVAL, NOTHING_DECIDED, REAL
from attribution_sched.report.data import Contender, Report
from attribution_sched.report.document import Block, Picture, Section, Table, Text
from attribution_sched.report.format import amount, clock, count, hours, seconds, share, signed
from attribution_sched.words.catalogue import variants
from attribution_sched.words.say import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REASONS = {
    NOTHING_DECIDED: "report.rivals.missing.nothing_decided",
    NO_RIVAL: "report.rivals.missing.no_rival",
    REAL: "report.rivals.missing.real",
}


def section(report: Report, lang: str) -> Section:
    """What was compared, a picture, a table, and who could not take part."""
    rivals, title = report.rivals, say("report.rivals.title", lang)
    if rivals.missing:
        why = say(REASONS[rivals.missing], lang) if rivals.missing in REASONS else rivals.missing
        return Section("rivals", title, (Text(say("report.rivals.none", lang, why=why), "note"),))
    played = [one for one in rivals.contenders if not one.missing]
    own = next(one for one in played if one.own)
    continued = say("report.rivals.continued", lang, count=rivals.continued) if rivals.continued else ""
    span = clock(rivals.span_s, lang)
    lead = say("report.rivals.lead", lang, seed=report.run.seed, span=span, policy=own.policy, continued=continued)
    blocks: list[Block] = [Text(lead)]
    if len(played) > 1:
        ranked = sorted(played, key=_earned, reverse=True)
        best = {"best": ranked[0].policy, "value": signed(ranked[0].figures["earned"])}
        words = say(
            "report.rivals.better", lang, policy=own.policy, rank=ranked.index(own) + 1, all=len(ranked), **best
        )
        blocks += [Text(words), _picture(ranked, lang, len(report.run.domains) > 1)]
        blocks += [_table(ranked, lang, len(report.run.domains) > 1), Text(_earned_how(report, lang), "note")]
    blocks += [
        Text(say("report.rivals.left_out", lang, name=one.policy, why=one.missing), "note")
        for one in rivals.contenders
        if one.missing
    ]
    return Section("rivals", title, tuple(blocks))


def _earned(one: Contender) -> float:
    return one.figures["earned"].value or 0.0


def _earned_how(report: Report, lang: str) -> str:
    how = say("report.rivals.earned", lang, interval=clock(report.run.totals["reward_interval_s"].value or 0.0, lang))
    return how + say("report.rivals.weighed", lang, policy=report.run.policy) if report.changes.changes else how


def _picture(ranked: list[Contender], lang: str, many: bool) -> Picture:
    draw = partial(_draw, ranked, lang, many)
    words = ("; " if lang == "en" else "；").join(
        say(
            "report.rivals.one_alt",
            lang,
            policy=one.policy,
            earned=signed(one.figures["earned"]),
            completed=count(one.figures["completed"]),
        )
        for one in ranked
    )
    alt = say("report.rivals.alt", lang, count=len(ranked), words=words)
    return Picture(
        "rivals-figures", draw, alt, say("report.rivals.caption" if many else "report.rivals.caption_alone", lang)
    )


def _draw(ranked: list[Contender], lang: str, many: bool) -> Axes:
    # What words the picture is drawn in is known only where it is drawn.
    lang = drawn_language(lang)
    names = [name for name in variants("report.rivals.chart") if many or name != "traffic_usd"]
    values = {say("report.rivals.chart", lang, variant=name): [_value(one, name) for one in ranked] for name in names}
    own = next(at for at, one in enumerate(ranked) if one.own)
    policies = [one.policy for one in ranked]
    return plots.contenders(values, policies, own=own, title=say("report.rivals.heading", lang), lang=lang)


def _value(one: Contender, name: str) -> float:
    value = one.figures[name].value
    return float("nan") if value is None else value


def _table(ranked: list[Contender], lang: str, many: bool) -> Table:
    names = [name for name in variants("report.rivals.head") if many or name != "traffic_usd"]
    rows = []
    for one in ranked:
        columns = {
            "policy": one.policy,
            "earned": signed(one.figures["earned"]),
            "placed": count(one.figures["placed"]),
            "mean_reward": signed(one.figures["mean_reward"]),
            "completed": count(one.figures["completed"]),
            "utilisation": share(one.figures["utilisation"], lang),
            "energy_kwh": amount(one.figures["energy_kwh"]),
            "traffic_usd": amount(one.figures["traffic_usd"]),
            "waiting_h": hours(one.figures["waiting_h"], lang),
            "completion_h": hours(one.figures["completion_h"], lang),
            "decision_s": seconds(one.figures["decision_s"].value),
        }
        rows.append(tuple(columns[name] for name in names))
    strong = frozenset(at for at, one in enumerate(ranked) if one.own)
    return Table(tuple(say("report.rivals.head", lang, variant=name) for name in names), tuple(rows), strong=strong)
