"""``attribution-sched bill``: who answers for what of a journal."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attribution_sched.cli.console import Stages, examples, out, say_json
from attribution_sched.errors import SettingsError, problem

if TYPE_CHECKING:
    from attribution_sched.billing.bill import Bill

EXAMPLES = examples(
    "attribution-sched bill runs/cross-domain-0-1/journal.sqlite",
    "attribution-sched bill runs/cross-domain-0-1/journal.sqlite --compare",
    "attribution-sched bill runs/cross-domain-0-1/journal.sqlite --payer vision --electricity-price 0.12",
    "attribution-sched bill runs/cross-domain-0-1/journal.sqlite -o focus.csv",
)


def bill(
    journal: Annotated[Path, typer.Argument(help="Journal to read; another process may write it.")],
    by: Annotated[str, typer.Option(help="Who is billed: tenant, task, model or domain.")] = "tenant",
    rule: Annotated[
        str, typer.Option(help="Rule: shapley, reservation, usage, cpu-time or max-request-use.")
    ] = "shapley",
    compare: Annotated[bool, typer.Option("--compare", help="All rules side by side, in joules.")] = False,
    payer: Annotated[str | None, typer.Option(help="As this payer may see it: the others only in sum.")] = None,
    electricity_price: Annotated[float | None, typer.Option(help="USD per kWh; the preset's by default.")] = None,
    carbon_price: Annotated[float | None, typer.Option(help="USD per kg of accounted CO2e.")] = None,
    device_price: Annotated[
        float | None, typer.Option(help="USD per device-hour; prints tomorrow's prices too.")
    ] = None,
    congestion: Annotated[
        bool, typer.Option("--congestion", help="Also who makes whom wait; plays the journal for every group.")
    ] = False,
    congestion_price: Annotated[float | None, typer.Option(help="USD per hour that a task waits for others.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="FOCUS rows: .csv or .json.")] = None,
    lang: Annotated[str, typer.Option(help="Language of words: en or zh.")] = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print the lines as JSON.")] = False,
) -> None:
    """Share energy, electricity, egress, carbon and device time between tenants; lines and rest are the meters'."""
    from attribution_sched.billing.bill import Tariff, compare_rules
    from attribution_sched.billing.metering import bill_of
    from attribution_sched.billing.rules import hour_prices
    from attribution_sched.journal import Journal
    from attribution_sched.report.collect.bill import billing
    from attribution_sched.report.sections.bill import why_they_differ
    from attribution_sched.words.say import check_language, say

    check_language(lang)
    if output is not None and output.suffix not in (".csv", ".json"):
        raise SettingsError(problem("--output", str(output), "must end in .csv or .json", "Name the file so"))
    prices = Tariff(carbon_price, device_price, congestion_price)
    with Stages(quiet=as_json) as stages, Journal.read(journal) as recording:
        with stages.stage(f"living through {recording.count()} decisions with meters on"):
            asked = congestion or congestion_price is not None
            made, usage = bill_of(recording, by, rule, electricity_price, prices, congestion=asked)
        account = recording.header.journal_id
    shown = made if payer is None else made.seen_by(payer)
    if output is not None:
        _write(shown, account, output)
    if as_json:
        reasons = [say(line.reason, lang, **line.facts) for line in shown.lines]
        pairs = zip_longest(reasons, shown.rows(), fillvalue="")
        lines = [{**row, "reason": words} for words, row in pairs if isinstance(row, dict)]
        say_json({"rule": rule, "by": by, "gap": made.gap(), "exact": made.exact, "lines": lines,
                  "operators": [vars(part) for part in shown.operators]})  # fmt: skip
        return
    _print(shown, lang)
    if compare and by != "domain":
        table = compare_rules(usage, by, "energy" if "energy" in made.meter else "CPU time", payer=payer)
        out(wide=True).print(table.to_string(float_format="{:,.4g}".format), markup=False)
        for words in why_they_differ(billing(shown, usage, payer), lang):
            out(wide=True).print(words, markup=False)
    if device_price is not None:
        _print_prices(usage.domains, hour_prices(usage, device_price), lang)
    if output is not None:
        typer.echo(str(output))


