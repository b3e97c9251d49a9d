"""J7 system → real cluster: how often a decision is carried out where a journal is resumed with something behind it."""

from collections import Counter

import pytest

from attribution_sched import System
from attribution_sched.live_cluster import SimulatedCluster
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


@pytest.mark.slow
def test_launches_per_decision_when_a_journal_is_resumed_many_times(tmp_path, tell):
    counted(tell, tmp_path / "run.journal", 60, 4)
