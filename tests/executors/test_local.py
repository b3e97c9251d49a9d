"""Jobs as processes of this machine: claimed once, kept, measured, noticed when lost."""

import os
import signal
import time

import psutil
import pytest

from attribution_sched.errors import ExecutorError, LaunchRefused
from attribution_sched.executors.executor import Executor
from attribution_sched.executors.local import LocalExecutor
from attribution_sched.executors.records import Component, JobSpec

KEY = "0123456789ab-d000000"


def job(*command, devices=1, held=False, **more):
    part = Component("east", 1, 3, 0, 1, 4, 9, dp=devices, precision="bf16", power_cap_w=250.0, partner="other")
    return JobSpec("task-1", command, part, steps=7, held=held, **more)


def until(condition, seconds=20.0):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it never came"
        time.sleep(0.01)


@pytest.fixture
def east(tmp_path):
    return LocalExecutor("east", 2, tmp_path, grace_s=2.0)


def ended(executor, key=KEY):
    until(lambda: executor.find(key).ended)
    return executor.find(key)


def test_a_job_is_told_its_part_and_its_end_is_measured(east, tmp_path):
    east.launch(
        KEY,
        job(
            "sh", "-c", f"env | grep ^ATTR_ | sort > {tmp_path}/told; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
        ),
    )
    handle = ended(east)
    told = dict(line.split("=", 1) for line in (tmp_path / "told").read_text().splitlines())
    assert told["ATTR_KEY"] == KEY and told["ATTR_STAGE"] == "1" and told["ATTR_STAGES"] == "3"
    assert (told["ATTR_FIRST"], told["ATTR_STOP"], told["ATTR_STEPS"]) == ("4", "9", "7")
    assert told["ATTR_POWER_CAP_W"] == "250" and told["ATTR_PARTNER"] == "other"
    assert told["ATTR_DEVICES"] == "0"
    assert handle.state == "finished" and handle.exit_code == 0
    assert handle.cpu_s > 0.0 and handle.max_rss_bytes > 1e5


def test_the_same_key_is_launched_once(east, tmp_path):
    command = ("sh", "-c", f"echo ran >> {tmp_path}/ran")
    first = east.launch(KEY, job(*command))
    assert east.launch(KEY, job(*command)).id == first.id
    ended(east)
    assert east.launch(KEY, job(*command)).state == "finished"
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_two_submissions_that_do_not_know_of_each_other_run_one_job(east, tmp_path):
    """The folder's name is claimed by renaming: also whoever did not ask first cannot run a key twice."""
    blind = LocalExecutor("east", 2, tmp_path)
    blind.find = lambda key: None
    east.launch(KEY, job("sh", "-c", f"echo ran >> {tmp_path}/ran; sleep 0.2"))
    with pytest.raises(ExecutorError):
        blind.launch(KEY, job("sh", "-c", f"echo ran >> {tmp_path}/ran"))
    ended(east)
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_jobs_wait_for_devices_and_devices_come_back(east):
    east.launch("a-1", job("sleep", "2", devices=2))
    until(lambda: east.find("a-1").state == "running")
    east.launch("a-2", job("true"))
    assert east.find("a-2").state == "queued"
    assert east.inventory().free == 0
    assert east.why_waiting("a-2").token == "Resources"
    assert ended(east, "a-2").started_unix_s >= east.find("a-1").ended_unix_s - 0.05
    until(lambda: east.inventory().free == 2)
    assert east.why_waiting("a-2") is None


def test_a_held_job_has_its_devices_and_waits_at_its_gate(east, tmp_path):
    east.launch(KEY, job("touch", f"{tmp_path}/ran", held=True))
    until(lambda: east.find(KEY).state == "granted")
    assert east.inventory().free == 1 and not (tmp_path / "ran").exists()
    east.release(KEY)
    east.release(KEY)
    assert ended(east).state == "finished" and (tmp_path / "ran").exists()


def test_a_held_job_that_nobody_releases_gives_its_devices_back(east, tmp_path):
    east.launch(KEY, job("touch", f"{tmp_path}/ran", held=True, hold_s=0.1))
    assert ended(east).state == "cancelled"
    assert not (tmp_path / "ran").exists()


