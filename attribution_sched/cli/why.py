"""``attribution-sched why``: why a task of a journal is still waiting."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from attribution_sched.cli.console import Stages, columns, examples, out, say_json
from attribution_sched.cli.files import rebuild_system

if TYPE_CHECKING:
    from attribution_sched.explain.delay import Delay

EXAMPLES = examples(
    "attribution-sched why runs/cross-domain-0-1/journal.sqlite t000042",
    "attribution-sched why run.sqlite my-task --private --lang zh",
)


def why(
    journal: Annotated[Path, typer.Argument(help="Journal to read; another process may write it.")],
    task: Annotated[str, typer.Argument(help="The task that waits.")],
    private: Annotated[bool, typer.Option("--private", help="Leave out names of others.")] = False,
    shares: Annotated[bool, typer.Option("--shares", help="Whose being there makes it wait, in hours.")] = False,
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
        reason = system.why(task, private=private)
        delay = system.delay(task) if shares else None
    if as_json:
        extra = {} if delay is None else {"delay": _hidden(asdict(delay), private)}
        say_json(asdict(reason) | {"cause": reason.cause.value} | extra)
        return
    out().print(escape(reason.say(lang)), width=columns())
    if delay is not None:
        out().print(escape(_words(delay, private, lang)), width=columns())


def _words(delay: Delay, private: bool, lang: str) -> str:
    from attribution_sched.explain.digits import number, share
    from attribution_sched.explain.words import Phrase, say

    parts = tuple(
        Phrase(
            "delay.part",
            who=Phrase("why.somebody") if private else each.who,
            hours=share(each.hours, (each.high - each.low) / 2.0),
        )
        for each in delay.shares
        if abs(each.hours) >= 0.01
    )
    values = {"task": delay.task, "hours": number(delay.hours, 2), "alone": number(delay.alone_h, 2)}
    return say("delay" if parts else "delay.nobody", lang, parts=parts, futures=delay.futures, **values)


def _hidden(fields: dict[str, Any], private: bool) -> dict[str, Any]:
    """Without names of others, if that is asked for; the numbers stay."""
    if private:
        fields["shares"] = [each | {"who": "", "tasks": ()} for each in fields["shares"]]
    return fields
