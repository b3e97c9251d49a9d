"""The wide search finds no worse than its starts, the same under a seed, and its kicks are plans."""

import numpy as np
import pytest

from attribution_sched.cluster.plan import DOMAIN, DP, FIRST, MICROBATCH, PP, REPLICA, STOP, TP
from attribution_sched.cluster.validity import VALID, validity
from attribution_sched.planning.local_search import IteratedLocalSearch, orders_near
from tests.planning.test_local_search import covers, several


def begun(seed=0):
    """A search, and starts that fit."""
    search, rows, count = several()
    near, counts = search.neighbourhood.cuts(rows, count)
    sound = validity(search.limits, near, counts) == VALID
    return IteratedLocalSearch(search, seed), near[sound], counts[sound]


def test_the_best_is_no_worse_than_any_start_and_worth_what_it_says():
    search, rows, counts = begun()
    worth = search.search.worth(rows.copy(), counts)
    best, count, reached = search.best_of(rows.copy(), counts, 4, 2, 0)
    assert reached >= worth.max()
    assert search.search.worth(best[None].copy(), np.array([count]))[0] == pytest.approx(reached)
    assert len(set(best[:count, DOMAIN].tolist())) == count


def test_kicks_never_lose_what_was_found_and_a_seed_repeats_them():
    found = []
    for seed, budget in ((3, 0), (3, 20_000), (3, 20_000)):
        search, rows, counts = begun(seed)
        found.append(search.best_of(rows, counts, 4, 2, budget))
        assert search.screen.seen >= budget
    assert found[1][2] >= found[0][2]
    assert found[1][2] == found[2][2] and np.array_equal(found[1][0], found[2][0])


def test_side_by_side_or_alone_a_descent_ends_alike():
    search, rows, counts = begun()
    starts = search.priced(rows, counts)[:5]
    few = [search.search.neighbourhood.cuts, search.search.neighbourhood.orders]
    assert len(starts) > 1
    together = search.descend(starts, few)
    assert [state[2] for state in together] == [search.descend([start], few)[0][2] for start in starts]


def test_kicked_plans_are_plans_of_the_same_domains_or_idle_ones():
    search, rows, counts = begun()
    plan = search.priced(rows, counts)[0]
    layers, tables = int(plan[0][plan[1] - 1, STOP]), search.search.tables
    layouts = set(map(tuple, tables.layouts.tolist()))
    seen = set()
    for _ in range(60):
        kicked, count = search.perturbed(plan)
        used = kicked[:count]
        assert covers(kicked, count, layers)
        assert len(set(used[:, DOMAIN].tolist())) == count == plan[1]
        assert all(tuple(layout) in layouts for layout in used[:, [DP, TP, PP]].tolist())
        assert set(used[:, MICROBATCH].tolist()) <= set(search.search.neighbourhood.microbatches.tolist())
        seen.add(used.tobytes())
    assert len(seen) > 10


def test_nothing_comes_of_plans_that_do_not_fit():
    search, rows, counts = begun()
    search.screen.judge.free_devices[:] = 0
    assert search.best_of(rows, counts, 4, 2, 0) is None


def by_arrays(search, plan):
    """``perturbed`` as it reads in arrays: the same draws in the same order."""
    rows, count, draw = plan.rows.copy(), plan.used, search.source
    near, tables = search.search.neighbourhood, search.search.tables

    def lay_out(row):
        most = 2 ** int(np.log2(near.free_devices[row[DOMAIN]]))
        node = int(tables.domains.rows[row[DOMAIN]].node_devices)
        fits = (tables.sizes == most) & (row[MICROBATCH] % tables.layouts[:, 0] == 0) & (tables.layouts[:, 1] <= node)
        fits &= tables.layouts[:, 2] <= row[STOP] - row[FIRST]
        if fits.any():
            row[[DP, TP, PP]] = tables.layouts[draw.choice(np.flatnonzero(fits))]

    inside = np.flatnonzero(rows[:count, REPLICA] == draw.integers(rows[count - 1, REPLICA] + 1))
    changes = draw.random(3)
    if changes[0] < 0.25:
        rows[inside, MICROBATCH] = draw.choice(near.microbatches)
    if changes[1] < 0.25:
        idle = near.idle(rows, count)
        if len(idle):
            at = draw.choice(inside)
            rows[at, DOMAIN] = draw.choice(idle)
            lay_out(rows[at])
    if changes[2] < 0.5:
        lay_out(rows[draw.choice(inside)])
    for at in inside[rows[inside, MICROBATCH] % rows[inside, DP] != 0]:
        lay_out(rows[at])
    order, others = np.arange(len(inside)), orders_near(len(inside))
    for _ in range(int(draw.integers(1, 4)) if len(others) else 0):
        order = order[others[draw.integers(len(others))]]
    lengths = (rows[:, STOP] - rows[:, FIRST])[inside[order]]
    rows[inside] = rows[inside[order]]
    rows[inside, STOP] = np.cumsum(lengths)
    rows[inside, FIRST] = rows[inside, STOP] - lengths
    return rows, count


def test_perturbed_plans_are_those_of_the_same_draws_on_arrays():
    search, rows, counts = begun(5)
    other, _, _ = begun(5)
    plan = search.priced(rows, counts)[0]
    for _ in range(200):
        (mine, used), (theirs, count) = search.perturbed(plan), by_arrays(other, plan)
        assert used == count and np.array_equal(mine, theirs)
