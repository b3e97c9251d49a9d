"""``attribution-sched bench …``: policies side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attribution_sched.cli.console import STOPPED, examples, notes, out, say_json, shown
from attribution_sched.errors import SettingsError, problem

if TYPE_CHECKING:
    from attribution_sched.rivals.arena.report import ArenaResult

EXAMPLES = examples(
    "attribution-sched bench schedulers",
    "attribution-sched bench schedulers --policies hi-ppo,exact-resolve --scenarios link-cut --episodes 5",
)

bench = typer.Typer(name="bench", help="Play policies side by side.", no_args_is_help=True, epilog=EXAMPLES)

DEFAULT_POLICIES = "hi-ppo,rule,rule+fork,sjf,fcfs,greedy,static-uniform"
DEFAULT_SCENARIOS = "steady,ou30"
PLAY, RESULTS = "What plays", "Results"


@bench.callback()
def _group() -> None:
    """Play policies side by side."""


@bench.command()
def policies(as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False) -> None:
    """List the policies that can play, and what each does."""
    from attribution_sched.scheduler.registry import POLICIES

    told = {name: (spec.description, spec.freedoms) for name, spec in POLICIES.items()}
    _list("What it does", {name: f"{does} ({more})" if more else does for name, (does, more) in told.items()}, as_json)


@bench.command()
def scenarios(as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False) -> None:
    """List the scenarios policies can be tried in."""
    from attribution_sched.config.scenarios import SCENARIOS

    _list("What is changed in the preset", {name: what for name, (_, what) in SCENARIOS.items()}, as_json)


def _list(heading: str, described: Mapping[str, str], as_json: bool) -> None:
    if as_json:
        say_json(dict(described))
        return
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("Name", style="bold", no_wrap=True)
    table.add_column(heading)
    for name, description in described.items():
        # Variants have names in brackets.
        table.add_row(escape(name), escape(description))
    out(wide=True).print(table)


@bench.command()
def senses(
    preset: Annotated[str, typer.Argument(help="shared, or a preset whose tasks the rule with the fork places.")],
    days: Annotated[int, typer.Option(help="Days of every arm; of `shared`, pairs of days.")] = 4,
    load: Annotated[str, typer.Option(help="Of the shared site: 0.9 or 1.4.")] = "0.9",
    seed: Annotated[int, typer.Option(help="Of the first day.")] = 3_190_000,
    cpu_minutes: Annotated[float, typer.Option(help="Begin no further day after so many.")] = 8.0,
    output: Annotated[Path, typer.Option(help="Folder of the days that were played.")] = Path("senses"),
    only: Annotated[str, typer.Option(help="Play arms whose name begins so; several with | between.")] = "",
    against: Annotated[
        str, typer.Option(metavar="ARM", help="Compare all arms with this one.", show_default=False)
    ] = "",
) -> None:
    """Say what each sense and each freedom is worth to one policy, on paired days."""
    from attribution_sched.cli.senses import measure_senses

    told = measure_senses(preset, days, load, seed, cpu_minutes, output, only, against)
    out().print(told, markup=False, highlight=False)


@bench.command(epilog=EXAMPLES)
def schedulers(
    policies: Annotated[
        str, typer.Option(help="Names, separated by commas; see `bench policies`.", rich_help_panel=PLAY)
    ] = DEFAULT_POLICIES,
    preset: Annotated[
        str, typer.Option(help="Preset name or path of a YAML file.", rich_help_panel=PLAY)
    ] = "cross-domain",
    scenarios: Annotated[
        str, typer.Option(help="Names, separated by commas; see `bench scenarios`.", rich_help_panel=PLAY)
    ] = DEFAULT_SCENARIOS,
    episodes: Annotated[
        int, typer.Option(help="Held-out episodes per policy and scenario.", rich_help_panel=PLAY)
    ] = 20,
    seed: Annotated[int, typer.Option(help="Picks the held-out episodes.", rich_help_panel=PLAY)] = 0,
    limit: Annotated[
        str | None, typer.Option(help="Policy that stands for the limit.", rich_help_panel=PLAY, show_default=False)
    ] = None,
    workers: Annotated[
        str, typer.Option(help="Processes that play side by side; ray, or a Ray address.", rich_help_panel=PLAY)
    ] = "1",
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            rich_help_panel=RESULTS,
            help="Folder for results; a run that was stopped goes on from what is there.",
        ),
    ] = Path("arena"),
    replay_stale: Annotated[
        bool,
        typer.Option(
            "--replay-stale",
            rich_help_panel=RESULTS,
            help="Play episodes again that other settings or code left there.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON.", rich_help_panel=RESULTS)
    ] = False,
) -> None:
    """Play policies over the same held-out episodes and say how far each is from the limit."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from attribution_sched.rivals.arena.by_preset import evaluate
    from attribution_sched.rivals.arena.report import write_report

    if output.exists() and not output.is_dir():
        raise SettingsError(problem("--output", str(output), "is a file, not a folder", "Choose another name"))
    named = TextColumn("{task.description:<30}")
    columns = (named, BarColumn(16), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    try:
        with shown(Progress(*columns, console=notes())) as bar:
            job = bar.add_task("getting ready", total=None)

            def tick(done: float, total: int, label: str) -> None:
                bar.update(job, completed=done, total=total, description=label or "getting ready")

            result = evaluate(
                _names(policies), preset, episodes, seed, scenarios=_names(scenarios), limit=limit, folder=output,
                replay=replay_stale, workers=int(workers) if workers.isdecimal() else workers, tick=tick,
            )  # fmt: skip
    except KeyboardInterrupt:
        notes().print(f"stopped; episodes played are in {output}: the same command goes on from there", soft_wrap=True)
        raise typer.Exit(STOPPED) from None
    files = write_report(result, output)
    if as_json:
        say_json(result.to_dict())
    else:
        _print_tables(result, f"{preset}, {episodes} held-out episodes, seed {seed} (all figures simulated)")
    notes().print("written: " + ", ".join(str(path) for path in files), soft_wrap=True)


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _print_tables(result: ArenaResult, title: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from attribution_sched.rivals.arena.report import ACROSS, absolute, cells, headings

    console = out(wide=True)
    console.print(title)
    for scenario in result.scenarios:
        name = f"{scenario.scenario}  (best {scenario.best}, limit {scenario.limit or 'n/a'})"
        table = Table(title=name, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for i, heading in enumerate(headings()):
            table.add_column(
                heading.replace(" ", "\n", 1), justify="right" if i else "left", style="" if i else "bold", no_wrap=True
            )
        for row in scenario.rows:
            # An interval goes under its figure, which keeps the columns narrow enough for a terminal.
            table.add_row(*(cell.replace(" [", "\n[") for cell in cells(scenario, row)))
        console.print(table)
        titles, rows = absolute(scenario)
        beside = Table(caption=ACROSS, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for i, heading in enumerate(titles):
            beside.add_column(heading.replace(" ", "\n", 1), justify="right" if i else "left")
        for each in rows:
            beside.add_row(*each)
        console.print(beside)
