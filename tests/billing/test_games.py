"""Cost games: exact against brute force, axioms, the core, sampled shares and their intervals."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from attribution_sched.billing.games import co_location, congestion, from_table, peak_capacity
from attribution_sched.errors import ExplanationError, SettingsError
from attribution_sched.shapley.exact import all_coalitions, shapley_matrix


def brute_force(profile):
    """Mean marginal peak over all orders."""
    players = len(profile)
    shares, orders = np.zeros(players), list(permutations(range(players)))
    for order in orders:
        before = 0.0
        for stop in range(1, players + 1):
            now = profile[list(order[:stop])].sum(axis=0).max()
            shares[order[stop - 1]] += now - before
            before = now
    return shares / len(orders)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 12))
def test_peak_capacity_is_the_mean_marginal_peak_over_all_orders(seed, players, times):
    profile = np.random.default_rng(seed).integers(0, 9, (players, times)).astype(float)
    shares = peak_capacity(profile)
    assert np.allclose(shares.values, brute_force(profile), atol=1e-12)
    assert shares.exact and np.isclose(shares.values.sum(), shares.total)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 9))
def test_axioms_of_the_peak_game(seed, players):
    rng = np.random.default_rng(seed)
    profile = rng.integers(0, 9, (players, 7)).astype(float)
    profile[0] = 0.0
    profile[-1] = profile[-2]
    shares = peak_capacity(profile)
    assert shares.values[0] == 0.0  # dummy: who holds nothing pays nothing
    assert np.isclose(shares.values[-1], shares.values[-2])  # symmetry
    assert (shares.values >= -1e-12).all() and (shares.values <= profile.max(axis=1) + 1e-12).all()  # subadditive


def test_a_table_agrees_with_the_matrix_of_all_coalitions():
    rng = np.random.default_rng(3)
    values = rng.normal(size=2**9)
    values[0] = 0.0
    assert np.allclose(from_table(values).values, values @ shapley_matrix(9))


def test_the_core_is_looked_at_coalition_by_coalition():
    """Two who never meet at the peak would leave: it is said who, and by how much."""
    profile = np.array([[4.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 4.0]])
    shares = peak_capacity(profile)
    assert shares.in_core and np.allclose(shares.values, 4.0 / 3.0)
    lonely = np.array([[2.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    found = peak_capacity(lonely)
    table = np.array([(lonely * mask[:, None]).sum(axis=0).max() for mask in all_coalitions(3)])
    worst = max(found.values[mask].sum() - cost for mask, cost in zip(all_coalitions(3), table, strict=True))
    assert np.isclose(found.excess, worst)
    assert found.in_core == (worst <= 1e-9)


@given(st.integers(0, 500))
def test_who_pays_by_what_it_holds_at_the_peak_is_in_the_core(seed):
    """The core is never empty: the check itself finds a point of it."""
    profile = np.random.default_rng(seed).integers(0, 9, (6, 10)).astype(float)
    at_peak = profile[:, np.argmax(profile.sum(axis=0))]
    table = np.array([(profile * mask[:, None]).sum(axis=0).max() for mask in all_coalitions(6)])
    assert (all_coalitions(6) @ at_peak <= table + 1e-9).all()


@given(st.integers(0, 500), st.integers(2, 7))
def test_co_location_has_a_closed_form(seed, players):
    rng = np.random.default_rng(seed)
    alone, extra = rng.uniform(1, 5, players), rng.normal(size=(players, players))
    extra = np.triu(extra, 1) + np.triu(extra, 1).T
    masks = all_coalitions(players).astype(float)
    table = masks @ alone + np.einsum("mi,ij,mj->m", masks, np.triu(extra, 1), masks)
    assert np.allclose(co_location(alone, extra), from_table(table).values)


def test_congestion_is_exact_for_few_and_sampled_for_many():
    weights = np.arange(1.0, 13.0)

    def waited(masks):
        return (masks @ weights) ** 2 / 10.0

    few = congestion(6, lambda masks: waited(np.pad(masks, ((0, 0), (0, 6)))), evaluations=64)
    assert few.exact and few.evaluations == 64
    many = congestion(12, lambda masks: np.sqrt(waited(masks)) ** 1.3, evaluations=1000, seed=1)
    truth = from_table(np.sqrt(waited(all_coalitions(12))) ** 1.3)
    assert not many.exact and np.isclose(many.values.sum(), truth.total)
    assert many.evaluations <= 1000 and np.abs(many.values - truth.values).max() < 0.01 * truth.total
    assert (np.abs(many.values - truth.values) <= 3.0 * many.half_width + 1e-9).all()
    with pytest.raises(ExplanationError, match="at least 131"):
        congestion(12, waited, evaluations=100)


def test_sampled_shares_cover_the_exact_ones():
    """95 % intervals of sampled shares, over games small enough to be exact."""
    inside, deviations = [], []
    for seed in range(6):
        rng = np.random.default_rng([seed, 7])
        profile = (rng.poisson(3.0, (16, 48)) * (rng.random((16, 48)) < rng.random((16, 1)))).astype(float)
        exact = peak_capacity(profile)
        found = peak_capacity(profile, exact_limit=0, seed=seed)
        pays = exact.values > 0
        off = np.abs(found.values - exact.values)[pays]
        inside.append(off <= found.half_width[pays])
        deviations.append(off / exact.values[pays])
    assert 0.90 <= np.concatenate(inside).mean() <= 0.98
    assert np.concatenate(deviations).mean() <= 0.02 and np.concatenate(deviations).max() <= 0.10


@pytest.mark.parametrize("bad", [np.full((2, 3), -1.0), np.full((2, 3), np.nan), np.zeros(3)])
def test_a_profile_that_is_none_is_refused(bad):
    with pytest.raises(SettingsError, match="profile"):
        peak_capacity(bad)


def test_too_few_orders_are_refused():
    with pytest.raises(SettingsError, match="orders = 7"):
        peak_capacity(np.ones((30, 2)), orders=7)


def two_crowds(one, other):
    """Exact shares of ``one`` tenants of a device at one hour and ``other`` at another, and of a tiny one at the first.

    Of a coalition of s others so many are of the first crowd with the chance of an urn, so nothing is sampled.
    """
    n, tiny = one + other + 1, 1e-3
    small = first = second = 0.0
    for s in range(n):
        # The tiny tenant joins: it adds where the first hour is the higher one, or as high.
        a = np.arange(max(0, s - other), min(one, s) + 1)
        small += tiny * hypergeom.pmf(a, one + other, one, s)[a >= s - a].sum()
        for own in (0, 1):
            # One of the first crowd joins (own 0), or one of the second (own 1): the tiny one is in or out.
            theirs = other if own == 0 else other - 1
            mine = one - 1 if own == 0 else one
            for there in (0, 1):
                k = s - there
                if k < 0 or k > n - 2:
                    continue
                chance_there = s / (n - 1) if there else 1.0 - s / (n - 1)
                a = np.arange(max(0, k - theirs), min(mine, k) + 1)
                chance = chance_there * hypergeom.pmf(a, n - 2, mine, k)
                high, low = a + tiny * there, k - a
                added = np.maximum(high + (own == 0), low + (own == 1)) - np.maximum(high, low)
                if own == 0:
                    first += float(chance @ added)
                else:
                    second += float(chance @ added)
    return first / n, second / n, small / n


def test_a_thousand_tenants_are_near_what_an_urn_says_exactly():
    """Also the tenant with a thousandth of a device, whose share is the smallest."""
    one, other = 520, 479
    profile = np.zeros((1000, 2))
    profile[:one, 0], profile[one : one + other, 1], profile[-1, 0] = 1.0, 1.0, 1e-3
    exact = two_crowds(one, other)
    assert one * exact[0] + other * exact[1] + exact[2] == pytest.approx(one + 1e-3, rel=1e-9)
    found = peak_capacity(profile, orders=4096)
    truth = np.repeat(exact, [one, other, 1])
    assert found.values.sum() == pytest.approx(found.total, rel=1e-12)
    far = np.abs(found.values - truth) / truth
    assert far.mean() < 0.02 and far.max() < 0.10
    assert 0.88 < (np.abs(found.values - truth) <= found.half_width).mean() <= 1.0


def test_a_tenant_that_holds_nothing_pays_nothing_and_equals_pay_alike():
    rng = np.random.default_rng(4)
    profile = rng.integers(0, 3, (30, 12)).astype(float)
    profile[7] = 0.0
    profile[9] = profile[8]
    found = peak_capacity(profile, orders=2048)
    assert found.values[7] == 0.0 and found.half_width[7] == 0.0
    assert abs(found.values[8] - found.values[9]) <= found.half_width[8] + found.half_width[9]
