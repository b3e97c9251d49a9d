"""What can be wrong with a real Slurm: one clear error each, nothing launched twice, nothing half-written."""

import json
import os
import pwd
import time
from pathlib import Path

import pytest

from attribution_sched import System
from attribution_sched.errors import ExecutorError, LaunchRefused
from attribution_sched.executors.live import Live
from attribution_sched.executors.shadow import read_json, read_live
from attribution_sched.executors.slurm import SlurmExecutor, ask_slurm
from tests.campaigns.executor_kills import SETTINGS, Mixed
from tests.cli.helpers import invoke
from tests.engines.slurm_here import CLUSTERS
from tests.engines.test_slurm import job, key, state, until

pytestmark = pytest.mark.slow


def machines(slurm, folder):
    made = {name: SlurmExecutor(name, folder=folder / "spool", conf=slurm.conf(name)) for name in CLUSTERS}
    return Live(made, tick_s=0.25, poll_s=0.2, gang_s=20.0, kind="bad input")


def submitted(slurm, name):
    """Jobs that Slurm ever had under a name, whoever's."""
    return slurm.ask("east", "sacct", "-n", "-X", "-P", "-a", "-o", "JobID", f"--name={name}").stdout.split()


@pytest.fixture
def east(slurm, tmp_path):
    return SlurmExecutor("east", folder=tmp_path, conf=slurm.conf("east"))


def as_nobody(slurm, folder, work):
    """What a user without rights is told: the work's answer, or its error's name and words."""
    for each in (
        folder,
        *(above for above in folder.parents if above.is_relative_to("/tmp") and above != Path("/tmp")),
    ):
        each.chmod(0o755)
    folder.chmod(0o777)
    heard, answer = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            account = pwd.getpwnam("nobody")
            os.setgroups([])
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            os.environ.update(HOME="/tmp", USER="nobody", LOGNAME="nobody", USERNAME="nobody")
            os.chdir("/tmp")
            theirs = SlurmExecutor("east", folder=folder / "theirs", conf=slurm.conf("east"))
            said = str(work(theirs))
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(answer, said.encode())
            os._exit(0)
    os.close(answer)
    with os.fdopen(heard) as told:
        said = told.read()
    os.waitpid(child, 0)
    return said


def test_an_engine_that_is_not_running(slurm, tmp_path, monkeypatch):
    """The controller is stopped: whoever asks is told so; what was decided is launched once when it is back."""
    with System(SETTINGS, Mixed(), journal=tmp_path / "j", queue="empty", cluster=machines(slurm, tmp_path)) as system:
        system.submit("bert-base", steps=5, id="one", command=["true"])
        process = slurm.running.pop("east-ctld")
        west = slurm.running.pop("west-ctld")
        for each in (process, west):
            each.terminate()
            each.wait()
        monkeypatch.setattr("attribution_sched.executors.slurm.WAIT_S", 3.0)
        with pytest.raises(ExecutorError, match=r"controller|answer"):
            system.run(until="empty")
        done = invoke("shadow", "--slurm", "--conf", slurm.conf("east"))
        assert done.exit_code in (1, 2) and "slurmctld" in done.stderr and "Traceback" not in done.output
        for name in CLUSTERS:
            slurm.spawn(f"{name}-ctld", "slurmctld", "-D", "-f", str(slurm.conf(name)), cluster=name)
            slurm.until(f"the nodes of {name}", lambda c=name: slurm.idle(c) == 2)
        monkeypatch.setattr("attribution_sched.executors.slurm.WAIT_S", 20.0)
        assert system.run(until="empty").completed == 1
        launched = {each.key: sorted(each.handle["parts"].values()) for each in system.journal.handles()}
        # Accounting hears of it a little later.
        until(lambda: {name: len(submitted_in(slurm, name)) for name in launched} == {
            name: len(parts) for name, parts in launched.items()
        }, 90.0)  # fmt: skip
        assert {name: sorted(submitted_in(slurm, name)) for name in launched} == launched


def submitted_in(slurm, name):
    """The same over both controllers."""
    listed = ("sacct", "-n", "-X", "-P", "-a", "-o", "JobID", f"--name={name}")
    return [each for cluster in CLUSTERS for each in slurm.ask(cluster, *listed, "-M", cluster).stdout.split()]


