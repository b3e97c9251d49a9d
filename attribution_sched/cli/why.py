"""``attribution-sched why``: why a task of a journal is still waiting."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from attribution_sched.cli.console import Stages, columns, examples, out, say_json
from attribution_sched.cli.files import check_order, rebuild_system

if TYPE_CHECKING:
    from attribution_sched.explain.delay import Delay, Share
    from attribution_sched.words.say import Phrase

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
    check_order(journal, task)
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
    from attribution_sched.explain.digits import number
    from attribution_sched.explain.when import who_goes_on
    from attribution_sched.words.say import say

    told, who = [], who_goes_on(delay.follower)
    if (past := delay.waited) is not None:
        parts = _parts(past.shares, past.by, private, past.alone_h, past.left_h)
        values = {"task": delay.task, "hours": number(past.hours, 2), "futures": past.futures, "follower": who}
        told.append(say("delay.past", lang, parts=parts, **values))
    parts = _parts(delay.shares, delay.by, private, delay.alone_h)
    values = {"task": delay.task, "hours": number(delay.hours, 2), "futures": delay.futures, "follower": who}
    told.append(say("delay" if parts else "delay.nobody", lang, parts=parts, **values))
    return "\n".join(told)


def _parts(
    shares: tuple[Share, ...], by: str, private: bool, alone_h: float, left_h: float = 0.0
) -> tuple[Phrase, ...]:
    """Shares in words; those that would be told as nothing stand together, so that what is told adds up."""
    from attribution_sched.explain.digits import number, share
    from attribution_sched.words.say import Phrase, counted

    def who(each: Share) -> str:
        if private:
            return Phrase("why.somebody")
        if by == "task":
            return each.who
        return Phrase("delay.tenant", who=each.who, tasks=counted("count.tasks", len(each.tasks)))

    told = [each for each in shares if abs(each.hours) >= LEAST_H]
    halves = [(each.high - each.low) / 2.0 for each in told]
    parts = [
        Phrase("delay.part", who=who(each), hours=share(each.hours, half if half >= LEAST_H / 2.0 else 0.0))
        for each, half in zip(told, halves, strict=True)
    ]
    rest = sum(each.hours for each in shares) - sum(each.hours for each in told)
    if abs(rest) >= LEAST_H / 2.0:
        parts.append(Phrase("delay.part", who=Phrase("delay.others"), hours=number(rest, 2, signed=True)))
    for message, hours in (("delay.alone", alone_h), ("delay.left", left_h)):
        if abs(hours) >= LEAST_H / 2.0:
            parts.append(Phrase(message, hours=number(hours, 2, signed=True)))
    return tuple(parts)


LEAST_H = 0.01
"""Hours below which a share is not told by itself."""


def _hidden(fields: dict[str, Any], private: bool) -> dict[str, Any]:
    """Without names of others, if that is asked for; the numbers stay."""
    for part in (fields, fields["waited"] or {}):
        if private and part:
            part["shares"] = [each | {"who": "", "tasks": ()} for each in part["shares"]]
    return fields
