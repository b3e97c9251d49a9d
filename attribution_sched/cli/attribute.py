"""``attribution-sched attribute``: where the joules of recorded runs go, by the machine's own energy model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from attribution_sched.cli.console import Stages, columns, examples, out, say_json

if TYPE_CHECKING:
    from attribution_sched.attribution.measured_runs import MeasuredRuns
    from attribution_sched.attribution.vector import AttributionVector

EXAMPLES = examples(
    "attribution-sched attribute runs.csv",
    "attribution-sched attribute runs.csv --save my-node",
    "attribution-sched attribute today.csv --fitted my-node --tasks bert-base",
)


def attribute(
    recording: Annotated[
        Path,
        typer.Argument(help="Table of runs or file of a recorder, .csv or .parquet; columns in docs/cli.md."),
    ],
    fitted: Annotated[
        Path | None, typer.Option(help="Attributor saved before; fitted on these runs by default.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Keep the attributor: NAME.json and NAME.safetensors.")] = None,
    tasks: Annotated[
        str | None, typer.Option(help="Print the runs as tasks of this kind for System.submit, as JSON.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="GPU of a recorder's file: its bandwidth makes bytes of dram_active.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Vectors as JSON.")] = False,
) -> None:
    """Attribute recorded runs: idle subtracted, shared sockets split, parts that add up to the meter."""
    from attribution_sched.attribution.fitted import Fitted
    from attribution_sched.attribution.measured_runs import load_runs

    with Stages() as stages:
        with stages.stage("reading runs"):
            runs = load_runs(recording, gpu=gpu)
        if tasks is not None:
            say_json([_task(runs, row, tasks) for row in range(len(runs.labels))])
            return
        with stages.stage("fitting the energy model" if fitted is None else "reading the attributor"):
            made = runs.fit() if fitted is None else Fitted.load(fitted)[0]
            runs.check_machine(made.source)
            if save is not None:
                made.save(save)
        with stages.stage("attributing"):
            vectors = account_runs(runs, made)
    if as_json:
        rows = [{"task": name, **vector.as_dict()} for name, vector in zip(runs.labels, vectors, strict=True)]
        say_json({"metered": runs.metered, "notes": list(runs.notes), "source": made.source, "runs": rows})
        return
    console, width = out(), columns()
    console.print(_table(runs, vectors))
    console.print("Shares of the metered whole; rest: unattributed.", style="dim", width=width)
    error = made.energy.median_error
    console.print(f"{escape(made.source)}; median error {error:.1%} of held-out runs.", style="dim", width=width)
    for note in runs.notes:
        console.print(escape(note[0].upper() + note[1:]) + ".", style="dim", width=width)


def account_runs(runs: MeasuredRuns, made: Any) -> list[AttributionVector]:
    """The vector of each run, its metered energy in it: parts, idle and unattributed add up to the meter."""
    from dataclasses import replace

    import numpy as np

    from attribution_sched.attribution.accounting import settle
    from attribution_sched.attribution.attributor import AccountAttributor
    from attribution_sched.types import Task

    attributor = AccountAttributor(made)
    # What this machine can never read was never read in the fit either: no part of it is known.
    read = np.where(np.isnan(runs.counters).all(axis=0), 0.0, runs.counters)
    tasks = [
        Task(counters=np.append(row, np.zeros(5)), samples_per_s=float(pace), training=bool(mode))
        for row, pace, mode in zip(read, runs.samples_per_s, runs.training, strict=True)
    ]
    vectors = [attributor.vector(task) for task in tasks]
    parts, idle = np.array([vector.values for vector in vectors]), np.array([vector.base for vector in vectors])
    rest = settle(parts, idle, vectors[0].names, runs.energy_j).unattributed.tolist()
    return [replace(vector, unattributed=left) for vector, left in zip(vectors, rest, strict=True)]


def _task(runs: MeasuredRuns, row: int, kind: str) -> dict[str, Any]:
    """A run as ``System.submit`` takes it, with how each counter was got."""
    import numpy as np

    from attribution_sched.cluster.demands import DEMAND_NAMES

    read = {name: float(v) for name, v in zip(DEMAND_NAMES, runs.counters[row], strict=True) if np.isfinite(v)}
    how = {name: "measured" if name in read else "unavailable" for name in DEMAND_NAMES}
    return {
        "kind": kind, "training": bool(runs.training[row]), "samples_per_s": float(runs.samples_per_s[row]),
        "counters": read, "provenance": how,
    }  # fmt: skip


SHORT = {
    "cpu_cycles": "cycles", "l3_misses": "misses", "memory_bandwidth": "memory", "pcie_bandwidth": "PCIe",
    "attention": "attn", "unattributed": "rest",
}  # fmt: skip
"""Headings that stand side by side in 80 columns; the rest is what no counter explains."""


def _table(runs: MeasuredRuns, vectors: list[AttributionVector]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("Run")
    table.add_column(f"{runs.metered}\n/sample", justify="right")
    for heading in ("idle", *vectors[0].names, "unattributed"):
        table.add_column(SHORT.get(heading, heading), justify="right")
    for name, vector in zip(runs.labels, vectors, strict=True):
        whole = float(vector.metered)
        cells = [vector.base, *vector.values.tolist(), vector.unattributed]
        table.add_row(escape(name), f"{whole:.4g}", *(f"{cell / whole:.0%}" if whole > 0 else "–" for cell in cells))
    return table
