"""``attribution-sched profile``: what a user's model asks of this machine, counter by counter."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from attribution_sched.cli.console import Stages, examples, notes, say_json
from attribution_sched.cli.exits import RunTimeError
from attribution_sched.errors import AttributionSchedError, SettingsError, problem

EXAMPLES = examples(
    "attribution-sched profile ./train.py:make_model",
    "attribution-sched profile torch.nn:ReLU --input 8x3x224x224",
    "attribution-sched profile mypackage.models:bert --train --submit-as bert-base --json",
)
PRESETS: tuple[str, ...] = ("cross-domain", "testbed")
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
    preset: Annotated[
        str | None,
        typer.Option(
            help="Preset whose tasks it is compared with; cross-domain or testbed, whichever has the nearest.",
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
    attribution: Annotated[
        bool, typer.Option(help="Say where the joules go by the preset's energy model.", rich_help_panel=TASK)
    ] = True,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where your code raised.", rich_help_panel=TELLING)
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.", rich_help_panel=TELLING)] = False,
) -> None:  # fmt: skip
    """Run a torch model of yours and say what it asks of this machine, and how each number was got.

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
    from attribution_sched.cli.profile_kinds import as_task, having, joules, nearest_world, submission
    from attribution_sched.cli.profile_loading import UsersError, load, users_error
    from attribution_sched.cli.profile_measure import measure

    worlds = {each.name: each.build_world() for each in settings.values()}
    worlds = worlds if submit_as is None else having(worlds, submit_as)
    console = notes()
    show = (lambda text: console.print(text, markup=False, soft_wrap=True)) if traceback else None
    with Stages() as stages:
        try:
            with stages.stage(f"making {spec.rpartition(':')[2]}"):
                subject = load(spec, shape, show)
            with stages.stage("running steps", steps) as tell:
                try:
                    found = measure(subject, training=training, steps=steps, warmup=warmup, tell=tell)
                except AttributionSchedError:
                    raise
                except Exception as error:
                    raise users_error(f"a step of {subject.name}", error, show) from error
        except UsersError as error:
            raise RunTimeError(str(error)) from error
        name = nearest_world(found, worlds)
        placed, vector, how = as_task(found, worlds[name], submit_as), None, ""
        if attribution and submit_as is None:
            with stages.stage("attributing joules"):
                vector, how = joules(placed, worlds[name])
    if submit_as is not None and not as_json:
        filled = [name for name, figure in placed.counters.items() if figure.provenance == "simulated"]
        if filled:
            console.print(f"not measurable here, taken from {placed.model} (simulated): {', '.join(filled)}")
        say_json(submission(placed))
        return
    from attribution_sched.cli.profile_view import as_dict, show_profile

    if as_json:
        say_json(as_dict(found, placed, vector, how, name))
    else:
        show_profile(found, placed, vector, how, name)
