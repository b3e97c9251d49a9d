"""Operations: obeyed, recorded before they take effect, finished after an interrupt, the same again on resuming."""

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.live import SimulatedCluster
from attribution_sched.cluster.live_state import restore_cluster, save_cluster
from attribution_sched.errors import SettingsError, TaskError
from attribution_sched.system.operations import still_open
from tests.campaigns.fail_points import Cut, raising
from tests.small_world import small


def made(**given):
    return System(small(), "greedy", **({"queue": "empty"} | given))


def test_a_withdrawn_task_is_gone_and_never_placed():
    system = made()
    for name in ("first", "second", "third"):
        system.submit("bert-base", id=name)
    system.withdraw("second")
    system.run(until="empty")
    assert list(dict.fromkeys(system.history()["task_id"])) == ["first", "third"]


def test_what_cannot_be_withdrawn_is_one_clear_error_each():
    system = made()
    system.submit("bert-base", id="mine")
    with pytest.raises(TaskError, match=r"'mien'.*no such task was ever handed in\. Did you mean 'mine'"):
        system.withdraw("mien")
    with pytest.raises(TaskError, match="must be the id of a task"):
        system.withdraw(3)
    assert system.schedule_next_task().placed
    with pytest.raises(TaskError, match=r"cannot withdraw: it is running\. Use System.cancel"):
        system.withdraw("mine")
    system.run(until="empty")
    for operation in (system.withdraw, system.cancel, system.hold, system.release):
        with pytest.raises(TaskError, match="it has finished"):
            operation("mine")
    assert list(system.journal.intents()) == []


def test_a_cancelled_task_frees_its_devices_and_what_it_cost_stays_spent():
    system = made()
    system.submit("bert-base", id="mine", steps=100_000)
    assert system.schedule_next_task().placed
    assert sum(system.status().free_devices.values()) < 8
    system.run(hours=0.1)
    spent = system.cluster.totals()["task_j"]
    assert spent > 0
    system.cancel("mine")
    assert sum(system.status().free_devices.values()) == 8
    assert system.status().running == ()
    assert system.schedule_next_task() is None
    assert system.cluster.totals()["task_j"] == spent
    assert system.cluster.totals()["completed"] == 0
    system.submit("bert-base", id="waits")
    system.cancel("waits")
    assert system.cluster.waiting == 0


def test_a_cancelled_task_no_longer_draws_power_or_slows_others_down():
    both, alone = made(), made()
    for system in (both, alone):
        system.submit("bert-base", id="stays", steps=50_000, devices=2)
        assert system.schedule_next_task().placed
    both.submit("gpt2-small", id="goes", steps=50_000)
    assert both.schedule_next_task().placed
    both.cancel("goes")
    meters = [system.cluster.engine.state.clock[0, 3:5].tolist() for system in (both, alone)]
    assert meters[0] == meters[1]


def test_a_held_task_is_not_asked_about_until_it_is_released():
    system = made()
    system.submit("bert-base", id="held", hold=True)
    system.submit("bert-base", id="other")
    assert system.schedule_next_task().task.id == "other"
    assert system.schedule_next_task() is None
    assert system.status().held == ("held",)
    with pytest.raises(TaskError, match="is held already"):
        system.hold("held")
    system.release("held")
    with pytest.raises(TaskError, match="it is not held"):
        system.release("held")
    system.hold("held")
    assert system.schedule_next_task() is None
    system.release("held")
    assert system.schedule_next_task().task.id == "held"


def test_reserved_devices_are_not_free_for_others_until_the_time_is_over():
    system = made()
    first = system.reserve("east", 4, tenant="acme", hours=0.5)
    system.reserve("west", 2, tenant="acme", hours=2)
    assert [each.id for each in system.status().reservations] == [first, "r0001"]
    system.submit("bert-base", id="other", steps=200_000)
    placed = system.schedule_next_task()
    assert placed.decision.domains == ("west",)
    assert placed.decision.devices <= 2
    system.submit("bert-base", id="waits")
    left = system.run(hours=0.4)
    assert left.placed == 0
    assert system.run(hours=0.3).placed == 1
    assert system.status().reservations[0].id == "r0001"
    system.submit("bert-base", id="own", tenant="acme")
    assert system.schedule_next_task().task.id == "own"