def test_cancelling_lets_a_job_save_itself(east, tmp_path):
    script = f"trap 'echo saved > {tmp_path}/saved; exit 0' TERM; echo > {tmp_path}/up; while :; do sleep 0.02; done"
    east.launch(KEY, job("sh", "-c", script))
    until((tmp_path / "up").exists)
    east.cancel(KEY)
    assert ended(east).state == "cancelled"
    assert (tmp_path / "saved").exists()
    east.cancel(KEY)
    east.cancel("never-was")


def test_a_job_that_does_not_end_when_asked_is_ended(tmp_path):
    executor = LocalExecutor("east", 1, tmp_path, grace_s=0.1)
    executor.launch(KEY, job("sh", "-c", "trap '' TERM; while :; do sleep 0.02; done"))
    until(lambda: executor.find(KEY).state == "running")
    time.sleep(0.05)
    executor.cancel(KEY)
    assert ended(executor).state == "cancelled"


def test_a_move_is_another_attempt_of_the_same_key(east, tmp_path):
    command = ("sh", "-c", f"echo $ATTR_ATTEMPT >> {tmp_path}/ran; [ $ATTR_ATTEMPT = 1 ] || sleep 20")
    east.launch(KEY, job(*command))
    until(lambda: (tmp_path / "ran").exists())
    moved = east.migrate(KEY, job(*command, attempt=1))
    assert moved.key == f"{KEY}-1" and east.find(KEY).state == "cancelled"
    assert ended(east, moved.key).state == "finished"
    assert (tmp_path / "ran").read_text() == "0\n1\n"


def test_a_keeper_that_is_killed_is_noticed_and_its_command_keeps_the_devices(east):
    east.launch(KEY, job("sh", "-c", "sleep 1"))
    until(lambda: east.find(KEY).state == "running")
    seen = east.observe({})
    child = seen.events[-1].data["pid"]
    keeper = psutil.Process(child).ppid()
    os.kill(keeper, signal.SIGKILL)
    until(lambda: east.find(KEY).state == "lost")
    assert [event.kind for event in east.observe(seen.cursor).events] == ["lost"]
    assert east.inventory().free == 1
    until(lambda: east.inventory().free == 2)


def test_events_come_once_and_in_order(east):
    script = 'for i in 1 2 3; do echo "{\\"step_s\\": 0.$i}" >> $ATTR_REPORT; done; echo half >> $ATTR_REPORT; exit 3'
    east.launch(KEY, job("sh", "-c", script))
    ended(east)
    seen = east.observe({})
    assert [each.kind for each in seen.events] == ["step", "step", "step", "queued", "running", "failed"]
    assert [each.data["step_s"] for each in seen.events[:3]] == [0.1, 0.2, 0.3]
    assert seen.events[-1].data["exit_code"] == 3
    assert east.observe(seen.cursor).events == ()


def test_it_is_an_executor(east):
    assert isinstance(east, Executor)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda east: east.launch("../x", job("true")), "key"),
        (lambda east: east.launch("x" * 200, job("true")), "key"),
        (lambda east: east.launch(KEY, JobSpec("t", (), Component("east", 0, 1, 0, 1, 0, 1))), "job.command"),
        (lambda east: east.launch(KEY, JobSpec("t", ("true",), Component("west", 0, 1, 0, 1, 0, 1))), "job.domain"),
    ],
)
def test_bad_input_is_one_clear_error_and_nothing_is_launched(east, given, words):
    with pytest.raises(ExecutorError, match=words):
        given(east)
    assert east.observe({}).events == ()


def test_more_devices_than_there_are_is_refused_for_good(east):
    with pytest.raises(LaunchRefused, match="has 2 devices"):
        east.launch(KEY, job("true", devices=4))


def test_a_folder_of_another_size_is_refused(east, tmp_path):
    with pytest.raises(ExecutorError, match="was made for 2"):
        LocalExecutor("east", 3, tmp_path)


def test_a_command_that_does_not_exist_fails_and_says_so(east):
    east.launch(KEY, job("no-such-command"))
    handle = ended(east)
    assert (handle.state, handle.exit_code) == ("failed", 127)
    assert "no-such-command" in (east.root / "jobs" / KEY / "output").read_text()


def test_a_cloud_regions_name_is_refused_as_a_domains_and_not_as_a_key(tmp_path):
    """`--cluster local` with the default preset said that a decision's key was wrong."""
    with pytest.raises(
        ExecutorError, match=r"domain = 'aws:us-east-1': must be 1 to 120 letters.*attribution-sched init"
    ):
        LocalExecutor("aws:us-east-1", 8, tmp_path)
    assert not list(tmp_path.iterdir())
