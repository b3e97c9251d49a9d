"""Explanations by the parts of a plan; tasks that were handed in are priced as they are, not as nominal ones."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.errors import ExplanationError
from attribution_sched.explain.plan_parts import PartsExplainer
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


def test_parts_of_a_task_that_was_handed_in_are_worth_what_the_cluster_paid(placed):
    system, results = placed
    for result in results:
        told = system.explain(result, parts=True)
        assert "precision" in told.names
        assert np.isclose(told.value[-1], result.reward.total, atol=1e-9)
        assert (told.efficiency_gap() < 1e-9).all()


def test_without_being_told_the_simulator_prices_a_nominal_task(placed):
    system, results = placed
    decided = system.questions.recall(results[0].id)
    nominal = PartsExplainer(None, system.memory._background({}, False), world=system.world).explain(decided)
    assert not np.isclose(nominal.value[-1], results[0].reward.total, atol=1e-3)


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
    assert np.isclose(system.explain(result, parts=True).value[-1], result.reward.total, atol=1e-9)


def test_explanations_by_parts_are_kept_beside_the_others(placed):
    system, results = placed
    system.explain(results[1], target="simulator", rows=64)
    system.explain(results[1], parts=True)
    kept = {record.target for record in system.journal.explanations(results[1].id)}
    assert kept == {"simulator", "parts"}


def test_options_of_the_other_kind_of_explanation_are_refused(placed):
    system, results = placed
    with pytest.raises(ExplanationError, match="explain option = 'tipping'"):
        system.explain(results[0], parts=True, tipping=True)
    with pytest.raises(ExplanationError, match="explain option = 'states'"):
        system.explain(results[0], states=4)


def test_placements_can_be_explained_by_parts_as_they_are_made():
    system = System.demo(policy="sjf", explain={"parts": True})
    assert "microbatch" in system.schedule_next_task().explanation.names


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
