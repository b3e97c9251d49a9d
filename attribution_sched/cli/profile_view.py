"""A profile for people at a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from attribution_sched.cli.console import columns, out
from attribution_sched.cli.profile_kinds import submission

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.cli.profile_kinds import Placed
    from attribution_sched.cli.profile_measure import Figure, Measured

COLOURS = {"measured": "green", "estimated": "cyan", "simulated": "magenta", "unavailable": "yellow"}
GROUPS = {"conv": "convolution", "fc": "fully connected", "attention": "attention", "other": "everything else"}
NEAREST = 3


def as_dict(found: Measured, placed: Placed, vector: AttributionVector | None, how: str, preset: str) -> dict[str, Any]:
    """Everything, ready for JSON."""
    operators = found.operators
    return {
        "model": found.name,
        "training": found.training,
        "steps": found.steps,
        "step_s": found.step_s,
        "samples_per_step": found.samples,
        "threads": found.threads,
        "operators": {
            group: {
                "time_s": operators.time_s[group],
                "time_share": operators.time_share[group],
                "flops": operators.flops[group],
            }
            for group in GROUPS
        },
        "counters": {name: asdict(figure) for name, figure in found.counters.items()},
        "energy": asdict(found.energy),
        "preset": preset,
        "nearest_kinds": [{"kind": kind, "distance": far} for kind, far in placed.nearest],
        "attribution": None if vector is None else vector.as_dict(),
        "attribution_how": how,
        "submit": submission(placed),
    }


def show_profile(found: Measured, placed: Placed, vector: AttributionVector | None, how: str, preset: str) -> None:
    """Print operators, counters, energy, the nearest kind of task, and where the joules go."""
    console, width = out(), columns()
    samples = f", {found.samples} samples" if found.samples else ""
    console.print(
        f"[bold]{escape(found.name)}[/bold]: a {'training' if found.training else 'forward'} step takes "
        f"[bold]{1e3 * found.step_s:.4g} ms[/bold]{samples} (measured, mean of {found.steps}, "
        f"{found.threads} thread{'s' if found.threads != 1 else ''})",
        width=width,
    )
    console.print(_operators(found))
    console.print(_counters(found.counters))
    for words in _reasons(found.counters):
        console.print(words, width=width)
    energy = found.energy
    value = "unavailable" if energy.value is None else f"{energy.value:.4g} J a step, {energy.provenance}"
    console.print(f"\n[bold]Energy[/bold]: {value} ({escape(energy.how)})", width=width)
    near = ", ".join(f"{kind} ({far:.2f})" for kind, far in placed.nearest[:NEAREST])
    console.print(
        f"\n[bold]Nearest tasks of {escape(preset)}[/bold], by sort and amount of arithmetic: {escape(near)}",
        width=width,
    )
    if vector is not None:
        console.print(_joules(vector, placed))
        console.print(how[0].upper() + how[1:] + ".", style="dim", width=width)
    elif how:
        console.print(f"\n[bold]Joules by counter[/bold]: unavailable ({how})", width=width)
    again = f"--preset {preset} --submit-as {placed.model}"
    console.print(f"\nAs a task: {again} prints counters for System.submit.", style="dim", width=width)


def _operators(found: Measured) -> Any:
    table = _table()
    for heading in ("Operators", "Time a step", "Share", "FLOPs a step"):
        table.add_column(heading, justify="left" if heading == "Operators" else "right")
    metered = found.energy.value
    if metered is not None:
        table.add_column("Joules, by time (estimated)", justify="right")
    operators = found.operators
    for group, words in GROUPS.items():
        share = operators.time_share[group]
        flops = "–" if group == "other" else f"{operators.flops[group]:.3g}"
        cells = [words, f"{1e3 * operators.time_s[group]:.4g} ms", f"{share:.0%}", flops]
        table.add_row(*cells, *([] if metered is None else [f"{share * metered:.3g} J"]))
    return table


def _counters(counters: Mapping[str, Figure]) -> Any:
    table = _table()
    for heading in ("Counter", "Value", "Unit", "Provenance"):
        table.add_column(heading, justify="right" if heading == "Value" else "left")
    for name, figure in counters.items():
        value = "–" if figure.value is None else f"{figure.value:.4g}"
        colour = COLOURS[figure.provenance]
        table.add_row(name, value, figure.unit, f"[{colour}]{figure.provenance}[/{colour}]")
    return table


def _reasons(counters: Mapping[str, Figure]) -> list[str]:
    """Why counters are missing or estimated, each reason once."""
    reasons: dict[str, list[str]] = {}
    for name, figure in counters.items():
        if figure.provenance != "measured":
            reasons.setdefault(figure.how, []).append(name)
    return [f"[bold]{', '.join(names)}[/bold]: {escape(how)}" for how, names in reasons.items()]


def _joules(vector: AttributionVector, placed: Placed) -> Any:
    table = _table()
    table.add_column("Where the joules go")
    table.add_column(vector.units, justify="right")
    table.add_column("Counter is")
    for name in vector.ranking():
        figure = placed.counters[name]
        colour = COLOURS[figure.provenance]
        table.add_row(name, f"{float(vector[name]):+.4g}", f"[{colour}]{figure.provenance}[/{colour}]")
    table.add_row("typical task", f"{vector.base:.4g}", "", style="dim")
    table.add_row("expected", f"{float(vector.prediction):.4g}", "", style="bold")
    return table


def _table() -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
