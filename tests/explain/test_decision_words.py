"""The default explanation in sentences: short, with units, and never a contrast with itself."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from attribution_sched import System
from attribution_sched.explain import facts
from attribution_sched.explain.findings import OTHERS
from attribution_sched.explain.reasoning import _room, headline, reasoning, sections
from attribution_sched.explain.wording import short_plan, task_and_plan
from attribution_sched.words.say import Phrase

FREE = r"(\d+) free in \S+ instead of (\d+)"

SORTS = ("place", "wait", "keep", "move")


@cache
def told(policy: str) -> dict[str, list]:
    """Explanations of some decisions of each sort, on the world whose models must be cut."""
    system = System("cross-domain", policy, seed=23)
    system.run(8)
    found: dict[str, list] = {sort: [] for sort in SORTS}
    for each in system.journal.decisions():
        decided = system.questions.recall(each.id)
        acts, again = decided.plan is not None, decided.view.replanning
        sort = ("move" if acts else "keep") if again else ("place" if acts else "wait")
        if len(found[sort]) < 2:
            found[sort].append(system.explain(each.id))
    return found


@pytest.mark.parametrize("policy", ["hi-ppo[quick]", "sjf"])
def test_every_sentence_can_be_forwarded(policy):
    for sort, group in told(policy).items():
        for one in group:
            text = reasoning(one)
            before = " ".join(part for name, part in sections(one).items() if name != "method")
            assert len(before.split()) <= 80, (sort, before)
            for sentence in re.split(r"(?<=[.])\s", text):
                assert len(sentence.split()) <= 25, sentence
            # No bare number against a bare number, no output's private name, no player that is a heap of others.
            for wrong in ("against 0.00", "log-odds", "on average", "1.00", OTHERS, "–"):
                assert wrong not in before.replace("us–", "").replace("link ", "") or wrong == "–", (wrong, before)
            # More room than usual makes a plan fit, and less makes nothing fit; the reverse is no reason.
            for claim in re.findall(r"fits thanks to (.*?)\.(?:\s|$)", text):
                assert all(int(now) > int(usual) for now, usual in re.findall(FREE, claim)), claim
            for claim in re.findall(r"No plan fits now: (.*?)\.(?:\s|$)", text):
                assert all(int(now) < int(usual) for now, usual in re.findall(FREE, claim)), claim
            assert headline(one) == sections(one)["decision"]
            assert one.decision in reasoning(one, "zh") and "。" in reasoning(one, "zh")
    assert any(told(policy).values())


def test_less_room_than_usual_is_no_reason_why_a_plan_fits():
    one = next(each for group in told("hi-ppo[quick]").values() for each in group)
    load = next(player for player in one.players if player.group == "load" and "free" in player.value.values)
    values = load.value.values

    def reading(free):
        return replace(load, value=Phrase("reading.load", **{**values, "free": free}), usual=usual)

    usual = Phrase("reading.load", **{**values, "free": 3})
    assert "instead" not in _room(reading(2), "en", 1) and "2 free" in _room(reading(2), "en", 1)
    assert "4 free" in _room(reading(4), "en", 1) and "instead of 3" in _room(reading(4), "en", 1)
    assert "instead" not in _room(reading(4), "en", -1) and "而非" in _room(reading(2), "zh", -1)


def test_what_it_would_have_done_otherwise_is_something_else():
    for group in told("hi-ppo[quick]").values():
        for one in group:
            own = task_and_plan(one.subject)[1]
            if one.against:
                assert short_plan(one.against, "en") != short_plan(own, "en") or str(one.against) == str(own) == ""
                assert "therwise it would have" in reasoning(one) or "situations it would have" in reasoning(one)


def test_only_certain_drivers_are_named_with_both_readings():
    one = next(e for e in told("hi-ppo[quick]")["place"] if e.against)
    certain = {d.player.name for output in one.outputs for d in facts.drivers(one, output, 99).named}
    text = sections(one)["drivers"]
    for player in one.players:
        if player.group == "load" and f"free in {player.name.removeprefix('load ')}" in text:
            assert player.name in certain
    # With every interval wide open nothing is named.
    blind = replace(one, standard_error=one.standard_error + 1e6)
    assert "What decided it" not in reasoning(blind) and "No single input decided it" in reasoning(blind)


def test_devices_that_the_plan_takes_are_players_of_their_own():
    """What gives a plan its room is never hidden among the inputs that hardly move the preference."""
    for one in told("hi-ppo[quick]")["place"]:
        if "fits" in one.outputs and one.base[one.column("fits")] < 1.0 and OTHERS in one.names:
            hidden = one.values[one.names.index(OTHERS), one.column("fits")]
            gap = one.value[one.column("fits")] - one.base[one.column("fits")]
            assert abs(hidden) < 0.5 * abs(gap) or any(p.group == "load" for p in facts_players(one))


def facts_players(one):
    return [driver.player for driver in facts.drivers(one, "fits", 9).named]