def test_own_use_counts_against_a_reservation():
    system = made()
    system.reserve("east", 2, tenant="acme", hours=9)
    system.reserve("west", 4, tenant="acme", hours=9)
    system.submit("bert-base", tenant="acme", id="own", devices=2, steps=100_000)
    used = system.schedule_next_task()
    kept = system.cluster.reserved_devices("other")
    assert kept.sum() == 6 - used.decision.devices
    assert (system.cluster.reserved_devices("acme") == 0).all()


def test_a_reservation_can_be_ended_and_wrong_ones_are_refused():
    system = made()
    name = system.reserve("east", 3, tenant="acme", hours=1)
    for wrong, words in (
        ({"domain": "eastt"}, "Did you mean 'east'"),
        ({"devices": 0}, "whole number from 1 to 4"),
        ({"devices": True}, "whole number from 1 to 4"),
        ({"devices": 2}, r"3 of 4 devices of east are reserved already\. Reserve at most 1"),
        ({"tenant": "a\x00b"}, "printable"),
        ({"tenant": ""}, "must be a name"),
        ({"hours": float("nan")}, "above 0"),
        ({"hours": -1}, "above 0"),
    ):
        with pytest.raises(SettingsError, match=words):
            system.reserve(**({"domain": "east", "devices": 1, "tenant": "acme", "hours": 1} | wrong))
    system.unreserve(name)
    assert system.status().reservations == ()
    with pytest.raises(SettingsError, match="no reservation in force"):
        system.unreserve(name)


SCRIPT = (
    lambda system: [system.submit("bert-base", id=f"b{at}", priority=at % 3, tenant="acme") for at in range(7)],
    lambda system: system.submit("resnet-50", id="held", hold=True),
    lambda system: system.reserve("east", 2, tenant="acme", hours=0.2),
    lambda system: system.schedule_next_task(),
    lambda system: system.hold("b4"),
    lambda system: system.withdraw("b3"),
    lambda system: system.submit("gpt2-small", id="urgent", priority=7, deadline_s=50.0, devices=2),
    lambda system: system.run(hours=0.02),
    lambda system: system.release("held"),
    lambda system: system.schedule_next_task(),
    lambda system: system.release("b4"),
    lambda system: system.cancel([*system.status().running, *system.queue()["id"]][0]),
    lambda system: system.run(3),
    lambda system: system.unreserve("r0000") if system.cluster.reservations else None,
    lambda system: system.run(4),
)


def state_of(system):
    arrays, facts = save_cluster(system.cluster)
    free = system.cluster.engine.state.slots[0, :, 0] == 0
    arrays["state.tasks"][0, free] = 0.0
    return {name: array.tobytes() for name, array in arrays.items() if name.startswith("state.")}, facts


def decisions_of(system):
    return [(each.task_id, each.cluster_time_s, each.action) for each in system.journal.decisions()]


@pytest.mark.parametrize("queue", ["empty", "preset"])
def test_resumed_after_every_step_is_as_if_never_stopped(tmp_path, queue):
    whole = made(queue=queue, journal=tmp_path / "whole.db")
    for step in SCRIPT:
        step(whole)
    parts = made(queue=queue, journal=tmp_path / "parts.db")
    for step in SCRIPT:
        step(parts)
        at_s = parts.now_s
        parts.close()
        parts = System.resume(tmp_path / "parts.db")
        if parts.now_s != at_s:
            parts.advance(at_s)
    assert decisions_of(parts) == decisions_of(whole)
    assert len(decisions_of(whole)) > 5
    mine, facts = state_of(parts)
    other, known = state_of(whole)
    assert facts["operated"] == known["operated"]
    assert facts["held"] == known["held"]
    assert facts["reservations"] == known["reservations"]
    assert [name for name in other if mine[name] != other[name]] == []


