"""No policy ever asks for what the cluster must refuse, whatever state the cluster is in."""

import pytest

from attribution_sched.config import load_settings
from attribution_sched.scheduler.greedy import Greedy
from attribution_sched.scheduler.mast import Mast
from attribution_sched.scheduler.rules import (
    FirstComeFirstServed,
    GreedyBandwidth,
    LeastLoaded,
    RoundRobin,
    ShortestJobFirst,
)
from attribution_sched.scheduler.sailor import Sailor
from attribution_sched.scheduler.splits import SpeedProportional, StaticUniform

from .states import check_states, small_worlds

POLICIES = {
    "greedy": Greedy,
    "fcfs": FirstComeFirstServed,
    "sjf": ShortestJobFirst,
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "greedy-bandwidth": GreedyBandwidth,
    "static-uniform": StaticUniform,
    "speed-proportional": SpeedProportional,
    "mast": Mast,
    "sailor": Sailor,
    "sailor-rescored": lambda: Sailor(rescored=4),
}
"""Name → how to make one; every policy of the package belongs here."""

WORLDS = small_worlds()


def states_of(policy, each, presets):
    """Check a policy in so many states of every world; returns plans seen."""
    plans = 0
    for w, world in enumerate(WORLDS.values()):
        plans += check_states(world, policy, each, seed=100 * w + 7)
    for preset in ("cross-domain", "testbed"):
        plans += check_states(load_settings(preset).build_world(), policy, presets, seed=3)
    return plans


@pytest.mark.parametrize("name", POLICIES)
def test_no_plan_is_refused(name):
    assert states_of(POLICIES[name](), each=12, presets=12) > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_no_plan_is_refused_in_ten_thousand_states(name):
    assert states_of(POLICIES[name](), each=1300, presets=500) > 1000
