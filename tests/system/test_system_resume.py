"""Resuming: the cluster, the queue and the policy go on as if never stopped; foreign journals are refused."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.errors import JournalError
from attribution_sched.journal import DecisionRecord, Journal, JournalHeader
from tests.small_world import SMALL, small
from tests.system.test_system import BUSY, repeatable

SETTINGS = small(arrivals=BUSY)


def same_cluster(one, other):
    for name in one.cluster.engine.state._fields:
        mine, theirs = (getattr(each.cluster.engine.state, name) for each in (one, other))
        assert np.array_equal(mine, theirs, equal_nan=True), name
    assert one.cluster.residents.keys() >= other.cluster.residents.keys()


def work(system, count):
    """Place tasks, handing in some of one's own on the way."""
    for _ in range(count):
        placed = int((system.history()["code"] == 1).sum())
        if placed % 4 == 1 and system.cluster.has_room:
            system.submit("resnet-50", steps=700 + placed)
        system.schedule_next_task()


@pytest.mark.parametrize("policy", ["sjf", "round-robin", "exact"])
def test_going_on_is_like_never_having_stopped(tmp_path, policy):
    path = tmp_path / "run.journal"
    straight = System(SETTINGS, policy, seed=7)
    work(straight, 12)
    with System(SETTINGS, policy, seed=7, journal=path) as system:
        work(system, 5)
    for count in (1, 6):
        with System.resume(path) as system:
            work(system, count)
    with System.resume(path, preset=SETTINGS, policy=policy) as system:
        assert repeatable(system).equals(repeatable(straight))
        same_cluster(system, straight)
        assert [each.id for each in system.journal.tasks()] == [each.id for each in straight.journal.tasks()]
        facts = [each.details for each in system.journal.events() if each.kind == "resumed"]
        assert len(facts) == 3
        assert all(each["decided_otherwise"] == 0 for each in facts)
        assert facts[0]["rehearsed"] == (policy != "sjf" and hasattr(system.policy, "reset"))


def test_a_decision_without_outcome_takes_effect_once(tmp_path, monkeypatch):
    path = tmp_path / "run.journal"
    straight = System(SETTINGS, "greedy", seed=1)
    straight.run(6)
    with System(SETTINGS, "greedy", seed=1, journal=path) as system:
        system.run(5)
        monkeypatch.setattr(Journal, "record_outcome", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            system.run(1)
    monkeypatch.undo()
    with Journal.read(path) as journal:
        assert len(journal.pending()) == 1
    with System.resume(path) as system:
        assert system.journal.pending() == []
        assert [each.details["carried_out"] for each in system.journal.events()] == [1]
        missing = 6 - int((system.history()["code"] == 1).sum())
        if missing:
            system.run(missing)
        assert repeatable(system).equals(repeatable(straight))


def test_weights_that_were_changed_on_the_way_are_in_force_again(tmp_path):
    path = tmp_path / "run.journal"
    straight = System(SETTINGS, "greedy", seed=1)
    with System(SETTINGS, "greedy", seed=1, journal=path) as system:
        for each in (straight, system):
            each.run(3)
            each.reward = replace(each.reward, w_eff=0.1, w_cost=30.0)
            result = each.schedule_next_task()
            assert (result.reward.w_eff, result.reward.w_util, result.reward.w_cost) == (0.1, 0.5, 30.0)
            assert each.memory[result.id].view.reward.w_cost == 30.0
    straight.run(3)
    with System.resume(path) as system:
        system.run(3)
        assert repeatable(system).equals(repeatable(straight))
        weights = system.history()["w_cost"]
        assert (weights.iloc[0], weights.iloc[-1]) == (0.5, 30.0)
        assert {one.view.reward.w_cost for one in system.memory} == {0.5, 30.0}


def test_a_demonstration_that_was_killed_while_it_began_gets_its_tasks(tmp_path, monkeypatch):
    path = tmp_path / "run.journal"
    monkeypatch.setattr(System, "_submit_demo", lambda self: self.submit("resnet-50", id="ResNet50"))
    System.demo(policy="greedy", journal=path).close()
    monkeypatch.undo()
    with System.resume(path) as system:
        assert [each.id for each in system.journal.tasks()] == ["ResNet50", "BERT", "EfficientNet"]
        assert system.run(until="empty").completed == 3
    with System.resume(path) as system:
        assert system.schedule_next_task() is None


def test_tasks_handed_in_at_the_end_of_a_run_are_there_again(tmp_path):
    path = tmp_path / "run.journal"
    straight = System(SETTINGS, "greedy", queue="empty", seed=3)
    with System(SETTINGS, "greedy", queue="empty", seed=3, journal=path) as stopped:
        for system in (straight, stopped):
            system.submit("bert-base")
            system.run(hours=0.01)
            system.submit("gpt2-small", id="later")
            system.run(until="empty")
            system.submit("gpt2-small", id="last")
    with System.resume(path) as resumed:
        same_cluster(resumed, straight)
        assert resumed.now_s == straight.now_s > 0
        assert resumed.schedule_next_task().task.id == "last"


def test_journals_of_another_preset_or_policy_are_refused(tmp_path):
    path = tmp_path / "run.journal"
    with System(SETTINGS, "greedy", journal=path) as system:
        system.run(2)
    before = path.read_bytes()
    with pytest.raises(
        JournalError, match="preset = 'small': the journal is of preset 'small', whose arrivals differs"
    ):
        System.resume(path, preset=SMALL)
    with pytest.raises(JournalError, match="preset = 'testbed'"):
        System.resume(path, preset="testbed")
    with pytest.raises(JournalError, match="policy = 'sjf': the journal is of policy 'greedy'"):
        System.resume(path, policy="sjf")
    assert path.read_bytes() == before
    with pytest.raises(JournalError, match="does not exist"):
        System.resume(tmp_path / "none.journal")
    foreign = tmp_path / "foreign.journal"
    Journal.create(foreign, JournalHeader("x", "greedy", {}, {}, "0")).close()
    with pytest.raises(JournalError, match="was not written by a System"):
        System.resume(foreign)
    System.resume(path).close()


def test_a_function_must_be_handed_in_again(tmp_path):
    path = tmp_path / "run.journal"

    def nowhere(view):
        return None

    with System(SETTINGS, nowhere, journal=path):
        pass
    with pytest.raises(JournalError, match=r"policy = 'nowhere'.*Pass it"):
        System.resume(path)
    System.resume(path, policy=nowhere).close()


def test_a_journal_that_does_not_come_out_as_recorded_is_refused(tmp_path):
    path = tmp_path / "run.journal"
    with System(SETTINGS, "greedy", journal=path) as system:
        system.run(3)
    with Journal.open(path) as journal:
        last = journal.last()
        journal.record_decision(
            DecisionRecord(last.task_id, last.cluster_time_s + 0.5, "greedy", last.action, last.plan)
        )
    with pytest.raises(JournalError, match=r"decision d\d+ does not come out as recorded \(cluster_time_s"):
        System.resume(path)
    with Journal.open(path) as journal:
        assert len(journal.pending()) == 1


def test_a_second_process_is_refused(tmp_path):
    path = tmp_path / "run.journal"
    code = f"from attribution_sched import System; System.resume({str(path)!r})"
    with System(SETTINGS, "greedy", journal=path) as system:
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        system.run(1)
    assert found.returncode == 1
    assert f"is being written by process {os.getpid()}" in found.stderr
