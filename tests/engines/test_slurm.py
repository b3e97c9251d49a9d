"""Slurm as an engine, really started: keys, gates, moves, lost nodes, reasons, refusals, kills."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from attribution_sched.errors import ExecutorError, LaunchRefused
from attribution_sched.executors.executor import Executor
from attribution_sched.executors.records import Component, JobSpec
from attribution_sched.executors.slurm import SlurmExecutor
from attribution_sched.journal import Journal, JournalHeader
from tests.campaigns.executor_kills import campaign

pytestmark = pytest.mark.slow


@pytest.fixture
def east(slurm, tmp_path):
    return SlurmExecutor("east", folder=tmp_path, conf=slurm.conf("east"))


def job(*command, devices=1, held=False, domain="east", **more):
    return JobSpec("task", command, Component(domain, 0, 1, 0, 1, 0, 8, dp=devices), held=held, **more)


def until(condition, seconds=40.0):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it never came"
        time.sleep(0.1)


def state(executor, key):
    found = executor.find(key)
    return None if found is None else found.state


def key(name):
    return f"{os.urandom(6).hex()}-{name}"


def test_a_job_is_told_its_part_runs_once_and_is_measured(east, tmp_path):
    name = key("d000000")
    command = ("sh", "-c", f"echo $ATTR_KEY $ATTR_STOP $SLURM_GPUS >> {tmp_path}/ran; sleep 0.5")
    handle = east.launch(name, job(*command, devices=2))
    assert east.launch(name, job(*command, devices=2)).id == handle.id
    until(lambda: state(east, name) == "finished")
    assert (tmp_path / "ran").read_text().split() == [name, "8", "2"]
    assert isinstance(east, Executor)


def test_accounting_remembers_a_key_that_the_queue_has_forgotten(east):
    name = key("d000001")
    number = east.launch(name, job("sh", "-c", "exit 3")).id
    until(lambda: state(east, name) == "failed")
    until(lambda: not east._queue(name), 60.0)
    found = east.find(name)
    assert (found.id, found.state, found.exit_code) == (number, "failed", 3)
    # Whoever takes over asks by the key, and is told of the end.
    assert [event.kind for event in east.observe({name: None}).events if event.key == name] == ["running", "failed"]
    blind = SlurmExecutor("east", folder=east.folder.parent, conf=east.conf, accounting=False)
    assert blind.find(name) is None


def test_a_held_job_has_its_devices_and_waits_at_its_gate(east, tmp_path):
    name = key("d000002")
    free = east.inventory().free
    east.launch(name, job("touch", f"{tmp_path}/ran", held=True))
    until(lambda: state(east, name) == "granted")
    assert east.inventory().free == free - 1
    assert east.why_waiting(name).cause == "gang"
    assert not (tmp_path / "ran").exists()
    east.release(name)
    east.release(name)
    until(lambda: state(east, name) == "finished")
    assert (tmp_path / "ran").exists()
    kinds = [event.kind for event in east.observe({}).events if event.key == name]
    assert kinds[-1] == "finished"


def test_why_a_job_waits_is_in_slurms_own_word(east):
    first, second = key("d000003"), key("d000004")
    east.launch(first, job("sleep", "30", devices=8))
    until(lambda: state(east, first) == "running")
    east.launch(second, job("true", devices=8))
    until(lambda: (reason := east.why_waiting(second)) is not None and reason.cause == "devices")
    assert east.why_waiting(second).token == "Resources"
    assert east.why_waiting(first) is None
    east.cancel(second)
    east.cancel(first)
    until(lambda: state(east, first) == state(east, second) == "cancelled")
    east.cancel(first)


def test_a_job_is_moved_by_requeueing_and_saves_itself(east, tmp_path):
    name = key("d000005")
    begin = f"trap 'echo saved >> {tmp_path}/ran; exit 0' TERM; echo $ATTR_RESTARTS >> {tmp_path}/ran"
    script = f"{begin}; [ $ATTR_RESTARTS = 1 ] && exit 0; while :; do sleep 0.1; done"
    number = east.launch(name, job("sh", "-c", script)).id
    until((tmp_path / "ran").exists)
    assert east.migrate(name, job("sh", "-c", script)).id == number
    until(lambda: state(east, name) == "finished")
    assert (tmp_path / "ran").read_text().split() == ["0", "saved", "1"]


def test_bad_input_is_one_clear_error_each(east, slurm, tmp_path):
    with pytest.raises(LaunchRefused, match="partition"):
        SlurmExecutor("east", "nowhere", folder=tmp_path, conf=slurm.conf("east")).launch(key("d0"), job("true"))
    with pytest.raises(ExecutorError, match="Slurm has: east"):
        SlurmExecutor("east", "nowhere", folder=tmp_path, conf=slurm.conf("east")).inventory()
    with pytest.raises(LaunchRefused, match="refuses"):
        east.launch(key("d1"), job("true", devices=64))
    with pytest.raises(ExecutorError, match="does not run"):
        east.migrate(key("d2"), job("true"))
    down = tmp_path / "slurm.conf"
    text = slurm.conf("east").read_text().splitlines()
    down.write_text("\n".join("SlurmctldPort=1" if line.startswith("SlurmctldPort") else line for line in text))
    with pytest.raises(ExecutorError, match=r"controller|answer"):
        SlurmExecutor("east", folder=tmp_path, conf=down).find(key("d3"))


def test_a_job_of_somebody_else_is_not_ours(east, slurm):
    name = key("d000006")
    slurm.ask("east", "sbatch", "-J", name, "-p", "east", "--wrap", "sleep 1", "--comment=theirs", "-o", "/dev/null")
    assert east._queue(name) == {}
    slurm.ask("east", "scancel", "--name", name)


def test_an_orphaned_sbatch_is_waited_for(slurm, tmp_path):
    """The parent is killed while a slow ``sbatch`` submits; the next one sees the job and submits none."""
    script = textwrap.dedent(
        """
        import sys
        from attribution_sched.executors.slurm import SlurmExecutor
        from attribution_sched.journal import Journal
        from tests.engines.test_slurm import job
        folder, conf, key = sys.argv[1:]
        with Journal.open(folder + "/j.sqlite", wait_s=30.0) as journal:
            east = SlurmExecutor("east", folder=folder, conf=conf, submitter=("sh", "-c", 'sleep 2; exec "$@"', "slow"))
            east.lock_file = journal.lock_file
            print("open", flush=True)
            east.launch(key, job("true"))
        """
    )
    Journal.create(tmp_path / "j.sqlite", JournalHeader("p", "q", {}, {}, "1")).close()
    name = key("d000007")
    command = [sys.executable, "-c", script, str(tmp_path), str(slurm.conf("east")), name]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "open\n"
    time.sleep(1.0)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    subprocess.run(command, check=True, capture_output=True)
    listed = ("sacct", "-n", "-X", "-P", "-o", "JobID", f"--name={name}")
    until(lambda: slurm.ask("east", *listed).stdout.split() != [])
    assert len(slurm.ask("east", *listed).stdout.split()) == 1


def test_nothing_is_lost_or_doubled_by_kills_and_no_gang_is_half_released(slurm):
    def executors(folder):
        return {name: SlurmExecutor(name, folder=folder / "spool", conf=slurm.conf(name)) for name in ("east", "west")}

    tally = campaign(executors, int(os.environ.get("ATTRIBUTION_SCHED_KILLS", "10")), 3, tasks=6, longest_s=3.0)
    assert tally.wrong == []


def test_a_lost_node_is_noticed(east, slurm):
    name = key("d000008")
    east.launch(name, job("sleep", "300"))
    until(lambda: state(east, name) == "running")
    node = east.find(name).where[0]
    slurm.kill_node("east", int(node.rsplit("-", 1)[1]))
    try:
        until(lambda: state(east, name) == "lost", 120.0)
        assert "down" in east.inventory().nodes[node]
    finally:
        slurm.start_node("east", int(node.rsplit("-", 1)[1]))
