"""Explanations survive the way through JSON, and files that are wrong are refused."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.findings import Confidence, Player
from attribution_sched.explain.reasoning import reasoning
from tests.explain.factory import OTHER, PLAYERS, contrast, explanation, full, log_odds
from tests.explain.strategies import explanations


def same(one: object, other: object) -> bool:
    """Equal, where NaN equals NaN."""
    if is_dataclass(one):
        told = [f.name for f in fields(one) if f.compare]
        return type(one) is type(other) and all(same(getattr(one, name), getattr(other, name)) for name in told)
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other, equal_nan=True)) and one.shape == other.shape
    if isinstance(one, tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return one == other or (one != one and other != other)


def there_and_back(made: Explanation) -> Explanation:
    return Explanation.from_dict(json.loads(json.dumps(made.to_dict(), allow_nan=False)))


@pytest.mark.parametrize("make", [explanation, full, contrast, log_odds])
def test_nothing_is_lost(make):
    made = make()
    assert same(there_and_back(made), made)


@settings(deadline=None, max_examples=40)
@given(explanations())
def test_random_explanations_survive(made):
    assert same(there_and_back(made), made)


def test_nan_survives_as_null():
    made = full(confidence=Confidence(0.5))
    made = replace(made, players=(Player("bare", "input"), *PLAYERS[1:]), value=np.full(4, np.nan))
    assert made.to_dict()["players"][0]["number"] is None
    back = there_and_back(made)
    assert np.isnan(back.players[0].number)
    assert np.isnan(back.value).all()
    assert np.isnan(back.confidence.agreement)


def test_findings_with_unknown_numbers_survive():
    nan = float("nan")
    flip = replace(full().counterfactual, size=nan, changes=(replace(full().counterfactual.changes[0], after=nan),))
    made = full(
        rules=(replace(full().rules[0], threshold=nan),),
        interactions=(replace(full().interactions[0], standard_error=nan),),
        counterfactual=flip,
    )
    assert same(there_and_back(made), made)


def test_the_comparison_can_fail():
    assert not same(explanation(), explanation(noise=0.1))
    assert not same(full(), explanation())


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda d: d | {"valus": 1}, "Did you mean 'value"),
        (lambda d: {k: v for k, v in d.items() if k != "base"}, "cannot be read"),
        (lambda d: d | {"values": [[1.0]]}, "cannot be read"),
        (lambda d: d | {"players": [{"nam": "x"}] * 11}, "cannot be read"),
        (lambda d: d | {"values": "many"}, "cannot be read"),
        (lambda d: d | {"target": "nothing"}, "is not known"),
    ],
)
def test_wrong_files_are_refused(spoil, said):
    with pytest.raises(ExplanationError, match=said):
        Explanation.from_dict(spoil(explanation().to_dict()))


def test_phrases_are_kept_and_older_records_stay_readable():
    made = full()
    again = there_and_back(made)
    assert reasoning(again, "zh") == reasoning(made, "zh")
    assert "块空闲设备" in reasoning(again, "zh")
    older = {name: value for name, value in made.to_dict().items() if name != "phrases"}
    read = Explanation.from_dict(older)
    assert reasoning(read) == reasoning(made)
    assert "free devices" in reasoning(read, "zh")
    assert made.to_dict()["players"][2]["value"] == "24 free devices, 25 % busy"
    newer = made.to_dict() | {"phrases": {OTHER: {"message": "plan.of_tomorrow", "values": {}}}}
    assert OTHER in reasoning(Explanation.from_dict(newer), "zh")
    for spoilt in (
        {OTHER: {}},
        {OTHER: {"message": "queue.behind"}},
        {OTHER: {"message": "queue.behind", "values": {}}},
    ):
        with pytest.raises(ExplanationError):
            Explanation.from_dict(made.to_dict() | {"phrases": spoilt})
