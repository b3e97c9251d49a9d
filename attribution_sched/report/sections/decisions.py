"""The most consequential decisions: the plan, its drivers as a waterfall, the reasoning, and what would flip it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from attribution_sched.explain import facts, plots
from attribution_sched.explain.digits import apart, number
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.plots.counterfactual import gauges
from attribution_sched.explain.reasoning import sections
from attribution_sched.explain.wording import output_name, quantity_of, unit_of
from attribution_sched.report.data import Moment, Report, Why
from attribution_sched.report.document import Block, Picture, Section, Table, Text
from attribution_sched.report.format import moment as moment_
from attribution_sched.report.format import plan, player, recorded_plan, share, signed
from attribution_sched.words.say import in_language, say, say_all, say_name

BECAUSE = {
    "all tasks were left waiting, none runs": "report.decisions.fallback_because.all_wait",
    "coordination took": "report.decisions.fallback_because.too_slow",
}
"""How the reason of a fallback begins where it is journaled → the message that says it."""


def section(report: Report, lang: str) -> Section:
    """A table of them, then one part each."""
    title, why = say("report.decisions.title", lang), report.reasons.consequential
    if not report.timeline.moments:
        return Section("decisions", title, (Text(say("report.decisions.none", lang), "note"),))
    if not why:
        return Section("decisions", title, (Text(say("report.decisions.unasked", lang), "note"),))
    known = {moment.decision: moment for moment in report.timeline.moments}
    moments = [known[one.decision] for one in why]
    rows = tuple(
        (
            one.decision,
            one.kind,
            moment_(one.time_s, lang),
            number(one.device_hours or 0.0),
            _ratio(one, lang),
            signed(one.reward),
        )
        for one in moments
    )
    parts = tuple(_part(moment, one, report.run.domains, lang) for moment, one in zip(moments, why, strict=True))
    return Section(
        "decisions",
        title,
        (Text(say("report.decisions.lead", lang)), Table(say_all("report.decisions.head", lang), rows, text_columns=2)),
        parts,
    )


def _ratio(moment: Moment, lang: str) -> str:
    return share(moment.step_s / moment.base_step_s, lang) if moment.base_step_s else "–"


def _part(moment: Moment, why: Why, domains: tuple[str, ...], lang: str) -> Section:
    name = say(
        "report.decisions.name", lang, id=moment.decision, kind=moment.kind, hours=number(moment.device_hours or 0.0)
    )
    blocks: list[Block] = []
    if why.instead is not None:
        blocks += [Text(why.instead[lang]["sentence"], "lead"), _instead(why.instead[lang], lang)]
    blocks.append(Text(_facts(moment, domains, lang)))
    if why.explanation is None:
        blocks.append(Text(say("report.decisions.missing", lang, why=why.missing), "bad"))
    else:
        told = Explanation.from_dict(why.explanation)
        parts = sections(told, lang)
        blocks += [Text(parts[name]) for name in ("decision", "worth", "drivers", "interaction") if name in parts]
        blocks.append(_waterfall(told, lang))
        blocks += [*_flips(told, parts, lang, why.flips_sought), Text(parts["method"], "note")]
    return Section(f"decision-{moment.decision}", name, tuple(blocks))


def _instead(told: Mapping[str, Any], lang: str) -> Table:
    """What else could have been done; columns in which nothing differs are left out."""
    kept = [c for c in range(len(told["heads"])) if any(cells[c] not in ("–", "0") for _, cells in told["rows"])]
    columns = (say("table.what", lang), *(told["heads"][c] for c in kept))
    shown = tuple(
        # A line break only between a difference and its error.
        (
            ("✔ " if at == 0 else "") + "; ".join(lines),
            *(cells[c].replace(" ", "\u00a0").replace("\n", " ") for c in kept),
        )
        for at, (lines, cells) in enumerate(told["rows"])
    )
    return Table(columns, shown, told["note"], strong=frozenset({0}), wide=False)


def _facts(moment: Moment, domains: tuple[str, ...], lang: str) -> str:
    base = say("report.decisions.base", lang, ratio=_ratio(moment, lang)) if moment.base_step_s else ""
    bill = say("report.decisions.bill", lang, bill=number(moment.bill_usd)) if moment.bill_usd else ""
    return say(
        "report.decisions.facts",
        lang,
        verb=say("report.decisions.moved" if moment.moved else "report.decisions.placed", lang),
        task=moment.task,
        at=moment_(moment.time_s, lang),
        devices=moment.devices,
        plan=recorded_plan(moment.plan, domains, lang),
        step=number(moment.step_s),
        base=base,
        energy=number(moment.energy_j),
        bill=bill,
        source=_source(moment.source, lang),
    )


def _source(source: str, lang: str) -> str:
    kind, _, rest = source.partition(":")
    if kind != "fallback":
        return say_name("report.decisions.source", source, lang)
    name, _, why = rest.partition(" (")
    words = why.removesuffix(")")
    if lang != "en":
        # In English the journal's own words say more: they hold the times.
        words = next((say(message, lang) for begins, message in BECAUSE.items() if begins in words), words)
    return say("report.decisions.fallback", lang, name=name, why=words)


def _waterfall(explanation: Explanation, lang: str) -> Picture:
    output = explanation.main
    c = explanation.column(output)
    ends = {"base": number(float(explanation.base[c])), "value": number(float(explanation.value[c]))}
    named = facts.drivers(explanation, output, 1).named
    if named:
        words = say(
            "report.decisions.largest", lang, name=player(named[0].player.name, lang), share=signed(named[0].share, 2)
        )
    else:
        words = say("report.decisions.no_driver", lang)
    half = facts.half_widths(explanation)[:, c]
    rows = tuple(
        (
            player(explanation.players[i].name, lang),
            _reading(explanation.players[i].value, lang),
            _reading(explanation.players[i].usual, lang),
            f"{signed(float(explanation.values[i, c]))} ± {number(float(half[i]), 2)}",
        )
        for i in facts.shown(explanation, output, 13)
    )
    columns = say_all("report.decisions.input", lang)
    return Picture(
        f"waterfall-{explanation.decision}",
        partial(plots.waterfall, explanation, lang=lang),
        say("report.decisions.alt", lang, **ends, drivers=words),
        say(
            "report.decisions.caption", lang, output=output_name(output, lang), scale=_scale(explanation, lang), **ends
        ),
        Table(columns, rows, text_columns=3),
    )


def _scale(explanation: Explanation, lang: str) -> str:
    """What the readings of attributions are; nothing where none is drawn."""
    shown = [explanation.players[i].name for i in facts.shown(explanation, explanation.main, 13)]
    return say("report.decisions.scale", lang) if any(name.startswith("attribution ") for name in shown) else ""


def _reading(words: str, lang: str) -> str:
    return in_language(words, lang)


def _flips(explanation: Explanation, parts: Mapping[str, str], lang: str, sought: bool) -> list[Block]:
    gauged = gauges(explanation)
    if not sought:
        return [Text(say("report.decisions.unsought", lang), "note")]
    if not gauged:
        return [Text(say("report.decisions.no_flip", lang), "note")]
    words = (" " if lang == "en" else "").join(parts[name] for name in ("rule", "counterfactual") if name in parts)
    columns = say_all("report.decisions.quantity", lang)
    rows = [
        (
            quantity_of(rule.player, rule.quantity, lang),
            *_ends(rule.value, rule.threshold, rule.quantity, rule.unit, lang),
            plan(rule.plan, lang),
        )
        for rule in explanation.rules
    ]
    flip = explanation.counterfactual
    if flip is not None:
        rows += [
            (
                f"{say('report.decisions.smallest', lang)}: {quantity_of(one.player, one.quantity, lang)}",
                *_ends(one.before, one.after, one.quantity, one.unit, lang),
                plan(flip.plan, lang),
            )
            for one in flip.changes
        ]
    added = {"arrow": "report.decisions.arrow", "verified": "report.decisions.verified"}
    picture = Picture(
        f"flips-{explanation.decision}",
        partial(plots.counterfactual, explanation, lang=lang),
        say(
            "report.decisions.flip_alt",
            lang,
            count=len(gauged),
            id=explanation.decision,
            words=parts.get("counterfactual", ""),
        ),
        say("report.decisions.flips", lang, **{key: say(pair, lang) if flip else "" for key, pair in added.items()}),
        Table(columns, tuple(rows), text_columns=1, wide=False),
    )
    return [Text(words), picture]


def _ends(value: float, flip: float, quantity: str, unit: str, lang: str) -> tuple[str, str]:
    return apart(value, flip, unit_of(quantity, unit, lang))
