"""The default explanation in a few sentences: what was done, what decided it, what it would have done otherwise.

Shares of log-odds have no unit that anybody would forward, so they stay in the table. The sentences say what is
different here from the earlier situations in which the policy chooses otherwise: readings with their units, side by
side. A driver is named only if the interval of its share excludes 0, and what leaves the plan no room is told apart
from what the policy prefers.
"""

from __future__ import annotations

from collections.abc import Sequence

from attribution_sched.explain import facts
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.findings import OTHERS, THINKING, Player
from attribution_sched.explain.wording import KEEP, WAIT, short_plan, task_and_plan
from attribution_sched.explain.words import Phrase, counter_name, in_language, input_name, say

MOST_FOR, MOST_AGAINST, MOST_ROOM = 2, 1, 2
"""Drivers that are told of each sort, the largest first: more would not fit one sentence."""


def decision_sentence(told: Explanation, lang: str) -> str:
    """Who did what with which task."""
    task, plan = task_and_plan(told.subject)
    if plan == WAIT:
        message = "did.wait"
    elif plan == KEEP:
        message = "did.keep"
    else:
        message = "did.move" if any(player.group == "plan" for player in told.players) else "did.place"
    words = short_plan(plan, lang)
    return say(message, lang, policy=told.policy, task=task, plan=words, decision=told.decision)


def why_sentences(told: Explanation, lang: str, most: int = 3) -> list[str]:
    """What decided it, what spoke against it, and what gives or leaves it no room."""
    first = told.outputs[0]
    if "nothing_fits" in told.outputs and told.value[told.column("nothing_fits")] > 0.5:
        return _no_room(told, lang)
    thinking = next((p for p in told.players if p.name == THINKING), None)
    forced = any(isinstance(note, Phrase) and note.message == "note.forced" for note in told.notes)
    if thinking is not None and isinstance(thinking.value, Phrase):
        instead = _instead(told.against, lang)
        certain = any(each.player is thinking for each in facts.drivers(told, first, len(told.players)).named)
        thought = "did.thought" if certain else "did.thought_level"
        sentences = [say(thought, lang, instead=instead, **thinking.value.values)]
        for message, sign, count in (("did.agents_for", 1, MOST_FOR), ("did.despite", -1, MOST_AGAINST)):
            if named := _named(told, first, sign, min(most, count)):
                sentences.append(say(message, lang, inputs=tuple(_input(p, lang) for p in named)))
    elif forced and told.outputs[-1] == "fits":
        # A plan for which nothing else was on offer was not preferred to anything.
        sentences = [say("note.forced", lang)]
    elif not told.against:
        sentences = [say("did.steadfast", lang)]
    else:
        ours = _named(told, first, 1, min(most, MOST_FOR))
        theirs = _named(told, first, -1, min(most, MOST_AGAINST))
        sentences = []
        if ours:
            sentences.append(say("did.because", lang, inputs=tuple(_input(p, lang) for p in ours)))
            sentences.append(say("did.else", lang, instead=_instead(told.against, lang)))
        else:
            sentences.append(say("did.unclear", lang, instead=_instead(told.against, lang)))
        if theirs:
            sentences.append(say("did.despite", lang, inputs=tuple(_input(p, lang) for p in theirs)))
    if "fits" in told.outputs:
        rooms = [p for p in _named(told, "fits", 1, MOST_ROOM) if p.group == "load"]
        if rooms:
            sentences.append(say("did.room", lang, inputs=tuple(_input(p, lang) for p in rooms)))
    return sentences


def _no_room(told: Explanation, lang: str) -> list[str]:
    """Of a task that waits since nothing fits: where devices are lacking, and what it would have done with them."""
    rooms = [p for p in _named(told, "nothing_fits", 1, MOST_ROOM) if p.group == "load"]
    if not rooms:
        return [say("did.no_room_plain", lang)]
    sentences = [say("did.no_room", lang, inputs=tuple(_input(p, lang) for p in rooms))]
    if told.against and told.against != WAIT:
        sentences.append(say("did.else", lang, instead=_instead(told.against, lang)))
    return sentences


def _named(told: Explanation, output: str, sign: int, most: int) -> list[Player]:
    """Certain drivers of an output with a sign, the largest first; what was put together is no driver."""
    found = facts.drivers(told, output, len(told.players)).named
    together = (OTHERS, THINKING)
    return [each.player for each in found if each.share * sign > 0 and each.player.name not in together][:most]


def _instead(plan: str, lang: str) -> str:
    """What it would have done, after "would have"."""
    if isinstance(plan, Phrase) and plan.message == "plan.another_first":
        return say("did.else.another", lang)
    if plan == WAIT:
        return say("did.else.wait", lang)
    if plan == KEEP:
        return say("did.else.keep", lang)
    return say("did.else.plan", lang, plan=short_plan(plan, lang))


def _input(player: Player, lang: str) -> str:
    """An input with its reading here and where the policy chooses otherwise."""
    value, usual = player.value, player.usual
    name = input_name(player.name, lang)
    if isinstance(value, Phrase) and value.message == "reading.joules":
        what = counter_name(player.name.removeprefix("attribution "), lang)
        side = "more" if player.number > player.usual_number else "less"
        amount, units = value.values["amount"].split(" ±")[0], value.values["units"]
        return say(f"did.joules.{side}", lang, what=what, amount=amount, units=units)
    if isinstance(value, Phrase) and isinstance(usual, Phrase) and value.message == usual.message:
        here, there = value.values, usual.values
        if value.message == "reading.load":
            domain, free, other = player.name.removeprefix("load "), here["free"], there["free"]
            if free == other:
                # As many free, but others at work beside them.
                busy = {"busy": f"{here['busy']:.0f}", "other": f"{there['busy']:.0f}"}
                return say("did.busy", lang, domain=domain, **busy)
            return say("did.free", lang, domain=domain, free=free, other=other)
        if value.message == "reading.waiting":
            return say("did.queue", lang, count=here["count"], other=there["count"])
        if value.message == "reading.steps":
            steps = (f"{each['steps']:,.0f}" for each in (here, there))
            return say("did.steps", lang, **dict(zip(("steps", "other"), steps, strict=True)))
        if value.message == "reading.plan":
            seconds = (f"{each['step_s']:.3g}" for each in (here, there))
            return say("did.step", lang, **dict(zip(("step_s", "other"), seconds, strict=True)))
        if value.message == "reading.link":
            return say("did.link", lang, name=name, gbps=here["gbps"], other=there["gbps"])
    shown, other = in_language(value, lang), in_language(usual, lang)
    if not shown:
        return name
    if not other or other == shown:
        return say("did.reading", lang, name=name, value=shown)
    return say("did.reading_other", lang, name=name, value=shown, other=other)


def joined(sentences: Sequence[str], lang: str) -> str:
    """Sentences after one another."""
    return (" " if lang == "en" else "").join(sentences)
