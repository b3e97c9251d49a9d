"""No policy ever asks for what the cluster must refuse, whatever state the cluster is in."""

import pytest

from attribution_sched.config import load_settings
from attribution_sched.scheduler.registry import POLICIES, make_policy

from .states import check_states, small_worlds

THINKERS = ("exact", "exact-resolve", "exact-switch")
"""Policies that take tenths of a second for a decision of a preset."""

WORLDS = small_worlds()


def states_of(policy, each, presets):
    """Check a policy in so many states of every world; returns plans seen."""
    plans = 0
    for w, world in enumerate(WORLDS.values()):
        plans += check_states(world, policy, each, seed=100 * w + 7)
    for preset in ("cross-domain-easy", "testbed"):
        plans += check_states(load_settings(preset).build_world(), policy, presets, seed=3)
    return plans


@pytest.mark.parametrize("name", POLICIES)
def test_no_plan_is_refused(name):
    assert states_of(make_policy(name), each=12, presets=2 if name in THINKERS else 12) > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_no_plan_is_refused_in_ten_thousand_states(name):
    assert states_of(make_policy(name), each=1300, presets=20 if name in THINKERS else 500) > 1000
