"""J2 attribution → decision, through beliefs and the fork: what attributions say of a task changes what is done."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.attribution.attributor import AccountAttributor, as_attributor
from attribution_sched.attribution.vector import state_vectors
from attribution_sched.cluster.counters import counters, throughput
from attribution_sched.cluster.demands import DEMAND_NAMES, draw_demands
from attribution_sched.config import load_settings
from attribution_sched.scheduler.beliefs import AttributionBeliefs, DemandBeliefs
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, load
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.policy_search import Days
from attribution_sched.scheduler.thinking import Think, known_tasks
from tests.small_world import small

from .measure import NO_DEADLINE_S, chosen, cut, moments

CUTS = {"inverted": lambda state: -state, "zeroed": lambda state: 0.0 * state}
LITTLE = Think(screen=2, keep=2, confirm=3, hours=0.5)


def differing(preset, count, **options):
    """Share of the same recorded moments at which Hi-PPO chooses another task or plan, per cut."""
    world = load_settings(preset).build_world()
    attributor = as_attributor(None, world)
    policy = HiPpo(deadline_s=NO_DEADLINE_S, **options)
    states = [seen for seen, _, _ in moments(world, attributor, HiPpo(deadline_s=NO_DEADLINE_S), count)]
    own = [chosen(policy, seen) for seen in states]
    # The same moment is thought about alike: what differs below differs by the cut.
    assert own[:10] == [chosen(policy, cut(seen, lambda state: state)) for seen in states[:10]]
    found = {}
    for name, change in CUTS.items():
        other = [chosen(policy, cut(seen, change)) for seen in states]
        found[name] = float(np.mean([one != two for one, two in zip(own, other, strict=True)]))
    return found


def test_what_is_believed_of_a_task_hangs_on_its_attribution():
    """Pair by pair: the same moment, the same task, one vector; the believed demands and the search's prices move."""
    world = small().build_world()
    attributor = as_attributor(None, world)
    policy = HiPpo(deadline_s=NO_DEADLINE_S)
    moved = 0
    for seen, _, _ in moments(world, attributor, policy, 4):
        planner = policy.planner(seen)
        plain = policy._believed(seen, planner, seen.slot)
        for change in CUTS.values():
            other = policy._believed(cut(seen, change), planner, seen.slot)
            moved += not np.allclose(plain, other, rtol=0.01)
        assert known_tasks(cut(seen, CUTS["inverted"]))[seen.slot].attribution.state.tolist() == (
            (-seen.attribution.state).tolist()
        )
    assert moved >= 6


class PartlyRead(AccountAttributor):
    """The default attributor on a machine that cannot read the operators' counters."""

    def vector(self, task):
        unread = dict.fromkeys(("conv", "fc", "attention"), "unavailable")
        return super().vector(replace(task, provenance={**task.provenance, **unread}))


def taken_at_its_word(decision):
    """The same moment with attributions whose interval is cut."""

    def sure(vector):
        return None if vector is None else replace(vector, state_covariance=None)

    queue = tuple(replace(task, attribution=sure(task.attribution)) for task in decision.queue)
    return replace(decision, attribution=sure(decision.attribution), queue=queue)


def test_the_interval_of_an_attribution_reaches_what_is_thought_of():
    """Cut the interval: the believed demands widen less, and the fork finds other gains in the same futures."""
    world = load_settings("testbed").build_world()
    attributor = PartlyRead(as_attributor(None, world).fitted)
    policy = HiPpo(deadline_s=NO_DEADLINE_S, think=LITTLE)
    moved = thought = 0
    for seen, _, _ in moments(world, attributor, HiPpo(deadline_s=NO_DEADLINE_S), 12):
        cut_one = taken_at_its_word(seen)
        _, beliefs = policy.foresight(seen)
        wide, narrow = (beliefs.of(list(known_tasks(view).values())) for view in (seen, cut_one))
        assert (np.linalg.det(wide.root) > np.linalg.det(narrow.root)).all()
        policy.reset(0)
        one = policy.coordinate(seen).thought
        policy.reset(0)
        two = policy.coordinate(cut_one).thought
        if one is not None and two is not None and len(one.gain) == len(two.gain) > 1:
            thought += 1
            moved += not np.allclose(one.gain, two.gain, rtol=1e-6)
    assert thought >= 4 and moved >= thought // 2


