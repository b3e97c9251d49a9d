"""Screening gives what pricing every plan gives, and cuts as well as trying all cuts does."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.cost import split_stages, stage_cost, tp_index
from attribution_sched.cluster.plan import DOMAIN, DP, FIRST, MICROBATCH, PP, PRECISION, REPLICA, STOP, TP
from attribution_sched.cluster.validity import VALID, validity
from attribution_sched.cluster.world import Reward
from attribution_sched.planning.local_search import LocalSearch, Screen, _bounds, _shared
from tests.planning.test_local_search import covers, several

REWARDS = [
    Reward(w_eff=1.0, w_util=0.0, w_cost=0.0),
    Reward(w_eff=1.0, w_util=0.5, w_cost=0.5, energy_usd_per_kwh=0.1, carbon_usd_per_kg=0.05),
    Reward(w_eff=0.0, w_util=1.0, w_cost=0.2),
]


def judged(reward, crowding):
    """A search with another reward, a screen of the same decision, and a plan."""
    known, rows, count = several()
    seen = replace(known.view, reward=reward)
    search = LocalSearch(seen, known.tables, known.kind, widen=True, queue_pressure=crowding)
    return search, Screen(seen, known.tables, known.kind, search.free_devices, crowding), rows, count


def every(search, rows, count):
    """Plans one change away, and what pricing each of them says; −∞ for those not well formed."""
    moves = search.neighbourhood
    near = [changes(rows, count) for changes in (moves.cuts, moves.orders, moves.everything)]
    plans, counts = (np.concatenate(both) for both in zip(*near, strict=True))
    worth = np.full(len(plans), -np.inf)
    sound = validity(search.limits, plans, counts) == VALID
    worth[sound] = search.worth(plans[sound], counts[sound])
    return plans, counts, worth


@pytest.mark.parametrize("crowding", [0.0, 0.01])
@pytest.mark.parametrize("reward", REWARDS)
def test_the_best_is_the_best_of_all_priced(reward, crowding):
    search, screen, rows, count = judged(reward, crowding)
    plans, counts, worth = every(search, rows, count)
    fits = np.isfinite(worth)
    assert 0 < fits.sum() < len(plans)
    # Three owners: one that has nothing, one that has a middling plan, one that has the best.
    owner = np.repeat(np.arange(3), len(plans))
    reached = np.array([-np.inf, np.median(worth[fits]), worth.max()])
    at, best = screen.best(np.tile(plans, (3, 1, 1)), np.tile(counts, 3), owner, reached)
    assert best == pytest.approx(worth.max(), rel=1e-9)
    assert (owner[at[:2]] == [0, 1]).all() and at[2] == -1
    assert worth[at[:2] % len(plans)] == pytest.approx(worth.max(), rel=1e-9)
    assert screen.seen == 3 * len(plans)
    if reward.w_util == 0.0 and reward.w_cost == 0.0:
        assert screen.priced < 1.5 * fits.sum(), "two owners: pricing all would be twice that"


@pytest.mark.parametrize("reward", REWARDS)
def test_a_bound_is_never_below_the_worth_and_says_what_fits(reward):
    search, screen, rows, count = judged(reward, 0.01)
    plans, counts, worth = every(search, rows, count)
    samples = _shared(screen.judge, plans, counts)
    endless = np.full(len(plans), np.inf)
    bound = _bounds(screen.judge, screen.scratch.layers[0], screen.memory, plans, counts, samples, endless)
    assert np.array_equal(np.isfinite(bound), np.isfinite(worth))
    fits = np.isfinite(worth)
    assert (bound[fits] >= worth[fits]).all()


def slowest_s(screen, plan, count):
    """Both passes of the slowest stage of a plan."""
    k, passes = screen.judge, []
    reductions = 3.0 if k.runtime.recompute else 2.0
    for row in plan[:count]:
        domain, first, stop, dp, tp, pp, precision = row[[DOMAIN, FIRST, STOP, DP, TP, PP, PRECISION]]
        cuts = np.zeros(pp + 1, dtype=np.int64)
        prefix = k.tables.times_s[k.workload.model, k.domains.rows[domain].gpu, precision, tp_index(tp), 0]
        split_stages(prefix, first, stop, pp, 0, cuts)
        for a, z in itertools.pairwise(cuts):
            stage = stage_cost(
                k.domains, k.runtime, k.power_law, k.tables, k.workload, domain, a, z, dp, tp, precision,
                0, row[MICROBATCH], 1.0,
            )  # fmt: skip
            passes.append(stage.forward_s + stage.backward_s + reductions * stage.reduce_s)
    return max(passes)


def test_layers_are_cut_as_well_as_by_trying_all_cuts():
    search, screen, rows, count = judged(REWARDS[0], 0.0)
    assert count > 1 and rows[count - 1, REPLICA] == 0
    layers = int(rows[count - 1, STOP])
    ends = np.array(list(itertools.combinations(range(1, layers), count - 1)))
    tried = np.repeat(rows[None], len(ends), axis=0)
    tried[:, : count - 1, STOP] = tried[:, 1:count, FIRST] = ends
    counts = np.full(len(tried), count)
    sound = validity(search.limits, tried, counts) == VALID
    tried, counts = tried[sound], counts[sound]
    fits = np.isfinite(search.worth(tried.copy(), counts))
    assert 1 < fits.sum() < len(fits)
    again = tried[:: len(tried) // 7].copy()
    screen.recut(again, counts[: len(again)])
    least = min(slowest_s(screen, plan, count) for plan in tried[fits])
    for plan in again:
        assert covers(plan, count, layers)
        assert slowest_s(screen, plan, count) == pytest.approx(least, rel=1e-9)


def test_what_cannot_hold_the_model_is_left_alone():
    _, screen, rows, _ = judged(REWARDS[0], 0.0)
    one = np.zeros_like(rows)[None]
    one[0, 0] = rows[0]
    one[0, 0, [DP, TP, PP]] = 1
    before = one.copy()
    screen.recut(one, np.array([1]))
    assert np.array_equal(one[:, :, [FIRST, STOP]], before[:, :, [FIRST, STOP]])
