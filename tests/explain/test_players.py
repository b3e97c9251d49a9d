"""Carbon is a player of its own where grids change by the hour, and its share is nothing where it costs nothing."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.cost import joules_by_domain
from attribution_sched.cluster.decision import encode, from_view, view, with_carbon
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.fork import fork
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import price
from attribution_sched.config import load_settings
from attribution_sched.explain.masked_states import to_view
from attribution_sched.explain.players import lineup
from attribution_sched.explain.room import best_across, best_inside, empty_cluster
from attribution_sched.scheduler.rule_follower import RuleFollower


def settings(preset="cross-domain", carbon=100.0):
    """The preset's settings with another price of carbon."""
    found = load_settings(preset).model_dump()
    found["reward"]["carbon_usd_per_kg"] = carbon
    return found


def placed(carbon, preset="cross-domain"):
    """A system after a day and its last placement."""
    system = System(settings(preset, carbon), policy="rule", seed=3)
    results = [system.schedule_next_task() for _ in range(50)]
    return system, next(one for one in reversed(results) if one.placed)


@pytest.fixture(scope="module")
def paying():
    """A system that pays for carbon, and its last placement."""
    return placed(100.0)


def carbon_share(explanation, output="R_cost"):
    """Share of the carbon player in an output."""
    at = [player.name for player in explanation.players].index("carbon intensity")
    return float(explanation.values[at, explanation.outputs.index(output)])


def a_view(preset="cross-domain"):
    """A decision of an engine's own day, with its moment."""
    engine = Engine(load_settings(preset).build_world())
    engine.seed([4])
    engine.reset()
    while (seen := view(engine)) is None or len(seen.queue) < 2:
        engine.step(encode(engine, None, 0)[None])
    return seen


def test_carbon_is_a_player_only_where_grids_change_by_the_hour():
    hourly, plain = (from_view(a_view(preset)) for preset in ("cross-domain", "cross-domain-easy"))
    names = [lineup(seen, tuple(str(k) for k in range(seen.free.shape[1]))).names for seen in (hourly, plain)]
    assert "carbon intensity" in names[0]
    assert "carbon intensity" not in names[1]
    assert hourly.carbon.shape == hourly.free.shape
    assert plain.carbon.shape == (1, 0)


def test_its_share_is_what_the_hour_adds_to_the_cost_of_the_plan(paying):
    system, result = paying
    explained = system.explain(result, target="simulator")
    share = carbon_share(explained)
    assert share != 0.0
    # R_cost is a sum, so the share is the plan's own grams at its hour over those at the background's hours, priced.
    free, last = placed(0.0)
    assert carbon_share(free.explain(last, target="simulator")) == 0.0


def test_energy_by_domain_is_the_energy_of_the_plan():
    seen = a_view()
    plan = best_across(empty_cluster(seen)) or best_inside(empty_cluster(seen), 0)
    batch = PlanBatch.of([plan], seen.max_segments)
    priced = price(seen, batch)
    by_domain = joules_by_domain(seen.cost, batch, priced)
    assert by_domain.sum() == pytest.approx(float(priced.energy_j[0]), rel=1e-12)
    assert set(np.flatnonzero(by_domain[0])) == set(plan.domains)


def test_other_intensities_reach_the_copies_that_are_played():
    seen = a_view()
    state = from_view(seen)
    same = to_view(seen, state, 0)
    doubled = to_view(seen, replace(state, carbon=2.0 * state.carbon), 0)
    follower = RuleFollower.of(seen.moment)
    grams = [fork(one.moment, (), 2, 3.0, follower, 5).totals[0, :, 7] for one in (seen, same, doubled)]
    assert np.array_equal(grams[0], grams[1])
    # Everything is twice as dirty, and the follower does not look at carbon.
    assert grams[2] == pytest.approx(2.0 * grams[0])
    assert with_carbon(seen.moment, state.carbon[0]).arrays.signals == pytest.approx(seen.moment.arrays.signals)
