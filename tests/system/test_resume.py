"""A system as arrays and facts: saved and put back it is the same to the bit, and goes on the same."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.engine.state import DOWN
from attribution_sched.cluster.live import SimulatedCluster
from attribution_sched.cluster.live_state import restore_cluster, save_cluster
from attribution_sched.config import load_settings
from attribution_sched.errors import JournalError
from attribution_sched.explain import memory
from attribution_sched.journal import TaskRecord, reader
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.system import recovery, ring
from attribution_sched.system.replay import RecordedVectors
from attribution_sched.system.snapshots import record_snapshot, restore_snapshot
from attribution_sched.types import Task
from tests.campaigns.same import account, decisions
from tests.small_world import small

SETTINGS = small(arrivals={"kind": "poisson", "rate_per_hour": 500.0})


FAILURES = {"mean_up_h": 0.05, "mean_down_h": 0.05, "left": 0.05}


@pytest.fixture
def short(monkeypatch):
    """Journals count as long from forty decisions on."""
    monkeypatch.setattr(memory, "MOST", 40)
    monkeypatch.setattr(memory.Memory.__init__, "__defaults__", (40,))
    monkeypatch.setattr(recovery, "AGAIN", 12)
    monkeypatch.setattr(ring, "EVERY", 8)


def same_state(one, other):
    """Whether two clusters are the same to the last bit."""
    mine, theirs = account(one).state, account(other).state
    return all(np.array_equal(array, theirs[name], equal_nan=array.dtype.kind == "f") for name, array in mine.items())


def grown(path, policy, count, extra=0, settings=SETTINGS):
    """A system that has decided so often, with tasks of its own behind the window."""
    system = System(settings, policy, seed=5, journal=path)
    for number in range(extra):
        system.submit("resnet-50", steps=700 + number, id=f"own-{number}")
    while system.journal.count() < count:
        system.schedule_next_task()
    return system


def pairing():
    """The shared site on eight devices: measured jobs wait and are put together."""
    plain = load_settings("shared").model_dump(mode="json")
    plain["domain_defaults"]["devices"], plain["arrivals"]["rate_per_hour"] = 8, 9.0
    plain["episode"] |= {"pool_size": 256, "queue_capacity": 16, "max_running": 16}
    return load_settings(plain)


def test_a_cluster_is_put_back_to_the_bit():
    system = grown(None, "sjf", 6, extra=19)
    arrays, facts = save_cluster(system.cluster)
    assert len(facts["backlog"]) > 0
    other = SimulatedCluster(system.world, 99, attribute=system.attribute)
    restore_cluster(other, arrays, json.loads(json.dumps(facts)))
    for name in other.engine.state._fields:
        mine, theirs = getattr(other.engine.state, name), getattr(system.cluster.engine.state, name)
        assert np.array_equal(mine, theirs, equal_nan=True), name
    assert [each.task.id for each in other.backlog] == [each.task.id for each in system.cluster.backlog]
    assert {slot: task.id for slot, task in other.residents.items()} == {
        slot: task.id for slot, task in system.cluster.residents.items()
    }


def test_a_state_of_another_world_is_refused():
    arrays, facts = save_cluster(SimulatedCluster(SETTINGS.build_world(), 1))
    other = SimulatedCluster(small(episode={**small().episode.model_dump(), "queue_capacity": 9}).build_world(), 1)
    with pytest.raises(JournalError, match="snapshot"):
        restore_cluster(other, arrays, facts)


@pytest.mark.parametrize("policy", ["sjf", "round-robin", "exact"])
def test_a_long_journal_goes_on_from_a_snapshot(tmp_path, short, policy):
    path = tmp_path / "run.journal"
    grown(path, policy, 70, extra=6).close()
    straight = grown(None, policy, 70, extra=6)
    with System.resume(path) as resumed:
        event = list(resumed.journal.events())[-1].details
        assert 12 <= event["lived_through"] < 40
        assert event["decided_otherwise"] == 0
        count = resumed.journal.count() + 15
        for system in (resumed, straight):
            while system.journal.count() < count:
                system.schedule_next_task()
        assert same_state(resumed, straight)
        assert decisions(resumed.journal)[:count] == decisions(straight.journal)[:count]


def test_links_go_on_failing_the_same_after_a_snapshot(tmp_path, short):
    path, network = tmp_path / "run.journal", SETTINGS.network.model_dump(mode="json")
    network["motion"]["failures"] = FAILURES
    episode = SETTINGS.episode.model_dump(mode="json") | {"tick_s": 30.0}
    settings = small(arrivals={"kind": "poisson", "rate_per_hour": 500.0}, network=network, episode=episode)
    grown(path, "sjf", 70, settings=settings).close()
    straight, down = grown(None, "sjf", 70, settings=settings), []
    with System.resume(path) as resumed:
        assert list(resumed.journal.events())[-1].details["lived_through"] < 40
        while resumed.journal.count() < 140:
            for system in (resumed, straight):
                system.schedule_next_task()
            down.append(float(resumed.cluster.engine.state.links[0, DOWN, 0, 1]))
        assert same_state(resumed, straight)
    assert 0.0 < np.mean(down) < 1.0


@pytest.mark.slow
def test_hi_ppo_goes_on_from_a_snapshot_without_being_asked_again(tmp_path, short):
    path = tmp_path / "run.journal"
    grown(path, "hi-ppo", 60).close()
    straight = grown(None, "hi-ppo", 60)
    with System.resume(path) as resumed:
        for system in (resumed, straight):
            while system.journal.count() < 75:
                system.schedule_next_task()
        assert same_state(resumed, straight)


def test_hi_ppo_knows_the_links_after_a_snapshot_as_if_it_had_never_stopped(tmp_path, short):
    """What it forecasts is learnt from all decisions, those too that nobody asks it about again."""
    path = tmp_path / "run.journal"
    grown(path, "hi-ppo[quick]", 60).close()
    straight = grown(None, "hi-ppo[quick]", 60).policy.memory()
    with System.resume(path) as resumed:
        assert 0 < list(resumed.journal.events())[-1].details["lived_through"] < 40
        found = resumed.policy.memory()
    assert set(found) == set(straight) and "last_s" in straight
    assert all(np.array_equal(found[name], straight[name], equal_nan=True) for name in straight)
    with System.resume(path) as again:  # Nothing was decided meanwhile: it has not forgotten.
        assert np.array_equal(again.policy.memory()["last_s"], straight["last_s"])


def test_hi_ppo_knows_the_pairs_after_a_snapshot_as_if_it_had_never_stopped(tmp_path, short):
    """What pairs of jobs were seen to do is learnt from all decisions, too."""
    path = tmp_path / "run.journal"
    grown(path, "hi-ppo[quick]", 100, settings=pairing()).close()
    straight = grown(None, "hi-ppo[quick]", 100, settings=pairing()).policy.memory()
    with System.resume(path) as resumed:
        assert 0 < list(resumed.journal.events())[-1].details["lived_through"] < 40
        found = resumed.policy.memory()
    assert len(straight["pairs.speeds"]) > 10
    assert all(np.array_equal(found[name], straight[name], equal_nan=True) for name in straight)


def test_a_short_journal_is_lived_through_without_asking_for_what_a_snapshot_holds(tmp_path, monkeypatch):
    path = tmp_path / "run.journal"
    grown(path, "hi-ppo[quick]", 30).close()
    straight = grown(None, "hi-ppo[quick]", 30)
    asked = []
    decide = HiPpo.decide
    monkeypatch.setattr(HiPpo, "decide", lambda policy, view: asked.append(view) or decide(policy, view))
    with System.resume(path) as resumed:
        assert not asked
        assert list(resumed.journal.events())[-1].details["lived_through"] == straight.journal.count()
        found, known = resumed.policy.memory(), straight.policy.memory()
        assert set(found) == set(known)
        assert all(np.array_equal(found[name], known[name], equal_nan=True) for name in known)
        for system in (resumed, straight):
            while system.journal.count() < 40:
                system.schedule_next_task()
        assert asked
        assert same_state(resumed, straight)
        assert decisions(resumed.journal) == decisions(straight.journal)


def test_a_forgotten_decision_of_hi_ppo_is_seen_as_it_was(tmp_path, short):
    """Links are forecast from what was seen until then, also when it is seen again."""
    system = grown(tmp_path / "run.journal", "hi-ppo[quick]", 60)
    kept = {name: each.seen for name, each in list(system.memory._kept.items())[-5:]}
    system.memory._kept.clear()
    for name, seen in kept.items():
        again = system.questions.recall(name).seen
        for column in fields(seen):
            assert np.array_equal(getattr(again, column.name), getattr(seen, column.name)), (name, column.name)


def test_an_old_decision_is_seen_as_it_was(tmp_path, short):
    system = grown(tmp_path / "run.journal", "sjf", 60)
    name = "d000020"
    kept = {each: system.memory._kept[each] for each in list(system.memory._kept)[:1]}
    first = next(iter(kept))
    seen = kept[first].view
    system.memory._kept.clear()
    again = system.questions.recall(first).view
    assert (again.time_s, again.slot, again.steps_left) == (seen.time_s, seen.slot, seen.steps_left)
    assert np.array_equal(again.free_devices, seen.free_devices)
    assert np.array_equal(again.bandwidth_gbps, seen.bandwidth_gbps)
    assert system.questions.recall(name).view.time_s == system.journal.decision(name).cluster_time_s


def test_an_old_decision_is_recalled_without_what_came_later(tmp_path, short, monkeypatch):
    """Recalling costs the same however long the journal has become since, and tasks handed in are there again."""
    system = grown(tmp_path / "run.journal", "sjf", 20)
    system.submit("resnet-50", id="own")
    while system.journal.count() < 60:
        system.schedule_next_task()
    read = []
    real = reader.read

    def watched(kind, row, *rest, **more):
        record = real(kind, row, *rest, **more)
        read.extend([record] if kind is TaskRecord else [])
        return record

    monkeypatch.setattr(reader, "read", watched)
    after = next(each.sequence for each in system.journal.decisions() if each.task_id == "own")
    before = [task.id for task in system.journal.tasks(0, before=after)]
    assert "own" in before and len(before) < system.journal.task_count()
    read.clear()
    system.memory._kept.clear()
    assert system.questions.recall(f"d{after:06d}").view.task.id == "own"
    assert {task.id for task in read} <= set(before) and len(read) < system.journal.task_count()


def test_recalling_an_old_decision_leaves_the_policy_what_it_knows_of_pairs(tmp_path, short):
    """Who looks at it again begins without memory; that must not be the memory of who goes on deciding."""
    system = grown(tmp_path / "run.journal", "hi-ppo[quick]", 100, settings=pairing())
    before = system.policy.memory()
    assert len(before["pairs.speeds"]) > 10
    system.questions.recall("d000020")
    after = system.policy.memory()
    assert set(after) == set(before)
    assert all(np.array_equal(after[name], before[name], equal_nan=True) for name in before)


def test_an_old_decision_has_the_attributions_that_the_policy_saw(tmp_path, short):
    path = tmp_path / "run.journal"
    system = grown(path, "sjf", 60)
    name = "d000030"
    seen = system.questions.recall(name).view
    system.close()

    def otherwise(counters):
        return np.full((len(counters), 7), 0.5)

    with System.resume(path, attributor=otherwise) as resumed:
        resumed.memory._kept.clear()
        decided = resumed.questions.recall(name).view
        assert decided.attribution.as_dict() == resumed.journal.decision(name).attribution == seen.attribution.as_dict()
        placed = {d.task_id for d in resumed.journal.decisions(0, 31)}
        known = [task for task in decided.queue if task.id in placed]
        assert known and all(task.attribution.question == "accounting" for task in known)


def test_an_attribution_that_is_none_is_one_clear_error(tmp_path):
    system = grown(tmp_path / "run.journal", "sjf", 3)
    record = replace(next(system.journal.decisions()), attribution={"state": [0.0], "values": "x"})
    vectors = RecordedVectors([record], system.attribute)
    with pytest.raises(JournalError, match=r"decisions\[d000000\]\.attribution .*is no attribution"):
        vectors(Task(id=record.task_id))


def test_a_release_that_prices_otherwise_goes_on_and_says_so(tmp_path, short, monkeypatch):
    path = tmp_path / "run.journal"
    grown(path, "sjf", 60).close()
    effect = SimulatedCluster.effect

    def dearer(self, slot, paid):
        from dataclasses import replace

        told = effect(self, slot, paid)
        return replace(told, move_s=told.move_s + 1.0)

    monkeypatch.setattr(SimulatedCluster, "effect", dearer)
    with System.resume(path) as resumed:
        event = list(resumed.journal.events())[-1].details
        assert len(event["priced_otherwise"]) == event["lived_through"] > 0
        assert resumed.schedule_next_task() is not None


def test_a_snapshot_that_is_not_a_system_s_is_passed_over(tmp_path):
    system = grown(tmp_path / "run.journal", "sjf", 10)
    system.journal.record_snapshot(system.journal.count(), {"a": np.zeros(2)}, {"of": "somebody else"})
    assert restore_snapshot(system.journal.newest_snapshot(), system.new_cluster())["sequence"] == 0
    record_snapshot(system.journal, system.cluster, system.policy, {})
    found = restore_snapshot(system.journal.newest_snapshot(), system.new_cluster())
    assert found["sequence"] == system.journal.count()
