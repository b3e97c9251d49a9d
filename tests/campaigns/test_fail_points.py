"""An exception anywhere between recorded and done, and then going on: nothing lost, doubled or decided otherwise."""

from typing import ClassVar

import pytest

from attribution_sched import System
from attribution_sched.session.cluster import SimulatedCluster
from tests.campaigns.fail_points import SETTINGS, campaign, history, same_state
from tests.session.small import small


def test_interrupts_at_lines_of_the_ring():
    assert campaign(40) == []


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["sjf", "hi-ppo"])
def test_interrupts_at_every_line_of_the_ring(policy):
    assert campaign(600, policy, seed=12) == []


class Unreachable(SimulatedCluster):
    """A cluster whose controller does not answer now and then, before or after it did what it was asked."""

    failing: ClassVar[set[int]] = set()
    calls = 0

    def carry_out(self, action, key=""):
        type(self).calls += 1
        if self.calls in self.failing:
            raise ConnectionError("the controller does not answer")
        effect = super().carry_out(action, key)
        if -self.calls in self.failing:
            raise ConnectionError("the controller's answer was lost")
        return effect


@pytest.mark.parametrize("failing", [{4}, {-4}, {2, 3, -5, 9}])
def test_a_cluster_that_does_not_answer_once_costs_nothing(tmp_path, failing):
    path = tmp_path / "run.journal"
    Unreachable.failing, Unreachable.calls = failing, 0
    system = System(SETTINGS, "sjf", seed=3, journal=path, cluster=Unreachable)
    failures = 0
    while sum(o is not None and o.code == 1 for _, o in system.journal.entries()) < 6:
        try:
            system.schedule_next_task()
        except ConnectionError:
            failures += 1
    assert failures == len(failing)
    expected = System(SETTINGS, "sjf", seed=3)
    while expected.journal.count() < system.journal.count():
        expected.schedule_next_task()
    assert history(system.journal)[:8] == history(expected.journal)[:8]
    system.close()
    with System.resume(path) as resumed:
        assert resumed.journal.pending() == []
        assert same_state(resumed, system)


def test_the_placement_that_an_interrupt_kept_back_is_returned_by_the_next_call(monkeypatch):
    system = System(small(), "greedy", seed=1)
    record = system.journal.record_outcome
    monkeypatch.setattr(system.journal, "record_outcome", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        system.schedule_next_task()
    monkeypatch.setattr(system.journal, "record_outcome", record)
    assert system.schedule_next_task().id == "d000000"
    assert system.journal.count() == 1
