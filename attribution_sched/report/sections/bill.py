"""The bill: who answers for what, line by line, and what other rules would say."""

from __future__ import annotations

from collections.abc import Sequence

from attribution_sched.billing.bill import NOBODY, OTHERS, UNATTRIBUTED, Bill, Line, OperatorPart
from attribution_sched.billing.rules import RULES
from attribution_sched.explain.digits import number
from attribution_sched.report.collect.bill import REST
from attribution_sched.report.data import Billing, Report, RuleRow
from attribution_sched.report.document import Block, Fold, Section, Table, Text
from attribution_sched.report.format import listed, share
from attribution_sched.words.names import counter_name
from attribution_sched.words.say import say

LEAVES = "max-request-use"

J_PER_KWH = 3.6e6

SHOWN = {"energy": ("kWh", J_PER_KWH), "idle": ("kWh", J_PER_KWH), "CPU time": ("s", 1.0), "carbon": ("kg", 1e3)}
"""Parts told in another unit than they are kept in."""


def section(report: Report, lang: str) -> Section:
    """The bill by tenant."""
    return bill_section(report.bill, lang)


def bill_section(bill: Billing | None, lang: str) -> Section:
    """A bill as a section of its own, for a report or a page."""
    title = say("report.bill.title", lang)
    if bill is None or bill.missing:
        words = say("report.bill.none", lang, why=bill.missing if bill else say("report.bill.nothing", lang))
        return Section("bill", title, (Text(words, "note"),))
    blocks: list[Block] = [
        Text(_lead(bill, lang)),
        _summary(bill, lang),
        *(Text(words, "note") for words in notes(bill, lang)),
        *_operators(bill, lang),
        Fold(say("report.bill.lines", lang), (_lines(bill, lang),)),
        Text(say("report.bill.rules", lang)),
        _rules(bill, lang),
        *(Text(words, "plain") for words in why_they_differ(bill, lang)),
    ]
    return Section("bill", title, tuple(blocks))


def _scaled(part: str, unit: str, value: float) -> tuple[str, float]:
    name, size = SHOWN.get(part, (unit, 1.0))
    return name, value / size


def _cell(bill: Billing, part: str, value: float, half_width: float = 0.0) -> str:
    _, size = _scaled(part, bill.units[part], 1.0)
    return number(value * size) + (f" ± {number(half_width * size, 2)}" if half_width else "")


def _heads(bill: Billing, lang: str) -> tuple[str, ...]:
    return tuple(f"{part_name(part, lang)} ({_scaled(part, bill.units[part], 0.0)[0]})" for part in bill.units)


def part_name(part: str, lang: str) -> str:
    """A part of a bill in words."""
    return say("bill.part", lang, variant=part)


def name_of(payer: str, lang: str) -> str:
    """A payer's name; those that stand for nobody or several in words."""
    named = {NOBODY: "bill.nobody", REST: "bill.smaller", OTHERS: "bill.others"}
    return say(named[payer], lang) if payer in named else payer


def _payers(bill: Billing) -> list[str]:
    return list(dict.fromkeys(line.payer for line in bill.lines))


def _lead(bill: Billing, lang: str) -> str:
    return say(
        "report.bill.lead",
        lang,
        count=len([payer for payer in _payers(bill) if payer not in (REST, OTHERS)]),
        hours=number(bill.hours),
        rule=bill.rule,
        provenance=say("report.provenance.kinds", lang, variant=bill.provenance),
    )


def _summary(bill: Billing, lang: str) -> Table:
    rows = []
    for payer in _payers(bill):
        lines = {line.part: line for line in bill.lines if line.payer == payer}
        cells = [_cell(bill, part, lines[part].own + lines[part].shared, lines[part].half_width) for part in bill.units]
        usd = sum(line.usd for line in lines.values() if line.usd is not None)
        rows.append((name_of(payer, lang), *cells, number(usd)))
    rest = [_cell(bill, part, bill.unallocated[part]) for part in bill.units]
    meter = [_cell(bill, part, bill.meter[part]) for part in bill.units]
    rows += [(name_of(NOBODY, lang), *rest, ""), (say("bill.meter", lang), *meter, "")]
    head = (say("bill.by", lang, variant=bill.by), *_heads(bill, lang), say("bill.in_all", lang))
    return Table(head, tuple(rows), strong=frozenset({len(rows) - 1}))


