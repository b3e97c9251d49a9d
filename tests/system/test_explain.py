"""Explanations of a system's own decisions: quick as they are taken, and later of any decision in the journal."""

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.explain import memory
from attribution_sched.explain.explanation import Explanation
from tests.small_world import small
from tests.system.test_system import repeatable

QUICK = {"rows": "quick", "precision": None}


@pytest.fixture(scope="module")
def system():
    found = System(small(), "hi-ppo", seed=2, explain={"seed": 3})
    found.first = found.schedule_next_task()
    return found


def test_a_placement_is_explained_as_it_is_made(system):
    told = system.first.explanation
    assert told.decision == system.first.id
    assert told.target == "decision"
    assert (told.efficiency_gap() < 1e-6).all()
    assert system.first.latencies_s["explanation"] > 0
    assert told.subject in system.first.reasoning() or system.first.task.kind in system.first.reasoning()
    assert "warm-up" in told.background_name
    assert f"seed {2 + memory.SEED_STEP}" in told.background_name
    assert "why" in str(system.first)
    kept = system.journal.explanations(system.first.id)
    assert np.array_equal(Explanation.from_dict(kept[0].explanation).values, told.values)


def test_explaining_changes_no_decision(system):
    while len(system.history()) < 12:
        system.schedule_next_task()
    other = System(small(), "hi-ppo", seed=2)
    other.run(int((system.history()["code"] == 1).sum()))
    assert repeatable(other).equals(repeatable(system))


def test_enough_decisions_of_its_own_replace_the_warm_up(system, monkeypatch):
    monkeypatch.setattr(memory, "BLOCK", 1)
    monkeypatch.setattr(memory, "LEAST_ALIKE", 3)
    while len(system.history()) < 12:
        system.schedule_next_task()
    result = system.schedule_next_task()
    assert "warm-up" not in result.explanation.background_name


def test_a_placement_is_returned_even_if_it_cannot_be_explained(monkeypatch):
    system = System(small(), "greedy", explain={"target": "terms"})
    result = system.schedule_next_task()
    assert result.placed
    assert result.explanation is None
    assert result.provenance["explanation"].startswith("unavailable (target = 'terms'")
    assert result.reasoning() == ""


def test_a_forgotten_decision_is_lived_through_again():
    system = System(small(), "greedy", seed=6)
    system.run(6)
    name = system.history()["decision_id"].iloc[3]
    known = system.explain(name, rows=64)
    system.memory._kept.clear()
    again = system.explain(name, rows=64)
    assert again.subject == known.subject
    assert again.target == known.target == "decision"
    assert np.allclose(again.value, known.value)
    assert [player.name for player in again.players] == [player.name for player in known.players]


def test_the_memory_is_bounded():
    system = System(small(), "sjf", seed=6)
    system.memory.most = 5
    system.run(12)
    assert len(system.memory) == 5
    assert [one.id for one in system.memory] == list(system.history()["decision_id"].iloc[-5:])


def test_explanations_ask_a_copy(monkeypatch):
    """Round-robin counts what it is asked: being explained must not turn its wheel."""
    plain, explained = (System(small(), "round-robin", seed=1) for _ in range(2))
    for _ in range(6):
        plain.schedule_next_task()
        explained.explain(explained.schedule_next_task(), rows=64)
    assert repeatable(plain).equals(repeatable(explained))


def test_going_on_with_hi_ppo_remembers_its_forecasts(tmp_path):
    path = tmp_path / "run.journal"
    straight = System(small(), "hi-ppo", seed=9)
    straight.run(14)
    with System(small(), "hi-ppo", seed=9, journal=path) as system:
        system.run(8)
    with System.resume(path) as system:
        system.run(6)
        assert repeatable(system).equals(repeatable(straight))
        facts = next(each.details for each in system.journal.events() if each.kind == "resumed")
        assert facts["rehearsed"]
        assert facts["decided_otherwise"] == 0
        told = system.explain(system.history()["decision_id"].iloc[0], **QUICK)
        assert told.policy == "hi-ppo"