def test_held_tasks_and_reservations_are_in_a_snapshot():
    system = made(queue="preset")
    for step in SCRIPT[:7]:
        step(system)
    arrays, facts = save_cluster(system.cluster)
    again = SimulatedCluster(system.world, system.seed, attribute=system.attribute)
    restore_cluster(again, arrays, facts)
    assert sorted(again.held) == sorted(system.cluster.held) == ["b4", "held"]
    assert again.reservations == system.cluster.reservations
    assert again.operated == system.cluster.operated > 0
    assert [each.task.id for each in again.backlog] == [each.task.id for each in system.cluster.backlog]
    again.let_in("held")
    assert again.place_of("held") in ("window", "backlog")


OPERATIONS = {
    "hold": (lambda system: system.hold("one"), lambda cluster: "one" in cluster.held),
    "withdraw": (lambda system: system.withdraw("one"), lambda cluster: cluster.place_of("one") is None),
    "cancel": (lambda system: system.cancel("runs"), lambda cluster: cluster.place_of("runs") is None),
    "reserve": (
        lambda system: system.reserve("west", 2, tenant="acme", hours=1),
        lambda cluster: bool(cluster.reservations),
    ),
    "release": (lambda system: system.release("two"), lambda cluster: "two" not in cluster.held),
}


def cut_short(kind, at, path):
    """Raise at a line of an operation, go on, resume; whether the operation came to its end before that line."""
    call, taken_effect = OPERATIONS[kind]
    system = made(journal=path)
    system.submit("bert-base", id="runs", steps=10_000)
    assert system.schedule_next_task().placed
    for name in ("one", "two"):
        system.submit("bert-base", id=name, hold=name == "two")
    ended = True
    try:
        with raising({at}, [0]):
            call(system)
    except Cut:
        ended = False
    system.submit("resnet-50", id="after")
    assert still_open(system.journal) == []
    recorded = len(list(system.journal.intents()))
    assert system.schedule_next_task() is not None
    assert recorded == int(taken_effect(system.cluster))
    state, told = state_of(system)[0], decisions_of(system)
    system.close()
    with System.resume(path) as again:
        assert decisions_of(again) == told
        assert state_of(again)[0] == state
    return ended


@pytest.mark.parametrize("kind", OPERATIONS)
def test_an_operation_that_is_cut_short_is_finished_at_the_next_call_or_never_happened(tmp_path, kind):
    line = 0
    while not cut_short(kind, line := line + 11, tmp_path / f"{line}.db"):
        pass
    assert line > 100


def test_an_operation_whose_effect_was_not_recorded_takes_effect_on_resuming(tmp_path):
    system = made(journal=tmp_path / "a.db")
    system.submit("bert-base", id="one")
    system.submit("bert-base", id="two")
    real = system.journal.record_effect
    system.journal.record_effect = lambda *_: (_ for _ in ()).throw(Cut("killed"))
    with pytest.raises(Cut):
        system.hold("one")
    system.journal.record_effect = real
    system.journal.close()
    again = System.resume(tmp_path / "a.db")
    assert list(again.cluster.held) == ["one"]
    assert still_open(again.journal) == []
    assert again.schedule_next_task().task.id == "two"


def test_a_live_cluster_is_told_once_to_cancel_and_not_when_a_journal_is_gone_through(tmp_path):
    told = []

    class Real(SimulatedCluster):
        def cancel(self, name):
            told.append(name)
            super().cancel(name)

    system = made(cluster=Real, journal=tmp_path / "a.db")
    system.submit("bert-base", id="one", steps=10_000)
    assert system.schedule_next_task().placed
    system.cancel("one")
    system.close()
    again = System.resume(tmp_path / "a.db", cluster=Real)
    assert told == ["one"]
    assert again.cluster.running == 0
    assert np.all(again.cluster.engine.state.occupant == -1)
