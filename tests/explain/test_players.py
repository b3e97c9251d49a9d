"""Carbon and the price of electricity are players where they change by the hour; what costs nothing has no share."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.cost import joules_by_domain
from attribution_sched.cluster.decision import encode, from_view, view, with_signal
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.fork import PriorBeliefs, draw_futures, fork
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import price
from attribution_sched.cluster.signals import DAY, Series
from attribution_sched.config import load_settings
from attribution_sched.explain.masked_states import to_view
from attribution_sched.explain.players import lineup
from attribution_sched.explain.room import best_across, best_inside, empty_cluster
from attribution_sched.explain.targets import Simulated
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


def carbon_share(explanation, output="R_cost", name="carbon intensity"):
    """Share of the carbon player, or another, in an output."""
    at = [player.name for player in explanation.players].index(name)
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
    for name in ("carbon intensity", "electricity price"):
        assert name in names[0]
        assert name not in names[1]
    assert hourly.electricity.shape == hourly.free.shape
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
    again = with_signal(seen.moment, st.CARBON, state.carbon[0])
    assert again.arrays.signals == pytest.approx(seen.moment.arrays.signals)


def test_another_price_of_electricity_reaches_the_copies_that_are_played():
    seen = a_view()
    state = from_view(seen)
    dear = to_view(seen, replace(state, electricity=3.0 * state.electricity), 0)
    assert dear.moment.arrays.signals[st.ELECTRICITY, 0] == pytest.approx(
        3.0 * seen.moment.arrays.signals[st.ELECTRICITY, 0]
    )
    follower = RuleFollower.of(seen.moment)
    costs = [fork(one.moment, (), 2, 3.0, follower, 5).totals[0, :, 4] for one in (seen, dear)]
    assert (costs[1] > costs[0]).all()


def test_a_price_that_is_nothing_now_is_not_multiplied_without_bound():
    """Electricity is free this hour and 0.1 later: told 0.2 now, nobody expects millions of dollars tomorrow."""
    seen = a_view()
    now_s = float(seen.moment.state.clock[0, st.LAST_TICK])
    day = np.full(24, 0.1)
    day[int(now_s // 3600.0) % 24] = 0.0
    world = seen.moment.world
    domains = tuple(replace(each, electricity=Series.hourly(day, DAY)) for each in world.cluster.domains)
    signals = seen.moment.arrays.signals.copy()
    signals[st.ELECTRICITY, 0] = 0.0
    free = replace(
        seen.moment, world=replace(world, cluster=replace(world.cluster, domains=domains)),
        arrays=seen.moment.arrays._replace(signals=signals),
    )  # fmt: skip
    told = with_signal(free, st.ELECTRICITY, np.full(len(domains), 0.2))
    drawn = draw_futures(told, PriorBeliefs(told.world), 2, told.now_s + 4 * 3600.0, 1)
    for future in drawn:
        assert future.signals[st.ELECTRICITY] == pytest.approx(2.0) and told.arrays.signals[0, 0] == pytest.approx(2.0)


def test_a_tariff_is_paid_at_the_price_in_force_and_not_at_the_one_the_world_began_with():
    """Feedback turns the price of energy up: what an hour adds to the cost of a plan grows with it."""
    seen = a_view()
    plan = best_inside(empty_cluster(seen), 0)
    state = from_view(seen)
    costs = {}
    for times in (1.0, 10.0):
        reward = replace(seen.reward, energy_usd_per_kwh=times * seen.reward.energy_usd_per_kwh)
        target = Simulated(
            replace(seen, reward=reward), (plan,), np.ones(3), lambda ratio: np.ones((len(ratio), 3)), np.ones(7),
            np.ones((1, 7)), np.full(7, -1),
        )  # fmt: skip
        told = [replace(state, electricity=factor * state.electricity) for factor in (1.0, 2.0)]
        found = [target(one, np.ones((1, 1), dtype=bool), np.zeros(1, dtype=int))[0, 2] for one in told]
        costs[times] = found[1] - found[0]
    assert costs[10.0] == pytest.approx(10.0 * costs[1.0]) and costs[1.0] > 0.0


def test_the_share_of_the_tariff_is_what_the_hour_adds_to_the_cost_of_the_plan(paying):
    system, result = paying
    assert abs(carbon_share(system.explain(result, target="simulator"), name="electricity price")) > 1e-4
    words = [str(player.value) for player in system.explain(result).players if player.group == "electricity"]
    assert len(words) == 1 and "USD/kWh now" in words[0]
