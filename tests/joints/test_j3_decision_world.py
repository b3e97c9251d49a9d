"""J3 decision → world: plans over several domains, and tasks that share a device, are decisions that occur."""

import numpy as np
import pytest

from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.config import load_settings
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo

from .measure import NO_DEADLINE_S, moments


def occurring(tell, preset, count):
    """Plans put in force, those over several domains, and those that take a device which holds another task."""
    world = load_settings(preset).build_world()
    plans = crossing = sharing = 0
    for _, asked, outcome in moments(world, as_attributor(None, world), HiPpo(deadline_s=NO_DEADLINE_S), count):
        if outcome.code <= 0:
            continue
        plans += 1
        crossing += len(asked.plan.domains) > 1
        wanted = np.bincount([s.domain for s in asked.plan.segments], minlength=len(world.cluster))
        # A plan that asks for more than was empty could only have been placed beside somebody.
        devices = np.zeros(len(world.cluster), dtype=int)
        for segment in asked.plan.segments:
            devices[segment.domain] += segment.device_count
        sharing += bool((wanted > 0).any() and (devices > asked.view.free_devices).any())
    tell("J3", preset=preset, plans=plans, over_several_domains=crossing, sharing_a_device=sharing)
    assert plans > 0 and 0 <= crossing <= plans
    return plans, crossing, sharing


def test_plans_over_several_domains_and_shared_devices(tell):
    occurring(tell, "cross-domain-easy", 30)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["cross-domain-easy", "large"])
def test_plans_over_several_domains_and_shared_devices_over_days(preset, tell):
    occurring(tell, preset, 300)
