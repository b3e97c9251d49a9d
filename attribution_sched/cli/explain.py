"""``attribution-sched explain``: why a decision of a journal was made, at a terminal and as a page."""

from __future__ import annotations

import math
from html import escape as escaped
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from attribution_sched.cli.console import Stages, columns, examples, notes, out, say_json
from attribution_sched.cli.files import check_folder, find_decision, rebuild_system
from attribution_sched.errors import ExplanationError, JournalError, SettingsError, nearest, problem

if TYPE_CHECKING:
    from attribution_sched.explain.brought import Brought
    from attribution_sched.explain.decision_table import DecisionTable
    from attribution_sched.explain.explanation import Explanation
    from attribution_sched.journal import Journal
    from attribution_sched.stats.interval import MeanInterval


EXAMPLES = examples(
    "attribution-sched explain last --journal runs/cross-domain-0-1/journal.sqlite",
    "attribution-sched explain d000012 -j run.sqlite --target terms --against runner-up",
    "attribution-sched explain 12 -j run.sqlite --lang zh --html why.html",
    "attribution-sched explain --all -j run.sqlite --workers 2",
)

AGAINST: tuple[str, ...] = ("runner-up", "nothing")
QUESTION, RESULT, ALL = "What is asked", "What is printed", "All of them"


def explain(
    journal: Annotated[Path, typer.Option("--journal", "-j", help="Journal to read; another process may write it.")],
    decision: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="A decision: its id, a prefix no other has, its number, or `last` (the newest plan put in force).",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="Every decision that has none yet; written into the journal.", rich_help_panel=ALL),
    ] = False,
    workers: Annotated[
        str, typer.Option(help="With --all: processes; ray, or a Ray address.", rich_help_panel=ALL)
    ] = "1",
    rows: Annotated[
        int | None,
        typer.Option(help="With --all: most situations for each.", show_default=False, rich_help_panel=ALL),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="decision (default), terms (what the plan is worth), simulator, choice or log_probability.",
            show_default=False,
            rich_help_panel=QUESTION,
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Compare with runner-up (the next choice) or nothing (to wait).",
            show_default=False,
            rich_help_panel=QUESTION,
        ),
    ] = None,
    tipping: Annotated[
        bool, typer.Option(help="Look for thresholds and the smallest flip.", rich_help_panel=QUESTION)
    ] = True,
    recorded: Annotated[
        bool,
        typer.Option(
            "--recorded", help="Show what the journal holds, without asking the policy again.", rich_help_panel=QUESTION
        ),
    ] = False,
    most: Annotated[int, typer.Option(help="Drivers to show.", rich_help_panel=RESULT)] = 8,
    lang: Annotated[str, typer.Option(help="Language of words: en or zh.", rich_help_panel=RESULT)] = "en",
    html: Annotated[
        Path | None, typer.Option(help="Write it as a page too.", show_default=False, rich_help_panel=RESULT)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.", rich_help_panel=RESULT)] = False,
) -> None:
    """Say why a decision was made: drivers with intervals, how sure, and what would have changed it.

    The journal is only read. The cluster is built again from it up to the newest decision, and a copy of the policy is
    asked.
    """
    from attribution_sched.explain.wording import check_language

    check_language(lang)
    if most < 1:
        raise SettingsError(problem("--most", most, "must be a whole number >= 1", "Use for example --most 8"))
    options = _options(target, against, tipping)
    if every == (decision is not None):
        rule = "either one decision or --all is explained"
        raise SettingsError(problem("ID", decision, rule, "Give an id, `last`, or --all"))
    if every:
        explain_all(journal, workers, options | ({} if rows is None else {"rows": rows}), as_json=as_json)
        return
    assert decision is not None
    if html is not None:
        _check_page(html)
    from attribution_sched.journal import Journal

    with Journal.read(journal) as recording:
        name = find_decision(recording, decision)
        explanation = _recorded(recording, name, options) if recorded else None
    table: DecisionTable | None = None
    trees: tuple[Explanation, ...] = ()
    if explanation is None:
        explanation, table, trees = _explained(journal, name, options)
    if html is not None:
        from attribution_sched.report.files import write_whole

        write_whole(html, page(explanation, lang), "--html")
        notes().print(f"written: {html}", soft_wrap=True)
    if as_json:
        from attribution_sched.explain.reasoning import reasoning

        say_json({"reasoning": reasoning(explanation, lang), **explanation.to_dict()})
        return

    if table is not None and explanation.target == "decision":
        show_alternatives(table, lang)
    show(explanation, lang, most)
    show_trees(trees, lang)


