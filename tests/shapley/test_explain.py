"""Budgets, stopping, determinism and refusals of the front door."""

import time

import numpy as np
import pytest

from attribution_sched.errors import ExplanationError, SettingsError
from attribution_sched.shapley.budget import QUICK_ROWS, STANDARD_ROWS
from attribution_sched.shapley.explain import estimate, estimate_many
from attribution_sched.shapley.game import FunctionGame
from attribution_sched.shapley.regression import least_pairs
from attribution_sched.stats.interval import half_width
from tests.shapley.games import StateGame


def same(one, two):
    fields = ("values", "standard_error", "base", "base_error", "full")
    return (
        all(getattr(one, f).tobytes() == getattr(two, f).tobytes() for f in fields)
        and one.evaluations == two.evaluations
    )


@pytest.mark.parametrize("method", ["exact", "permutation", "kernel"])
def test_the_same_seed_gives_the_same_bytes_with_any_chunk(method):
    rows = None if method == "exact" else 3000
    first = estimate(StateGame(), method=method, budget_rows=rows, seed=5)
    assert same(first, estimate(StateGame(), method=method, budget_rows=rows, seed=5))
    for chunk in (1, 7, 100, 1 << 20):
        game = StateGame()
        assert same(first, estimate(game, method=method, budget_rows=rows, seed=5, chunk=chunk))
        assert max(game.calls) <= chunk
    if method != "exact":
        assert not same(first, estimate(StateGame(), method=method, budget_rows=rows, seed=6))


def test_a_precision_stop_does_not_depend_on_the_chunk():
    first = estimate(StateGame(states=1500), precision=0.1)
    assert same(first, estimate(StateGame(states=1500), precision=0.1, chunk=33))


def test_auto_takes_what_the_budget_allows():
    assert estimate(StateGame(d=6, states=20)).method == "exact"
    assert estimate(StateGame(d=12, states=20)).method == "kernel"
    assert estimate(StateGame(d=12, states=2000)).method == "permutation"
    assert estimate(StateGame(d=12, states=20), precision=0.5).method == "permutation"
    assert estimate(StateGame(d=6, states=20), budget_rows=300).method == "permutation"


def test_named_budgets_are_kept():
    for name, rows in (("quick", QUICK_ROWS), ("standard", STANDARD_ROWS)):
        game = StateGame(d=12, states=30)
        got = estimate(game, budget_rows=name)
        assert 0.85 * rows < got.evaluations <= rows
        assert sum(game.calls) == got.evaluations
    assert estimate(StateGame(d=12, states=30)).evaluations == got.evaluations


def test_distinct_states_come_first():
    assert estimate(StateGame(d=10, states=500), budget_rows=19 * 200 + 1, method="permutation").background == 200
    assert estimate(StateGame(d=10, states=50), budget_rows=19 * 60 + 1, method="permutation").background == 50


@pytest.mark.parametrize("precision", [0.2, 0.05])
def test_a_precision_is_really_reached(precision):
    truth = estimate(StateGame(d=6, population=2000), method="exact", budget_rows=200_000).values
    used = []
    for seed in range(6):
        got = estimate(StateGame(d=6, population=2000), method="permutation", precision=precision, seed=seed)
        leader = np.abs(got.values).argmax(axis=0)
        low, high = got.interval()
        size = np.abs(got.values[leader, [0, 1]])
        assert got.converged
        assert ((high - low)[leader, [0, 1]] / 2 <= precision * size).all()
        # Twice the promise: a 95 % interval may miss, but not by this much.
        assert (np.abs(got.values - truth)[leader, [0, 1]] <= 2 * precision * size).all()
        used.append(got.evaluations)
    assert max(used) < 400_000


def test_a_finer_precision_takes_more_rows():
    rows = [estimate(StateGame(d=8, states=1500), precision=p).evaluations for p in (0.3, 0.1, 0.05)]
    assert rows[0] < rows[1] < rows[2]
    assert rows[0] >= 16 * 15 + 1


