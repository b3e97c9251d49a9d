"""Reasons name inputs and write shares as their language does."""

from __future__ import annotations

import pytest

from attribution_sched.feedback.words import blame_reason, coupling_words


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        ("attribution fc", "93.9% 来自归因·全连接算子）"),
        ("load eu", "93.9% 来自 eu 负载）"),
        ("mine", "93.9% 来自 mine）"),
    ],
)
def test_inputs_are_named_in_both_languages(driver, words):
    english, chinese = coupling_words("R_eff", "R_cost", 0.5, driver, 0.939)
    assert f"93.9 % of it by {driver})" in english
    assert words in chinese


def test_a_reason_that_begins_with_an_input():
    english, chinese = blame_reason("queue", "R_eff", 1.0, 0.7)
    assert english.startswith("queue argued through R_eff")
    assert chinese.startswith("队列通过 R_eff ")
    assert blame_reason("mine", "R_eff", 1.0, 0.7)[1].startswith("mine 通过 R_eff ")
