"""The reasoning says what the numbers say: no uncertain driver, good and bad the right way round, in both languages."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.errors import ExplanationError
from attribution_sched.explain import facts
from attribution_sched.explain.explanation import COMPONENTS
from attribution_sched.explain.findings import Confidence, Counterfactual, Interaction, Rule
from attribution_sched.explain.reasoning import SECTIONS, headline, reasoning, sections
from attribution_sched.explain.wording import output_name
from tests.explain.factory import OTHER, PLAYERS, contrast, explanation, full, log_odds, some
from tests.explain.strategies import explanations, weights

LATIN = {
    "hi", "ppo", "d", "b", "c", "us", "east", "west", "eu", "GPU", "CPU", "dp", "tp", "pp", "BF", "Gb", "s", "ms",
    "R", "R_eff", "R_util", "R_cost", "Shapley",
}  # fmt: skip
"""What a Chinese text may hold in Latin letters: names, units and symbols."""


def sentence(text: str, output: str) -> str:
    """The sentence on the drivers of one output."""
    name = output_name(output)
    start = f"{name[:1].upper()}{name[1:]}"
    return next((part for part in re.split(r"(?<=\.) ", text) if part.startswith(start)), "")


@settings(deadline=None, max_examples=60)
@given(explanations(), st.sampled_from(["en", "zh"]), st.integers(1, 4))
def test_no_uncertain_input_is_ever_named(made, lang, most):
    text = reasoning(made, lang, most)
    certain = {made.names[i] for output in made.outputs for i in range(len(made.names)) if made.significant(output)[i]}
    named = {name for name in made.names if re.search(rf"\b{name}\b", text)}
    assert named <= certain
    for output in made.outputs:
        sure = {made.names[i] for i in made.drivers(output, sure=True)}
        assert {name for name in made.names if name in sentence(sections(made)["drivers"], output)} <= sure


@settings(deadline=None, max_examples=60)
@given(explanations())
def test_the_strongest_certain_input_is_named(made):
    text = sections(made)["drivers"]
    for output in made.outputs:
        found = facts.drivers(made, output, 3)
        if found.named:
            assert found.named[0].player.name in sentence(text, output)
        elif facts.idle(made, output):
            assert re.search(rf"No input moves .*{re.escape(output_name(output))}.* at all", text)
        else:
            assert re.search(rf"No input can be named as a driver of .*{re.escape(output_name(output))}", text)


@settings(deadline=None, max_examples=60)
@given(explanations(), weights)
def test_good_and_bad_are_the_right_way_round(made, w):
    if made.weights is not None:
        made = some(np.array(made.values[:, :3]), np.array(made.standard_error[:, :3]), weights=w)
    text = sections(made, most=9)["drivers"]
    for output in made.outputs:
        told = sentence(text, output)
        sign = {"R_cost": -1.0}.get(output, 1.0)
        counts = output not in COMPONENTS or w[COMPONENTS.index(output)] > 0
        ahead, _, behind = told.partition("against ")
        for driver in facts.drivers(made, output, 9).named:
            if counts:
                place = ahead if sign * driver.share > 0 else behind
            else:
                assert "of weight 0" in told
                ahead, _, behind = told.partition("lowered by")
                place = ahead if driver.share > 0 else behind
            assert re.search(rf"\b{driver.player.name} \(", place), (told, driver)


def test_shares_that_are_rounding_are_not_named():
    exact = some(np.array([[0.5], [1e-17]]), np.zeros((2, 1)), outputs=("log_odds",), target="log_odds", weights=None)
    assert exact.significant()[1]
    assert "input1q" not in reasoning(exact)
    assert "input0q" in reasoning(exact)
    assert "±" not in reasoning(exact)


def test_an_output_that_nothing_moves_is_told():
    still = explanation(values=np.zeros((11, 3)), standard_error=np.zeros((11, 3)))
    assert sections(still)["drivers"].startswith("No input moves reward (R), speed (R_eff)")
    assert sections(still, "zh")["drivers"].endswith("不受任何输入影响。")
    assert "at all" not in reasoning(explanation(values=np.zeros((11, 3))))


def test_everything_found_is_told():
    told = sections(full())
    assert tuple(told) == SECTIONS
    assert "chose us-east ×8 GPUs" in told["decision"]
    assert "probability 81 %" in told["decision"]
    assert "the likeliest other choice that was met is us-east ×16" in told["decision"]
    assert "(12 %)" in told["decision"]
    assert "reward (R) is 0.511 against 0.255 on average (+0.256, better)" in told["worth"]
    assert "R = 1·R_eff + 0.5·R_util − 0.3·R_cost" in told["worth"]
    assert "link us-east–eu-west (+0.203 ± 0.015; 9.1 Gb/s, 38 ms, usually 3.4 Gb/s)" in told["drivers"]
    assert "Cost (R_cost), where less is better: for the choice speaks load us-east (−0.058" in told["drivers"]
    assert "the other 8 inputs come to" in told["drivers"]
    assert "link us-east–eu-west and load eu-west change reward (R) by +0.041 ± 0.012" in told["interaction"]
    assert "bandwidth (link us-east–eu-west) stays above 4.6 Gb/s (it was 9.1 Gb/s); below that" in told["rule"]
    assert "that other plan" in told["rule"]
    assert "from 9.1 Gb/s to 5.2 Gb/s" in told["counterfactual"]
    assert "0.83 standard deviations" in told["counterfactual"]
    assert "checked by running the policy" in told["counterfactual"]
    assert "12,288 situations over 512 background states (journal), seed 7" in told["method"]
    assert reasoning(full()) == " ".join(told.values())
    assert headline(full()) == told["decision"]


def test_components_against_the_mean_know_better_from_worse():
    dearer = explanation(value=np.array([0.1, 0.5, 0.9]), values=np.zeros((11, 3)))
    told = sections(dearer)["worth"]
    assert re.search(r"speed \(R_eff\) is 0.100 against 0.120 on average \(−0.02, worse\)", told)
    assert re.search(r"cost \(R_cost\) is 0.900 against 0.350 on average \(\+0.55, worse\)", told)
    zh = sections(dearer, "zh")["worth"]
    assert "成本（R_cost）为 0.900，比背景均值 0.350 高 0.55（更差）" in zh
    unweighted = explanation(weights=(1.0, 0.0, 0.3))
    assert "of weight 0" in sections(unweighted)["worth"]
    assert "权重为 0" in sections(unweighted, "zh")["worth"]


def test_a_contrast_names_the_other_plan_once():
    text = reasoning(contrast())
    assert text.count(OTHER) == 1
    assert "rather than us-east ×16" in text
    assert "as the difference between the two plans" in text
    assert "而非方案" in reasoning(contrast(), "zh")


def test_methods_are_never_hidden():
    sampled = log_odds(method="kernel", converged=False, notes=("masks are frozen at the decision",))
    text = reasoning(sampled)
    assert "precision asked for was not reached" in text
    assert "do not split into reward components" in text
    assert "Masks are frozen at the decision." in text
    zh = reasoning(sampled, "zh")
    for words in ("未达到所要求的精度", "不能拆分为各奖励分量", "masks are frozen"):
        assert words in zh
    plain = reasoning(full())
    assert "not reached" not in plain
    assert "do not split" not in plain


def test_waiting_and_tasks_are_said_naturally():
    waits = explanation(subject="gpt-24: wait", confidence=Confidence(0.6, OTHER, 0.3))
    assert headline(waits).startswith(
        "Decision d-0017 (gpt-24): hi-ppo chose to wait (probability 60 %); the likeliest other choice that was met is"
    )
    assert headline(waits, "zh").startswith(
        "决策 d-0017（gpt-24）：策略 hi-ppo 选择等待（概率 60%），所见其他选择中最可能的是方案「us-east"
    )
    keeps = explanation(subject="keep the plan", against=OTHER)
    assert "chose to keep the plan, rather than" in headline(keeps)
    flips = full(rules=(Rule("queue", "tasks waiting", "tasks", 3, 2, "above", "wait"),))
    assert "the policy would choose to wait" in sections(flips)["rule"]
    assert headline(explanation(subject="")) == "Decision d-0017: hi-ppo decided."


def test_only_certain_interactions_are_named():
    weak = full(interactions=(Interaction("queue", "time of day", "R", 0.004, 0.006),))
    assert "interaction" not in sections(weak)
    assert "interaction" in sections(full())
    small = full(interactions=(Interaction("queue", "time of day", "R", 1e-6, 1e-9),))
    assert "interaction" not in sections(small)


def test_an_unverified_flip_says_so():
    flip = Counterfactual(full().counterfactual.changes, 1.0, OTHER, False)
    assert "1 standard deviation of" in sections(full(counterfactual=flip))["counterfactual"]
    assert "not yet checked" in sections(full(counterfactual=flip))["counterfactual"]
    assert "尚未运行策略验证" in sections(full(counterfactual=flip), "zh")["counterfactual"]


@pytest.mark.parametrize("make", [explanation, full, contrast, log_odds])
def test_chinese_is_chinese(make):
    made = make(method="kernel", converged=False)
    text = reasoning(made, "zh")
    left = {word for word in re.findall(r"[A-Za-z_]+", text) if word not in LATIN}
    assert not left
    # Full-width marks beside Chinese; a comma or a point may only stand inside a number.
    assert not re.search(r"[\u4e00-\u9fff][,;:()!?.]|[,;:()!?](?=[\u4e00-\u9fff\s])", text)
    assert not re.search(r"[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9][\u4e00-\u9fff]", text)
    assert text.endswith("。")


def test_chinese_knows_good_from_bad():
    text = sections(full(), "zh")["drivers"]
    cost = text[text.index("成本") :]
    assert "越低越好" in cost
    ahead, _, behind = cost.partition("不利的有")
    assert "us-east 负载（−0.058" in ahead
    assert "链路 us-east–eu-west（+0.031" in behind


def test_length_follows_most():
    assert len(reasoning(full(), most=1)) < len(reasoning(full(), most=3))
    with pytest.raises(ExplanationError, match="most = 0"):
        reasoning(full(), most=0)
    with pytest.raises(ExplanationError, match="lang = 'de'"):
        reasoning(full(), "de")


def test_inputs_without_readings_are_named_bare():
    bare = replace(full(), players=tuple(replace(player, value="", usual="") for player in PLAYERS))
    assert "link us-east–eu-west (+0.203 ± 0.015)" in reasoning(bare)
