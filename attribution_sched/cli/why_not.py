"""``attribution-sched why-not``: why a task of a journal is not in a domain, or on a plan."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from attribution_sched.cli.console import Stages, columns, examples, out, say_json
from attribution_sched.cli.files import check_order, rebuild_system

EXAMPLES = examples(
    "attribution-sched why-not runs/cross-domain-0-1/journal.sqlite t000042 azure:westus",
    'attribution-sched why-not run.sqlite t000042 "azure:westus x4 + aws:us-west-2 x8"',
)


def why_not(
    journal: Annotated[Path, typer.Argument(help="Journal to read; another process may write it.")],
    task: Annotated[str, typer.Argument(help="The task, waiting or placed.")],
    where: Annotated[str, typer.Argument(help="A domain, or a plan: `a x8`, `a x8 + b x8`.")],
    lang: Annotated[str, typer.Option(help="Language of words: en or zh.")] = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say why a task is not in a domain or on a plan: the best plan there, what is missing, and what would make it win.

    The journal is only read; what would win was tried with the policy.
    """
    from attribution_sched.explain.wording import check_language

    check_language(lang)
    check_order(journal, task)
    with Stages() as stages, rebuild_system(journal, stages) as system:
        row = system.why_not(task, where)
    if as_json:
        say_json(asdict(row))
        return
    out().print(escape(row.why_not(task, where, lang)), width=columns())