def test_a_background_too_small_for_the_precision_is_noticed():
    got = estimate(StateGame(d=8, states=5), precision=1e-3, method="permutation")
    assert not got.converged
    assert got.evaluations < 50_000
    assert estimate(StateGame(d=8, states=5), precision=0.01, method="exact", background="population").converged


def test_a_budget_too_small_for_the_precision_is_noticed():
    got = estimate(StateGame(d=8, states=1500), precision=1e-4, budget_rows=2000)
    assert not got.converged
    assert got.evaluations <= 2000


class Slow(StateGame):
    def __call__(self, coalitions, background):
        time.sleep(2e-5 * len(coalitions))
        return super().__call__(coalitions, background)


def test_a_time_limit_is_kept():
    for limit_s in (0.1, 0.3):
        start = time.perf_counter()
        got = estimate(Slow(d=10, states=1500), time_s=limit_s)
        assert time.perf_counter() - start < limit_s + 0.05
        assert got.evaluations > 500
        assert np.isfinite(got.standard_error).all()
        assert (got.standard_error > 0).all()


def test_a_hopeless_time_limit_still_gives_two_walks():
    got = estimate(Slow(d=10, states=100), time_s=1e-6)
    assert got.evaluations == 2 * 19 + 1
    assert np.isfinite(got.standard_error).all()
    assert np.abs(got.efficiency_gap()).max() < 1e-12


def test_time_and_precision_together_stop_at_the_first():
    quick = estimate(StateGame(states=1500), precision=0.5, time_s=20.0)
    assert quick.converged
    late = estimate(Slow(states=1500), precision=1e-6, time_s=0.1)
    assert not late.converged


def test_many_decisions_equal_each_on_its_own():
    games = [StateGame(d=10, states=30) for _ in range(5)]
    for i, game in enumerate(games):
        game.x = game.x + i
    for wish in ({"method": "permutation", "budget_rows": 900}, {"method": "kernel", "budget_rows": 3000},
                 {"method": "exact"}, {"precision": 0.4}):  # fmt: skip
        together = estimate_many(games, **wish)
        assert len(together) == 5
        for game, got in zip(games, together, strict=True):
            alone = estimate(game, **wish)
            np.testing.assert_allclose(got.values, alone.values, rtol=0, atol=1e-13)
            np.testing.assert_allclose(got.standard_error, alone.standard_error, rtol=1e-9, atol=1e-13)
            assert (got.evaluations, got.converged, got.background) == (
                alone.evaluations,
                alone.converged,
                alone.background,
            )


def test_decisions_stop_at_the_same_look_alone_and_in_a_crowd(monkeypatch):
    """A round of many decisions holds fewer walks, but precision is looked at after the same ones."""
    game = StateGame(d=30, states=400)
    alone = estimate(game, precision=0.08)
    monkeypatch.setattr("attribution_sched.shapley.explain._BLOCK_ROWS", 4096)
    crowd = estimate_many([game] * 6, precision=0.08)
    assert max(game.calls) <= 4096
    assert alone.evaluations > 60 * 59
    for one in crowd:
        assert one.evaluations == alone.evaluations
        np.testing.assert_allclose(one.values, alone.values, atol=1e-12)


def test_many_decisions_share_large_calls():
    class Batch(StateGame):
        n_decisions = 50

        def __call__(self, coalitions, background, decision):
            assert decision.max() < 50
            return super().__call__(coalitions, background)

    game = Batch(d=10, states=30)
    got = estimate_many(game, budget_rows=200, method="permutation")
    assert len(game.calls) <= 4
    assert sum(game.calls) == sum(one.evaluations for one in got)


def test_progress_is_reported():
    seen = []
    got = estimate(StateGame(), budget_rows=2000, method="permutation", chunk=256, progress=lambda *a: seen.append(a))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == got.evaluations
    assert all(total == 2000 for _, total in seen)
    estimate(StateGame(), budget_rows=500, method="permutation", progress=True)