def explain_all(journal: Path, workers: str, options: dict[str, Any], *, as_json: bool) -> None:
    """Explain every decision of a journal that has no such explanation yet; each is written as it is ready.

    Raises:
        JournalError: If another process writes the journal.
    """
    from attribution_sched.journal import ExplanationRecord, Journal
    from attribution_sched.system.explain_many import explain_aside, unexplained

    failed: dict[str, str] = {}
    with Journal.open(journal, claim=False) as writing, Stages() as stages:
        todo, known = unexplained(writing, None, options)
        with stages.stage(f"explaining {len(todo)} decisions"):
            who = int(workers) if workers.isdecimal() else workers
            for name, target, explanation in explain_aside(Path(journal), todo, who, options, None, None):
                if isinstance(explanation, str):
                    failed[name] = explanation
                else:
                    writing.record_explanation(ExplanationRecord(name, target, explanation), replace=True)
    if as_json:
        say_json({"explained": [name for name in todo if name not in failed], "known": known, "failed": failed})
        return
    words = f"explained {len(todo) - len(failed)} decisions; {len(known)} had been before"
    out().print(words + (f"; {len(failed)} cannot be" if failed else ""))
    for name, why in failed.items():
        out().print(f"  {name}: {escape(why)}", soft_wrap=True)


def _options(target: str | None, against: str | None, tipping: bool) -> dict[str, Any]:
    from attribution_sched.explain.explanation import TARGETS

    valid = [name for name in TARGETS if name not in ("model", "log_odds")]
    if target is not None and target not in valid:
        raise ExplanationError(problem("--target", target, "cannot be explained", nearest(target, valid)))
    if against is not None and against not in AGAINST:
        raise ExplanationError(problem("--against", against, "is not known", nearest(against, AGAINST)))
    named = {"target": target, "against": against}
    return {**{name: value for name, value in named.items() if value is not None}, "tipping": tipping}


def _check_page(html: Path) -> None:
    if html.suffix.lower() not in (".html", ".htm"):
        raise SettingsError(problem("--html", str(html), "must end in .html", "For example --html why.html"))
    if html.is_dir():
        raise SettingsError(problem("--html", str(html), "is a folder", "Give the name of a file"))
    check_folder(html, "--html")


def _explained(
    journal: Path, name: str, options: dict[str, Any]
) -> tuple[Explanation, DecisionTable, tuple[Explanation, ...]]:
    try:
        with Stages() as stages, rebuild_system(journal, stages) as system, stages.stage(f"explaining {name}"):
            explanation, table = system.explain(name, **options), system.alternatives(name, drivers=True)
            return explanation, table, system.tree_readings(name)
    except JournalError as error:
        from attribution_sched.journal import Journal

        with Journal.read(journal) as recording:
            if not recording.explanations(name):
                raise
        raise JournalError(f"{error}. What was recorded of {name} can be shown with --recorded") from error


def _recorded(journal: Journal, name: str, options: dict[str, Any]) -> Explanation:
    from attribution_sched.explain.explanation import Explanation

    records = journal.explanations(name)
    target = options.get("target")
    fitting = [each for each in records if target in (None, each.target)]
    if not fitting:
        has = ", ".join(each.target for each in records) or "none"
        rule = f"has no recorded explanation{f' of {target!r}' if target else ''} (recorded: {has})"
        raise JournalError(problem("decision", name, rule, "Leave out --recorded to have it explained now"))
    return Explanation.from_dict(fitting[0].explanation)


def show_trees(readings: tuple[Explanation, ...], lang: str) -> None:
    """Print the way down each tree, where the policy decides by trees."""
    from attribution_sched.explain.flat import reading_words

    for reading in readings:
        out().print(escape(reading_words(reading, lang)), width=columns())


RULES = 4
"""Thresholds that are shown."""


def show(explanation: Explanation, lang: str, most: int) -> None:
    """Print the decision, the drivers, how sure the policy was, what would change it, and the reasons in words."""
    from attribution_sched.explain.reasoning import sections
    from attribution_sched.words.say import say

    console, width = out(), columns()
    parts = sections(explanation, lang)
    console.print(f"[bold]{escape(parts.pop('decision'))}[/bold]", width=width)
    if explanation.target == "decision":
        console.print(parts.pop("drivers"), width=width, markup=False)
    console.print(_drivers(explanation, lang, most))
    console.print(say("cli.key", lang), style="dim", width=width)
    console.print(_facts(explanation, lang))
    method = parts.pop("method", "")
    for section in ("rule", "counterfactual"):  # They stand in the table above.
        parts.pop(section, None)
    if parts:
        reasons = say("cli.why.sentences", lang, parts=tuple(parts.values()))
        console.print(f"[bold]{say('cli.why', lang)}[/bold]  {escape(reasons)}", width=width)
    console.print(f"\n[dim][bold]{say('cli.method', lang)}[/bold]  {escape(method)}[/dim]", width=width)