def test_commands_that_are_not_installed(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    executor = SlurmExecutor("east", folder=tmp_path, conf=slurm.conf("east"))
    with pytest.raises(ExecutorError, match="is not installed here"):
        executor.launch(key("d0"), job("true"))
    done = invoke("shadow", "--slurm")
    assert done.exit_code in (1, 2) and "is not installed here" in done.stderr


def test_no_permission(slurm, tmp_path):
    """A partition that is closed to one's group: refused for good, and nothing is left in the queue."""
    name = key("d000000")
    slurm.ask("east", "scontrol", "update", "partitionname=east", "allowgroups=root")
    try:
        told = as_nobody(slurm, tmp_path, lambda theirs: theirs.launch(name, job("true")))
    finally:
        slurm.ask("east", "scontrol", "update", "partitionname=east", "allowgroups=ALL")
    assert told.startswith("LaunchRefused") and "refuses it in partition east" in told and "\n" not in told
    assert submitted(slurm, name) == []


def test_an_unknown_partition(slurm, tmp_path):
    name = key("d000001")
    elsewhere = SlurmExecutor("east", "nowhere", folder=tmp_path, conf=slurm.conf("east"))
    with pytest.raises(LaunchRefused, match="refuses it in partition nowhere"):
        elsewhere.launch(name, job("true"))
    with pytest.raises(ExecutorError, match="Slurm has: east"):
        elsewhere.inventory()
    assert submitted(slurm, name) == []


def test_a_job_of_somebody_else_is_never_ours(slurm, east, tmp_path):
    """Somebody takes our key for a job of theirs, comment and all: it is not found, not cancelled, and ours runs."""
    name = key("d000002")
    theirs = as_nobody(slurm, tmp_path, lambda theirs: theirs.launch(name, job("true")).id)
    assert theirs.isdecimal(), theirs
    until(lambda: submitted(slurm, name) == [theirs])
    assert east.find(name) is None
    assert all(event.key != name for event in east.observe({name: None}).events)
    ours = east.launch(name, job("sleep", "30"))
    assert ours.id != theirs and east.find(name).id == ours.id
    # They cannot end ours either, by our key or by its number.
    assert as_nobody(slurm, tmp_path, lambda theirs: theirs.cancel(name)) == "None"
    told = as_nobody(slurm, tmp_path, lambda theirs: theirs._ask("scancel", ours.id))
    assert "is not allowed" in told or "ermission" in told
    until(lambda: state(east, name) == "running")
    east.cancel(name)
    until(lambda: state(east, name) == "cancelled")
    shadow = read_live(lambda *command: ask_slurm(command, slurm.conf("east")), time.time())
    with pytest.raises(ExecutorError, match="is not in the queue"):
        shadow.job("999999999")


def test_a_node_that_vanishes_between_look_and_launch(slurm, east):
    """Seen alive, gone when the job is handed in: the job waits or is lost, and is one job all the time."""
    name = key("d000003")
    assert east.inventory().devices == 8
    slurm.kill_node("east", 2)
    try:
        first = east.launch(name, job("sleep", "120", devices=8))
        assert east.launch(name, job("sleep", "120", devices=8)).id == first.id
        until(lambda: "down" in east.inventory().nodes["east-2"], 120.0)
        # Slurm clears up after the node for a while.
        until(lambda: state(east, name) in ("queued", "lost"), 120.0)
        found = east.find(name)
        if found.state == "queued":
            reason = east.why_waiting(name)
            assert reason is not None and reason.cause in ("node not available", "devices", "")
            shadow = read_live(lambda *command: ask_slurm(command, slurm.conf("east")), time.time())
            waiting = [each for each in shadow.jobs if each.id == found.id]
            assert waiting and shadow.devices("east") == 4
        assert len(submitted(slurm, name)) == 1
        east.cancel(name)
        until(lambda: state(east, name) in ("cancelled", "lost"))
    finally:
        slurm.start_node("east", 2)
    slurm.until("the node", lambda: slurm.idle("east") == 2, 90.0)


def test_a_clock_that_lies_behind(slurm, tmp_path, monkeypatch):
    with System(SETTINGS, Mixed(), journal=tmp_path / "j", queue="empty", cluster=machines(slurm, tmp_path)) as system:
        system.submit("bert-base", steps=5, id="one", command=["true"])
        system.run(until="empty")
        handle = system.journal.handles()[0]
    # Accounting hears of the submissions a moment later.
    launched, limit = len(handle.handle["parts"]), time.monotonic() + 30.0
    while len(submitted_in(slurm, handle.key)) < launched:
        assert time.monotonic() < limit, "accounting never heard of the job"
        time.sleep(0.2)
    now = time.time
    monkeypatch.setattr("attribution_sched.executors.live.time.time", lambda: now() - 1000.0)
    with pytest.raises(ExecutorError, match="behind what the journal last recorded"):
        System.resume(tmp_path / "j", policy=Mixed(), cluster=machines(slurm, tmp_path))
    monkeypatch.undo()
    with System.resume(tmp_path / "j", policy=Mixed(), cluster=machines(slurm, tmp_path)) as again:
        assert again.run(until="empty").completed == 0
        assert len(submitted_in(slurm, again.journal.handles()[0].key)) == launched


def test_an_old_slurms_json(slurm, tmp_path):
    """This Slurm's own JSON is read; of one whose fields are others it is said which list is missing."""
    queue = slurm.ask("east", "squeue", "--json").stdout
    nodes = slurm.ask("east", "scontrol", "show", "nodes", "--json").stdout
    if json.loads(nodes or "{}").get("nodes") is None:
        nodes = slurm.ask("east", "sinfo", "--json").stdout
    assert {"east"} <= set(read_json(queue, nodes, time.time()).domains)
    old = json.loads(queue)
    old["job_info"] = old.pop("jobs")
    (tmp_path / "squeue.json").write_text(json.dumps(old))
    (tmp_path / "nodes.json").write_text(nodes)
    done = invoke("shadow", "--squeue", tmp_path / "squeue.json", "--nodes", tmp_path / "nodes.json")
    assert done.exit_code in (1, 2) and "of a version that is not known" in done.stderr
    assert sum(line.startswith(("error:", "failed:")) for line in done.stderr.splitlines()) == 1
