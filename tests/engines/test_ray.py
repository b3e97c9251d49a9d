"""Ray as an engine, really started, three nodes: keys, gates, moves, lost nodes, reasons, refusals, kills."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attribution_sched.errors import ExecutorError, LaunchRefused
from attribution_sched.executors.executor import Executor
from attribution_sched.executors.ray import RayExecutor
from attribution_sched.executors.records import Component, JobSpec
from tests.campaigns.executor_kills import campaign

pytestmark = pytest.mark.slow


@pytest.fixture
def make(ray_nodes, tmp_path):
    def made(domain="east", **more):
        return RayExecutor(domain, folder=tmp_path, address=ray_nodes.address, resource="CPU", grace_s=2.0, **more)

    return made


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


def test_the_kill_campaign_in_small(ray_nodes, tmp_path):
    # First: whoever forks must not be connected yet.
    def executors(folder):
        spool, at = folder / "spool", ray_nodes.address
        return {name: RayExecutor(name, folder=spool, address=at, resource="CPU") for name in ("east", "west")}

    tally = campaign(executors, 4, 7, tasks=3, longest_s=5.0)
    assert tally.wrong == [] and tally.kills == 4


def test_a_job_is_told_its_part_runs_once_and_is_measured(make, tmp_path):
    east, name = make(), key("d000000")
    assert isinstance(east, Executor)
    assert east.find(name) is None
    command = ("sh", "-c", f"echo $ATTR_KEY $ATTR_STOP >> {tmp_path}/ran; sleep 0.3; exit 3")
    handle = east.launch(name, job(*command, devices=2))
    assert east.launch(name, job(*command, devices=2)).id == handle.id
    until(lambda: state(east, name) == "failed")
    assert east.find(name).exit_code == 3 and east.find(name).cpu_s >= 0.0
    # Ray has forgotten the actor, the folder has not: it is not started again.
    until(lambda: east._group(name) is None)
    assert east.launch(name, job(*command)).state == "failed"
    assert (tmp_path / "ran").read_text().split() == [name, "8"]
    assert [event.kind for event in east.observe({name: None}).events if event.key == name][-2:] == [
        "running",
        "failed",
    ]


def test_it_runs_on_nodes_of_its_domain_and_devices_are_counted(make):
    west, name = make("west"), key("d000001")
    assert west.inventory().devices == 4 and make("east").inventory().devices == 8
    west.launch(name, job("sleep", "60", devices=3, domain="west"))
    until(lambda: state(west, name) == "running")
    assert west.inventory().free == 1 and make("east").inventory().free == 8
    late = key("d000002")
    west.launch(late, job("true", devices=2, domain="west"))
    until(lambda: west.why_waiting(late) is not None and "1 of 4" in west.why_waiting(late).detail)
    assert west.why_waiting(late).cause == "devices" and state(west, late) == "queued"
    west.cancel(name)
    until(lambda: state(west, name) == "cancelled")
    until(lambda: state(west, late) == "finished")
    west.observe({})
    until(lambda: west.inventory().free == 4)


def test_a_job_that_has_not_begun_is_cancelled_and_never_begins(make, tmp_path):
    west, first, late = make("west"), key("d000003"), key("d000004")
    west.launch(first, job("sleep", "60", devices=4, domain="west"))
    until(lambda: state(west, first) == "running")
    west.launch(late, job("touch", f"{tmp_path}/late", domain="west"))
    west.cancel(late)
    assert state(west, late) == "cancelled"
    west.cancel(first)
    until(lambda: state(west, first) == "cancelled")
    west.observe({})
    until(lambda: west.inventory().free == 4)
    time.sleep(1.0)
    assert not (tmp_path / "late").exists()
    west.cancel(key("d999999"))


def test_a_held_job_has_its_devices_and_waits_at_its_gate(make, tmp_path):
    east, name = make(), key("d000005")
    east.launch(name, job("touch", f"{tmp_path}/ran", held=True))
    until(lambda: state(east, name) == "granted")
    assert east.why_waiting(name).cause == "gang" and east.inventory().free == 7
    assert not (tmp_path / "ran").exists()
    east.release(name)
    east.release(name)
    until(lambda: state(east, name) == "finished")
    assert (tmp_path / "ran").exists() and east.why_waiting(name) is None


def test_a_job_larger_than_a_node_has_its_devices_on_several_and_begins_once(make, tmp_path):
    east, name = make(), key("d000011")
    east.launch(name, job("sh", "-c", f"echo began >> {tmp_path}/ran", devices=6, held=True))
    until(lambda: state(east, name) == "granted")
    assert east.inventory().free == 2
    east.release(name)
    until(lambda: state(east, name) == "finished")
    assert (tmp_path / "ran").read_text() == "began\n"
    until(lambda: east.inventory().free == 8)


def test_a_job_that_moves_saves_itself_and_starts_as_another_attempt(make, tmp_path):
    east, name = make(), key("d000006")
    script = f"trap 'echo saved >> {tmp_path}/log; exit 143' TERM; echo began $ATTR_ATTEMPT >> {tmp_path}/log; "
    east.launch(name, job("sh", "-c", script + "while :; do sleep 0.05; done"))
    until(lambda: (tmp_path / "log").exists())
    moved = east.migrate(name, job("sh", "-c", f"echo again $ATTR_ATTEMPT >> {tmp_path}/log", attempt=1))
    until(lambda: state(east, moved.key) == "finished")
    assert (tmp_path / "log").read_text().splitlines() == ["began 0", "saved", "again 1"]


def test_what_can_never_run_is_refused_and_what_is_wrong_is_said(make, tmp_path, ray_nodes):
    east = make()
    with pytest.raises(LaunchRefused, match="the nodes of domain east have 8 CPU in all"):
        east.launch(key("d000007"), job("true", devices=9))
    with pytest.raises(ExecutorError, match="no node has the label domain=mars"):
        make("mars").inventory()
    with pytest.raises(ExecutorError, match="runs jobs of domain east"):
        east.launch(key("d000008"), job("true", domain="west"))
    with pytest.raises(ExecutorError, match="letters, digits"):
        east.find("../other")


def test_a_cluster_that_does_not_answer_is_one_clear_error(tmp_path):
    code = (
        "import sys\nfrom attribution_sched.errors import ExecutorError\n"
        "from attribution_sched.executors.ray import RayExecutor\n"
        f"try: RayExecutor('east', folder={str(tmp_path)!r}, address='127.0.0.1:1').inventory()\n"
        "except ExecutorError as error: print('SAID', error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert "SAID ray = '127.0.0.1:1': does not answer" in done.stdout, done.stdout + done.stderr[-500:]


def test_a_lost_node_loses_its_jobs_and_ends_their_commands(make, ray_nodes, tmp_path):
    west, name = make("west"), key("d000009")
    west.launch(name, job("sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 300", domain="west"))
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    cursor = west.observe({}).cursor
    assert ray_nodes.tell("lose west-1") == "done"
    try:
        seen = []

        def lost():
            nonlocal cursor
            found = west.observe(cursor)
            cursor = found.cursor
            seen.extend(event.kind for event in found.events if event.key == name)
            return "lost" in seen

        until(lost, 60.0)
        assert state(west, name) == "lost"
        pid = int((tmp_path / "pid").read_text())
        until(lambda: not Path(f"/proc/{pid}").exists())
        until(lambda: "dead" in west.inventory().nodes.values(), 60.0)
    finally:
        assert ray_nodes.tell("add west-1") == "done"
    again = key("d000010")
    west.launch(again, job("true", domain="west"))
    until(lambda: state(west, again) == "finished", 60.0)
