"""``attribution-sched when``: when a waiting task of a journal starts and ends."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from attribution_sched.cli.console import Stages, columns, examples, out, say_json
from attribution_sched.cli.files import check_order, rebuild_system

EXAMPLES = examples(
    "attribution-sched when runs/cross-domain-0-1/journal.sqlite t000042",
    "attribution-sched when run.sqlite my-task --futures 119 --lang zh",
    "attribution-sched when run.sqlite --hours 24 --json",
)


def when(
    journal: Annotated[Path, typer.Argument(help="Journal to read; another process may write it.")],
    task: Annotated[
        str | None, typer.Argument(help="The task that waits; all that the policy looks at by default.")
    ] = None,
    futures: Annotated[int | None, typer.Option(help="Futures to play; by the policy's speed by default.")] = None,
    hours: Annotated[float | None, typer.Option(help="How far to play; as far as it takes by default.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the futures; the journal's own by default.")] = None,
    lang: Annotated[str, typer.Option(help="Language of words: en or zh.")] = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say when a waiting task starts and ends, as 80 % intervals; without a task, of all that the policy looks at.

    The journal is only read. Copies of the cluster at its end are played on under futures that are drawn from what may
    be known now.
    """
    from attribution_sched.explain.wording import check_language
    from attribution_sched.words.say import say

    check_language(lang)
    check_order(journal, task or "")
    with Stages() as stages, rebuild_system(journal, stages) as system:
        given: dict[str, Any] = {"futures": futures, "hours": hours, "seed": seed}
        answers = system.when_all(**given) if task is None else [system.when(task, **given)]
    if as_json:
        told = [asdict(each) | {"sentence": each.say(lang)} for each in answers]
        say_json(told if task is None else told[0])
        return
    if not answers:
        out().print(say("when.nobody", lang))
    for each in answers:
        out().print(escape(each.say(lang)), width=columns())