def operator_rows(parts: Sequence[OperatorPart], lang: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows of the joules above idle power by payer and operator, in kWh with half their intervals."""
    names = list(dict.fromkeys(part.operator for part in sorted(parts, key=lambda part: -part.energy_j)))
    heads = [say("bill.unattributed", lang) if name == UNATTRIBUTED else counter_name(name, lang) for name in names]
    known = {(part.payer, part.operator): part for part in parts}
    rows = []
    for payer in dict.fromkeys(part.payer for part in parts):
        cells = []
        for name in names:
            part = known.get((payer, name))
            width = f" ± {number(part.half_width_j / J_PER_KWH, 2)}" if part is not None and part.half_width_j else ""
            cells.append("–" if part is None else number(part.energy_j / J_PER_KWH) + width)
        rows.append((payer, *cells))
    return ("", *heads), rows


def _operators(bill: Billing, lang: str) -> list[Block]:
    if not bill.operators:
        return []
    head, rows = operator_rows(bill.operators, lang)
    return [
        Table((say("bill.by", lang, variant=bill.by), *head[1:]), tuple(rows), say("bill.operators", lang), wide=False)
    ]


def notes(bill: Billing, lang: str) -> list[str]:
    """What stands below a bill: that it adds up, what idle devices drew, the core, carbon."""
    words = [*empty_notes(bill, lang), say("bill.sum", lang, gap=bill.gap)]
    if bill.provenance != "measured":
        drawn = bill.meter.get("energy", 0.0) + bill.meter.get("idle", 0.0)
        part = bill.idle / drawn if drawn else 0.0
        words.append(say("bill.idle", lang, share=share(part, lang), rule=bill.rule))
        words += carbon_notes(bill, lang)
    words += [say("bill.repeated", lang, domain=name, hours=hours) for name, hours in bill.repeated]
    if not bill.exact:
        words.append(say("bill.sampled", lang))
    if bill.in_core:
        words.append(say("bill.core.in", lang))
    for each in bill.objections:
        who = listed(each.payers, lang)
        words.append(say("bill.core.out", lang, domain=each.domain, who=who, excess=each.excess))
    return words


def carbon_notes(bill: Bill | Billing, lang: str) -> list[str]:
    """How grams were counted, and where they were not."""
    words = [say("bill.carbon", lang)] if "carbon" in bill.meter else []
    if bill.no_carbon:
        words.append(say("bill.no_carbon", lang, domains=listed(bill.no_carbon, lang)))
    return words


def empty_notes(bill: Bill | Billing, lang: str) -> list[str]:
    """Why all of a bill is 0: the journal ends at the moment at which it begins."""
    return [] if bill.hours else [say("bill.no_time", lang)]


def reason(line: Line, lang: str) -> str:
    """Why a payer answers for a line."""
    return say(line.reason, lang, **line.facts)


def _lines(bill: Billing, lang: str) -> Table:
    head = ("by", "part", "own", "shared", "half_width", "usd", "reason")
    rows = tuple(
        (
            name_of(line.payer, lang),
            f"{part_name(line.part, lang)} ({_scaled(line.part, bill.units[line.part], 0.0)[0]})",
            _cell(bill, line.part, line.own),
            _cell(bill, line.part, line.shared),
            "0" if not line.half_width else f"± {_cell(bill, line.part, line.half_width)}",
            "–" if line.usd is None else number(line.usd),
            reason(line, lang),
        )
        for line in bill.lines
    )
    names = (say("bill.by", lang, variant=bill.by), *(say("bill.column", lang, variant=name) for name in head[1:]))
    return Table(names, rows, text_columns=2, wide=False)


def _rules(bill: Billing, lang: str) -> Table:
    part = next(iter(bill.units))
    unit = _scaled(part, bill.units[part], 0.0)[0]
    head = (
        say("bill.by", lang, variant=bill.by),
        *RULES,
        *(say("bill.column", lang, variant=name) for name in ("hours", "peak", "watts")),
    )
    rows = tuple(
        (
            name_of(row.payer, lang),
            *(_cell(bill, part, value) for value in row.amounts),
            *("–" if value is None else share(value, lang) for value in (row.of_hours, row.of_peak)),
            "–" if row.watts is None else number(row.watts),
        )
        for row in bill.rules
    )
    return Table(head, rows, say("report.bill.rules_note", lang, part=part_name(part, lang),
                                 unit=unit))  # fmt: skip


def why_they_differ(bill: Billing, lang: str) -> list[str]:
    """For the payers whose bill hangs most on the rule: how much, and because of what."""
    payers = [row for row in bill.rules if row.payer not in (NOBODY, OTHERS) and max(row.amounts) > 0]
    payers.sort(key=lambda row: -(max(row.amounts) - min(row.amounts)))
    left = next((row.amounts[RULES.index(LEAVES)] for row in bill.rules if row.payer == NOBODY), 0.0)
    part = next(iter(bill.units))
    unit = _scaled(part, bill.units[part], 0.0)[0]
    words = [say("bill.differs.left", lang, rule=LEAVES, left=_cell(bill, part, left), unit=unit)] if left else []
    return [*words, *(differs(row, bill, lang) for row in payers[:3])]


def differs(row: RuleRow, bill: Billing, lang: str) -> str:
    """Why the rules charge one payer differently, in words."""
    part = next(iter(bill.units))
    # One rule charges less because it leaves devices that nobody asked for to nobody: that is said of it once.
    amounts = {rule: value for rule, value in zip(RULES, row.amounts, strict=True) if rule != LEAVES}
    least, most = min(amounts, key=amounts.__getitem__), max(amounts, key=amounts.__getitem__)
    low, high = amounts[least], amounts[most]
    mean_w = sum(r.watts * r.of_hours for r in bill.rules if r.watts and r.of_hours)
    hours, peak, watts = row.of_hours or 0.0, row.of_peak or 0.0, row.watts or 0.0
    cause = "bill.differs.same"
    if "shapley" in (least, most) and abs(peak - hours) > 0.02:
        cause = "bill.differs.peak" if peak > hours else "bill.differs.offpeak"
    elif mean_w and abs(watts / mean_w - 1.0) > 0.05:
        cause = "bill.differs.hot" if watts > mean_w else "bill.differs.cool"
    return say(
        "bill.differs", lang, payer=row.payer, least=least, low=_cell(bill, part, low), most=most,
        high=_cell(bill, part, high), unit=_scaled(part, bill.units[part], 0.0)[0],
        why=say(
            cause, lang, hours=share(hours, lang), peak=share(peak, lang), watts=number(watts), mean=number(mean_w)
        ),
    )  # fmt: skip
