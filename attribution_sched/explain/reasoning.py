"""One paragraph of reasoning for a decision, generated from its numbers.

A driver is named only if the interval of its share excludes 0. Thresholds and flips were found by running the policy
and stand on their own. The words are messages of the catalogue (:mod:`.words`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain import facts
from attribution_sched.explain.digits import alike, apart, number, percent, share
from attribution_sched.explain.explanation import COMPONENTS, Explanation
from attribution_sched.explain.findings import EXPERIENCE, OTHERS, THINKING, Change, Player
from attribution_sched.explain.wording import (
    KEEP,
    WAIT,
    output_name,
    plan_words,
    quantity_of,
    short_plan,
    task_and_plan,
    unit_of,
)
from attribution_sched.words.catalogue import variants
from attribution_sched.words.names import counter_name, input_name, term_phrase
from attribution_sched.words.say import Phrase, check_language, counted, in_language, plural, say, spaced

# ------ The default explanation in a few sentences: what was done, what decided it, what it would have done otherwise
#
# Shares of log-odds have no unit that anybody would forward, so they stay in the table. The sentences say what is
# different here from the earlier situations in which the policy chooses otherwise: readings with their units, side by
# side. A driver is named only if the interval of its share excludes 0, and what leaves the plan no room is told apart
# from what the policy prefers.

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
    thinking = next((p for p in told.players if p.name in (THINKING, EXPERIENCE)), None)
    forced = any(isinstance(note, Phrase) and note.message == "note.forced" for note in told.notes)
    if thinking is not None and isinstance(thinking.value, Phrase):
        instead = _instead(told.against, lang)
        certain = any(each.player is thinking for each in facts.drivers(told, first, len(told.players)).named)
        thought = "did.thought" if certain else "did.thought_level"
        if thinking.name == EXPERIENCE:
            thought = "did.experience"
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
            sentences.append(say("did.room", lang, inputs=tuple(_room(p, lang, 1) for p in rooms)))
    return sentences


def _room(player: Player, lang: str, sign: int) -> str:
    """Free devices as a reason why a plan fits (1) or nothing does (-1), beside the usual number if that is the reason.

    Among the earlier situations some had less room even where most had more.
    """
    value, usual = player.value, player.usual
    if isinstance(value, Phrase) and isinstance(usual, Phrase) and value.message == usual.message == "reading.load":
        free = value.values["free"]
        if sign * (free - usual.values["free"]) <= 0:
            return say("did.free_only", lang, domain=player.name.removeprefix("load "), free=free)
    return _input(player, lang)


def _no_room(told: Explanation, lang: str) -> list[str]:
    """Of a task that waits since nothing fits: where devices are lacking, and what it would have done with them."""
    rooms = [p for p in _named(told, "nothing_fits", 1, MOST_ROOM) if p.group == "load"]
    if not rooms:
        return [say("did.no_room_plain", lang)]
    sentences = [say("did.no_room", lang, inputs=tuple(_room(p, lang, -1) for p in rooms))]
    if told.against and told.against != WAIT:
        sentences.append(say("did.else", lang, instead=_instead(told.against, lang)))
    return sentences


def _named(told: Explanation, output: str, sign: int, most: int) -> list[Player]:
    """Certain drivers of an output with a sign, the largest first; what was put together is no driver."""
    found = facts.drivers(told, output, len(told.players)).named
    together = (OTHERS, THINKING, EXPERIENCE)
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
        return say("did.joules", lang, variant=side, what=what, amount=amount, units=units)
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


# ------ One paragraph of reasoning for a decision, generated from its numbers

SECTIONS: tuple[str, ...] = (
    "decision", "outcome", "worth", "drivers", "interaction", "rule", "counterfactual", "method",
)  # fmt: skip
"""Parts of the paragraph, in order; a part without anything to tell is left out."""

RULES = 2
"""Thresholds that are told at most."""

TOLD_OTHERWISE = ("note.steadfast", "note.fixed", "note.forced")
"""Notes that the sentences on a decision say themselves."""


def reasoning(explanation: Explanation, lang: str = "en", most: int = 3) -> str:
    """Tell a decision: what was chosen, how surely, what it is worth, what drove that, and how it was found.

    Args:
        explanation: The explanation.
        lang: ``en`` or ``zh``.
        most: Drivers per output at most.

    Raises:
        ExplanationError: If the language is not known or ``most`` is less than 1.
    """
    return _after_one_another(list(sections(explanation, lang, most).values()), lang)


def sections(explanation: Explanation, lang: str = "en", most: int = 3) -> dict[str, str]:
    """The parts of :func:`reasoning` by name; see :data:`SECTIONS`."""
    if most < 1:
        raise ExplanationError(problem("most", most, "must be >= 1", "Use 3"))
    check_language(lang)
    if explanation.target == "decision":
        return _of_the_decision(explanation, lang, most)
    told = {
        "decision": _decision(explanation, lang),
        "outcome": in_language(explanation.outcome, lang),
        "worth": _worth(explanation, lang),
        "drivers": _drivers(explanation, most, lang),
        "interaction": _interaction(explanation, lang),
        "rule": _rule(explanation, lang),
        "counterfactual": _counterfactual(explanation, lang),
    }
    # Notes are set as they are written: spaces are put in before them.
    shown = {name: _set(text, lang) for name, text in told.items()} | {"method": _method(explanation, lang)}
    return {name: text for name, text in shown.items() if text}


def _of_the_decision(explanation: Explanation, lang: str, most: int) -> dict[str, str]:
    """The parts where the decision itself is explained: sentences to forward, the numbers are in the table."""
    method = say("did.method", lang, rows=explanation.rows, count=counted("count.earlier", explanation.background))
    # What is said already: that it is steadfast, and what intervals are about.
    notes = [note for note in explanation.notes if getattr(note, "message", "") not in TOLD_OTHERWISE]
    told = {
        "decision": decision_sentence(explanation, lang),
        "outcome": in_language(explanation.outcome, lang),
        "drivers": joined(why_sentences(explanation, lang, most), lang),
        "interaction": _interaction(explanation, lang),
        "rule": _rule(explanation, lang),
        "counterfactual": _counterfactual(explanation, lang),
    }
    shown = {name: _set(text, lang) for name, text in told.items()}
    shown["method"] = joined([_set(method, lang), *_notes(replace(explanation, notes=tuple(notes)), lang)], lang)
    return {name: text for name, text in shown.items() if text}


def headline(explanation: Explanation, lang: str = "en") -> str:
    """What was decided and how surely: the first sentence of :func:`reasoning`."""
    check_language(lang)
    if explanation.target == "decision":
        return _set(decision_sentence(explanation, lang), lang)
    return _set(_decision(explanation, lang), lang)


def _decision(explanation: Explanation, lang: str) -> str:
    """What was chosen, and how surely."""
    task, plan = task_and_plan(explanation.subject)
    chose = say("decision.chose", lang, choice=_choice(plan, lang)) if plan else say("decision.decided", lang)
    who = {"decision": explanation.decision, "task": task, "policy": explanation.policy, "chose": chose}
    text = say("decision.head_task" if task else "decision.head", lang, **who)
    sure = explanation.confidence
    if sure is not None and math.isfinite(sure.probability):
        text += say("decision.probability", lang, share=_percent(sure.probability, lang))
    if explanation.against:
        text += say("decision.against", lang, choice=_choice(explanation.against, lang))
    if sure is None:
        return say("end", lang, text=text)
    chance = ""
    if math.isfinite(sure.runner_up_probability):
        chance = say("decision.chance", lang, share=_percent(sure.runner_up_probability, lang))
    if sure.runner_up and sure.runner_up == explanation.against:
        text += chance
    elif sure.runner_up:
        text += say("decision.runner_up", lang, choice=_choice(sure.runner_up, lang), chance=chance)
    return say("end", lang, text=text)


def _worth(explanation: Explanation, lang: str) -> str:
    """Outputs of the decision against the background's mean."""
    between = explanation.against and explanation.target not in facts.BEHAVIOUR
    what = say("target.explained", lang, variant=explanation.target)
    lead = say("worth.lead_between" if between else "worth.lead", lang, what=what)
    parts = [_against_usual(explanation, output, lang) for output in facts.per_output(explanation)]
    if len(parts) > 1:
        text = say("worth.many", lang, lead=lead, first=parts[0], rest=_list(parts[1:], lang, mark="；"))
    else:
        text = say("worth.one", lang, lead=lead, first=parts[0])
    if explanation.weights is not None and explanation.main == "R":
        eff, util, cost = (number(weight) for weight in explanation.weights)
        text = say("worth.weights", lang, text=text, eff=eff, util=util, cost=cost)
    return say("end", lang, text=text)


