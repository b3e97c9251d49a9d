"""``attribution-sched simulate``: a day of a preset under one policy, without journal or explanations.

Two simulations of the same world can play it: the compiled engine that everything else runs on, and one written again
as SimPy processes, which also knows devices that fail. ``--engine simpy`` plays both and prints them side by side.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from attribution_sched.cli.console import Stages, examples, notes, out, say_json
from attribution_sched.errors import SettingsError, nearest, problem

if TYPE_CHECKING:
    from attribution_sched.cluster.simulator.job import SimulationResult
    from attribution_sched.cluster.world import World
    from attribution_sched.config import Settings

EXAMPLES = examples(
    "attribution-sched simulate --policy sjf --seed 3",
    "attribution-sched simulate --preset mine.yaml",
    "attribution-sched simulate --engine simpy --mtbf-h 200",
    "attribution-sched simulate --engine astra-sim --astra-binary ~/astra-sim/AstraSim_Analytical_Congestion_Unaware",
)

ENGINES = ("compiled", "simpy", "astra-sim")

ROWS: tuple[tuple[str, str, str], ...] = (
    ("arrived", "Tasks arrived", "{:d}"),
    ("completed", "Tasks completed", "{:d}"),
    ("turned_away", "Tasks turned away (queue full)", "{:d}"),
    ("deadline_misses", "Deadlines missed", "{:d}"),
    ("moves", "Running tasks moved", "{:d}"),
    ("refused_plans", "Plans refused by the cluster", "{:d}"),
    ("mean_completion_h", "Mean time from arrival to finish", "{:.2f} h"),
    ("p95_completion_h", "  95th percentile", "{:.2f} h"),
    ("mean_queue_h", "Mean time in the queue", "{:.2f} h"),
    ("waiting_h", "Time in the queue, all tasks", "{:.1f} h"),
    ("gpu_h", "Device-hours of computing", "{:,.0f} h"),
    ("utilisation", "Device utilisation", "{:.1%}"),
    ("energy_kwh", "Energy on the meters", "{:,.0f} kWh"),
    ("task_energy_kwh", "  of which tasks", "{:,.0f} kWh"),
    ("idle_energy_kwh", "  of which idle devices", "{:,.0f} kWh"),
    ("carbon_kg", "Carbon of the tasks, location-based", "{:,.0f} kg CO2e"),
    ("idle_carbon_kg", "  of idle devices beside them", "{:,.1f} kg CO2e"),
    ("network_gb", "Sent from domain to domain", "{:,.0f} GB"),
    ("network_kwh", "  energy of the network for it", "{:,.1f} kWh"),
    ("network_carbon_kg", "  its carbon", "{:,.1f} kg CO2e"),
    ("traffic_usd", "Cross-domain traffic", "{:,.2f} USD"),
    ("electricity_usd", "Electricity at the preset's prices", "{:,.2f} USD"),
    ("carbon_usd", "Carbon at the preset's price", "{:,.2f} USD"),
    ("profiling_gpu_h", "Device-hours of profiling beforehand", "{:,.1f} h"),
    ("profiling_kwh", "  their energy", "{:,.1f} kWh"),
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
    engine: Annotated[
        str,
        typer.Option(
            help="compiled; simpy: the event simulator, its figures beside the compiled engine's; astra-sim: the step "
            "of the first plans that are cut, by a build of your own beside our recurrence."
        ),
    ] = "compiled",
    astra_binary: Annotated[
        Path | None, typer.Option(help="Your build of ASTRA-sim; else ATTRIBUTION_SCHED_ASTRA, else the path.")
    ] = None,
    mtbf_h: Annotated[
        float | None, typer.Option(help="Mean hours between two failures of a device; only with --engine simpy.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Simulate one day of a preset under one policy and print what happened."""
    if engine not in ENGINES:
        raise SettingsError(
            problem("--engine", engine, f"must be one of {', '.join(ENGINES)}", nearest(engine, ENGINES))
        )
    if mtbf_h is not None and engine != "simpy":
        rule = "only the event simulator knows devices that fail"
        raise SettingsError(problem("--mtbf-h", mtbf_h, rule, "Add --engine simpy"))
    failures = None
    if mtbf_h is not None:
        from attribution_sched.cluster.simulator.dispatch import Failures

        failures = Failures(mtbf_h=mtbf_h)
    from attribution_sched.config import load_settings
    from attribution_sched.scheduler.registry import policy_spec

    if seed < 0:
        raise SettingsError(problem("--seed", seed, "must be a whole number >= 0", "Use for example --seed 0"))
    settings, spec = load_settings(preset), policy_spec(policy)
    if engine == "astra-sim":
        _astra(settings, policy, seed, astra_binary, as_json)
        return
    from attribution_sched.cluster.engine.engine import Engine
    from attribution_sched.scheduler.episode import play
    from attribution_sched.system.fits import Admission

    world = settings.build_world()
    notes().print(
        f"[bold]{settings.name}[/bold]: {len(world.cluster)} domains, {world.cluster.devices} devices, "
        f"{len(world.kinds)} kinds of tasks, {world.horizon_s / 3600:.0f} h  (the first run compiles its kernels)"
    )
    for why in Admission(Engine(world)).unplaceable_kinds():
        notes().print(f"[yellow]warning:[/yellow] {escape(why)}", soft_wrap=True)
    with Stages() as stages, stages.stage("simulating", 1.0) as tell:
        summary = play(world, spec.make(), seed, tell)
    beside: dict[str, Any] | None = None
    if engine == "simpy":
        from attribution_sched.cluster.simulator.simulator import simulate as play_events

        with Stages() as stages, stages.stage("simulating event by event", 1.0):
            beside = event_summary(world, play_events(world, spec.make(), seed, failures=failures))
    if as_json:
        figures = dataclasses.asdict(summary)
        say_json(figures if beside is None else {"compiled": figures, "simpy": beside})
        return
    from rich.table import Table

    table = Table(title=f"{settings.name}, policy {summary.policy}, seed {seed} (all figures simulated)")
    table.add_column("What")
    table.add_column("How much" if beside is None else "Compiled engine", justify="right")
    if beside is not None:
        table.add_column("SimPy", justify="right")
    for field, label, form in ROWS if beside is None else (*ROWS, *EVENT_ROWS):
        row = [form.format(getattr(summary, field)) if hasattr(summary, field) else "–"]
        if beside is not None:
            row.append(form.format(beside[field]) if field in beside else "–")
        table.add_row(label, *row)
    out().print(table)


