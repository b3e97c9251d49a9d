"""``attribution-sched blame``: which earlier decisions of a journal made a task late, or the day expensive."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from attribution_sched.cli.console import Stages, columns, examples, out, say_json
from attribution_sched.cli.files import rebuild_system

EXAMPLES = examples(
    "attribution-sched blame runs/cross-domain-0-1/journal.sqlite t000042",
    "attribution-sched blame run.sqlite --most 20 --lang zh",
)


def blame(
    journal: Annotated[Path, typer.Argument(help="Journal to read; another process may write it.")],
    task: Annotated[
        str | None, typer.Argument(help="The task, started or waiting; without it, R of all.", show_default=False)
    ] = None,
    hours: Annotated[float, typer.Option(help="Look back so far before it came; of a day, play so far.")] = 12.0,
    most: Annotated[int, typer.Option(help="Decisions to look at, the latest.")] = 40,
    futures: Annotated[int, typer.Option(help="Futures to play at each.")] = 16,
    seed: Annotated[int | None, typer.Option(help="Of the futures; the journal's own by default.")] = None,
    lang: Annotated[str, typer.Option(help="Language of words: en or zh.")] = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say which earlier decisions made a task late, or the day's R smaller, in hours or R with 95 % intervals.

    The journal is only read. At each earlier decision the cluster is copied, the decision replaced by its runner-up,
    and the day played again with the tasks that came.
    """
    from attribution_sched.explain.wording import check_language

    check_language(lang)
    with Stages() as stages, rebuild_system(journal, stages) as system, stages.stage("playing runners-up"):
        found = system.blame(task, hours=hours, most=most, futures=futures, seed=seed)
    if as_json:
        say_json(asdict(found) | {"total": found.total, "left_h": found.left_h, "sentence": found.say(lang)})
        return
    out().print(escape(found.say(lang)), width=columns())