def _drivers(explanation: Explanation, most: int, lang: str) -> str:
    """The certain drivers of every output."""
    seen: set[str] = set()
    told: list[str] = []
    without: list[str] = []
    idle: list[str] = []
    for output in facts.per_output(explanation):
        found = facts.drivers(explanation, output, most)
        if found.named:
            told.append(_drivers_of(explanation, found, seen, lang))
        else:
            (idle if facts.idle(explanation, output) else without).append(output_name(output, lang))
        seen |= {driver.player.name for driver in found.named}
    if without:
        told.append(say("drivers.none", lang, outputs=_list(without, lang, word="or")))
    if idle:
        told.append(say("drivers.idle", lang, outputs=_list(idle, lang, word="or")))
    return _after_one_another(told, lang)


def _interaction(explanation: Explanation, lang: str) -> str:
    """The strongest interaction that is certain."""
    found = facts.interaction(explanation)
    if found is None:
        return ""
    pair, half = found
    first, second = input_name(pair.first, lang), input_name(pair.second, lang)
    change = {"output": output_name(pair.output, lang), "share": share(pair.value, half)}
    return say("interaction", lang, first=first, second=second, **change)


def _rule(explanation: Explanation, lang: str) -> str:
    """Thresholds at which the choice flips."""
    told = []
    for found in explanation.rules[:RULES]:
        value, threshold = apart(found.value, found.threshold, unit_of(found.quantity, found.unit, lang))
        quantity, plan = quantity_of(found.player, found.quantity, lang), _again(explanation, found.plan, lang)
        message = "rule.above" if found.side == "above" else "rule.below"
        told.append(say(message, lang, quantity=quantity, threshold=threshold, value=value, plan=plan))
    return _after_one_another(told, lang)


