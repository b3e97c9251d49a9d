"""``attribution-sched train``: Hi-PPO learns, visibly, and can be stopped and resumed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attribution_sched.cli.console import STOPPED, examples, notes, out, say_json, shown
from attribution_sched.errors import SettingsError, problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from attribution_sched.config import TrainingSettings
    from attribution_sched.scheduler.hi_ppo.learning import Report
    from attribution_sched.training import TrainingSummary

EXAMPLES = examples(
    "attribution-sched train -o runs/mine --minutes 30",
    "attribution-sched train -o runs/mine --resume",
)
DEVICES = re.compile(r"cpu|mps|cuda(:\d{1,3})?")
COURSE, RUN = "What is learnt", "The run"


def train(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder of the run: new or empty, unless --resume.", rich_help_panel=RUN),
    ],
    preset: Annotated[
        str | None,
        typer.Option(
            help="hi_ppo_tuned, hi_ppo or a YAML file; a resumed run has its own.",
            show_default=False,
            rich_help_panel=COURSE,
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="How long to learn, instead of what the preset says.", show_default=False, rich_help_panel=COURSE
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed instead of the preset's.", show_default=False, rich_help_panel=COURSE),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            help="Weights to start from instead of imitating a rule.", show_default=False, rich_help_panel=COURSE
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.", rich_help_panel=RUN)] = (
        False
    ),
    device: Annotated[str, typer.Option(help="Where the network lives: cpu or cuda.", rich_help_panel=RUN)] = "cpu",
    workers: Annotated[
        str | None,
        typer.Option(
            help="ray, or a Ray address: its workers play while learning.", show_default=False, rich_help_panel=RUN
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.", rich_help_panel=RUN)] = False,
) -> None:
    """Train the hierarchical scheduler; Ctrl-C leaves a state that --resume goes on from."""
    from attribution_sched.training import train as learn

    if not DEVICES.fullmatch(device):
        raise SettingsError(problem("--device", device, "must be cpu, cuda, cuda:N or mps", "Use cpu"))
    console = notes()
    settings = _settings(preset, output, minutes, seed, resume)
    again = f"attribution-sched train --output {output} --resume"
    try:
        with _bar(console) as progress:
            summary = learn(
                settings, output, resume=resume, start=start, device=device, progress=progress, workers=workers,
                log=lambda words: console.print(words, soft_wrap=True),
            )  # fmt: skip
    except KeyboardInterrupt:
        console.print(f"stopped; go on with: {again}", soft_wrap=True)
        raise typer.Exit(STOPPED) from None
    if as_json:
        say_json(summary.to_dict())
    else:
        _print_summary(summary)
    if summary.interrupted:
        console.print(f"stopped; go on with: {again}", soft_wrap=True)
        raise typer.Exit(STOPPED)


def _settings(
    preset: str | None, output: Path, minutes: float | None, seed: int | None, resume: bool
) -> TrainingSettings:
    """Settings of the run, with what the command line changes in them."""
    from attribution_sched.config import load_training_settings
    from attribution_sched.training import DEFAULT_PRESET, SETTINGS

    earlier = output / SETTINGS
    source: str | Path = preset or (earlier if resume and earlier.is_file() else DEFAULT_PRESET)
    course: dict[str, object] = {}
    if minutes is not None:
        course |= {"minutes": minutes, "decisions": None}
    if seed is not None:
        course["seed"] = seed
    loaded = load_training_settings(source)
    # Through the loader again, so that a number of the command line meets the same rules as one of a file.
    changed = loaded.model_dump(mode="json") | {"course": loaded.course.model_dump(mode="json") | course}
    return load_training_settings(changed) if course else loaded


@contextmanager
def _bar(console: Console) -> Iterator[Callable[[Report], None]]:
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(12),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[words]}"),
    )
    with shown(Progress(*columns, console=console)) as bar:
        job = bar.add_task("building", total=1.0, words="")

        def show(report: Report) -> None:
            words = f"it {report.iteration}, {report.decisions:,} decisions"
            named = (("return", report.episode_return), ("held-out", report.held_out), ("best", report.best))
            words += "".join(f", {name} {value:+.1f}" for name, value in named if value is not None)
            words += f", {report.eta_s / 60.0:.0f} min left" if report.eta_s is not None else ""
            bar.update(job, completed=report.share, description=report.phase, words=words)

        yield show


def _print_summary(summary: TrainingSummary) -> None:
    from rich.table import Table

    console = out()
    table = Table(title="Training (all figures simulated)")
    table.add_column("What")
    table.add_column("How much", justify="right")
    table.add_row("Iterations", f"{summary.iterations:,}")
    table.add_row("Decisions", f"{summary.decisions:,}")
    table.add_row("Choices of agents", f"{summary.agent_steps:,}")
    table.add_row("Minutes of learning", f"{summary.minutes:.1f}")
    table.add_row("Held-out return at the start", f"{summary.start_return:+.2f}")
    best = f"{summary.best_return:+.2f} ± {summary.best_standard_error:.2f}"
    table.add_row(f"Best held-out return (iteration {summary.best_iteration})", best)
    console.print(table)
    console.print(f"best weights: {summary.best}", soft_wrap=True)
    use = f"from attribution_sched import HiPpo; HiPpo({str(summary.best)!r})"
    console.print(f"use them: {use}", soft_wrap=True)