PIPELINES, PLACEMENTS = 3, 40
"""Plans that are cut which ASTRA-sim is asked about, and placements among which they are looked for."""


def _astra(settings: Settings, policy: str, seed: int, given: Path | None, as_json: bool) -> None:
    """Steps of plans over several stages, by ASTRA-sim beside our recurrence."""
    import tempfile

    from attribution_sched.cluster.chakra import find_binary, program_of, run_astra
    from attribution_sched.errors import PlanError
    from attribution_sched.system.system import System

    binary = find_binary(given)
    rows: list[dict[str, Any]] = []
    with System(settings, policy, seed=seed) as system:
        for _ in range(PLACEMENTS):
            result = system.schedule_next_task()
            if result is None or len(rows) == PIPELINES:
                break
            if result.decision.plan is None:
                continue
            try:
                pipeline = program_of(system.memory[result.id].view, result.decision.plan)
            except PlanError:
                continue
            with tempfile.TemporaryDirectory(prefix="attribution-sched-") as folder:
                theirs_s = run_astra(binary, pipeline, Path(folder))
            rows.append({
                "decision": result.id, "plan": result.decision.words, "stages": pipeline.stages,
                "recurrence_s": pipeline.step_s, "astra_sim_s": theirs_s,
                "difference": theirs_s / pipeline.step_s - 1.0,
            })  # fmt: skip
    if as_json:
        say_json({"binary": str(binary), "pipelines": rows})
        return
    if not rows:
        out().print(f"no plan over several stages among the first {PLACEMENTS} placements")
    for row in rows:
        words = f"{row['decision']}  {row['stages']} stages  recurrence {row['recurrence_s']:.6f} s  "
        words += f"ASTRA-sim {row['astra_sim_s']:.6f} s  ({row['difference']:+.1e})  {row['plan']}"
        out(wide=True).print(words, markup=False)


EVENT_ROWS: tuple[tuple[str, str, str], ...] = (
    ("failures", "Device failures", "{:d}"),
    ("down_device_h", "Device time out of service", "{:.1f} h"),
    ("lost_steps", "Steps lost to failures and lost domains", "{:,.0f}"),
)
"""What only the event simulator counts."""


def event_summary(world: World, result: SimulationResult) -> dict[str, Any]:
    """Figures of a run of the event simulator by the names of an episode's; it pays no rewards."""
    totals = result.totals
    return {
        "policy": result.policy,
        "seed": result.seed,
        "arrived": totals.arrived,
        "placed": totals.placed,
        "completed": totals.completed,
        "turned_away": totals.dropped,
        "deadline_misses": result.deadline_misses,
        "moves": totals.migrations,
        "refused_plans": totals.rejected,
        "mean_completion_h": totals.completion_s / max(1, totals.completed) / HOUR_S,
        "mean_queue_h": totals.wait_s / max(1, totals.arrived) / HOUR_S,
        "waiting_h": totals.wait_s / HOUR_S,
        "gpu_h": totals.busy_device_s / HOUR_S,
        "electricity_usd": totals.electricity_usd,
        "carbon_usd": totals.carbon_g / 1e3 * world.reward.carbon_usd_per_kg,
        "utilisation": totals.busy_device_s / (world.cluster.devices * world.horizon_s),
        "energy_kwh": totals.meter_j / KWH_J,
        "task_energy_kwh": totals.task_j / KWH_J,
        "idle_energy_kwh": totals.idle_j / KWH_J,
        "carbon_kg": totals.carbon_g / 1e3,
        "idle_carbon_kg": totals.idle_g / 1e3,
        "network_gb": totals.wan_bytes / 1e9,
        "network_kwh": totals.wan_bytes / 1e9 * world.cluster.wan.kwh_per_gb,
        "network_carbon_kg": totals.wan_g / 1e3,
        "traffic_usd": totals.bill_usd,
        "decisions": totals.decisions,
        "failures": totals.failures,
        "down_device_h": totals.down_device_s / HOUR_S,
        "lost_steps": totals.lost_steps,
    }


HOUR_S, KWH_J = 3600.0, 3.6e6