def _counterfactual(explanation: Explanation, lang: str) -> str:
    """The smallest change that flips the choice."""
    found = explanation.counterfactual
    if found is None:
        return ""
    changes = _list([_change(change, lang) for change in found.changes], lang, mark="，同时")
    size = say("flip.size.one" if found.size == 1.0 else "flip.size.many", lang, size=number(found.size, 2))
    checked = say("flip.checked" if found.verified else "flip.unchecked", lang)
    return say("flip", lang, changes=changes, size=size, plan=_again(explanation, found.plan, lang), checked=checked)


def _method(explanation: Explanation, lang: str) -> str:
    """How the numbers were found, and what a reader must know."""
    method = explanation.method if explanation.method in variants("method.shares") else "other"
    text = say("method.shares", lang, variant=method, how=explanation.method)
    if explanation.rows:
        text += say("method.rows", lang, rows=explanation.rows)
    if explanation.background:
        source = in_language(term_phrase(explanation.background_name), lang)
        source = say("method.source", lang, source=source) if source else ""
        count = explanation.background
        text += say("method.background", lang, variant=plural(count), count=count, source=source)
    text += say("method.seed", lang, seed=explanation.seed)
    if explanation.standard_error.any():
        text += say("method.interval", lang)
    else:
        text = say("end", lang, text=text)
    told = [text]
    if not explanation.converged:
        told.append(say("method.not_reached", lang))
    if explanation.target in facts.BEHAVIOUR:
        told.append(say("method.behaviour", lang))
    return _after_one_another([_set(_after_one_another(told, lang), lang), *_notes(explanation, lang)], lang)


def _notes(explanation: Explanation, lang: str) -> list[str]:
    if lang == "en":
        return [f"{note[:1].upper()}{note[1:].rstrip('.')}." for note in explanation.notes]
    # A note that came as words, and not as a message, is quoted in the language it came in.
    own = [f"“{note}”" for note in explanation.notes if not isinstance(note, Phrase)]
    told = [note.say(lang) for note in explanation.notes if isinstance(note, Phrase)]
    return [*told, *([say("method.notes_as_written", lang, notes=tuple(own))] if own else [])]


def _choice(plan: str, lang: str) -> str:
    return say("choice.to" if plan in (WAIT, KEEP) else "choice.plan", lang, plan=plan_words(plan, lang))


