"""The audit of monotone laws: none is broken in a small world, and each kind of break would be seen."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.scheduler.hi_ppo.checkpoint import load
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.upper_agent import U
from tests.docs_text import script
from tests.small_world import small

audit = script("benchmarks/monotonicity.py")


@pytest.fixture(scope="module")
def views():
    return audit.views_of(small(), 1, 7)


def test_no_law_is_broken_in_a_small_world(views):
    found = audit.audit(views, 300, 1)
    assert {name for name, *_ in found} == set(audit.laws())
    assert all(seen > 0 for name, seen, _, _ in found if name != "link")
    assert [(name, wrong) for name, _, wrong, _ in found if wrong] == []


def broken(law, views, tries=400):
    rng = np.random.default_rng(3)
    return [law(views[int(rng.integers(len(views)))], rng) for _ in range(tries)].count(False)


def test_agents_that_take_more_the_more_others_wait_are_found(views):
    weights = load()
    theta = weights.theta.copy()
    theta[U + 2] = -4.0 * theta[U + 2]
    assert broken(audit.queue(HiPpo(weights.with_agents(theta))), views) > 0
    assert broken(audit.queue(HiPpo()), views) == 0


def test_a_world_in_which_room_or_cheaper_energy_hurts_is_found(views, monkeypatch):
    honest = audit.worth
    monkeypatch.setattr(audit, "worth", lambda view, plan: honest(view, plan) - 0.01 * view.free_devices.sum())
    assert broken(audit.room, views) > 0
    monkeypatch.undo()
    real = audit.value

    def dear(view, batch):
        found = real(view, batch)
        return replace(found, r_cost=found.r_cost - 100.0 * view.reward.energy_usd_per_kwh)

    monkeypatch.setattr(audit, "value", dear)
    assert broken(audit.cheaper("energy_usd_per_kwh"), views) > 0
