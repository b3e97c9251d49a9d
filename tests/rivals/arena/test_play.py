"""The arena: the same episodes for all, the same table every time, one clear error for each mistake."""

import math

import pytest

from attribution_sched.cluster.arrivals import Poisson
from attribution_sched.errors import CheckpointError, PolicyError, SettingsError
from attribution_sched.rivals.arena.play import HELD_OUT_SEED, evaluate, held_out_seeds
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.scheduler.episode import play
from tests.rivals.arena_players import Broken, Clumsy, Lone, Waiter, small_world

QUICK = {"resamples": 300}


@pytest.fixture(scope="module")
def world():
    return small_world()


@pytest.fixture(scope="module")
def result(world):
    return evaluate(["greedy", Lone(), Waiter()], world, 4, limit="greedy", **QUICK)


def test_every_policy_plays_the_same_held_out_episodes(world, result):
    assert result.episode_seeds == tuple(range(HELD_OUT_SEED, HELD_OUT_SEED + 4))
    arrived = {}
    for record in result.records:
        assert record.summary == play(
            world, {"greedy": Greedy(), "lone": Lone()}.get(record.policy, Waiter()), record.seed
        )
        arrived.setdefault(record.seed, set()).add(record.summary.arrived)
    assert all(len(counts) == 1 for counts in arrived.values())
    assert len(result.records) == 12


def test_figures_are_means_over_episodes(result):
    row = result.scenario("world").row("lone")
    episodes = [record.summary for record in result.records if record.policy == "lone"]
    assert row.metrics["return"].value == pytest.approx(sum(e.reward for e in episodes) / 4)
    assert row.metrics["energy_kwh"].value == pytest.approx(sum(e.energy_kwh for e in episodes) / 4)
    hours = [sum(getattr(e, name) for e in episodes) for name in ("running_h", "baseline_running_h")]
    assert row.metrics["step_ratio"].value == pytest.approx(hours[0] / hours[1])
    assert row.latency.decisions == sum(e.decisions for e in episodes)
    assert 0 < row.latency.p50_ms <= row.latency.p99_ms


def test_differences_are_paired_and_the_limit_counts_from_the_uniform_split(result):
    found = result.scenario("world")
    returns = {row.policy: row.metrics["return"].value for row in found.rows}
    assert found.best == max(returns, key=returns.get)
    assert [row.policy for row in found.rows] == sorted(returns, key=returns.get, reverse=True)
    lone, zero = found.row("lone"), returns["static-uniform"]
    assert lone.differences["static-uniform"]["return"].value == pytest.approx(returns["lone"] - zero)
    assert found.row(found.best).differences.keys() == {"static-uniform"}
    assert lone.share.value == pytest.approx((returns["lone"] - zero) / (returns["greedy"] - zero))
    assert found.row("greedy").share.value == found.row("greedy").share.low == 1.0
    assert found.row("static-uniform").share.value == 0.0


def test_a_bound_may_stand_for_the_limit(world):
    players = [Lone(), Waiter()]
    returns = {r.policy: r.summary.reward for r in evaluate(players, world, 1, **QUICK).records}
    gap = returns["lone"] - returns["static-uniform"]
    found = evaluate(players, world, 1, bounds={"world": [returns["lone"] + gap]}, **QUICK).scenario("world")
    assert found.limit == "bound"
    assert found.row("lone").share.value == pytest.approx(0.5)
    assert not math.isfinite(
        evaluate([Lone()], world, 1, bounds={"world": [9.0]}, **QUICK).scenarios[0].rows[0].share.value
    )


def test_the_same_call_gives_the_same_table(world, result):
    again = evaluate(["greedy", Lone(), Waiter()], world, 4, limit="greedy", **QUICK)
    assert again.table(latency=False) == result.table(latency=False)
    assert again.to_dict(latency=False) == result.to_dict(latency=False)
    other = evaluate(["greedy", Lone(), Waiter()], world, 4, seed=1, limit="greedy", **QUICK)
    assert other.table(latency=False) != result.table(latency=False)


