"""Which drivers changed: paired where decisions are the same, silent where nothing is certain."""

from __future__ import annotations

import re
from dataclasses import replace

import matplotlib
import numpy as np
import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.comparison import compare
from tests.explain.factory import episode, explanation, log_odds

matplotlib.use("Agg")


def stronger(listed, name="link us-east–eu-west", factor=1.5):
    """The same explanations with one player's shares scaled."""
    return [
        replace(one, values=one.values * np.where(np.array(one.names) == name, factor, 1.0)[:, None]) for one in listed
    ]


def test_the_same_decisions_are_paired_in_any_order():
    before = episode(20)
    found = compare(before, stronger(before)[::-1])
    assert found.paired
    assert [one.decision for one in found.before] == [one.decision for one in found.after]
    changes = found.changes("R_eff")
    assert changes.names[0] == "link us-east–eu-west"
    np.testing.assert_array_equal(changes.certain, [True] + [False] * 10)
    assert changes.size[0] == pytest.approx(changes.before[0] * 0.5)


def test_a_pairing_sees_what_two_samples_do_not():
    before = episode(25)
    after = stronger(before, factor=1.05)
    assert compare(before, after).changes("R_eff").certain[0]
    assert not compare(before, after, paired=False).changes("R_eff").certain[0]


def test_other_decisions_are_compared_as_two_samples():
    found = compare(episode(30), stronger(episode(30, seed=1, start=100), factor=3.0))
    assert not found.paired
    changes = found.changes()
    at = changes.names.index("link us-east–eu-west")
    assert changes.certain[at]
    assert changes.size_low[at] > 0


def test_a_part_of_the_decisions_is_paired_if_it_is_all_of_one_side():
    before = episode(12)
    assert len(compare(before, stronger(before[:8])).before) == 8
    assert not compare(before, [*before[:8], *episode(3, start=90)]).paired
    assert len(compare(before, [*before[:8], *episode(3, start=90)], paired=True).after) == 8


def test_nothing_changed_is_said():
    before, after = episode(30), episode(30, seed=2, start=500)
    quiet = compare(before, before)
    assert not quiet.changes().certain.any()
    assert "no input's influence on reward (R) changed for certain" in quiet.sentence()
    assert "没有可以确认的变化" in quiet.sentence("zh")
    names = [name for name in before[1].names if name in compare(before, after).sentence(most=99)]
    changes = compare(before, after).changes()
    assert set(names) == {name for name, sure in zip(changes.names, changes.certain, strict=True) if sure}


def test_false_alarms_are_rare():
    alarms = [
        compare(episode(24, seed=s), episode(24, seed=s + 50, start=99), resamples=300).changes("R_eff").certain.mean()
        for s in range(12)
    ]
    assert np.mean(alarms) < 0.12


def test_sentences_name_gains_and_losses():
    before = episode(20)
    found = compare(before, stronger(stronger(before), "load us-east", 0.4))
    text = found.sentence()
    assert re.search(r"link us-east–eu-west gained influence \(mean size 0\.\d+ → 0\.\d+; change \+", text)
    assert re.search(r"load us-east lost influence .*change −", text)
    zh = found.sentence("zh")
    assert "链路 us-east–eu-west 的影响增强" in zh
    assert "us-east 负载的影响减弱" in zh
    assert not set(re.findall(r"[A-Za-z_]+", zh)) - {"us", "east", "eu", "west", "R"}


def test_few_decisions_claim_nothing():
    before = episode(3)
    assert not compare(before, stronger(before, factor=9.0)).changes().certain.any()


def test_a_frame_has_every_output():
    frame = compare(episode(8), stronger(episode(8))).to_frame()
    assert set(frame.index.get_level_values("output")) == {"R_eff", "R_util", "R_cost", "R"}
    assert bool(frame.loc[("R_eff", "link us-east–eu-west"), "certain"])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: compare([], episode(2)), "at least one"),
        (lambda: compare(episode(2), [log_odds()]), "one and the same"),
        (lambda: compare(episode(2), episode(2, start=9), paired=True), "is not on both sides"),
        (lambda: compare([explanation()] * 2, [explanation()], paired=True), "is there twice"),
        (lambda: compare(episode(2), episode(2)).changes("Reff"), "is not shared by all"),
        (lambda: compare(episode(2), episode(2)).sentence("xx"), "lang"),
    ],
)
def test_mistakes_are_told(call, said):
    with pytest.raises(ExplanationError, match=said):
        call()