def test_intervals_widen_with_the_level_and_for_few_walks():
    got = estimate(StateGame(), method="permutation", budget_rows=3000)
    narrow, wide = (np.subtract(*got.interval(level)[::-1]) for level in (0.8, 0.99))
    assert (narrow < wide).all()
    assert half_width(np.ones(1), 2.0, 0.95)[0] == pytest.approx(4.302652729911275)
    assert half_width(np.ones(1), np.inf, 0.95)[0] == pytest.approx(1.959963984540054)
    with pytest.raises(SettingsError, match="level"):
        got.interval(1.5)


NAN = FunctionGame(lambda c: np.where(c.sum(axis=1) == 2, np.nan, 1.0), ("load", "link", "queue"))
FLAT = FunctionGame(lambda c: np.zeros((len(c), 3)), ("a", "b"))


@pytest.mark.parametrize(
    ("game", "wish", "message"),
    [
        (StateGame(), {"budget_rows": 0}, "budget_rows = 0: at least one row"),
        (StateGame(), {"budget_rows": 20}, "at least 31 rows"),
        (StateGame(), {"budget_rows": 50, "method": "kernel"}, "at least 131 rows"),
        (StateGame(), {"budget_rows": 300, "method": "exact"}, "10,241 rows"),
        (StateGame(), {"budget_rows": "fast"}, "quick, standard"),
        (StateGame(), {"method": "kernal"}, "Did you mean 'kernel'"),
        (StateGame(), {"method": "kernel", "precision": 0.1}, "fixed number of rows"),
        (StateGame(), {"method": "exact", "time_s": 0.1}, "cannot stop"),
        (StateGame(), {"precision": -0.1}, "precision = -0.1: must be a positive number"),
        (StateGame(), {"time_s": 0.0}, "time_s = 0.0: must be a positive number"),
        (StateGame(), {"seed": -1}, "seed = -1"),
        (StateGame(), {"chunk": 0}, "chunk = 0"),
        (StateGame(), {"background": "all"}, "'sample' or 'population'"),
        (FunctionGame(lambda c: c.sum(axis=1), ()), {}, "players = .*at least one"),
        (FunctionGame(lambda c: c.sum(axis=1), ("a", "b", "a")), {}, r"players = \['a'\]: each name must be unique"),
        (FunctionGame(lambda c: c.sum(axis=1), ("a",), n_background=0), {}, "background = 0: at least one state"),
        (NAN, {}, "value of 'value' = nan: .*background state 0, players present: load, link"),
        (FLAT, {}, r"shape of the values = \(1, 3\): .*\(1, 1\)"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_error(game, wish, message):
    with pytest.raises(ExplanationError, match=message):
        estimate(game, **wish)


def test_games_of_different_kinds_are_not_mixed():
    with pytest.raises(ExplanationError, match=r"games\[1\]\.players"):
        estimate_many([StateGame(d=4), StateGame(d=5)])
    with pytest.raises(ExplanationError, match="at least one decision"):
        estimate_many([])


def test_a_budget_that_was_asked_for_is_kept_and_the_default_one_is_no_reason_to_refuse():
    game = StateGame(d=12, states=20)
    for asked in ("standard", STANDARD_ROWS):
        with pytest.raises(ExplanationError, match="budget_rows"):
            estimate(game, method="exact", budget_rows=asked)
    assert estimate(game, method="exact").evaluations > STANDARD_ROWS


def test_the_regression_is_taken_from_where_every_state_can_afford_its_fewest_pairs():
    states = 5
    least = states * (2 * least_pairs(12) + 1)
    assert estimate(StateGame(d=12, states=states), budget_rows=least).method == "permutation"
    assert estimate(StateGame(d=12, states=states), budget_rows=least + 1).method == "kernel"
