"""``attribution-sched profile``: what a user's model asks of this machine, counter by counter."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from attribution_sched.cli.console import RunTimeError, Stages, columns, examples, notes, out, say_json
from attribution_sched.errors import AttributionSchedError, SettingsError, problem

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.cli.profile_measure import Figure, Measured, Placed


EXAMPLES = examples(
    "attribution-sched profile ./train.py:make_model",
    "attribution-sched profile torch.nn:ReLU --input 8x3x224x224",
    "attribution-sched profile ./train.py:make_model --train --into mine.yaml --name mine",
    "attribution-sched profile mypackage.models:bert --train --submit-as bert-base --json",
)
PRESETS: tuple[str, ...] = ("cross-domain-easy", "testbed")
STEPS, TASK, TELLING = "Steps", "As a task of a preset", "What is printed"


def profile(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FACTORY",
            help="A dotted module or a path, and a function in it that returns a torch module and its inputs, "
            "(module, inputs), or a function that does one step.",
        ),
    ],
    shape: Annotated[
        str | None,
        typer.Option(
            "--input", metavar="SHAPE", show_default=False, rich_help_panel=STEPS,
            help="Random input instead: 8x3x224x224, or 4x128:int30522 for tokens.",
        ),
    ] = None,
    training: Annotated[
        bool, typer.Option("--train", help="Forward and backward; forward only by default.", rich_help_panel=STEPS)
    ] = False,
    steps: Annotated[
        int, typer.Option(help="Metered steps at least; for at least one second.", rich_help_panel=STEPS)
    ] = 10,
    warmup: Annotated[int, typer.Option(help="Steps before them.", rich_help_panel=STEPS)] = 2,
    dcgm: Annotated[
        str | None,
        typer.Option(
            metavar="URL", show_default=False, rich_help_panel=STEPS,
            help="Address of dcgm-exporter, which reads how busy a GPU's memory is.",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Preset whose tasks it is compared with; cross-domain-easy or testbed, whichever has the nearest.",
            show_default=False,
            rich_help_panel=TASK,
        ),
    ] = None,
    submit_as: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", show_default=False, rich_help_panel=TASK,
            help="Print counters as JSON for System.submit(KIND, counters=...).",
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default=False, rich_help_panel=TASK,
            help="Write the model into a preset of your own, as a kind of task by itself; a new file is begun.",
        ),
    ] = None,
    own_name: Annotated[
        str | None,
        typer.Option("--name", show_default=False, help="What to call it there; the factory's name.",
                     rich_help_panel=TASK),
    ] = None,
    attribution: Annotated[
        bool, typer.Option(help="Say where the joules go by the preset's energy model.", rich_help_panel=TASK)
    ] = True,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where your code raised.", rich_help_panel=TELLING)
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.", rich_help_panel=TELLING)] = False,
) -> None:  # fmt: skip
    """Run a torch model of yours and say what it asks of this machine, and how each number was got.

    `profile links` measures what a link carries, `profile stages` what layers take; see their own --help.

    What this machine cannot count is called unavailable. Compared with the tasks of a preset it is filled in from the
    nearest kind of task, and called simulated.
    """
    for name, value, least in (("--steps", steps, 1), ("--warmup", warmup, 0)):
        if value < least:
            raise SettingsError(problem(name, value, f"must be a whole number >= {least}", f"Use {name} {least + 2}"))
    # The profiler's library else tells on stderr that it begins and ends.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from attribution_sched.config import load_settings

    settings = {name: load_settings(name) for name in ([preset] if preset is not None else PRESETS)}
    from attribution_sched.cli.fill import model_into
    from attribution_sched.cli.profile_measure import (
        UsersError,
        as_model,
        as_task,
        check_layers,
        having,
        joules,
        load,
        measure,
        nearest_world,
        submission,
        users_error,
    )

    worlds = {each.name: each.build_world() for each in settings.values()}
    worlds = worlds if submit_as is None or into is not None else having(worlds, submit_as)
    console = notes()
    show = (lambda text: console.print(text, markup=False, soft_wrap=True)) if traceback else None
    with Stages() as stages:
        try:
            with stages.stage(f"making {spec.rpartition(':')[2]}"):
                subject = load(spec, shape, show)
                if into is not None:
                    check_layers(subject)
            with stages.stage("running steps", steps) as tell:
                try:
                    measured = measure(subject, training=training, steps=steps, warmup=warmup, dcgm_url=dcgm, tell=tell)
                except AttributionSchedError:
                    raise
                except Exception as error:
                    raise users_error(f"a step of {subject.name}", error, show) from error
        except UsersError as error:
            raise RunTimeError(str(error)) from error
        if into is not None:
            own_name = own_name or spec.rpartition(":")[2]
            begin = preset or nearest_world(measured, worlds)
            written = model_into(into, as_model(subject, own_name), measured.samples or 1,
                                 training=training, extends=begin)  # fmt: skip
            worlds, submit_as = {str(into): load_settings(into).build_world()}, submit_as or own_name
            worlds = having(worlds, submit_as)
        name = nearest_world(measured, worlds)
        placed, vector, how = as_task(measured, worlds[name], submit_as), None, ""
        if attribution and submit_as is None:
            with stages.stage("attributing joules"):
                vector, how = joules(placed, worlds[name])
    if into is not None:
        console.print(f"written: {written}", markup=False, soft_wrap=True)
    if submit_as is not None and not as_json:
        unread = [name for name, figure in placed.counters.items() if figure.value is None]
        if unread:
            console.print(f"not measurable here, left to EmSHAP: {', '.join(unread)}")
        say_json(submission(placed))
        return

    if as_json:
        say_json(as_dict(measured, placed, vector, how, name))
    else:
        show_profile(measured, placed, vector, how, name)


COLOURS = {"measured": "green", "estimated": "cyan", "simulated": "magenta", "unavailable": "yellow"}
GROUPS = {"conv": "convolution", "fc": "fully connected", "attention": "attention", "other": "everything else"}
NEAREST = 3


def as_dict(
    measured: Measured, placed: Placed, vector: AttributionVector | None, how: str, preset: str
) -> dict[str, Any]:
    """Everything, ready for JSON."""
    from attribution_sched.cli.profile_measure import submission

    operators = measured.operators
    return {
        "model": measured.name,
        "training": measured.training,
        "steps": measured.steps,
        "step_s": measured.step_s,
        "samples_per_step": measured.samples,
        "threads": measured.threads,
        "operators": {
            group: {
                "time_s": operators.time_s[group],
                "time_share": operators.time_share[group],
                "time_share_95": list(operators.share_interval.get(group, ())) or None,
                "flops": operators.flops[group],
            }
            for group in GROUPS
        },
        "thread_s": operators.thread_s,
        "interrupted": operators.interrupted,
        "profiled_steps": operators.steps,
        "counters": {name: asdict(figure) for name, figure in measured.counters.items()},
        "energy": asdict(measured.energy),
        "preset": preset,
        "nearest_kinds": [{"kind": kind, "distance": far} for kind, far in placed.nearest],
        "attribution": None if vector is None else vector.as_dict(),
        "attribution_how": how,
        "submit": submission(placed),
    }


def show_profile(measured: Measured, placed: Placed, vector: AttributionVector | None, how: str, preset: str) -> None:
    """Print operators, counters, energy, the nearest kind of task, and where the joules go."""
    console, width = out(), columns()
    samples = f", {measured.samples} samples" if measured.samples else ""
    console.print(
        f"[bold]{escape(measured.name)}[/bold]: a {'training' if measured.training else 'forward'} step takes "
        f"[bold]{1e3 * measured.step_s:.4g} ms[/bold]{samples} (measured, mean of {measured.steps}, "
        f"{measured.threads} thread{'s' if measured.threads != 1 else ''})",
        width=width,
    )
    console.print(_operators(measured))
    console.print(_counters(measured.counters))
    for words in _reasons(measured.counters):
        console.print(words, width=width)
    energy = measured.energy
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
    if placed.chosen or math.isfinite(placed.nearest[0][1]):
        again = f"--preset {preset} --submit-as {placed.model}"
        console.print(f"\nAs a task: {again} prints counters for System.submit.", style="dim", width=width)
    else:
        console.print(f"\nNo task of {escape(preset)} is like it: none of its arithmetic is known.", width=width)


def _operators(measured: Measured) -> Any:
    table = _table()
    for heading in ("Operators", "Time a step", "Share", "95 %", "FLOPs a step"):
        table.add_column(heading, justify="left" if heading == "Operators" else "right")
    metered = measured.energy.value
    if metered is not None:
        table.add_column("Joules, by time (estimated)", justify="right")
    operators = measured.operators
    for group, words in GROUPS.items():
        share = operators.time_share[group]
        flops = "–" if group == "other" else f"{operators.flops[group]:.3g}"
        reach = operators.share_interval.get(group)
        between = "–" if reach is None else f"{reach[0]:.0%}–{reach[1]:.0%}"
        cells = [words, f"{1e3 * operators.time_s[group]:.4g} ms", f"{share:.0%}", between, flops]
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
    from attribution_sched.explain.digits import number

    table = _table()
    table.add_column("Where the joules go")
    table.add_column(vector.units, justify="right")
    table.add_column("95 %", justify="right")
    table.add_column("Share", justify="right")
    table.add_column("Counter is")
    for name in vector.ranking():
        figure = placed.counters[name]
        colour = COLOURS[figure.provenance]
        value, reach = float(vector[name]), float(vector.interval(0.95)[1][vector.names.index(name)])
        share = f"{value / float(vector.prediction):.0%}"
        cells = (number(value, 4), f"± {number(reach - value, 2)}", share, f"[{colour}]{figure.provenance}[/{colour}]")
        table.add_row(name, *cells)
    table.add_row("idle", f"{vector.base:.4g}", "", f"{vector.base / float(vector.prediction):.0%}", "", style="dim")
    table.add_row("in all", f"{float(vector.prediction):.4g}", "", "", "", style="bold")
    return table


def _table() -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
