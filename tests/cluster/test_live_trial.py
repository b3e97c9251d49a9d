"""A copy of the live cluster: what is tried there happens in the live one too, and leaves no trace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attribution_sched import System
from attribution_sched.cluster.live_trial import LiveTrial, copied
from attribution_sched.explain.why import Cause
from attribution_sched.rivals.greedy import Greedy


def waiting(policy, seed, preset="cross-domain-easy"):
    """A system in which somebody waits, and who."""
    system = System(preset, policy, seed=seed)
    while True:
        system.schedule_next_task()
        names = [row.id for row in system.queue().itertuples() if row.state == "window"]
        if names:
            return system, names[0]


def trial(system, name):
    looks = system.memory.looks(remembers=True)
    return LiveTrial(system.cluster, looks, system.ring.call, system.reward, name)


def test_a_copy_goes_on_like_the_live_cluster_and_changes_nothing_of_it():
    system, _ = waiting("sjf", 4)
    before = system.cluster.engine.state
    snapshot = [array.copy() for array in before if hasattr(array, "copy")]
    other = copied(system.cluster)
    other.advance()
    assert all((a == b).all() for a, b in zip(snapshot, [x for x in before if hasattr(x, "copy")], strict=True))
    assert other.engine.state is not before and other.world is system.cluster.world


@pytest.mark.parametrize("policy", ["sjf", "hi-ppo[quick]"])
def test_what_why_names_is_true_of_the_live_system(policy):
    """The blockers are really cancelled and those ahead really withdrawn: the task starts before time passes."""
    followed = 0
    for seed in range(11, 16):
        system, name = waiting(policy, seed)
        why = system.why(name)
        if not (why.blockers or why.ahead):
            continue
        followed += 1
        for each in why.blockers:
            system.cancel(each)
        for each in why.ahead:
            system.withdraw(each)
        now_s, started = system.now_s, False
        while (result := system.schedule_next_task()) is not None and result.cluster_time_s <= now_s + 1e-6:
            started = started or result.task.id == name
        assert started, (seed, why)
    assert followed >= 2


def test_trials_do_not_teach_one_another():
    """The same question has the same answer however often, and in whatever order, others are tried."""
    system, name = waiting("hi-ppo[quick]", 12)
    running = [task.id for task in system.cluster.residents.values() if system.cluster.place_of(task.id) == "running"]
    asked = trial(system, name)
    first = asked.starts_without(tuple(running))
    nothing = asked.starts_without(())
    assert asked.starts_without(tuple(running)) == first == trial(system, name).starts_without(tuple(running))
    assert asked.starts_without(()) == nothing and asked.count == 4


def test_an_answer_that_does_not_hold_in_the_live_cluster_is_not_given(monkeypatch):
    """Cut: where the live cluster says no to everything, nobody is named and nothing is advised."""
    system, name = waiting("sjf", 4)
    assert system.why(name).cause is Cause.NO_ROOM and system.why(name).blockers
    monkeypatch.setattr(LiveTrial, "_starts", lambda *_: False)
    why = system.why(name)
    assert not why.blockers and not why.ahead and why.change is None


class FourOnly:
    """Places opaque jobs of four devices, and nobody else."""

    name = "four-only"

    def decide(self, view):
        return Greedy().decide(view) if view.kind.opaque and view.kind.batch_size == 4 else None


def test_an_opaque_job_that_asks_for_another_size_is_tried_as_the_job_it_would_be():
    system = System("shared", FourOnly(), seed=3, queue="empty")
    name = system.submit({"kind": "opaque-8", "steps": 40})
    system.schedule_next_task()
    kinds = [kind.model.name for kind in system.world.kinds]
    waits = system.cluster.residents[system.cluster.slot_of(name)]
    asked = trial(system, name)
    assert not asked.asking(waits)
    assert asked.asking(replace(waits, kind_index=kinds.index("opaque-4"), steps=80.0))


class Grudging:
    """Greedy, but for a task that it was refused once: of that it tells nobody."""

    name = "grudging"

    def __init__(self):
        self.refused = set()

    def decide(self, view):
        if view.replanning or view.slot in self.refused:
            return None
        found = Greedy().decide(view)
        self.refused |= {view.slot} if found is None else set()
        return found

    def memory(self):
        return {}

    def recall(self, memory):
        self.refused = set()


def test_a_trial_remembers_what_the_policy_does():
    """Also what no journal keeps: an answer of a copy that had forgotten a refusal did not hold."""
    system, name = waiting(Grudging(), 4)
    running = [task.id for task in system.cluster.residents.values() if system.cluster.place_of(task.id) == "running"]
    slot = system.cluster.slot_of(name)
    system.policy.refused = set()
    assert trial(system, name).starts_without(running)
    system.policy.refused = {slot}
    asked = trial(system, name)
    assert not asked.starts_without(running) and not asked.starts_without(running)
    assert system.policy.refused == {slot}
