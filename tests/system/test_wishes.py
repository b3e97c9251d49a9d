"""Tenant, priority, deadline, devices and hold: checked at the door, obeyed, or their breach is reported."""

import pytest

from attribution_sched import System
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.errors import CounterError, TaskError
from tests.small_world import small


def made(policy="greedy", **given):
    return System(small(), policy, **({"queue": "empty"} | given))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("tenant", "", "must be a name"),
        ("tenant", "a\nb", "printable"),
        ("tenant", 7, "must be a name"),
        ("tenant", "x" * 201, "at most 200"),
        ("priority", 1.5, "whole number from -1000 to 1000"),
        ("priority", True, "whole number"),
        ("priority", 1001, "whole number"),
        ("deadline_s", 0.0, "above 0"),
        ("deadline_s", -3, "above 0"),
        ("deadline_s", float("nan"), "above 0"),
        ("deadline_s", float("inf"), "above 0"),
        ("deadline_s", "soon", "above 0"),
        ("devices", 0, "from 1 to 8"),
        ("devices", 9, "from 1 to 8"),
        ("devices", 2.0, "from 1 to 8"),
        ("hold", "yes", "True or False"),
    ],
)
def test_a_wrong_field_is_one_clear_error_and_nothing_is_recorded(field, value, words):
    system = made()
    with pytest.raises(TaskError, match=rf"task\.{field} = .*{words}"):
        system.submit("bert-base", **{field: value})
    assert list(system.journal.tasks()) == []
    assert system.cluster.came == 0


def test_fields_are_on_the_task_in_the_decision_the_result_the_journal_and_after_resuming(tmp_path):
    seen = []

    def watching(view):
        seen.append(view)

    wishes = {"tenant": "acme", "priority": 5, "deadline_s": 60.0, "devices": 2}
    system = made(watching, journal=tmp_path / "a.db")
    system.run(hours=0.01)
    now_s = system.now_s
    system.submit("bert-base", id="mine", **wishes)
    system.submit("bert-base", id="other")
    system.run(hours=0.05)
    own = next(task for view in seen for task in view.queue if task.id == "mine")
    assert (own.tenant, own.priority, own.deadline_s, own.devices) == ("acme", 5, now_s + 60.0, 2)
    assert seen[0].task.id == "mine"
    assert system.journal.task("mine").meta["asked"]["tenant"] == "acme"
    system.close()
    again = System.resume(tmp_path / "a.db", policy=watching)
    back = next(task for task in again.cluster.residents.values() if task.id == "mine")
    assert (back.tenant, back.priority, back.deadline_s, back.devices) == ("acme", 5, now_s + 60.0, 2)


def test_the_more_urgent_task_is_asked_about_first_also_from_behind_the_window():
    system = made()
    for at in range(9):
        system.submit("bert-base", id=f"b{at}")
    system.submit("bert-base", id="urgent", priority=3)
    system.submit("bert-base", id="lazy", priority=-3)
    assert system.cluster.place_of("urgent") == "window"
    assert system.cluster.place_of("b3") == "backlog"
    first = system.schedule_next_task()
    assert first.task.id == "urgent"
    assert first.breaches == ()
    system.run(9)
    order = list(dict.fromkeys(system.history().query("code == 1")["task_id"]))
    assert order == ["urgent", *(f"b{at}" for at in range(9))]


def test_a_policy_that_passes_over_a_more_urgent_task_is_reported():
    class Stubborn:
        name = "stubborn"

        def select(self, view):
            return min(view.queue, key=lambda task: task.priority).slot

        def decide(self, view):
            from attribution_sched.scheduler.registry import make_policy

            return make_policy("greedy").decide(view)

    system = made(Stubborn())
    system.submit("bert-base", id="urgent", priority=3)
    system.submit("bert-base", id="lazy")
    first = system.schedule_next_task()
    assert first.task.id == "lazy"
    assert first.breaches == ("placed before urgent (priority 3), more urgent than priority 0",)
    assert "breach   placed before urgent" in str(first)
    assert "placed before urgent" in first._repr_html_()
    assert [each.say("zh") for each in first.breaches] == ["先于 urgent（优先级 3）放置，后者比优先级 0 更紧急"]
    assert first.to_dict()["breaches"] == list(first.breaches)
    other = made(Stubborn())
    other.submit("bert-base", id="urgent", priority=3)
    other.submit("bert-base", id="lazy")
    summary = other.run(2)
    assert summary.breaches == 1
    assert "1 decisions passed over a wish" in str(summary)


