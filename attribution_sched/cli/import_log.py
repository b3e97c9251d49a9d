"""``attribution-sched import``: job logs of other systems as traces of this one."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from attribution_sched.cli.console import Stages, examples, say_json

EXAMPLES = examples(
    "attribution-sched import philly philly.csv -o trace.csv --preset cross-domain-easy --keep 0.15 --drop-larger",
    "attribution-sched import slurm jobs.txt -o trace.csv",
)


class Form(StrEnum):
    """Formats of logs."""

    PHILLY = "philly"
    PAI = "pai"
    SWF = "swf"
    SLURM = "slurm"


def import_log(
    form: Annotated[Form, typer.Argument(help="Format of the log.")],
    file: Annotated[Path, typer.Argument(help="The log.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Trace to write (CSV); a file of that name is replaced.")
    ],
    preset: Annotated[
        str, typer.Option(help="Preset or settings file whose task kinds and devices the jobs get.")
    ] = "cross-domain",
    seed: Annotated[int, typer.Option(min=0, help="Of the draw of models and of what is kept.")] = 0,
    keep: Annotated[float, typer.Option(help="Part of the jobs to keep.")] = 1.0,
    drop_larger: Annotated[
        bool, typer.Option("--drop-larger", help="Leave out jobs larger than the cluster instead of failing.")
    ] = False,
    from_hour: Annotated[float, typer.Option(min=0, help="First hour after the first submission.")] = 0.0,
    to_hour: Annotated[float | None, typer.Option(help="Last hour; the end of the log by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Turn a job log into a trace for ``arrivals: {kind: trace, path: ...}``.

    GPU count and duration of every job are kept. Logs do not say what ran: a model is drawn for each job from the kinds
    of the preset, and it gets as many steps as take its duration alone on the GPUs it asked for.
    """
    from dataclasses import asdict

    from attribution_sched.cluster.trace_import import import_log as convert
    from attribution_sched.config import load_settings

    with Stages() as stages, stages.stage(f"reading {file}"):
        world = load_settings(preset).build_world()
        hours = (from_hour, float("inf") if to_hour is None else to_hour)
        converted = convert(form.value, file, world, output, seed=seed, keep=keep, drop_larger=drop_larger, hours=hours)
    if as_json:
        say_json({"path": str(output), **asdict(converted)})
        return
    left = ", ".join(f"{n} {why}" for why, n in converted.skipped.items()) or "none"
    typer.echo(
        f"{output}: {converted.jobs} jobs of {converted.tenants} tenants, {converted.gpu_hours:,.0f} GPU-hours; "
        f"left out: {left}"
    )
    if converted.rounded:
        typer.echo(
            f"{converted.rounded} jobs ask for more devices than any opaque kind of the preset has: rounded down"
        )
    typer.echo("models were drawn: " + ", ".join(f"{name} {n}" for name, n in converted.drawn.items()))
