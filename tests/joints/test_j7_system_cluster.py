"""J7 system → real cluster: how often a decision is carried out where a journal is resumed with something behind it."""

import os
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from attribution_sched import System
from attribution_sched.cluster.live import SimulatedCluster
from attribution_sched.executors.live import Live
from tests.campaigns import executor_kills
from tests.small_world import small


def launches(path, tasks, stops):
    """Launches per placement, as something behind the cluster counts them through all stops."""
    launched = Counter()

    class Told(SimulatedCluster):
        """Stands for a cluster with machines behind it: whatever is carried out here is launched there."""

        def carry_out(self, action, key=""):
            where = self.residents[self.pending().slot].id, self.now_s
            outcome = super().carry_out(action, key)
            if outcome.code == 1:
                launched[where] += 1
            return outcome

    with System(small(), "sjf", seed=6, journal=path, cluster=Told) as system:
        system.run(tasks)
    for _ in range(stops):
        with System.resume(path, cluster=Told) as system:
            pass
    return launched


def counted(tell, path, tasks, stops):
    launched = launches(path, tasks, stops)
    twice = sum(times > 1 for times in launched.values())
    tell(
        "J7",
        placements=len(launched),
        stops=stops,
        launched_more_than_once=twice,
        most=max(launched.values()),
        wanted=1,
    )
    assert len(launched) >= tasks
    # Nothing lost, nothing doubled: a journal that is gone through again moves the simulation only.
    assert set(launched.values()) == {1}


def test_launches_per_decision_when_a_journal_is_resumed(tmp_path, tell):
    counted(tell, tmp_path / "run.journal", 5, 1)


def killed(tell, kills, seed):
    """Processes of this machine, gangs over both domains among them; whoever schedules them is killed at random."""
    tally = executor_kills.campaign(executor_kills.local, kills, seed)
    tell("J7", kills=tally.kills, tasks=tally.tasks, gangs=tally.gangs, lost_or_doubled=len(tally.wrong), wanted=0)
    assert tally.kills >= kills
    assert tally.wrong == []


def test_nothing_is_lost_or_doubled_on_real_processes(tell):
    killed(tell, 4, 1)


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_on_real_processes_by_many_kills(tell):
    killed(tell, 60, 2)


def test_the_campaign_sees_a_launch_that_does_not_ask_first(monkeypatch):
    """The joint cut: without keys, a decision that was under way when its process died is launched again."""
    launch = executor_kills.LocalExecutor.launch

    def careless(self, key, job):
        return launch(self, f"{key}-{os.getpid()}", job)

    monkeypatch.setattr(executor_kills.LocalExecutor, "launch", careless)
    monkeypatch.setattr(Live, "_keep", lambda self, made: None)
    with tempfile.TemporaryDirectory(dir=executor_kills.quick_folder()) as name:
        trial = executor_kills.Trial(Path(name), executor_kills.local, tasks=3)
        attributor = executor_kills.DefaultAttributor(executor_kills.SETTINGS.build_world())
        for _ in range(2):
            executor_kills.finish(executor_kills.child_of(trial, attributor), 3.0)
        deadline = time.monotonic() + 20.0
        while not trial.witness.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert trial.wrong() != []


@pytest.mark.slow
def test_launches_per_decision_when_a_journal_is_resumed_many_times(tmp_path, tell):
    counted(tell, tmp_path / "run.journal", 60, 4)
