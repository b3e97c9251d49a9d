"""Feedback of a running system: toward targets, journaled, taken back, and the same after resuming."""

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.errors import ModelFitError, SettingsError
from attribution_sched.explain.explanation import COMPONENTS
from attribution_sched.explain.memory import Memory
from attribution_sched.feedback.targets import Targets
from attribution_sched.journal import Journal
from attribution_sched.system.reward_feedback import _spread
from attribution_sched.system.weight_versions import with_weights
from tests.small_world import small
from tests.system.test_system import repeatable

QUICK = {"explain": 3, "episodes": 2, "decisions": 12}
MISSED = {"step_ratio_at_most": 0.05}


def weights(reward):
    return reward.w_eff, reward.w_util, reward.w_cost


def test_missed_targets_move_the_weights_the_policy_is_told():
    system = System(small(), "hi-ppo", seed=1, targets=MISSED)
    system.run(12)
    before = system.reward
    change = system.feedback(**QUICK)
    assert change.kind == "changed"
    assert system.reward == change.reward
    assert system.reward.w_eff > before.w_eff
    assert sum(weights(system.reward)) == pytest.approx(sum(weights(before)))
    system.run(2)
    last = system.journal.last()
    assert last.weights == weights(system.reward)
    (record,) = system.journal.feedback()
    assert record.reason == change.changes[0].reason and "步" in record.reason_zh
    assert record.after["w_eff"] == system.reward.w_eff


def test_a_window_ends_where_the_step_was_taken_and_holds_plans_in_force():
    system = System(small(), "greedy", seed=1, targets=MISSED)
    system.run(12)
    first = system.reward_feedback.window(0, None)
    history = system.history()
    assert len(first) == int((history.code > 0).sum())
    np.testing.assert_array_equal(first.terms(), history.loc[history.code > 0, ["r_eff", "r_util", "r_cost"]])
    assert first.span_s == system.journal.last().cluster_time_s
    system.feedback(**QUICK)
    with pytest.raises(SettingsError, match="no plan was put in force since the last step"):
        system.feedback(**QUICK)
    system.run(3)
    later = system.reward_feedback.window(0, None)
    fresh = system.history().iloc[len(history) :]
    assert len(later) == int((fresh.code > 0).sum())
    assert later.span_s == pytest.approx(fresh.cluster_time_s.iloc[-1] - history.cluster_time_s.iloc[-1])


def test_explanations_are_made_for_some_and_those_at_hand_are_used():
    system = System(small(), "hi-ppo", seed=1, targets=MISSED)
    system.run(12)
    placed = system.history().query("code > 0").decision_id.tolist()
    mine = system.explain(placed[0], target="terms")
    window = system.reward_feedback.window(4, partial(system.explain, target="terms"))
    told = [each for each in window.explanations if each is not None]
    assert len(told) == 5
    assert np.array_equal(window.explanations[0].values, mine.values)
    assert set(COMPONENTS) <= set(told[-1].outputs)


def test_a_step_that_was_cut_short_explains_the_same_decisions_when_it_is_repeated():
    """Which ones were left to explain depended on what the first try had explained, and so did the weights."""
    explained = []
    for cut in (False, True):
        system = System(small(), "greedy", seed=1)
        system.run(12)
        calls = []

        def explain(name, cut=cut, calls=calls, system=system):
            calls.append(name)
            if cut and len(calls) == 3:
                raise KeyboardInterrupt
            return system.explain(name, rows=60)

        if cut:
            with pytest.raises(KeyboardInterrupt):
                system.reward_feedback.window(4, explain)
        system.reward_feedback.window(4, explain)
        explained.append([name for name in system.history().decision_id if system.journal.explanations(name)])
    assert len(explained[0]) == 4
    assert explained[0] == explained[1]


@pytest.mark.parametrize(("count", "most"), [(10, 3), (3, 3), (3, 9), (1, 1), (5, 0), (0, 4), (5, -1)])
def test_spread_takes_so_many_of_different_places(count, most):
    names = [str(i) for i in range(count)]
    found = _spread(names, most)
    assert len(found) == len(set(found)) == min(count, max(most, 0))
    assert found == sorted(found, key=int)


