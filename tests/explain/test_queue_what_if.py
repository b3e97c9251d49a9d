"""A real queue asked what if: nothing changed is zero, changes by hand, paired futures, one clear error each."""

import pytest

from attribution_sched.errors import AttributionSchedError, SettingsError
from attribution_sched.explain.queue_what_if import QueueChange, queue_what_if, read_queue_change, shift_words
from attribution_sched.words.say import Phrase
from tests.executors.test_shadow import cluster, job


def asked(queue, text, **more):
    return queue_what_if(queue, read_queue_change(queue, text), **more)


def busy(**more):
    """4 devices held until +50 by everybody's limit, then 2 and 3 one after the other."""
    return cluster(job(1, 4, running=True), job(2, 4), job(3, 2), **more)


def test_nothing_changed_is_zero_to_the_bit():
    queue = busy(shares=(0.1, 0.6, 0.7, 1.0))
    same = queue_what_if(queue, QueueChange(Phrase("what_if.unchanged"), lambda given: given))
    assert same.shifts == ()
    assert [(each.delta, each.low, each.high) for each in same.effects] == [(0.0, 0.0, 0.0)] * 3


def test_changes_by_hand():
    queue = busy()
    assert asked(queue, "without 1")["wait"].delta == pytest.approx(-50.0 / 60.0)
    first = asked(queue, "without 2")
    assert [(each.task, each.start_s) for each in first.shifts] == [("3", pytest.approx(-100.0))]
    # Two devices are free then beside the first job, and two are enough for it.
    small = asked(cluster(job(1, 2, running=True), job(2, 4)), "devices 2 2")
    assert (small.shifts[0].task, small.shifts[0].start_s) == ("2", pytest.approx(-50.0))
    # A limit that ends before the first in line could begin lets it past.
    tight = cluster(job(1, 3, running=True), job(2, 4), job(3, 1, limit=60.0))
    passed = asked(tight, "limit 3 40s")
    assert (passed.shifts[0].task, passed.shifts[0].start_s) == ("3", pytest.approx(-150.0))
    assert asked(tight, "limit 3 1m").shifts == ()
    jumped = asked(queue, "first 3")
    assert {each.task: each.start_s for each in jumped.shifts} == {
        "3": pytest.approx(-100.0),
        "2": pytest.approx(100.0),
    }


def test_nodes_and_domains():
    queue = busy(domains=("east", "west"))
    moved = asked(queue, "move 3 west")
    assert moved.shifts[0].start_s == pytest.approx(-150.0)
    assert asked(queue, "add 4@east")["wait"].delta < 0.0
    fewer = asked(queue, "add -1@east")
    assert fewer["started"].delta == -1.0
    gone = asked(queue, "drop east-1")
    assert gone["started"].changed == 0.0 and gone["started"].without == 2.0
    assert asked(queue, "drop east")["started"].changed == 0.0


def test_both_copies_meet_the_same_run_times():
    queue = busy(shares=(0.1, 0.3, 0.6, 0.7, 1.0))
    found = asked(queue, "without 2", draws=64)
    # Job 2 alone decides by how much; what job 1 does cancels, so the gain is job 2's own run time.
    assert -100.0 <= found.shifts[0].start_s <= -10.0
    assert found["wait"].high < 0.0
    assert asked(queue, "without 2", draws=64) == found


def test_words_in_two_languages():
    found = asked(busy(), "without 2")
    assert "2 not there" in found.say() and "backfill" in found.say()
    assert "没有任务 2" in found.say("zh")
    assert "sooner" in shift_words(found.shifts[0]).say("en")


@pytest.mark.parametrize(
    "text",
    ["", "fly", "drop", "drop nowhere", "add 4", "add x@east", "add 0@east", "add 4@nowhere", "add -9@east",
     "without 99", "move 2", "move 2 nowhere", "move 1 east", "devices 2 0", "devices 2 1e9", "limit 2 soon",
     "limit 2 -5m", "limit 2 nanm", "first 1", "first 99"],
)  # fmt: skip
def test_what_is_no_change_is_one_clear_error(text):
    with pytest.raises(AttributionSchedError):
        read_queue_change(busy(), text)


def test_a_running_jobs_request_is_what_it_is():
    with pytest.raises(SettingsError, match="runs already"):
        read_queue_change(busy(), "devices 1 2")
