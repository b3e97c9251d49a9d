"""Which earlier decision made a task late: a planted culprit is named, and what is left is told."""

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.fork import fork
from attribution_sched.errors import SettingsError, TaskError
from attribution_sched.explain.room import best_inside
from attribution_sched.scheduler.policy import go_on_as
from tests.cli.helpers import invoke
from tests.small_world import small


class Hog:
    """Gives every task all devices of the first free domain, however few would do."""

    name = "hog"

    def decide(self, view):
        if view.replanning:
            return None
        free = np.asarray(view.free_devices)
        return next((best_inside(view, k, least=int(free[k])) for k in np.flatnonzero(free)), None)


@pytest.fixture(scope="module")
def system():
    with System("cross-domain-easy", policy="sjf", seed=3) as made:
        made.run(30)
        yield made


def late(system):
    waits = {}
    for each in system.journal.decisions():
        if each.plan is not None and each.task_id not in waits:
            waits[each.task_id] = each.cluster_time_s - system.journal.task(each.task_id).submitted_s
    return max(waits, key=waits.get), waits


def test_tasks_that_are_known_to_come_do_come_and_nobody_else(system):
    decided = [each.id for each in system.journal.decisions() if each.plan is not None]
    early, late_ = system.questions.recall(decided[2]), system.questions.recall(decided[12])
    known = {task.id: task for task in early.view.moment.tasks.values()}
    later = [t for t in late_.view.moment.tasks.values() if t.arrived_s > early.view.moment.now_s]
    assert later
    follower, beliefs = go_on_as(system.policy, early.view, quick=True)
    hours = (late_.view.time_s - early.view.time_s) / 3600.0 + 24.0
    found = fork(early.view.moment, [], 2, hours, follower, 5, beliefs=beliefs, coming=later)
    assert set(found.names) == set(known) | {task.id for task in later}
    starts = found.of("start_s")[0]
    for task in later:
        assert (starts[:, found.names.index(task.id)] >= task.arrived_s).all()
    assert (found.met == len(found.names)).all()


def test_planted_culprits_are_named_and_their_overlap_is_told():
    with System(small(), policy=Hog(), queue="empty", seed=2) as system:
        for name in ("hog-1", "hog-2"):
            system.submit("bert-base", steps=40_000, id=name)
            system.schedule_next_task()
        system.submit("gpt2-small", steps=200, id="late")
        system.run(until="empty")
        found = system.blame("late")
        day = system.blame(most=3)
    culprits = {each.task: each.hours for each in found.certain[:2]}
    assert set(culprits) == {"hog-1", "hog-2"} and found.waited_h > 0.3
    assert all(abs(each.hours.mean) < 0.1 * found.waited_h for each in found.entries[2:])
    # Either of them on half its devices would have let it start at once: each takes the blame for the whole wait.
    for hours in culprits.values():
        assert hours.mean == pytest.approx(found.waited_h, rel=0.35)
    assert found.left_h == pytest.approx(found.waited_h - found.total) and found.left_h < 0.0
    words = found.say()
    assert "hog-1" in words and "±" in words and "is left" in words and "hog-2" in found.say("zh")
    assert day.task == "" and all(each.hours is None for each in day.entries)


def test_numbers_agree_with_each_other(system):
    task, waits = late(system)
    found = system.blame(task)
    assert found.waited_h == pytest.approx(waits[task] / 3600.0)
    assert found.left_h == pytest.approx(found.waited_h - sum(each.span.mean for each in found.entries))
    assert [each.span.mean for each in found.entries] == sorted((e.span.mean for e in found.entries), reverse=True)
    for each in found.entries:
        assert each.hours.low <= each.hours.mean <= each.hours.high and each.what != each.instead


CASES = {
    "unknown task": (lambda s: s.blame("nope"), TaskError, "'nope'"),
    "zero futures": (lambda s: s.blame(futures=0), SettingsError, "futures = 0.*Use"),
    "no decisions": (lambda s: s.blame(most=0), SettingsError, "most = 0"),
    "no hours": (lambda s: s.blame(hours=float("nan")), SettingsError, "hours"),
}


@pytest.mark.parametrize("ask", CASES)
def test_bad_input_is_one_clear_error_and_changes_nothing(system, ask):
    question, error, words = CASES[ask]
    before = (system.journal.count(), system.now_s)
    with pytest.raises(error, match=words):
        question(system)
    assert before == (system.journal.count(), system.now_s)


def test_as_a_user_types_it(tmp_path):
    path = tmp_path / "j.sqlite"
    with System(small(), "sjf", journal=path, seed=4) as system:
        system.run(8)
        task = next(each.task_id for each in system.journal.decisions() if each.plan is not None)
    content = path.read_bytes()
    done = invoke("blame", path, task, "--futures", "4")
    assert done.exit_code == 0 and f"{task} waited" in done.stdout, done.output
    assert invoke("blame", path, "--most", "3", "--futures", "4", "--json").exit_code == 0
    wrong = invoke("blame", path, "nope")
    assert wrong.exit_code == 2 and sum(line.startswith("error:") for line in wrong.stderr.splitlines()) == 1
    assert path.read_bytes() == content
