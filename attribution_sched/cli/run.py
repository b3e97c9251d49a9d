"""``attribution-sched run``: the whole loop, from counters to a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attribution_sched.cli.console import Stages, examples, notes, say_json
from attribution_sched.cli.exits import STOPPED
from attribution_sched.cli.run_asked import POLICY, PRESET, TASKS, Asked, checked
from attribution_sched.cli.run_loop import go_round
from attribution_sched.cli.run_view import opening, show

EXAMPLES = examples(
    "attribution-sched run",
    "attribution-sched run --preset testbed --demo",
    "attribution-sched run --tasks 100 --target utilisation_at_least=0.9 --target cost_ratio_at_most=0.5",
    "attribution-sched run --policy sjf --journal sjf.sqlite --report sjf.html",
    "attribution-sched run --resume runs/cross-domain-0-1/journal.sqlite --tasks 20",
)

WORLD, LOOP, FILES, TELLING = "What runs", "The loop", "Files", "What is printed"


def run(
    preset: Annotated[
        str | None,
        typer.Option(help=f"Preset name or path of a YAML file. \\[default: {PRESET}]", rich_help_panel=WORLD),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help=f"Who decides; see `bench policies`. \\[default: {POLICY}]", rich_help_panel=WORLD),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Of arrivals, network and tasks. \\[default: 0]", rich_help_panel=WORLD),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            help="Where tasks come from: preset (simulated arrivals) or demo. \\[default: preset]",
            rich_help_panel=WORLD,
        ),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="Three tasks on four GPUs: --preset testbed --queue demo.", rich_help_panel=WORLD),
    ] = False,
    tasks: Annotated[
        int | None,
        typer.Option(help=f"Tasks to place, feedback in the middle. \\[default: {TASKS}]", rich_help_panel=LOOP),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(help="Hours on the cluster's clock, instead of --tasks.", rich_help_panel=LOOP),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER",
            help="What feedback works toward; may be repeated. The preset's own by default.",
            rich_help_panel=LOOP,
        ),
    ] = None,
    no_explain: Annotated[bool, typer.Option("--no-explain", help="Explain nothing.", rich_help_panel=LOOP)] = False,
    no_feedback: Annotated[
        bool, typer.Option("--no-feedback", help="Leave the reward's weights alone.", rich_help_panel=LOOP)
    ] = False,
    journal: Annotated[
        Path | None,
        typer.Option(help="New file for decisions; a folder under runs/ by default.", rich_help_panel=FILES),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="New file: .html, .json or .md; beside the journal.", rich_help_panel=FILES)
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="JOURNAL", help="Go on with this journal.", rich_help_panel=FILES)
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of words: en or zh.", rich_help_panel=TELLING)] = "en",
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the report's path only.", rich_help_panel=TELLING)
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=TELLING)] = False,
) -> None:
    """Run the whole loop: attribute, decide, explain, learn from it, run on, and write a report.

    Half of the tasks are placed, the consequential decisions are explained, one step of feedback moves the reward's
    weights toward the targets, and the other half is placed under the new weights. The last line is the report's path.
    """
    if demo:
        preset, queue = preset or "testbed", queue or "demo"
    asked: Asked | None = None
    try:
        with Stages(quiet=quiet) as stages:
            with stages.stage("getting ready"):
                asked = checked(
                    preset=preset, policy=policy, seed=seed, queue=queue, tasks=tasks, hours=hours,
                    targets=target or [], journal=journal, report=report, resume=resume, lang=lang,
                    feedback=not no_feedback, explain=not no_explain,
                )  # fmt: skip
                from attribution_sched import kernels

                kernels.announce_with(notes(quiet=quiet).print)
                system = asked.open()
            with system:
                notes(quiet=quiet).print(opening(system))
                told = go_round(system, asked, stages)
    except KeyboardInterrupt:
        kept = None if asked is None else asked.written
        words = f"go on with: attribution-sched run --resume {kept}" if kept else "nothing was written"
        notes().print(f"stopped; {words}", soft_wrap=True)
        raise typer.Exit(STOPPED) from None
    if as_json:
        say_json(told.to_dict())
        return
    if not quiet:
        show(told)
    typer.echo(str(told.report))