def test_what_was_played_is_not_played_again(world, tmp_path):
    first = Lone()
    evaluate([first, Waiter()], world, 2, folder=tmp_path, **QUICK)
    assert len([seed for seed in first.played if seed >= HELD_OUT_SEED]) == 2
    again, heard = Lone(), []
    more = evaluate([again, Waiter()], world, 3, folder=tmp_path, tick=lambda *told: heard.append(told), **QUICK)
    assert [seed for seed in again.played if seed >= HELD_OUT_SEED] == [HELD_OUT_SEED + 2]
    assert heard[0][:2] == (4, 6)
    assert heard[-1][:2] == (6, 6)
    assert more.table(latency=False) == evaluate([Lone(), Waiter()], world, 3, **QUICK).table(latency=False)


def test_a_folder_of_another_world_is_refused_unless_it_may_be_replayed(world, tmp_path):
    evaluate([Lone()], world, 1, folder=tmp_path, **QUICK)
    changed = small_world(horizon_s=900.0)
    with pytest.raises(CheckpointError, match="another folder"):
        evaluate([Lone()], changed, 1, folder=tmp_path, **QUICK)
    found = evaluate([Lone()], changed, 1, folder=tmp_path, replay=True, **QUICK)
    assert found.records[0].summary == play(changed, Lone(), HELD_OUT_SEED)


def test_refused_plans_are_counted(world):
    row = evaluate([Clumsy()], world, 1, **QUICK).scenarios[0].rows[0]
    assert row.metrics["refused"].value > 0
    assert row.metrics["completed"].value == 0
    assert not row.metrics["step_ratio"].known


def test_a_policy_that_raises_is_named_and_the_rest_is_kept(world, tmp_path):
    with pytest.raises(PolicyError, match=r"'broken'.*ZeroDivisionError: three is too many.*'world', seed 1000000"):
        evaluate([Lone(), Broken()], world, 1, folder=tmp_path, **QUICK)
    assert (tmp_path / "episodes.jsonl").read_text().count('"policy":"lone"') >= 1


def test_an_episode_in_which_nothing_arrives_gives_zeros():
    found = evaluate([Lone(), Waiter()], small_world(arrivals=Poisson(1e-9)), 2, limit="lone", **QUICK)
    row = found.scenarios[0].row("lone")
    for key in ("return", "r_eff", "r_util", "r_cost", "traffic_usd", "deadline_misses", "refused", "completed"):
        assert (row.metrics[key].value, row.metrics[key].low, row.metrics[key].high) == (0.0, 0.0, 0.0)
    assert not row.share.known
    assert row.latency.decisions == 0
    assert "n/a" in found.table()


@pytest.mark.slow
def test_side_by_side_gives_the_same_table(world):
    players = ["greedy", Lone(), Waiter()]
    alone = evaluate(players, world, 3, **QUICK)
    together = evaluate(players, world, 3, workers=2, **QUICK)
    assert together.table(latency=False) == alone.table(latency=False)
    with pytest.raises(PolicyError, match="three is too many"):
        evaluate([Lone(), Broken()], world, 3, workers=2, **QUICK)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policies": []}, "at least one policy"),
        ({"policies": "greedy"}, "must be a list"),
        ({"policies": ["gredy"]}, "Did you mean 'greedy'"),
        ({"policies": ["greedy", Greedy()]}, "given twice"),
        ({"worlds": {}}, "at least one scenario"),
        ({"episodes": 0}, "episodes = 0"),
        ({"episodes": 10_001}, "1..10000"),
        ({"seed": -1}, "seed = -1"),
        ({"workers": 0}, "workers = 0"),
        ({"limit": "gredy"}, "limit = 'gredy': is not among the policies. Did you mean 'greedy'"),
        ({"bounds": {"word": [1.0]}}, "Did you mean 'world'"),
        ({"bounds": {"world": [1.0, 2.0]}}, "each of the 1 episodes"),
    ],
)
def test_a_mistake_is_one_clear_error(world, changes, words):
    given = {"policies": ["greedy"], "worlds": world, "episodes": 1} | changes
    with pytest.raises(SettingsError) as caught:
        evaluate(**given)
    assert words in str(caught.value)


def test_seeds_of_different_evaluations_do_not_meet():
    assert not set(held_out_seeds(10_000, 0)) & set(held_out_seeds(10_000, 1))
    assert min(held_out_seeds(3, 5)) >= HELD_OUT_SEED
    assert held_out_seeds(5)[:3] == held_out_seeds(3)
