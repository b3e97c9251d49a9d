"""A journal lived through again in a cluster of its own: tasks that came by themselves come, others do not."""

import pytest

from attribution_sched import System
from attribution_sched.system.replay import live_through
from tests.small_world import small


@pytest.mark.parametrize(("queue", "policy"), [("preset", "greedy"), ("demo", "sjf"), ("preset", "rule")])
def test_the_cluster_ends_as_the_systems_own(tmp_path, queue, policy):
    with System(small(), policy, seed=5, queue=queue, journal=tmp_path / "run.sqlite") as system:
        system.run(6 if queue == "preset" else 3)
        cluster, otherwise = live_through(system.journal)
        assert otherwise == []
        assert cluster.totals() == system.cluster.totals()
        assert (cluster.came, cluster.waiting, cluster.running) == (
            system.cluster.came, system.cluster.waiting, system.cluster.running,
        )  # fmt: skip
        assert cluster.endless == system.cluster.endless == (queue == "preset")


def test_a_beginning_that_is_archived_is_not_lived_through(tmp_path):
    with System(small(), "sjf", seed=5, journal=tmp_path / "run.sqlite") as system:
        system.run(4)
        assert live_through(system.journal) is not None
        system.journal.first = lambda: 2
        assert live_through(system.journal) is None
