"""The same decision, whether it is read from the engine or from a view."""

from dataclasses import fields, replace

import numpy as np
import pytest

from attribution_sched.cluster.decision import from_view, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.errors import NetworkError, PlanError
from tests.cluster.engine_worlds import random_actions
from tests.scheduler.hi_ppo import worlds

PER_CANDIDATE = ("kind", "slot", "left", "waited_s", "attribution")


def states(name, rounds, seed, clusters=3):
    """Random states of a world: engines with decisions pending, placing and re-planning."""
    world = worlds.worlds()[name]
    engine, rng = worlds.begun(world, clusters, seed), np.random.default_rng(seed)
    wild = 0.1 if max(domain.devices for domain in world.cluster.domains) > 1 else 1.0
    for _ in range(rounds):
        engine.reset(engine.state.event[:, st.DONE] == 1)
        yield engine
        engine.step(random_actions(engine, rng, wild))


@pytest.mark.parametrize("name", ["equal", "incidents", "mixed", "giant", "power", "one-domain", "served"])
def test_engine_and_view_tell_the_same(name):
    seen = {"placing": 0, "replanning": 0, "long": 0}
    for engine in states(name, 60, 2):
        rows = worlds.pending(engine)
        batch = worlds.gathered(engine, rows)
        for i, e in enumerate(rows):
            one = from_view(view(engine, int(e)), worlds.attributor)
            q = one.kind.shape[1]
            seen["replanning" if one.replanning[0] else "placing"] += 1
            seen["long"] += q > engine.world.queue_capacity
            for field in fields(one):
                expected, found = getattr(one, field.name)[0], getattr(batch, field.name)[i]
                if field.name in PER_CANDIDATE:
                    assert (batch.kind[i, q:] == -1).all()
                    found = found[:q]
                assert np.allclose(found, expected, rtol=1e-5, atol=1e-7), field.name
            one.check()
    assert (seen["placing"] > 20 and seen["replanning"] > 5) or name == "one-domain"
    # Tasks of a lost domain come back to a queue that is full already.
    assert seen["long"] > 0 or name != "incidents"


def test_a_task_nobody_measured_has_no_attribution():
    engine = worlds.begun(worlds.worlds()["equal"])
    seen = view(engine)
    blind = replace(seen, queue=tuple(replace(task, counters=np.zeros(0)) for task in seen.queue))
    assert from_view(seen, worlds.attributor).attribution.any()
    assert not from_view(blind, worlds.attributor).attribution.any()
    assert not from_view(seen, None).attribution.any()


def test_without_instruments_devices_that_are_not_free_count_as_busy():
    engine = worlds.begun(worlds.worlds()["equal"])
    seen = replace(view(engine), observed=None, free_devices=np.array([4, 1, 0]))
    told = from_view(seen, None).domains[0]
    assert np.allclose(told[:, 0], [0.0, 0.75, 1.0]) and np.allclose(told[:, -3], [0.0, 0.75, 1.0])


def test_decisions_can_be_picked():
    engine = worlds.begun(worlds.worlds()["equal"], 4)
    batch = worlds.gathered(engine)
    some = batch.take(np.array([2, 0]))
    assert len(some) == 2 and np.array_equal(some.left, batch.left[[2, 0]])


def spoilt(seen, name):
    """A view with a NaN in one of its arrays."""
    values = np.array(getattr(seen, name), dtype=float)
    values.flat[1] = np.nan
    return replace(seen, **{name: values})


@pytest.fixture(scope="module")
def seen():
    return view(worlds.begun(worlds.worlds()["equal"]))


@pytest.mark.parametrize("name", ["bandwidth_gbps", "latency_s", "observed"])
def test_a_number_that_is_not_finite_is_named(seen, name):
    with pytest.raises(PlanError, match=r"nan.*finite"):
        from_view(spoilt(seen, name), worlds.attributor).check()


def test_counters_that_are_not_finite_are_named_by_the_attribution(seen):
    queue = (replace(seen.queue[0], counters=np.full(12, np.nan)), *seen.queue[1:])
    with pytest.raises(PlanError, match=r"attribution\[0, 0, 0\]"):
        from_view(replace(seen, queue=queue), worlds.attributor).check()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time_s": np.nan}, "event"),
        ({"replanning": True, "steps_left": np.inf}, "left"),
        ({"replanning": True, "running_step_s": np.nan}, "step_s"),
        ({"bandwidth_gbps": np.zeros((3, 3))}, "must be > 0"),
        ({"free_devices": np.array([4, 4])}, r"free_devices.shape.*3 domains"),
        ({"free_devices": np.array([4, 4, 5])}, r"free_devices\[2\] = 5"),
        ({"free_devices": np.array([4, -1, 4])}, r"free_devices\[1\] = -1"),
        ({"bandwidth_gbps": np.ones((4, 4))}, r"bandwidth_gbps.shape.*3 domains"),
        ({"latency_s": np.ones(3)}, "latency_s.shape"),
        ({"observed": np.zeros((1, 20))}, r"observed.shape.*\(3, 20\)"),
        ({"observed": np.zeros((3, 32))}, "observed.shape"),
        ({"link_gbps": np.ones((2, 2))}, "link_gbps.shape"),
        ({"kind_index": 7}, "kind_index = 7"),
    ],
)
def test_a_view_of_something_else_is_refused_by_name(seen, change, message):
    with pytest.raises((PlanError, NetworkError), match=message):
        from_view(replace(seen, **change), worlds.attributor).check()


@pytest.mark.parametrize("shape", [(7,), (1, 6), (2, 7), (1, 1)])
def test_an_attributor_must_give_seven_numbers_per_task(seen, shape):
    lone = replace(seen, queue=seen.queue[:1])
    with pytest.raises(PlanError, match="attributor"):
        from_view(lone, lambda counters: np.zeros(shape))


def test_the_plan_in_force_is_told():
    engine, rng = worlds.begun(worlds.worlds()["equal"], 1, 4), np.random.default_rng(1)
    for _ in range(200):
        seen = view(engine)
        if seen is None:
            engine.reset()
            continue
        if seen.replanning:
            told = from_view(seen, None)
            assert told.held[0].sum() == len(seen.current_plan.domains)
            assert told.holding[0] == sum(s.device_count for s in seen.current_plan.segments)
            assert told.step_s[0] > 0 and told.event[0, 1] == 1.0 and told.kind.shape == (1, 1)
            return
        engine.step(random_actions(engine, rng))
    pytest.fail("nothing was ever re-planned")
