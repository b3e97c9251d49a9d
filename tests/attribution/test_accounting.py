"""Accounting: the axioms of baseline Shapley values from idle, and no joule counted twice."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays

from attribution_sched.attribution.accounting import GROUPS, from_idle, settle
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.errors import CounterError, ModelFitError

ROWS = arrays(np.float64, (3, 7), elements=some.one_of(some.just(0.0), some.floats(1e-3, 10.0)))


def odd(x):
    """An energy that no additive model gives: products, maxima, steps, and something for the idle machine."""
    return 3.0 + np.maximum(x[:, 0], x[:, 4]) + x[:, 1] * x[:, 2] * x[:, 5] + np.hypot(x[:, 3], x[:, 6]) + (x[:, 5] > 1)


def by_permutations(f, x):
    """The definition: every order of arrival."""
    found = np.zeros(len(x))
    for order in itertools.permutations(range(len(x))):
        there, before = np.zeros(len(x)), f(np.zeros((1, len(x))))[0]
        for j in order:
            there[j] = x[j]
            now = f(there[None])[0]
            found[j] += now - before
            before = now
    return found / math.factorial(len(x))


@given(ROWS)
@settings(max_examples=40, deadline=None)
def test_parts_and_idle_are_the_whole_and_what_reads_nothing_gets_exactly_nothing(x):
    parts, idle, whole = from_idle(odd, x)
    np.testing.assert_allclose(parts.sum(axis=1) + idle, whole, rtol=1e-12)
    assert (parts[x == 0.0] == 0.0).all() and (idle == 3.0).all()
    assert (parts >= -1e-12).all(), "a model that rises with every counter takes nothing back"


def test_they_are_shapleys():
    x = np.array([[1.0, 2.0, 0.5, 3.0, 4.0, 1.5, 0.0]])
    np.testing.assert_allclose(from_idle(odd, x)[0][0], by_permutations(odd, x[0]), rtol=1e-12)


def test_no_joule_counts_twice():
    """The seven are players of one game: two counters that say the same share one bill, and margins add up to it."""
    x = np.array([[2.0, 0.0, 5.0, 0.0, 0.0, 5.0, 0.0]])

    def witnessed_twice(rows):
        # Memory traffic and the operator that caused it: the meter ran once.
        return 1.0 + 10.0 * np.maximum(rows[:, 2], rows[:, 5]) + rows[:, 0]

    parts, idle, whole = from_idle(witnessed_twice, x)
    assert parts[0, 2] == pytest.approx(25.0) and parts[0, 5] == pytest.approx(25.0)
    account = settle(parts, idle, DEMAND_NAMES, metered=np.array([60.0]))
    margins = account.margins()
    assert sorted(itertools.chain(*GROUPS.values())) == sorted(DEMAND_NAMES)
    assert sum(m[0] for m in margins.values()) + idle[0] == pytest.approx(whole[0]) == account.predicted[0]
    assert account.unattributed[0] == pytest.approx(60.0 - whole[0])
    assert account.metered[0] == pytest.approx(60.0)
    # Counting each view by itself would bill more than there was.
    alone = sum(witnessed_twice(np.eye(7)[j] * x)[0] - 1.0 for j in range(7))
    assert alone > whole[0] - idle[0] + 40.0


@pytest.mark.parametrize("bad", [np.nan, -1.0, np.inf])
def test_a_counter_that_is_no_reading_is_refused(bad):
    with pytest.raises(CounterError, match="needs every counter"):
        from_idle(odd, np.array([[1.0, bad, 1.0, 1.0, 1.0, 1.0, 1.0]]))


def test_a_model_that_gives_no_joules_is_refused():
    with pytest.raises(ModelFitError, match="128 finite joules"):
        from_idle(lambda x: np.full(len(x), np.nan), np.ones((1, 7)))
