"""The bill of a run: who answers for what, by the Shapley rule, and what the other rules would say."""

from __future__ import annotations

from attribution_sched.billing.bill import NOBODY, OTHERS, PARTS, Bill, Line, compare_rules
from attribution_sched.billing.metering import bill_of
from attribution_sched.billing.rules import RULES
from attribution_sched.billing.usage import Usage
from attribution_sched.errors import AttributionSchedError
from attribution_sched.journal import Journal
from attribution_sched.report.data import Billing, Objection, RuleRow

MOST_PAYERS = 40
"""Payers told one by one; the smallest others are one line."""

REST = "(smaller payers)"


def bill_and_usage(journal: Journal) -> tuple[Billing | None, Usage | None]:
    """The bill of a journal by tenant, and what it rests on; None where there is nothing, or it cannot be told."""
    if not journal.count():
        return None, None
    try:
        made, usage = bill_of(journal)
    except AttributionSchedError as error:
        return _no_bill(error), None
    return billing(made, usage), usage


def _no_bill(error: AttributionSchedError) -> Billing:
    return Billing("tenant", "shapley", 0.0, "", True, (), {}, {}, {}, 0.0, 0.0, 0.0, None, (), (), str(error))


def bill(journal: Journal, payer: str | None = None) -> Billing | None:
    """The bill of a journal by tenant; None if there is nothing to bill, with the reason in words if it cannot be.

    Args:
        journal: Only read.
        payer: As this tenant may see it: the others only in sum.
    """
    if not journal.count():
        return None
    try:
        made, usage = bill_of(journal)
    except AttributionSchedError as error:
        return _no_bill(error)
    return billing(made, usage) if payer is None else billing(made.seen_by(payer), usage, payer)


def billing(made: Bill, usage: Usage, payer: str | None = None) -> Billing:
    """A bill as plain records; of one payer's own, the rules tell nobody else's amounts."""
    energy = "energy" if "energy" in made.meter else "CPU time"
    by_size = sorted(made.payers, key=lambda payer: (payer == OTHERS, -made.amount(payer, energy), payer))
    small = set(by_size[MOST_PAYERS:])
    lines = [line for payer in by_size[:MOST_PAYERS] for line in made.lines if line.payer == payer]
    for part in made.meter if small else ():
        theirs = [line for line in made.lines if line.payer in small and line.part == part]
        own, shared = sum(line.own for line in theirs), sum(line.shared for line in theirs)
        priced = [line.usd for line in theirs if line.usd is not None]
        lines.append(Line(REST, part, own, shared, 0.0, sum(priced) if priced else None, "bill.others", {}))
    outside = tuple(
        Objection(
            domain,
            tuple(payer for payer, there in zip(made.payers, game.objectors, strict=True) if there),
            float(game.excess or 0.0),
        )
        for domain, game in made.core.items()
        if game.in_core is False and game.objectors is not None
    )
    known = [game.in_core for game in made.core.values()]
    return Billing(
        by=made.by,
        rule=made.rule,
        hours=made.hours,
        provenance=made.provenance,
        exact=made.exact,
        lines=tuple(lines),
        units={part: PARTS[part] for part in made.meter},
        unallocated=dict(made.unallocated),
        meter=dict(made.meter),
        gap=made.gap(),
        idle=float(usage.idle_j.sum()),
        devices=float(usage.devices.sum()),
        in_core=None if not known or any(each is None for each in known) else all(known),
        objections=outside,
        repeated=made.repeated,
        operators=tuple(part for part in made.operators if part.payer not in small),
        rules=_rules(usage, made.by, by_size[:MOST_PAYERS], energy, payer),
        no_carbon=made.no_carbon,
    )


def _rules(usage: Usage, by: str, payers: list[str], part: str, payer: str | None) -> tuple[RuleRow, ...]:
    known = compare_rules(usage, by, part, payer=payer).to_dict(orient="index")
    return tuple(
        RuleRow(
            payer,
            tuple(float(known[payer][rule]) for rule in RULES),
            *(
                None if payer == NOBODY else float(known[payer][name])
                for name in ("share of hours", "share of peak", "watts per device")
            ),
        )
        for payer in (*payers, NOBODY)
    )
