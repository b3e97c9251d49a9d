"""Tasks that were handed in are priced as they are; what a decision is compared with never changes."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.errors import ExplanationError
from attribution_sched.explain.truth import Simulator
from attribution_sched.system.admission import handed_in
from tests.small_world import small


@pytest.fixture(scope="module")
def placed():
    system = System.demo(policy="sjf")
    results = []
    while (result := system.schedule_next_task()) is not None:
        results.append(result)
    return system, results


def test_a_simulator_knows_what_it_was_told(placed):
    system, results = placed
    task = handed_in(system.world, system.journal.task(results[0].task.id), system.seed)
    simulator = Simulator(system.world)
    both = np.stack([task.counters, simulator.pool.counters.values[3]])
    assert np.array_equal(simulator.ratios(both)[0], np.ones(7))
    simulator.know(task.counters, task.demands.ratio[0])
    assert np.array_equal(simulator.ratios(both), [task.demands.ratio[0], simulator.pool.demands.ratio[3]])


def test_a_task_of_the_simulation_was_not_handed_in():
    system = System("testbed", "sjf", seed=3)
    result = system.schedule_next_task()
    assert handed_in(system.world, system.journal.task(result.task.id), system.seed) is None


def test_an_option_that_does_not_exist_is_refused(placed):
    system, results = placed
    with pytest.raises(ExplanationError, match="explain option = 'states'"):
        system.explain(results[0], states=4)


def test_a_record_never_changes(tmp_path):
    """What a decision is compared with is fixed, earlier than it, and named; later decisions move nothing."""
    path = tmp_path / "run.journal"
    with System(small(), "greedy", seed=2, journal=path) as system:
        system.run(60)
        name = system.journal.last().id
        first = system.explain(name)
        before = [
            record.id
            for record in system.journal.decisions()
            if record.sequence < system.journal.decision(name).sequence
        ]
        assert all(each in before or each.startswith("warm-up") for each in first.background_ids)
        system.run(120)
        later = system.explain(name)
    with System.resume(path) as resumed:
        again = resumed.explain(name)
    for other in (later, again):
        assert replace(other, seconds=0.0).to_dict() == replace(first, seconds=0.0).to_dict()


def test_a_resumed_system_explains_as_one_that_never_stopped(tmp_path):
    """Found by the kills: what it had explained before decided what later decisions were compared with."""
    path = tmp_path / "run.journal"
    with System(small(), "greedy", seed=2, journal=path) as straight:
        straight.run(7)
        straight.explain(straight.journal.last().id, rows=64)
        straight.run(9)
        told = straight.explain(straight.journal.last().id, rows=64)
    with System.resume(path) as resumed:
        again = resumed.explain(resumed.journal.last().id, rows=64)
    assert again.background_name == told.background_name
    assert np.array_equal(again.values, told.values)


def test_what_is_forgotten_is_lived_through_again():
    system = System(small(), "greedy", seed=2)
    system.run(150)
    name = f"d{70:06d}"
    told = system.explain(name)
    system.memory.most = 10
    system.run(2)
    for kept in list(system.memory._kept)[:-10]:
        system.memory._kept.pop(kept)
    system.memory._explainers.clear()
    again = system.explain(name)
    assert replace(again, seconds=0.0).to_dict() == replace(told, seconds=0.0).to_dict()