def test_with_the_pace_kept_the_vector_earns_its_place_on_the_testbed(tell):
    """Cut: the same days, the measured pace still read, attributions not. Fresh days; nothing was tuned on them."""
    weights, count = load(SHIPPED), 120
    days = Days(load_settings("testbed").build_world(), count, weights)
    tasks = [days.engine.pool.task(row, days.world.kinds) for row in range(len(days.engine.pool))]
    found = {}
    for name, vector in (("both", True), ("pace", False)):
        days.believe(AttributionBeliefs(days.world, weights.attributions, attributions=vector).of(tasks))
        found[name] = days.returns(weights.theta, 1_992_000)
    worth = found["both"] - found["pace"]
    error = float(worth.std(ddof=1) / np.sqrt(count))
    tell("J2", preset="testbed", days=count, worth=float(worth.mean()), error=error)
    assert worth.mean() - 2.0 * error > 0.0


@pytest.mark.parametrize("preset", ["cross-domain-easy", "testbed"])
def test_the_vector_never_makes_the_belief_worse(preset):
    """Held-out simulated tasks of every kind: compute, memory and host time, with the vector and without."""
    world, weights = load_settings(preset).build_world(), load(SHIPPED)
    rng = np.random.default_rng(11)
    beliefs = DemandBeliefs(world.kinds, weights.attributions, world.idiosyncrasy)
    for k, kind in enumerate(world.kinds):
        drawn = draw_demands([kind.model] * 300, rng, world.idiosyncrasy, training=kind.training)
        states = weights.attributions(counters(drawn, rng).values)
        speed, kinds, truth = throughput(drawn, rng), np.full(300, k), np.log(drawn.factors)
        both = beliefs.log_factors(kinds, states, speed) - truth
        pace = beliefs.log_factors(kinds, np.zeros_like(states), speed) - truth
        assert ((both**2).mean(axis=0) <= 1.02 * (pace**2).mean(axis=0)).all(), kind.model.name


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["cross-domain-easy", "testbed"])
def test_with_thinking_a_cut_changes_five_decisions_in_a_hundred(preset, tell):
    found = differing(preset, 200, think=True)
    tell("J2", preset=preset, thinking=1, states=200, **found, wanted=0.05)
    assert found["inverted"] >= 0.05 and found["zeroed"] > 0.0
    if found["zeroed"] < 0.05:
        # On cross-domain-easy true demands themselves are worth no more than pace: most of a step is compute there.
        pytest.xfail(f"missed: zeroed attributions change {found['zeroed']:.3f} of decisions, 0.05 wanted")


@pytest.mark.slow
def test_with_thinking_zeroing_the_vector_costs_return_on_the_testbed(tell):
    """Whole days of the policy as it is deployed; the pace is told in both."""
    world, days, first = load_settings("testbed").build_world(), 24, 5_500_000
    own = state_vectors(HiPpo().attributions, DEMAND_NAMES)

    def zeroed(task):
        vector = own(task)
        return vector.with_state(0.0 * vector.state)

    returns = [
        np.array([
            play(world, HiPpo(deadline_s=NO_DEADLINE_S, think=True), first + day, attribute=attribute).reward
            for day in range(days)
        ])
        for attribute in (own, zeroed)
    ]  # fmt: skip
    apart = returns[1] - returns[0]
    half = 1.96 * apart.std(ddof=1) / np.sqrt(days)
    tell("J2", preset="testbed", thinking=1, days=days, zeroed_a_day=apart.mean(), half=half)
    assert apart.mean() + half < 0.0
