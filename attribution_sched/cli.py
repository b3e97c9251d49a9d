"""The command ``attribution-sched``."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from attribution_sched import __version__
from attribution_sched.cli_bench import bench
from attribution_sched.cli_train import train
from attribution_sched.errors import AttributionSchedError

app = typer.Typer(
    name="attribution-sched",
    help="Explainability-first scheduling of AI workloads.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(bench)
app.command()(train)
BAD_INPUT = 2

ROWS: tuple[tuple[str, str, str], ...] = (
    ("arrived", "Tasks arrived", "{:d}"),
    ("completed", "Tasks completed", "{:d}"),
    ("turned_away", "Tasks turned away (queue full)", "{:d}"),
    ("deadline_misses", "Deadlines missed", "{:d}"),
    ("moves", "Running tasks moved", "{:d}"),
    ("refused_plans", "Plans refused by the cluster", "{:d}"),
    ("mean_completion_h", "Mean time from arrival to finish", "{:.2f} h"),
    ("waiting_h", "Time in the queue, all tasks", "{:.1f} h"),
    ("utilisation", "Device utilisation", "{:.1%}"),
    ("energy_kwh", "Energy on the meters", "{:,.0f} kWh"),
    ("task_energy_kwh", "  of which tasks", "{:,.0f} kWh"),
    ("idle_energy_kwh", "  of which idle devices", "{:,.0f} kWh"),
    ("carbon_kg", "Carbon of the tasks", "{:,.0f} kg CO2e"),
    ("traffic_usd", "Cross-domain traffic", "{:,.2f} USD"),
    ("r_eff", "Σ R_eff", "{:+.2f}"),
    ("r_util", "Σ R_util", "{:+.2f}"),
    ("r_cost", "Σ R_cost", "{:+.2f}"),
    ("reward", "Σ reward", "{:+.2f}"),
)
"""Field of the summary, what to call it, how to print it."""


@app.callback()
def _root() -> None:
    """Explainability-first scheduling of AI workloads."""


@app.command()
def version() -> None:
    """Print the version."""
    Console().print(__version__, highlight=False)


@app.command()
def doctor(
    dcgm_url: Annotated[str | None, typer.Option(help="Address of a dcgm-exporter to try.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the counters this machine offers and, for the rest, why not and what to do."""
    from attribution_sched.attribution.sources import detect

    found = detect(dcgm_url=dcgm_url)
    if as_json:
        typer.echo(json.dumps([{**dataclasses.asdict(c), "available": c.available} for c in found], indent=2))
        return
    console = Console()
    table = Table(title="Counters of this machine")
    for heading in ("Source", "Counter", "Provenance"):
        table.add_column(heading)
    reasons: dict[tuple[str, str], list[str]] = {}
    for item in found:
        colour = "green" if item.available else "yellow"
        table.add_row(item.source, item.counter, f"[{colour}]{item.provenance.value}[/{colour}]")
        if item.detail:
            reasons.setdefault((item.detail, item.fix), []).append(f"{item.source} {item.counter}")
    console.print(table)
    for (detail, fix), counters in reasons.items():
        console.print(f"[bold]{', '.join(counters)}[/bold]: {escape(detail)}. {escape(fix)}", highlight=False)


@app.command()
def run(
    preset: Annotated[str, typer.Option(help="Preset name or path of a YAML file.")] = "cross-domain",
    seed: Annotated[int, typer.Option(min=0, help="Seed of arrivals and network.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Simulate a day of a preset under the greedy rule and print what happened."""
    from attribution_sched.config import load_settings

    console, notes = Console(), Console(stderr=True)
    world = load_settings(preset).build_world()
    notes.print(
        f"[bold]{preset}[/bold]: {len(world.cluster)} domains, {world.cluster.devices} devices, "
        f"{len(world.kinds)} kinds of tasks, {world.horizon_s / 3600:.0f} h  (the first run compiles its kernels)"
    )
    from attribution_sched.scheduler.episode import play
    from attribution_sched.scheduler.greedy import Greedy

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=notes) as bar:
        job = bar.add_task("simulating", total=1.0)
        summary = play(world, Greedy(), seed, lambda share: bar.update(job, completed=share))
        bar.update(job, completed=1.0)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(summary), indent=2))
        return
    table = Table(title=f"{preset}, policy {summary.policy}, seed {seed} (all figures simulated)")
    table.add_column("What")
    table.add_column("How much", justify="right")
    for field, label, form in ROWS:
        table.add_row(label, form.format(getattr(summary, field)))
    console.print(table)


def main() -> None:
    """Entry point: our own errors become one line and exit code 2."""
    try:
        app()
    except AttributionSchedError as error:
        Console(stderr=True).print(f"[bold red]error:[/bold red] {error}", highlight=False, soft_wrap=True)
        raise SystemExit(BAD_INPUT) from None


if __name__ == "__main__":
    main()
