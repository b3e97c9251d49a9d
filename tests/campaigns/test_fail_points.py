"""An exception anywhere between recorded and done, and then going on: nothing lost, doubled or decided otherwise."""

import contextlib
import gc
from collections import Counter
from typing import ClassVar

import pytest

from attribution_sched import System
from attribution_sched.cluster.live import SimulatedCluster
from attribution_sched.system import system as system_module
from attribution_sched.system.operate import Operate
from tests.campaigns.fail_points import SETTINGS, Cut, campaign, in_time, raising, straight
from tests.campaigns.same import account, decisions
from tests.small_world import small


def test_interrupts_at_lines_of_the_ring():
    where = Counter()
    assert campaign(50, where=where) == []
    assert len(where) > 30


def test_interrupts_at_lines_of_feedback_move_no_weight_otherwise():
    assert campaign(5, "feedback") == []
    expected, _ = straight("feedback", 11)
    kinds = [details["kind"] for kind, details in expected.parts["events"] if kind == "feedback"]
    assert len(kinds) == 2 and "changed" in kinds


@pytest.mark.slow
@pytest.mark.parametrize(("name", "runs"), [("ring", 2000), ("feedback", 200), ("hi-ppo", 100), ("train", 60)])
def test_interrupts_at_many_lines(name, runs):
    assert campaign(runs, name, seed=12) == []


def test_a_run_that_loses_a_task_is_found_out(monkeypatch):
    """The campaign can fail: a system that forgets what it was handing in is noticed."""
    monkeypatch.setattr(Operate, "enter", lambda self, entry, again=False: (
        self.system.journal.record_task(entry.record),
        not again and self.system.cluster.hand_in(entry.made, entry.record.id)))  # fmt: skip
    monkeypatch.setattr(system_module, "rebuild", lambda system: setattr(system.transaction, "moving", False))
    assert campaign(120)


def test_what_is_collected_meanwhile_is_neither_counted_nor_interrupted():
    """Systems that earlier tests left behind end in finalisers of ours: an interrupt there reaches nobody."""
    count = [0]
    left = System(SETTINGS, "sjf")
    left.itself = left
    del left
    with raising({1, 2, 3}, count):
        assert not gc.isenabled()
        garbage = [[] for _ in range(100_000)]
        for each in garbage:
            each.append(each)
        del garbage
    assert gc.isenabled() and count == [0]
    gc.collect()


def test_an_interrupt_as_a_lock_is_given_back_does_not_stop_the_next_call():
    """Found by the campaign: the line of a ``with`` is reached again as its block ends, and the lock stayed taken."""
    system = System(SETTINGS, "sjf", seed=3)
    first = system.schedule_next_task()
    lasting = system.memory[first.id]
    count = [0]
    with raising(set(), count):
        system.memory.remember("as often as it goes", lasting.view, None, 1)
    assert count[0] > 5
    for point in range(1, count[0] + 1):
        with contextlib.suppress(Cut), raising({point}, [0]):
            system.memory.remember(f"cut at {point}", lasting.view, None, 1 + point)
        with in_time(10.0):
            system.memory.remember(f"after {point}", lasting.view, None, 100 + point)


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
    assert decisions(system.journal)[:8] == decisions(expected.journal)[:8]
    ended = account(system)
    system.close()
    with System.resume(path) as resumed:
        assert resumed.journal.pending() == []
        assert ended.difference(account(resumed)) == ""


def test_the_placement_that_an_interrupt_kept_back_is_returned_by_the_next_call(monkeypatch):
    system = System(small(), "greedy", seed=1)
    record = system.journal.record_outcome
    monkeypatch.setattr(system.journal, "record_outcome", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        system.schedule_next_task()
    monkeypatch.setattr(system.journal, "record_outcome", record)
    assert system.schedule_next_task().id == "d000000"
    assert system.journal.count() == 1


@pytest.mark.parametrize("failing", [{1}, {-1}])
def test_the_placement_whose_answer_was_lost_is_returned_by_the_next_call(failing):
    """Found by the campaign: it was carried out and booked, but the next call placed another one and returned that."""
    Unreachable.failing, Unreachable.calls = failing, 0
    system = System(SETTINGS, "sjf", seed=3, cluster=Unreachable)
    with pytest.raises(ConnectionError):
        system.schedule_next_task()
    assert system.schedule_next_task().id == "d000000"
    assert system.journal.count() == 1
