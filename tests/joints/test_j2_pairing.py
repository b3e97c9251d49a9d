"""J2 attribution → decision where jobs share devices: pairs hang on the vector, and so does the return."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

from attribution_sched.attribution.vector import state_vectors
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.config import load_settings
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.rule import RuleFork
from attribution_sched.scheduler.pairing import TrialBelief, counter_profile
from attribution_sched.scheduler.thinking import Think

from .measure import NO_DEADLINE_S

LITTLE = Think(screen=2, keep=2, confirm=3, hours=0.5)


def site(devices=8, hours=18.0, rate_per_hour=9.0, queue=16):
    """The shared preset on fewer devices: something waits most of the time."""
    settings = load_settings("shared").model_dump(mode="json")
    settings["domain_defaults"]["devices"] = devices
    settings["arrivals"]["rate_per_hour"] = rate_per_hour
    settings["episode"] |= {
        "horizon_s": 3600.0 * hours, "pool_size": 256, "queue_capacity": queue, "max_running": 2 * devices,
    }  # fmt: skip
    world = load_settings(settings).build_world()
    return replace(world, cluster=replace(world.cluster, cap_levels=()))


def vectors(world):
    """Cut → who attributes a task; every task keeps its counters and its pace."""
    engine, own = Engine(world), state_vectors(HiPpo().attributions, DEMAND_NAMES)
    pool = engine.pool.attributed(own)
    states = np.array([pool.task(row, world.kinds).attribution.state for row in range(len(pool))])
    other = states[np.random.default_rng(0).permutation(len(pool))]

    def by(change):
        return lambda task: (vector := own(task)).with_state(change(task.number, vector.state))

    return {
        "own": by(lambda _, state: state),
        "zeroed": by(lambda _, state: 0.0 * state),
        "inverted": by(lambda _, state: -state),
        "shuffled": by(lambda row, _: other[row]),
    }


class Twins:
    """One policy decides; at each of its moments others say what they would do, shown other vectors all along."""

    pairs, plays_copies = True, True
    name = "twins"

    def __init__(self, make, attribute):
        self.leads, self.others = make(), {name: make() for name in attribute}
        self.attribute, self.known = attribute, {name: {} for name in attribute}
        self.asked, self.differ = 0, dict.fromkeys(attribute, 0)

    def reset(self, seed):
        for policy in (self.leads, *self.others.values()):
            policy.reset(seed)

    def attributions(self, counters):
        return self.leads.attributions(counters)

    def shown(self, view, name):
        """The same moment with other vectors, of those that run too."""

        def of(task):
            if task.number not in self.known[name]:
                self.known[name][task.number] = self.attribute[name](task)
            return replace(task, attribution=self.known[name][task.number])

        task = None if view.task is None else of(view.task)
        return replace(
            view, task=task, attribution=None if task is None else task.attribution,
            queue=tuple(of(each) for each in view.queue),
            neighbours=tuple(replace(each, task=of(each.task)) for each in view.neighbours),
            co_runners=tuple(replace(each, task=of(each.task), other=of(each.other)) for each in view.co_runners),
        )  # fmt: skip

    def decide(self, view):
        plan = self.leads.coordinate(view)
        if view.neighbours and not view.replanning:
            self.asked += 1
            for name, policy in self.others.items():
                other = policy.coordinate(self.shown(view, name))
                self.differ[name] += (other.slot, other.plan) != (plan.slot, plan.plan)
        else:
            # Pairs are seen at every decision.
            for name, policy in self.others.items():
                policy.partners.learn(self.shown(view, name))
        return plan.plan if plan.slot == view.slot else None


def hi_ppo(think=False):
    return HiPpo(think=think, deadline_s=NO_DEADLINE_S)


def rule_fork():
    return RuleFork(think=LITTLE)._coordinator


def by_counters():
    policy = hi_ppo()
    policy.partners.belief = TrialBelief(counter_profile)
    return policy


def differing(make, world, seed=3):
    twins = Twins(make, vectors(world))
    play(world, twins, seed)
    return twins.asked, {name: count / twins.asked for name, count in twins.differ.items()}


@pytest.mark.parametrize(
    ("make", "hours", "cuts"),
    # Without thinking only tasks that are there are compared: all inverted, they are as far from each other as before.
    [(hi_ppo, 18.0, ("zeroed", "shuffled")), (rule_fork, 9.0, ("zeroed", "inverted", "shuffled"))],
)
def test_who_goes_beside_whom_hangs_on_the_vector(make, hours, cuts, tell):
    asked, found = differing(make, site(hours=hours))
    tell("J2", preset="shared, 8 devices", policy=make.__name__, asked=asked, **found)
    assert asked > 40 and found["own"] == 0.0
    assert all(found[name] > 0.02 for name in cuts)


def test_who_pairs_by_raw_counters_notices_no_cut():
    """The control: what differs above differs by what the belief reads."""
    asked, found = differing(by_counters, site())
    assert asked > 40 and not any(found.values())


DAYS, FIRST = 24, 4_841_000
"""Pairs of days that nothing was chosen on; how they are judged was chosen on others (4700200 on)."""


@pytest.mark.slow
def test_cutting_the_vector_costs_return_beyond_the_interval(tell):
    """A busy site without thinking, which makes up for most of what a wrong belief does; pace is read in all.

    Returns are losses there, a few days' tenfold the others', so what the cut multiplies them by is judged.
    """
    world = site(16, 48.0, 5.0, 128)
    attribute = vectors(world)
    losses = {
        name: np.array([-play(world, hi_ppo(), FIRST + day, attribute=attribute[name]).reward for day in range(DAYS)])
        for name in ("own", "zeroed", "shuffled")
    }
    for name in ("zeroed", "shuffled"):
        apart = np.log(losses[name] / losses["own"])
        more, half = apart.mean(), student.ppf(0.975, DAYS - 1) * apart.std(ddof=1) / np.sqrt(DAYS)
        tell("J2", preset="shared, 16 devices", days=DAYS, cut=name, loss_log_ratio=more, half=half,
             return_a_day=0.5 * (losses["own"] - losses[name]).mean())  # fmt: skip
        assert more - half > 0.0, name
