"""``attribution-sched why``: why a task of a journal is still waiting."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from attribution_sched.cli.console import Stages, columns, examples, out, say_json
from attribution_sched.cli.files import rebuild_system

EXAMPLES = examples(
    "attribution-sched why runs/cross-domain-0-1/journal.sqlite t000042",
    "attribution-sched why run.sqlite my-task --private --lang zh",
)


def why(
    journal: Annotated[Path, typer.Argument(help="Journal to read; another process may write it.")],
    task: Annotated[str, typer.Argument(help="The task that waits.")],
    private: Annotated[bool, typer.Option("--private", help="Leave out names of others.")] = False,
    lang: Annotated[str, typer.Option(help="Language of words: en or zh.")] = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say why a task is still waiting: the binding cause, who holds the room, and what would start it now.

    The journal is only read. The cluster is built again from it up to its end, and a copy of the policy is asked; what
    is advised was tried.
    """
    from attribution_sched.explain.wording import check_language

    check_language(lang)
    with Stages() as stages, rebuild_system(journal, stages) as system:
        found = system.why(task, private=private)
    if as_json:
        say_json(asdict(found) | {"cause": found.cause.value})
        return
    out().print(escape(found.say(lang)), width=columns())
