"""``attribution-sched train``: Hi-PPO learns, visibly, and can be stopped and resumed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attribution_sched.cli.console import STOPPED, examples, notes, out, say_json, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from attribution_sched.config import TrainingSettings
    from attribution_sched.scheduler.training import TrainingSummary

EXAMPLES = examples(
    "attribution-sched train -o runs/mine",
    "attribution-sched train -o runs/mine --resume",
)
COURSE, RUN = "What is learnt", "The run"


def train(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder of the run: new or empty, unless --resume.", rich_help_panel=RUN),
    ],
    preset: Annotated[
        str | None,
        typer.Option(
            help="hi_ppo or a YAML file; a resumed run has its own.", show_default=False, rich_help_panel=COURSE
        ),
    ] = None,
    groups: Annotated[
        int | None,
        typer.Option(
            help="Groups of corrections, instead of what the preset says.", show_default=False, rich_help_panel=COURSE
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed instead of the preset's.", show_default=False, rich_help_panel=COURSE),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(help="Weights to start from instead of the rule.", show_default=False, rich_help_panel=COURSE),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.", rich_help_panel=RUN)] = (
        False
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.", rich_help_panel=RUN)] = False,
) -> None:
    """Train the hierarchical scheduler; Ctrl-C leaves a state that --resume goes on from."""
    from attribution_sched.scheduler.training import train as learn

    console = notes()
    settings = _settings(preset, output, groups, seed, resume)
    again = f"attribution-sched train --output {output} --resume"
    try:
        with _bar(console) as progress:
            summary = learn(
                settings, output, resume=resume, start=start, progress=progress,
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


def _settings(preset: str | None, output: Path, groups: int | None, seed: int | None, resume: bool) -> TrainingSettings:
    """Settings of the run, with what the command line changes in them."""
    from attribution_sched.config import load_training_settings
    from attribution_sched.scheduler.training import DEFAULT_PRESET, SETTINGS

    earlier = output / SETTINGS
    source: str | Path = preset or (earlier if resume and earlier.is_file() else DEFAULT_PRESET)
    loaded = load_training_settings(source)
    changed = loaded.model_dump(mode="json")
    if groups is not None:
        changed["agents"]["groups"] = groups
    if seed is not None:
        changed["seed"] = seed
    # Through the loader again, so that a number of the command line meets the same rules as one of a file.
    return load_training_settings(changed)


@contextmanager
def _bar(console: Console) -> Iterator[Callable[[str, float, str], None]]:
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(12),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[words]}"),
    )
    with shown(Progress(*columns, console=console)) as bar:
        job = bar.add_task("building", total=1.0, words="")

        def show(phase: str, share: float, words: str) -> None:
            bar.update(job, completed=share, description=phase, words=words)

        yield show


def _print_summary(summary: TrainingSummary) -> None:
    from rich.table import Table

    console = out()
    table = Table(title="Training (all figures simulated)")
    table.add_column("What")
    table.add_column("How much", justify="right")
    table.add_row("Groups of corrections", f"{summary.groups:,}")
    for name, (mean, half) in summary.gains.items():
        table.add_row(f"Agents over the rule a day, {name}", f"{mean:+.2f} ± {half:.2f}")
    for number, one in enumerate(summary.rounds, start=1):
        by, verdict = {"hi-ppo": "the agents"}.get(one.follower, "agents and ranker"), "kept" if one.kept else "undone"
        table.add_row(f"Round {number}: decisions forked, copies played on by {by}", f"{one.forked:,}")
        for name, (mean, half) in one.gains.items():
            table.add_row(f"Round {number} ({verdict}) over what was before a day, {name}", f"{mean:+.2f} ± {half:.2f}")
    table.add_row("Processor minutes", f"{summary.minutes:.1f}")
    console.print(table)
    console.print(f"best weights: {summary.best}", soft_wrap=True)
    use = f"from attribution_sched import HiPpo; HiPpo({str(summary.best)!r})"
    console.print(f"use them: {use}", soft_wrap=True)