def test_a_resumed_system_goes_on_as_if_never_stopped(tmp_path):
    path = tmp_path / "run.journal"
    straight = System(small(), "greedy", seed=1, targets=MISSED)
    with System(small(), "greedy", seed=1, targets=MISSED, journal=path) as system:
        for each in (straight, system):
            each.run(10)
            each.feedback(**QUICK)
    with System.resume(path) as system:
        assert system.targets == Targets.of(MISSED)
        assert system.reward == straight.reward != system.world.reward
        for each in (straight, system):
            each.run(10)
            change = each.feedback(**QUICK)
        assert change.step == 1
        assert system.reward == straight.reward
        assert repeatable(system).equals(repeatable(straight))
        assert [replace(each, recorded_at="") for each in system.journal.feedback()] == [
            replace(each, recorded_at="") for each in straight.journal.feedback()
        ]


def test_a_forgotten_decision_is_explained_with_the_weights_it_was_taken_with():
    system = System(small(), "greedy", seed=1, targets=MISSED)
    system.run(10)
    first = system.history().query("code > 0").decision_id.iloc[0]
    before = system.reward
    system.feedback(**QUICK)
    system.memory._kept.clear()
    assert system.questions.recall(first).view.reward == before
    assert system.reward != before


def test_rewards_set_by_hand_begin_anew_and_numbers_go_on():
    system = System(small(), "greedy", seed=1, targets=MISSED)
    system.run(10)
    system.feedback(**QUICK)
    system.reward = replace(system.world.reward, w_cost=1.5)
    system.run(10)
    change = system.feedback(**QUICK)
    assert change.step == 0
    assert [each.number for each in change.changes] == [1]
    assert sum(weights(system.reward)) == pytest.approx(3.0)
    assert [each.number for each in system.journal.feedback()] == [0, 1]


def test_a_change_that_harms_is_taken_back_with_what_was_learnt(monkeypatch):
    """Held-out episodes are worth much less after the change, at two looks: reward and weights go back."""
    system = System(small(), "hi-ppo", seed=1, targets=MISSED)
    first = system.policy
    worth = iter([[1.0, 1.1], [0.2, 0.3], [0.1, 0.3]])
    monkeypatch.setattr(system.reward_feedback, "play", lambda *_, **__: next(worth))
    user = system.reward
    system.run(10)
    assert system.feedback(explain=0).kind == "changed"
    other = copy.deepcopy(first)
    system.versions.take_over(system.versions.new_name(), other, {})
    system.adopt(other)
    system.run(10)
    assert system.feedback(explain=0).kind == "still"
    system.run(10)
    change = system.feedback(explain=0)
    assert change.kind == "rolled back"
    assert system.reward == user
    assert system.policy is first
    assert [each.rolled_back for each in system.journal.feedback()] == [True, False]
    assert [each.details.get("restored") for each in system.journal.events() if each.kind == "learnt"] == [None, True]


def test_a_reward_and_its_weights_are_taken_back_as_one(tmp_path, monkeypatch):
    """Whoever reads the file while the weights go back, as after a kill, must not see the reward gone back already."""
    path = tmp_path / "run.journal"
    with System(small(), "greedy", seed=1, targets=MISSED, journal=path) as system:
        worth = iter([[1.0, 1.1], [0.2, 0.3], [0.1, 0.3]])
        monkeypatch.setattr(system.reward_feedback, "play", lambda *_, **__: next(worth))
        on_disk = []

        def restore():
            with Journal.read(path) as seen:
                on_disk.extend(each.details["kind"] for each in seen.events() if each.kind == "feedback")

        monkeypatch.setattr(system.versions, "restore", restore)
        for _ in range(3):
            system.run(10)
            change = system.feedback(explain=0)
        assert change.kind == "rolled back"
    assert on_disk == ["changed", "still"]
    with Journal.read(path) as seen:
        kinds = [each.details["kind"] for each in seen.events() if each.kind == "feedback"]
    assert kinds == ["changed", "still", "rolled back"]


def test_returns_under_other_targets_are_not_held_against_each_other(monkeypatch):
    system = System(small(), "greedy", seed=1)
    worth = iter([[1.0, 1.1], [0.2, 0.3], [0.1, 0.3]])
    monkeypatch.setattr(system.reward_feedback, "play", lambda *_, **__: next(worth))
    changes = []
    for targets in (MISSED, {"utilisation_at_least": 0.99}, {"utilisation_at_least": 0.99}):
        system.run(10)
        changes.append(system.feedback(targets, explain=0))
    assert "rolled back" not in [change.kind for change in changes]
    assert [change.anchored for change in changes] == [True, True, False]


