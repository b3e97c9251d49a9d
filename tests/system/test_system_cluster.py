"""A cluster of the user's own: it carries out every decision once, and explanations do not touch it."""

from typing import ClassVar

import pytest

from attribution_sched import System
from attribution_sched.cluster.live import SimulatedCluster
from attribution_sched.errors import SettingsError
from tests.small_world import small
from tests.system.test_system import repeatable


class Telling(SimulatedCluster):
    """Notes what it was told."""

    told: ClassVar[list] = []
    keys: ClassVar[list] = []

    def carry_out(self, action, key=""):
        self.told.append(action.tolist())
        self.keys.append(key)
        return super().carry_out(action, key)


@pytest.fixture(autouse=True)
def forgotten():
    Telling.told, Telling.keys = [], []


def test_it_is_told_every_decision_once_and_decides_nothing():
    system = System(small(), "greedy", seed=1, cluster=Telling)
    system.run(6)
    assert Telling.told == [each.action for each in system.journal.decisions()]
    plain = System(small(), "greedy", seed=1)
    plain.run(6)
    assert repeatable(plain).equals(repeatable(system))


def test_explanations_feedback_and_what_was_forgotten_do_not_touch_it():
    system = System(small(), "greedy", seed=1, cluster=Telling, targets={"step_ratio_at_most": 0.05})
    system.run(10)
    count = len(Telling.told)
    first = next(system.journal.decisions()).id
    system.explain(first)
    system.memory._kept.clear()
    system.explain(first)
    system.feedback(explain=2, episodes=1, decisions=5)
    assert len(Telling.told) == count == system.journal.count()


def test_resuming_tells_it_nothing_twice(tmp_path):
    path = tmp_path / "run.journal"
    with System(small(), "greedy", seed=1, cluster=Telling, journal=path) as system:
        system.run(5)
    assert len(set(Telling.keys)) == len(Telling.keys) == len(Telling.told)
    Telling.told = []
    with System.resume(path, cluster=Telling) as system:
        assert Telling.told == []
        assert isinstance(system.cluster, Telling)


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ("real", ("cluster = 'real'", "SimulatedCluster")),
        (3, ("cluster = 3",)),
        (lambda *_, **__: None, ("cluster = None", "subclass")),
    ],
)
def test_what_is_no_cluster_is_refused_and_leaves_no_journal(tmp_path, cluster, words):
    with pytest.raises(SettingsError) as caught:
        System(small(), "greedy", cluster=cluster, journal=tmp_path / "run.journal")
    assert all(word in str(caught.value) for word in words)
    assert list(tmp_path.iterdir()) == []
