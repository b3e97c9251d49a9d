"""Means over futures: orders agree with enumeration, and every future counts once."""

import numpy as np
import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.shapley.exact import codes_of
from attribution_sched.shapley.futures import estimate_futures
from tests.shapley.games import by_orders

NAMES = ("a", "b", "c", "d", "e")


def drawn(d=5, futures=40, seed=0):
    """Tables (F, 2^d, 2) of games that differ by the future, their full coalitions too."""
    return np.random.default_rng(seed).normal(size=(futures, 1 << d, 2)) + np.arange(1 << d)[:, None] / (1 << d)


def played(tables, asked=None, **how):
    def value(masks, numbers):
        if asked is not None:
            asked.append((len(masks), len(numbers)))
        return tables[numbers[None, :], codes_of(masks)[:, None]]

    return estimate_futures(value, NAMES[: tables.shape[1].bit_length() - 1], ("u", "v"), len(tables), **how)


def test_enumeration_is_the_mean_of_every_future():
    tables = drawn()
    found = played(tables, exact=True)
    each = np.stack([by_orders(table) for table in tables])
    np.testing.assert_allclose(found.values, each.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.standard_error, each.std(axis=0, ddof=1) / np.sqrt(40), rtol=1e-9)
    np.testing.assert_allclose(found.full, tables[:, -1].mean(axis=0))
    np.testing.assert_allclose(found.full_error, tables[:, -1].std(axis=0, ddof=1) / np.sqrt(40))
    assert found.exact and found.evaluations == 40 * 32 and found.freedom == 39


def test_orders_agree_with_enumeration_within_their_interval():
    inside = []
    for seed in range(30):
        tables = drawn(futures=25, seed=seed) + 0.3 * drawn(futures=1, seed=99)
        truth = by_orders(np.arange(32)[:, None] / 32 + 0.3 * drawn(futures=1, seed=99)[0])
        low, high = played(tables, exact=False, seed=seed).interval()
        inside.append((low <= truth) & (truth <= high))
    assert 0.90 <= np.mean(inside) <= 0.99


@pytest.mark.parametrize(("futures", "shape"), [(40, "one coalition"), (4, "one future")])
def test_coalitions_are_asked_for_once_a_future(futures, shape):
    asked = []
    found = played(drawn(futures=futures), asked, exact=False, pairs=2)
    assert sum(n * k for n, k in asked) == found.evaluations <= futures * (2 * 2 * 4 + 2)
    assert all((n if shape == "one coalition" else k) == 1 for n, k in asked)
    assert not found.exact and found.method == "permutation"


def test_however_it_is_asked_for_the_answer_is_the_same():
    tables = drawn(futures=12)
    many = played(tables, exact=False, seed=3)
    few = [played(tables[:4], exact=False, seed=3), played(tables[:8], exact=False, seed=3)]
    # The first futures have the same orders, however many follow.
    np.testing.assert_allclose(many.base, tables[:, 0].mean(axis=0))
    assert not np.allclose(few[0].values, few[1].values)


def test_nobody_and_a_single_future():
    found = played(drawn(d=0, futures=3), exact=True)
    assert found.values.shape == (0, 2) and np.allclose(found.full, found.base)
    assert np.isinf(played(drawn(futures=1), exact=True).standard_error).all()


@pytest.mark.parametrize("wish", [{"pairs": 0}, {"futures": 0}])
def test_bad_input_is_one_clear_error(wish):
    with pytest.raises(ExplanationError, match=f"{next(iter(wish))} = 0"):
        estimate_futures(None, NAMES, ("u",), **({"futures": 2, "exact": False} | wish))