def test_targets_given_to_a_step_are_those_of_the_resumed_system(tmp_path):
    path = tmp_path / "run.journal"
    with System(small(), "greedy", seed=1, journal=path) as system:
        system.run(10)
        system.feedback(MISSED, **QUICK)
    with System.resume(path) as system:
        assert system.targets == Targets.of(MISSED)
        system.run(3)
        assert system.feedback(**QUICK).step == 1


def test_a_decision_is_explained_by_the_weights_that_took_it(monkeypatch):
    system = System(small(), "hi-ppo", seed=1)
    first = system.policy
    system.run(6)
    second = with_weights(first, first.learnt.with_agents(0.5 * first.learnt.theta))
    system.versions.take_over(system.versions.new_name(), second, {})
    system.adopt(second)
    system.run(3)
    asked = []
    explain = Memory.explain
    monkeypatch.setattr(Memory, "explain", lambda self, *a, **b: asked.append(self._policy) or explain(self, *a, **b))
    placed = system.history().query("code > 0").decision_id.tolist()
    old, new = (system.explain(name, rows="quick") for name in (placed[0], placed[-1]))
    assert asked == [first, second]
    straight = System(small(), "hi-ppo", seed=1)
    straight.run(6)
    straight.memory._kept.clear()
    assert np.array_equal(old.values, straight.explain(placed[0], rows="quick").values)
    assert new.decision == placed[-1]


def test_held_out_episodes_are_the_same_every_time_and_depend_on_the_weights():
    system = System(small(), "hi-ppo", seed=1, targets={"utilisation_at_least": 0.99})
    system.run(3)
    from attribution_sched.feedback.rollback import Objective

    objective = Objective(system.world.reward, system.targets)
    heard = []
    play = system.reward_feedback.play
    one = play(system.policy, system.reward, objective, 2, 12, heard.append)
    assert one == play(system.policy, system.reward, objective, 2, 12)
    assert len(one) == 2 and one[0] != one[1] and sum(heard) >= 24
    other = replace(system.reward, w_eff=0.0, w_util=0.0, w_cost=3.0)
    assert play(system.policy, other, objective, 2, 12) != one
    assert system.journal.count() == len(system.history())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ("targets = None", "nothing to work toward")),
        ({"targets": {}}, ("nothing to work toward",)),
        ({"targets": {"utilization_at_least": 0.8}}, ("Did you mean 'utilisation_at_least'?",)),
        ({"targets": 0.8}, ("targets = 0.8", "mapping")),
        ({"targets": MISSED, "explain": -1}, ("explain = -1", ">= 0")),
        ({"targets": MISSED, "episodes": 1.5}, ("episodes = 1.5",)),
        ({"targets": MISSED, "decisions": 0}, ("decisions = 0", ">= 1")),
        ({"targets": {"energy_j_per_unit_at_most": 5.0}}, ("energy_usd_per_kwh", "Set the price")),
    ],
)
def test_what_cannot_be_done_is_said_and_leaves_nothing(given, words):
    system = System(small(), "greedy", seed=1)
    system.run(4)
    with pytest.raises((SettingsError, ModelFitError)) as caught:
        system.feedback(**({"explain": 0, "episodes": 0} | given))
    assert all(word in str(caught.value) for word in words)
    assert system.journal.feedback() == [] and list(system.journal.events()) == []


def test_progress_reaches_its_end():
    system = System(small(), "greedy", seed=1, targets=MISSED)
    system.run(10)
    heard = []
    system.feedback(**QUICK, progress=lambda done, total: heard.append((done, total)))
    assert heard[-1] == (27, 27)
    assert heard == sorted(heard)


def test_other_episodes_are_not_held_against_earlier_ones():
    system = System(small(), "greedy", seed=1, targets=MISSED)
    for given in ({"episodes": 2, "decisions": 12}, {"episodes": 3, "decisions": 12}, {"episodes": 3, "decisions": 6}):
        system.run(10)
        assert system.feedback(explain=0, **given).verdict is None
    system.run(10)
    assert system.feedback(explain=0, episodes=0).verdict is None
    system.run(10)
    assert system.feedback(explain=0, **given).verdict is not None


def test_only_a_reward_can_be_put_in_force():
    system = System(small(), "greedy", seed=1)
    with pytest.raises(SettingsError, match=r"reward = 'x': must be a Reward"):
        system.reward = "x"
    assert system.reward == system.world.reward