def _write(made: Bill, account: str, path: Path) -> None:
    from attribution_sched.billing.focus import focus_csv, focus_json
    from attribution_sched.report.files import write_whole

    text = focus_csv(made, account) if path.suffix == ".csv" else focus_json(made, account)
    write_whole(path, text, "bill")


def _print(made: Bill, lang: str) -> None:
    from rich.table import Table

    from attribution_sched.billing.bill import NOBODY, PARTS
    from attribution_sched.report.sections.bill import name_of, operator_rows, part_name
    from attribution_sched.words.say import say

    console = out(wide=True)
    by = say("bill.by", lang, variant=made.by)
    title = say(
        "bill.title",
        lang,
        by=by,
        rule=made.rule,
        hours=made.hours,
        provenance=say("report.provenance.kinds", lang, variant=made.provenance),
    )
    table = Table(title=title, title_justify="left")
    table.add_column(by)
    parts = [part for part in PARTS if part in made.meter]
    for part in parts:
        table.add_column(f"{part_name(part, lang)} ({PARTS[part]})", justify="right")
    table.add_column("")
    for name in made.payers:
        lines = {line.part: line for line in made.lines if line.payer == name}
        first = next(iter(lines.values()))
        cells = [_cell(lines.get(part)) for part in parts]
        table.add_row(name_of(name, lang), *cells, say(first.reason, lang, **first.facts))
    rest = [f"{made.unallocated.get(part, 0.0):,.4g}" for part in parts]
    table.add_row(name_of(NOBODY, lang), *rest, "", end_section=True)
    table.add_row(say("bill.meter", lang), *(f"{made.meter[part]:,.4g}" for part in parts), "")
    console.print(table)
    for words in _notes(made, lang):
        console.print(words, markup=False)
    if made.operators:
        head, rows = operator_rows(made.operators, lang)
        table = Table(title=say("bill.operators", lang), title_justify="left")
        for at, name in enumerate((by, *head[1:])):
            table.add_column(name, justify="right" if at else "left")
        for row in rows:
            table.add_row(*row)
        console.print(table)


def _cell(line: Any) -> str:
    if line is None:
        return ""
    return f"{line.quantity:,.4g}" + (f" ± {line.half_width:,.2g}" if line.half_width else "")


def _notes(made: Bill, lang: str) -> list[str]:
    from attribution_sched.report.sections.bill import carbon_notes, empty_notes
    from attribution_sched.words.say import say

    words = [*empty_notes(made, lang), say("bill.sum", lang, gap=made.gap()), *carbon_notes(made, lang)]
    words += [say("bill.repeated", lang, domain=name, hours=hours) for name, hours in made.repeated]
    if not made.exact:
        words.append(say("bill.sampled", lang))
    outside = {name: game for name, game in made.core.items() if game.in_core is False}
    if made.core and all(game.in_core for game in made.core.values()):
        words.append(say("bill.core.in", lang))
    for name, game in outside.items():
        mask = [] if game.objectors is None else game.objectors.tolist()
        who = ", ".join(payer for payer, there in zip(made.payers, mask, strict=True) if there)
        words.append(say("bill.core.out", lang, domain=name, who=who, excess=game.excess or 0.0))
    return words


def _print_prices(domains: tuple[str, ...], prices: Any, lang: str) -> None:
    from rich.table import Table

    from attribution_sched.words.say import say

    table = Table(title=say("bill.prices", lang), title_justify="left")
    table.add_column(say("bill.column", lang, variant="hour"), justify="right")
    for name in domains:
        table.add_column(name, justify="right")
    for hour in range(24):
        table.add_row(f"{hour:02d}", *(f"{price:.3f}" for price in prices[:, hour]))
    out(wide=True).print(table)