def show_alternatives(table: DecisionTable, lang: str) -> None:
    """Print the one sentence and the table of alternatives."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from attribution_sched.explain.table_words import NONE, cells_of
    from attribution_sched.words.say import in_language, say

    console, width = out(), columns()
    console.print(f"[bold]{escape(in_language(table.sentence, lang))}[/bold]", width=width)
    if table.carbon:
        console.print(in_language(table.carbon, lang), width=width, markup=False)
    heads, rows, note = cells_of(table, lang)
    # A column in which nothing differs says nothing; what a narrow terminal has no room for comes in a table below.
    told = [c for c in range(len(heads)) if any(cells[c] not in (NONE, "0") for _, cells in rows)]
    for at, kept in enumerate(_in_width(told, heads, [cells for _, cells in rows], (width or console.width) - NAMED)):
        shown = Table(box=SIMPLE_HEAD, padding=0)
        shown.add_column("", width=1)
        shown.add_column(say("table.what", lang), min_width=NAMED - 5, overflow="fold")
        for c in kept:
            shown.add_column(heads[c], justify="right", no_wrap=True)
        for row, ((what, *below), every) in zip(table.rows, rows, strict=True):
            if at and all(every[c] == NONE for c in kept):
                continue
            lines = [escape(what), *(f"[dim]{escape(line)}[/dim]" for line in below if not at)]
            shown.add_row("✔" if row.chosen else "", "\n".join(lines), *(every[c] for c in kept))
        console.print(shown)
    console.print(note, style="dim", width=width)
    if table.brought is not None:
        show_brought(table.brought, lang)


def _in_width(told: list[int], heads: list[str], rows: list[list[str]], room: int) -> list[list[int]]:
    """Columns in groups that fit side by side; at least one group, with at least one column each."""
    from rich.cells import cell_len

    groups: list[list[int]] = [[]]
    left = room
    for c in told:
        # A blank stands between a column and the next.
        wide = 1 + max(
            cell_len(line) for text in (heads[c], *(cells[c] for cells in rows)) for line in text.split("\n")
        )
        if groups[-1] and wide > left:
            groups.append([])
            left = room
        groups[-1].append(c)
        left -= wide
    return groups


def show_brought(gain: Brought, lang: str) -> None:
    """Print what the choice brought, and by whose being there."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from attribution_sched.explain.brought import COMPONENTS
    from attribution_sched.explain.digits import number
    from attribution_sched.explain.table_words import spans_in_words
    from attribution_sched.words.say import in_language, say

    def cells(spans: tuple[MeanInterval, ...]) -> list[str]:
        told = zip((text.replace(" ± ", "\n± ") for text in spans_in_words(spans)), spans, strict=True)
        return [text if span.certain else f"[dim]{text}[/dim]" for text, span in told]

    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_footer=True)
    head = say("brought.head", lang, what=in_language(gain.against, lang))
    shown.add_column(escape(head), footer=say("cli.sum", lang), max_width=34)
    for component, total in zip(COMPONENTS, cells(gain.total), strict=True):
        shown.add_column(f"Δ{component}", justify="right", no_wrap=True, footer=total)
    for driver in sorted(gain.drivers, key=lambda each: -abs(each.spans[-1].mean)):
        shown.add_row(say("brought.player", lang, variant=driver.player), *cells(driver.spans))
    shown.add_row(say("brought.own", lang), *cells(gain.own))
    out().print(shown)
    note = say("brought.note", lang, futures=gain.futures, hours=number(gain.hours, 2))
    out().print(note, style="dim", width=columns())


NAMED = 31
"""Characters for what a row is, its mark and the edges of the table included."""


def _drivers(explanation: Explanation, lang: str, most: int) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from attribution_sched.explain import facts
    from attribution_sched.explain.digits import alike, number
    from attribution_sched.words.say import say

    outputs = facts.per_output(explanation)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_footer=True)
    table.add_column(say("cli.driver", lang), footer=say("cli.sum", lang), max_width=34, overflow="fold")
    for output in outputs:
        c = explanation.column(output)
        levels = " → ".join(alike(float(explanation.base[c]), float(explanation.value[c])))
        total = number(
            facts.rounded(explanation, output, float(explanation.value[c] - explanation.base[c])), 2, signed=True
        )
        table.add_column(f"{output}\n[dim]{levels}[/dim]", justify="right", footer=total)
    rows = facts.shown(explanation, explanation.main, most)
    for i in rows:
        table.add_row(_name(explanation, i, lang), *(_cell(explanation, i, output) for output in outputs))
    left = [i for i in range(len(explanation.players)) if i not in rows]
    if left:
        sums = explanation.values[left].sum(axis=0)
        cells = [
            number(facts.rounded(explanation, each, float(sums[explanation.column(each)])), 2, signed=True)
            for each in outputs
        ]
        table.add_row(say("cli.others", lang, count=len(left)), *cells, style="dim")
    return table


