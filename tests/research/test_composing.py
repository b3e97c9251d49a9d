"""States put together of real ones are real where nothing is replaced, and another's where everything is."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.engine import state as st
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from research import composing
from research.composing import GROUPS, compose, endless, keep_states, own_forecasts
from tests.scheduler.hi_ppo import worlds

ALL = np.ones(len(GROUPS), dtype=np.bool_)


@pytest.fixture(scope="module")
def bank():
    network = worlds.network()
    world = endless(worlds.worlds()["mixed"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composing, "WARM_UP", 8)
        patch.setattr(composing, "APART", 4)
        kept = keep_states(network, world, 4, 4, 3)
    field = ClusterBatch(world, 2, 5, network.attributions)
    own_forecasts(field)
    return kept, field


def placed(kept):
    return [one for one in kept if one.action is not None]


def restore(field, e, one):
    for array, row in zip(field.engine.state, one.state, strict=True):
        array[e] = row
    for name, array in field.forecast._state._asdict().items():
        array[e] = one.forecast[name]
    field.engine.state.event[e, st.SLOT] = one.slot


def seen_of(field, e, slot):
    found = field.decisions().take(np.array([e]))
    at = int((found.slot[0] == slot).argmax())
    return found, at


def test_states_are_kept_in_every_round(bank):
    kept, _ = bank
    assert len(kept) == 16 and placed(kept)


def test_with_all_groups_its_own_a_state_is_the_decisions(bank):
    """What is seen of it and what its plan comes to are the same to the last bit."""
    kept, field = bank
    for own in placed(kept)[:4]:
        own_forecasts(field)
        compose(field, 0, own, kept[0], 0, ALL, 1)
        restore(field, 1, own)
        (mine, at), (real, there) = seen_of(field, 0, 0), seen_of(field, 1, own.slot)
        for name in ("links", "domains", "event", "free", "waiting", "held", "holding"):
            assert np.array_equal(getattr(mine, name), getattr(real, name)), name
        assert np.array_equal(mine.attribution[0, at], real.attribution[0, there])
        assert mine.waited_s[0, at] == pytest.approx(real.waited_s[0, there])
        first, second = (field.engine.probe(e, own.action[None]) for e in (0, 1))
        assert all(np.array_equal(first[name], second[name]) for name in first)
        assert first["code"][0] == 1


@pytest.mark.parametrize("group", range(3))
def test_a_group_that_is_absent_is_the_other_states(bank, group):
    kept, field = bank
    own = placed(kept)[0]
    other = next(one for one in kept if one is not own and own.fits_into(one, field.engine.world))
    present = ALL.copy()
    present[group] = False
    own_forecasts(field)
    compose(field, 0, own, other, 0, present, 1)
    state = field.engine.state
    sources = [own if here else other for here in present[:3]]
    assert np.array_equal(state.links[0], sources[0].state.links)
    running = state.slots[0, :, st.STATUS] == st.RUNNING
    assert running.sum() == len(sources[1].running)
    devices = state.occupant[0]
    assert np.array_equal(devices < 0, sources[1].state.occupant < 0)
    assert all(running[slot] for slot in np.unique(devices[devices >= 0]))
    waiting = state.slots[0, 1:, st.STATUS] == st.QUEUED
    assert waiting.sum() == len(sources[2].others)
    now, then = (one.state.clock[st.NOW] for one in (own, sources[2]))
    waited = np.sort(now - state.tasks[0, 1:][waiting, st.ARRIVAL])
    assert np.allclose(waited, np.sort(then - sources[2].state.tasks[sources[2].others, st.ARRIVAL]))
    serials = state.slots[0, state.slots[0, :, st.STATUS] != st.FREE, st.SERIAL]
    assert len(np.unique(serials)) == len(serials) and serials.max() < state.event[0, st.TAKEN]


def test_another_instance_brings_its_work(bank):
    kept, field = bank
    own = placed(kept)[0]
    pool = field.engine.pool
    instance = int(np.flatnonzero(pool.kinds == own.kind)[-1])
    own_forecasts(field)
    compose(field, 0, own, kept[0], instance, np.array([True, True, True, False]), 1)
    state = field.engine.state
    assert state.slots[0, 0, st.POOL] == instance and state.tasks[0, 0, st.LEFT] == pool.steps[instance]


def test_a_plan_fits_its_own_state_and_no_full_one(bank):
    """Devices that a smaller domain does not have are not free."""
    kept, field = bank
    world, own = field.engine.world, next(one for one in placed(kept) if len(one.running))
    assert own.fits_into(own, world) and not own.fits_into(own, replace(world, max_running=len(own.running)))
    full = own.state.occupant.copy()
    for k, domain in enumerate(world.cluster.domains):
        full[k, : domain.devices, 0] = 0
    assert not own.fits_into(replace(own, state=own.state._replace(occupant=full)), world)