def _again(explanation: Explanation, plan: str, lang: str) -> str:
    if facts.told_before(explanation, plan) and plan not in (WAIT, KEEP):
        return say("choice.again", lang)
    return _choice(plan, lang)


def _against_usual(explanation: Explanation, output: str, lang: str) -> str:
    c = explanation.column(output)
    value, base = float(explanation.value[c]), float(explanation.base[c])
    shown, usual = alike(value, base)
    how: dict[str, Any] = {"name": output_name(output, lang), "shown": shown}
    if shown == usual:
        return say("worth.same", lang, **how)
    good = facts.direction(explanation, output) * (value - base)
    better, worse = "verdict.better", "verdict.worse"
    if explanation.target in facts.BEHAVIOUR:
        better, worse = "verdict.likelier", "verdict.less_likely"
    verdict = ""
    if output in COMPONENTS and not facts.direction(explanation, output):
        verdict = say("verdict.unweighted", lang)
    elif good:
        verdict = say(better if good > 0 else worse, lang)
    message = "worth.higher" if value > base else "worth.lower"
    return say(message, lang, **how, usual=usual, gap=number(abs(value - base)), verdict=verdict)


def _drivers_of(explanation: Explanation, found: facts.Drivers, seen: set[str], lang: str) -> str:
    good = facts.direction(explanation, found.output)
    name = output_name(found.output, lang)
    if good < 0:
        name = _remarked(name, say("drivers.less_is_better", lang), lang)
    elif good == 0 and found.output in COMPONENTS:
        name = _remarked(name, say("drivers.unweighted", lang), lang)
    parts: list[str] = []
    for sign in (1, -1):
        listed = [driver for driver in found.named if driver.share * sign * (good or 1) > 0]
        if not listed:
            continue
        inputs = _list([_driver(driver, seen, lang) for driver in listed], lang)
        if not good:
            parts.append(say("drivers.raised" if sign > 0 else "drivers.lowered", lang, inputs=inputs))
        elif sign > 0:
            parts.append(say("drivers.for", lang, variant=plural(len(listed)), inputs=inputs))
        else:
            after = "then" if parts else plural(len(listed))
            parts.append(say("drivers.against", lang, variant=after, inputs=inputs))
    text = say("drivers.of", lang, name=f"{name[:1].upper()}{name[1:]}", parts=tuple(parts))
    if found.others:
        rest = number(found.rest, 2, signed=True)
        text = say("drivers.rest", lang, variant=plural(found.others), text=text, count=found.others, rest=rest)
    return say("end", lang, text=text)


def _remarked(name: str, remark: str, lang: str) -> str:
    """A name with a remark: in Chinese inside its brackets."""
    if lang == "en":
        return f"{name}, {remark}"
    return f"{name.removesuffix('）')}，{remark}）" if name.endswith("）") else f"{name}（{remark}）"


def _driver(driver: facts.Driver, seen: set[str], lang: str) -> str:
    reading = "" if driver.player.name in seen else _reading(driver.player, lang)
    name = input_name(driver.player.name, lang)
    return say("driver", lang, name=name, share=share(driver.share, driver.half), reading=reading)


def _reading(player: Player, lang: str) -> str:
    if not player.value:
        return ""
    value, usual = in_language(player.value, lang), in_language(player.usual, lang)
    return say("driver.now_usually" if usual else "driver.now", lang, value=value, usual=usual)


def _change(change: Change, lang: str) -> str:
    before, after = apart(change.before, change.after, unit_of(change.quantity, change.unit, lang))
    message = "flip.rises" if change.after > change.before else "flip.falls"
    return say(message, lang, quantity=quantity_of(change.player, change.quantity, lang), before=before, after=after)


def _list(parts: Sequence[str], lang: str, *, word: str = "and", mark: str = "、") -> str:
    """A, B and C; in Chinese all are set apart by the same mark."""
    if lang != "en":
        return mark.join(parts)
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {word} {parts[-1]}"


def _after_one_another(sentences: Sequence[str], lang: str) -> str:
    return (" " if lang == "en" else "").join(sentences)


def _percent(value: float, lang: str) -> str:
    return percent(value) if lang == "en" else percent(value).replace(" %", "%")


def _set(text: str, lang: str) -> str:
    return text if lang == "en" else spaced(text)
