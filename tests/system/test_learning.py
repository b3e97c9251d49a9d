"""Weights that were learnt decide from then on, also after resuming."""

from types import SimpleNamespace

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.errors import JournalError
from tests.small_world import small
from tests.system.test_system import repeatable


@pytest.fixture
def taught(monkeypatch):
    """Learning that gives other weights at once."""

    def teach(weights, world, decisions, *, reached=2.0):
        moved = weights.theta + 0.05 * np.random.default_rng(1).standard_normal(weights.theta.shape)
        better = weights.with_agents(moved)
        return SimpleNamespace(weights=better, before=1.0, after=reached, improved=reached > 1.0, decisions=decisions)

    monkeypatch.setattr("attribution_sched.scheduler.hi_ppo.online_learning.learn_on", teach)


def test_better_weights_decide_and_are_found_again(taught, tmp_path):
    path = tmp_path / "run.journal"
    straight = System(small(), "hi-ppo", seed=2)
    with System(small(), "hi-ppo", seed=2, journal=path) as system:
        for each in (straight, system):
            each.run(4)
            learnt = each.train(64)
            assert learnt.improved
            assert (learnt.return_before, learnt.return_after, learnt.decisions) == (1.0, 2.0, 64)
            assert each.policy is learnt.policy
            each.run(4)
        assert learnt.weights.is_file()
        assert repeatable(system).equals(repeatable(straight))
    straight.run(3)
    with System.resume(path) as system:
        system.run(3)
        assert repeatable(system).equals(repeatable(straight))
        facts = [each.details for each in system.journal.events()]
        assert facts[0]["after_decisions"] > 0
        assert facts[1]["decided_otherwise"] == 0
    learnt.weights.unlink()
    with pytest.raises(JournalError, match="Put the file back"):
        System.resume(path)


def test_weights_that_are_no_better_change_nothing(taught):
    system = System(small(), "hi-ppo", seed=2)
    before = system.policy
    assert not system.train(64, reached=0.5).improved
    assert system.policy is before
    assert list(system.journal.events()) == []