def test_a_deadline_that_will_be_missed_is_reported_and_counted_when_it_is():
    system = made()
    system.submit("bert-base", id="late", deadline_s=1.0)
    placed = system.schedule_next_task()
    assert len(placed.breaches) == 1
    assert "after its deadline" in placed.breaches[0]
    assert system.run(until="empty").missed == 1
    system.submit("bert-base", id="easy", deadline_s=1e6)
    assert system.schedule_next_task().breaches == ()
    assert system.run(until="empty").missed == 0


def test_no_more_devices_are_used_than_were_asked_for():
    system = made()
    for devices in (1, 2, 3):
        system.submit("bert-base", id=f"d{devices}", devices=devices)
        assert system.schedule_next_task().decision.devices <= devices
        system.run(until="empty")
    free = made()
    free.submit("bert-base")
    assert free.schedule_next_task().decision.devices > 1


def greedy_of(view, devices):
    """A plan of so many devices in the first domain, whatever is allowed."""
    layers = len(view.kind.model.layers)
    segment = Segment(0, 0, layers, devices, 1, 1, Precision.BF16)
    return Plan((Replica((segment,), 8, view.kind.batch_size // 8),))


def test_a_plan_beyond_what_was_asked_for_is_refused_before_it_is_recorded():
    system = made(lambda view: greedy_of(view, 4))
    system.submit("bert-base", id="mine", devices=2)
    system.run(hours=0.01)
    assert system.cluster.running == 0
    kept = next(system.journal.decisions())
    assert kept.plan is None
    assert kept.source.startswith("waits (refused: the plan uses 4 devices, the task asked for at most 2)")
    assert system.run(hours=0.2).breaches > 0


def test_a_plan_on_reserved_devices_is_refused():
    system = made(lambda view: greedy_of(view, 4))
    system.reserve("east", 1, tenant="acme", hours=1)
    system.submit("bert-base", id="mine")
    system.run(hours=0.01)
    assert system.cluster.running == 0
    assert "1 are reserved for others" in next(system.journal.decisions()).source


def test_a_request_for_devices_that_cannot_hold_the_task_is_refused_at_once():
    system = System(small(kinds=[BIG], domain_defaults=LITTLE), "greedy", queue="empty")
    system.submit("gpt2-xl", devices=4)
    with pytest.raises(TaskError, match="gpt2-xl fits on no 1 devices of this cluster"):
        system.submit("gpt2-xl", devices=1)


LITTLE = {"gpu": "V100-16", "devices": 4, "node_devices": 4, "carbon_g_per_kwh": 200.0}
BIG = {"model": "gpt2-xl", "batch_size": 32, "microbatches": [1, 2, 4, 8], "steps": [400, 1200], "epoch_steps": 500}


def test_an_attributor_that_fails_or_gives_no_numbers_refuses_the_task_at_the_door():
    system = made()
    good = system.attribute.attributor

    class Broken:
        def vector(self, counters):
            raise ZeroDivisionError("no counters")

    system.attribute.attributor = Broken()
    with pytest.raises(CounterError, match=r"cannot say where its joules go \(ZeroDivisionError: no counters\)"):
        system.submit("bert-base", id="poison")
    assert list(system.journal.tasks()) == []
    assert system.cluster.waiting == 0
    system.attribute.attributor = good
    system.submit("bert-base", id="poison")
    assert system.schedule_next_task().placed