def _name(explanation: Explanation, i: int, lang: str) -> str:
    from attribution_sched.words.names import input_name
    from attribution_sched.words.say import in_language, say

    player = explanation.players[i]
    name = input_name(player.name, lang)
    value, usual = (in_language(each, lang) for each in (player.value, player.usual))
    readings = [value] if value else []
    readings += [say("cli.usual", lang, value=usual)] if usual else []
    below = say("cli.reading", lang, parts=readings)
    return escape(name) + (f"\n[dim]{escape(below)}[/dim]" if below else "")


def _cell(explanation: Explanation, i: int, output: str) -> str:
    from attribution_sched.explain import facts
    from attribution_sched.explain.digits import number, share

    c = explanation.column(output)
    value, half = float(explanation.values[i, c]), float(facts.half_widths(explanation)[i, c])
    value, half = facts.rounded(explanation, output, value), facts.rounded(explanation, output, half)
    # The error goes under its share, which keeps four columns narrow enough for a terminal.
    text = share(value, half).replace(" ± ", "\n± ") if half else number(value, 2, signed=True)
    if not facts.sure(explanation, output)[i]:
        return f"[dim]{text}[/dim]"
    good = (facts.direction(explanation, output) or 1) * value > 0
    return f"[{'green' if good else 'red'}]{text}[/]"


def _facts(explanation: Explanation, lang: str) -> Any:
    """How sure, the runner-up, thresholds and the smallest flip."""
    from rich.table import Table

    from attribution_sched.explain.digits import apart, percent
    from attribution_sched.explain.wording import short_plan
    from attribution_sched.words.names import input_name, unit_name
    from attribution_sched.words.say import say

    def plan(text: str) -> str:
        return escape(short_plan(text, lang))

    def named(player: str, quantity: str) -> str:
        who, what = input_name(player, lang), input_name(quantity, lang)
        return escape(who if who == what else say("cli.quantity", lang, player=who, quantity=what))

    def unit(name: str) -> str:
        return unit_name(name, lang)

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    confidence = explanation.confidence
    if confidence is not None:
        if not math.isnan(confidence.probability):
            sure = say("cli.probability", lang, share=percent(confidence.probability))
            table.add_row(say("cli.confidence", lang), sure)
        if confidence.runner_up:
            second, share = plan(confidence.runner_up), confidence.runner_up_probability
            if not math.isnan(share):
                second = say("cli.runner_up.probability", lang, plan=second, share=percent(share))
            table.add_row(say("cli.runner_up", lang), second)
    if explanation.against:
        table.add_row(say("cli.against", lang), plan(explanation.against))
    for i, rule in enumerate(explanation.rules[:RULES]):
        limit, value = apart(rule.threshold, rule.value, unit(rule.unit))
        quantity, otherwise = named(rule.player, rule.quantity), plan(rule.plan)
        text = say("cli.rule", lang, variant=rule.side, quantity=quantity, limit=limit, value=value, plan=otherwise)
        table.add_row("" if i else say("cli.thresholds", lang), text)
    if len(explanation.rules) > RULES:
        table.add_row("", say("cli.more", lang, count=len(explanation.rules) - RULES, option="--json"), style="dim")
    flip = explanation.counterfactual
    if flip is not None:
        moved = [
            f"{named(each.player, each.quantity)} {' → '.join(apart(each.before, each.after, unit(each.unit)))}"
            for each in flip.changes
        ]
        changes = say("cli.counterfactual.changes", lang, parts=moved, plan=plan(flip.plan))
        table.add_row(say("cli.counterfactual", lang), changes)
    return table


def page(explanation: Explanation, lang: str) -> str:
    """The explanation as a page: one file, no script, no address."""
    from attribution_sched.explain.notebook import to_html

    title = escaped(f"{explanation.decision}: {explanation.policy}")
    return (
        f'<!DOCTYPE html>\n<html lang="{lang}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>:root{{color-scheme:light dark}}body{{margin:1.5rem auto;max-width:64rem;"
        f"padding:0 1rem}}</style></head><body>{to_html(explanation, lang)}</body></html>\n"
    )
