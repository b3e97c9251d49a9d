"""The commands ``attribution-sched bench …``: policies side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from attribution_sched.scheduler.arena_result import ArenaResult

bench = typer.Typer(name="bench", help="Play policies side by side.", no_args_is_help=True)

DEFAULT_POLICIES = "fcfs,sjf,greedy,static-uniform,speed-proportional"
DEFAULT_SCENARIOS = "steady,ou30"
FILE_WIDTH = 200
"""Columns of a table that goes into a file or a pipe, where nothing needs to be folded."""


@bench.callback()
def _group() -> None:
    """Play policies side by side."""


@bench.command()
def policies(as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False) -> None:
    """List the policies that can play, and what each does."""
    from attribution_sched.scheduler.registry import POLICIES

    if as_json:
        typer.echo(json.dumps({name: spec.description for name, spec in POLICIES.items()}, indent=2))
        return
    table = Table(title="Policies")
    table.add_column("Name", style="bold")
    table.add_column("What it does")
    for name, spec in POLICIES.items():
        table.add_row(name, spec.description)
    Console().print(table)


@bench.command()
def scenarios() -> None:
    """List the scenarios policies can be tried in."""
    from attribution_sched.config.scenarios import DESCRIPTIONS

    table = Table(title="Scenarios")
    table.add_column("Name", style="bold")
    table.add_column("What is changed in the preset")
    for name, description in DESCRIPTIONS.items():
        table.add_row(name, description)
    Console().print(table)


@bench.command()
def schedulers(
    policies: Annotated[str, typer.Option(help="Names, separated by commas; see `bench policies`.")] = DEFAULT_POLICIES,
    preset: Annotated[str, typer.Option(help="Preset name or path of a YAML file.")] = "cross-domain",
    scenarios: Annotated[
        str, typer.Option(help="Names, separated by commas; see `bench scenarios`.")
    ] = DEFAULT_SCENARIOS,
    episodes: Annotated[int, typer.Option(help="Held-out episodes per policy and scenario.")] = 20,
    seed: Annotated[int, typer.Option(help="Picks the held-out episodes.")] = 0,
    output: Annotated[
        Path, typer.Option(help="Folder for results; a run that was stopped goes on from what is there.")
    ] = Path("arena"),
    limit: Annotated[str | None, typer.Option(help="Policy that stands for the limit.")] = None,
    workers: Annotated[int, typer.Option(help="Processes that play side by side.")] = 1,
    replay_stale: Annotated[
        bool, typer.Option("--replay-stale", help="Play episodes again that other settings or code left there.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Play policies over the same held-out episodes and say how far each is from the limit."""
    from attribution_sched.arena import evaluate
    from attribution_sched.scheduler.arena_report import write_report

    notes = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<36}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=notes) as bar:
        job = bar.add_task("getting ready", total=None)

        def tick(done: float, total: int, label: str) -> None:
            bar.update(job, completed=done, total=total, description=label or "getting ready")

        result = evaluate(
            _names(policies), preset, episodes, seed, scenarios=_names(scenarios), limit=limit, folder=output,
            replay=replay_stale, workers=workers, tick=tick,
        )  # fmt: skip
    files = write_report(result, output)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
    else:
        _print_tables(result, f"{preset}, {episodes} held-out episodes, seed {seed} (all figures simulated)")
    notes.print("written: " + ", ".join(str(path) for path in files), highlight=False, soft_wrap=True)


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _print_tables(result: ArenaResult, title: str) -> None:
    from attribution_sched.scheduler.arena_report import cells, headings

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, FILE_WIDTH)
    console.print(title, highlight=False)
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
