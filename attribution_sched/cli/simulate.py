"""``attribution-sched simulate``: a day of a preset under one policy, without journal or explanations."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from attribution_sched.cli.console import Stages, examples, notes, out, say_json
from attribution_sched.errors import SettingsError, problem

EXAMPLES = examples("attribution-sched simulate --policy sjf --seed 3", "attribution-sched simulate --preset mine.yaml")

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


def simulate(
    preset: Annotated[str, typer.Option(help="Preset name or path of a YAML file.")] = "cross-domain",
    policy: Annotated[str, typer.Option(help="Who decides; see `bench policies`.")] = "greedy",
    seed: Annotated[int, typer.Option(help="Seed of arrivals and network.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Simulate one day of a preset under one policy and print what happened."""
    from attribution_sched.config import load_settings
    from attribution_sched.scheduler.registry import policy_spec

    if seed < 0:
        raise SettingsError(problem("--seed", seed, "must be a whole number >= 0", "Use for example --seed 0"))
    settings, spec = load_settings(preset), policy_spec(policy)
    from attribution_sched.scheduler.episode import play

    world = settings.build_world()
    notes().print(
        f"[bold]{settings.name}[/bold]: {len(world.cluster)} domains, {world.cluster.devices} devices, "
        f"{len(world.kinds)} kinds of tasks, {world.horizon_s / 3600:.0f} h  (the first run compiles its kernels)"
    )
    with Stages() as stages, stages.stage("simulating", 1.0) as tell:
        summary = play(world, spec.make(), seed, tell)
    if as_json:
        say_json(dataclasses.asdict(summary))
        return
    from rich.table import Table

    table = Table(title=f"{settings.name}, policy {summary.policy}, seed {seed} (all figures simulated)")
    table.add_column("What")
    table.add_column("How much", justify="right")
    for field, label, form in ROWS:
        table.add_row(label, form.format(getattr(summary, field)))
    out().print(table)
