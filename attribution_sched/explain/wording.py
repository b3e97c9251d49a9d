"""Plans and outputs in words, English and Chinese."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.words.catalogue import variants
from attribution_sched.words.names import input_name, term, unit_name
from attribution_sched.words.say import (
    LANGUAGES,
    Language,
    Phrase,
    check_language,
    in_language,
    plural,
    say,
    say_name,
    spaced,
)

if TYPE_CHECKING:
    from attribution_sched.cluster.plan import Plan, Replica, Segment

__all__ = [
    "FAMILIES",
    "KEEP",
    "LANGUAGES",
    "WAIT",
    "Language",
    "check_language",
    "describe_plan",
    "in_language",
    "input_name",
    "layer_span",
    "output_name",
    "output_unit",
    "plan_words",
    "quantity_of",
    "short_plan",
    "spaced",
    "task_and_plan",
    "unit_name",
    "unit_of",
]

WAIT, KEEP = "wait", "keep the plan"
"""What None means for a task in the queue, and for one that runs: the English words, all that old records hold."""

FAMILIES: tuple[str, ...] = (
    "link",
    "forecast",
    "price",
    "carbon",
    "electricity",
    "load",
    "queue",
    "task",
    "time",
    "attribution",
    "plan",
    "weights",
    "input",
)
"""Groups of players."""


def output_name(output: str, lang: str = "en") -> str:
    """An output in words; one that is no reward component keeps its name."""
    check_language(lang)
    return say_name("output.name", output, lang)


def output_unit(output: str, target: str, lang: str = "en") -> str:
    """Unit of an output and of its shares; empty if it is not known."""
    check_language(lang)
    name = next((name for name in (output, target) if name in variants("output.unit")), None)
    return say("output.unit", lang, variant=name) if name else ""


def task_and_plan(subject: str) -> tuple[str, str]:
    """Split a subject such as ``gpt-24: us-east ×8 GPUs …`` into task and plan; the task is empty if not named."""
    if isinstance(subject, Phrase):
        return (subject.values["task"], subject.values["plan"]) if "task" in subject.values else ("", subject)
    # Records of older versions, and people's own, are words only.
    task, mark, plan = subject.partition(": ")
    return (task, plan) if mark and not re.fullmatch(r"\d+ replicas", task) else ("", subject)


def quantity_of(player: str, quantity: str, lang: str = "en") -> str:
    """A quantity of a player in words; the player alone where the quantity says no more than its family does."""
    check_language(lang)
    if quantity in FAMILIES or quantity == player:
        return input_name(player, lang)
    # Free devices are said of a domain, not of its load.
    whose = "quantity.of_load" if player.startswith("load ") else "quantity.of_input"
    return say(
        whose, lang, quantity=term(quantity, lang), player=input_name(player, lang), where=player.removeprefix("load ")
    )


def unit_of(quantity: str, unit: str, lang: str = "en") -> str:
    """The unit to write after a number of a quantity; none where the quantity names what is counted."""
    check_language(lang)
    return "" if unit and (unit == quantity or unit in quantity.split()) else unit_name(unit, lang)


def describe_plan(plan: Plan | None, domain_names: Sequence[str], lang: str = "en", *, replanning: bool = False) -> str:
    """A plan in words: domains, devices, layout, precision, layers (counted from 1, both ends included), microbatch.

    In English it is a :class:`~attribution_sched.words.Phrase`, which can be said in other languages later.

    Args:
        plan: The plan; None leaves a task where it is.
        domain_names: Names of the cluster's domains.
        lang: ``en`` or ``zh``.
        replanning: Whether the task already runs, so that None keeps its plan rather than lets it wait.

    Raises:
        ExplanationError: If the language is not known or the plan names a domain that does not exist.
    """
    check_language(lang)
    phrase = _plan(plan, domain_names) if plan is not None else Phrase("plan.keep" if replanning else "plan.wait")
    return phrase if lang == "en" else phrase.say(lang)


def plan_words(plan: str, lang: str) -> str:
    """A plan that was described, in a language; waiting and keeping are known by their words alone."""
    if plan in (WAIT, KEEP):
        return say("plan.wait" if plan == WAIT else "plan.keep", lang)
    return in_language(plan, lang)


def short_plan(plan: str, lang: str) -> str:
    """Where a plan that was described runs, and on how many devices; all its words if they are words only."""
    found = _places(plan)
    if found is None:
        return plan_words(plan, lang)
    return in_language(found, lang)


def _places(plan: str) -> Phrase | None:
    if not isinstance(plan, Phrase):
        return None
    values = plan.values
    if plan.message == "plan.replica":
        parts = tuple(f"{s.values['domain']} ×{s.values['devices']}" for s in values["segments"])
        return Phrase("list.segments", parts=parts)
    if plan.message == "plan.replicas":
        each = [_places(replica) for replica in values["replicas"]]
        return Phrase("list.replicas", parts=tuple(one for one in each if one is not None))
    return _places(values["plan"]) if plan.message in ("plan.gpipe", "plan.beside", "plan.shared") else None


def _plan(plan: Plan, domain_names: Sequence[str]) -> Phrase:
    told = [_replica(replica, domain_names) for replica in plan.replicas]
    phrase = told[0] if len(told) == 1 else Phrase("plan.replicas", count=len(told), replicas=tuple(told))
    if plan.schedule.name == "GPIPE":
        phrase = Phrase("plan.gpipe", plan=phrase)
    if plan.beside is None:
        return phrase
    return (
        Phrase("plan.beside", plan=phrase, slot=plan.beside) if plan.beside >= 0 else Phrase("plan.shared", plan=phrase)
    )


def _replica(replica: Replica, domain_names: Sequence[str]) -> Phrase:
    alone = len(replica.segments) == 1
    segments = tuple(_segment(segment, domain_names, alone) for segment in replica.segments)
    return Phrase("plan.replica", segments=segments, microbatch=int(replica.microbatch))


def _segment(segment: Segment, domain_names: Sequence[str], alone: bool) -> Phrase:
    if not 0 <= segment.domain < len(domain_names):
        fix = "Pass the names of the plan's own cluster"
        raise ExplanationError(problem("domain", segment.domain, f"only {len(domain_names)} have names", fix))
    layout = " · ".join(f"{name} {getattr(segment, name)}" for name in ("dp", "tp", "pp") if getattr(segment, name) > 1)
    inside: tuple[str, ...] = (*((layout,) if layout else ()), segment.precision.value.upper())
    if segment.cap:
        inside = (*inside, Phrase("plan.cap", level=int(segment.cap)))
    devices = int(segment.device_count)
    values: dict[str, Any] = {"domain": str(domain_names[segment.domain]), "devices": devices, "inside": inside}
    return Phrase("plan.segment", variant=plural(devices), **values, layers=_layers(segment, alone))


def _layers(segment: Segment, alone: bool) -> Phrase:
    if alone:
        return Phrase("plan.layers.all", count=int(segment.stop)) if segment.stop > 1 else Phrase("plan.layers.only")
    several = segment.stop - segment.first > 1
    return Phrase("plan.layers.some" if several else "plan.layers.one", span=layer_span(segment))


def layer_span(segment: Segment) -> str:
    """Layers counted from 1, both ends included."""
    first, last = segment.first + 1, segment.stop
    return str(first) if first == last else f"{first}–{last}"
