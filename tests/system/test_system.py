"""The loop from counters to outcome: what a user gets, and that all of it is in the journal."""

import json
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import attribution_sched
from attribution_sched import System
from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.journal import Journal
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.system.results import PARTS
from tests.small_world import small

BUSY = {"kind": "poisson", "rate_per_hour": 700.0}
LATENCIES = ["latency_attribution_s", "latency_decision_s"]


def repeatable(system):
    """The history without what differs from run to run."""
    return system.history().drop(columns=["recorded_at", *LATENCIES])


@pytest.fixture(scope="module")
def system():
    found = System(small(), "greedy", seed=3)
    found.results = [found.schedule_next_task() for _ in range(12)]
    return found


def test_a_result_says_what_was_decided_why_it_costs_and_how_it_was_got(system):
    result = system.results[0]
    assert result.placed
    assert result.decision.plan is not None
    assert result.decision.domains
    assert set(result.decision.domains) <= {"east", "west"}
    assert result.decision.record["words"] == result.decision.words
    assert sum(dp * tp * pp for dp, tp, pp in result.decision.layouts) == result.decision.devices
    assert len(result.attribution.names) == 7
    assert result.attribution.units == "J/sample"
    assert result.outcome.step_s > 0
    assert result.outcome.energy_j_per_step > 0
    assert result.outcome.says == "placed"
    assert list(result.latencies_s) == ["attribution", "decision", "journal", "effect"]
    assert set(result.latencies_s) < set(PARTS)
    assert result.provenance["outcome"] == "simulated"
    assert result.provenance["attribution"].startswith("estimated")
    with pytest.raises(FrozenInstanceError):
        result.id = "other"
    with pytest.raises(TypeError):
        result.provenance["outcome"] = "measured"


def test_the_reward_is_its_terms_with_their_weights(system):
    for result in system.results:
        r = result.reward
        assert r.total == pytest.approx(1.0 * r.r_eff + 0.5 * r.r_util - 0.5 * r.r_cost)
        assert r.r_eff == pytest.approx(1.0 - result.outcome.step_s / result.outcome.baseline_step_s)
        assert r.r_util == result.outcome.utilisation


def test_every_decision_is_in_the_history(system):
    table = system.history()
    assert len(table) == len(system.results) + sum(result.between for result in system.results)
    placed = table[table["code"] == 1]
    assert list(placed["decision_id"]) == [result.id for result in system.results]
    for (_, row), result in zip(placed.iterrows(), system.results, strict=True):
        assert row["reward"] == result.reward.total
        assert row["plan"]["words"] == result.decision.words
        assert row["attribution"]["values"] == result.attribution.values.tolist()
        assert (row["task_id"], row["task_kind"]) == (result.task.id, result.task.kind)
    assert system.journal.pending() == []


def test_the_same_seed_gives_the_same_history(system):
    other = System(small(), Greedy(), seed=3)
    other.run(12)
    assert repeatable(other).equals(repeatable(system))
    third = System(small(), "greedy", seed=4)
    third.run(12)
    assert not repeatable(third).equals(repeatable(system))


def test_results_can_be_shown_and_written(system):
    result = system.results[0]
    assert result.decision.words in str(result)
    assert all(name in str(result) for name in result.attribution.names)
    shown = result._repr_html_()
    assert result.task.kind in shown
    assert "http" not in shown
    assert "<script" not in shown
    written = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert written["reward"]["total"] == result.reward.total
    assert written["decision"]["record"] == result.decision.record


def test_attributions_are_kept(system):
    # Each task is attributed once, when it comes, however often it is decided on; tasks of the pool come again.
    use = system.attribution_cache
    assert use.hits + use.misses == system.cluster.totals()["arrived"] - system.cluster.totals()["dropped"]
    assert use.misses == use.kept > 0


def test_a_queue_of_nothing_gives_none():
    system = System(small(), "greedy", queue="empty")
    assert system.schedule_next_task() is None
    assert len(system.history()) == 0
    name = system.submit("bert-base", steps=300)
    result = system.schedule_next_task()
    assert (result.task.id, result.task.submitted, result.task.steps_left) == (name, True, 300.0)
    assert system.schedule_next_task() is None
    assert system.cluster.running == 1


def test_time_stands_still_between_calls_and_passes_where_a_task_must_wait():
    system = System(small(), "greedy", queue="empty")
    for _ in range(4):
        system.submit("gpt2-small", steps=600)
    times = [system.schedule_next_task().cluster_time_s for _ in range(4)]
    assert times[0] == 0.0
    assert times[-1] > 0.0
    assert times == sorted(times)


def test_the_demonstration_has_three_tasks():
    system = System.demo(policy="greedy")
    results = [system.schedule_next_task() for _ in range(3)]
    assert {result.task.id for result in results} == {"ResNet50", "BERT", "EfficientNet"}
    assert system.schedule_next_task() is None
    assert all(result.decision.domains == ("node-0",) for result in results)
    summary = system.run(until="empty")
    assert (summary.running, summary.waiting) == (0, 0)
    assert system.cluster.totals()["completed"] == 3
    assert summary.energy_kwh > 0


def test_measured_counters_are_attributed_and_said_to_be_measured():
    system = System(small(), "greedy", queue="empty")
    readings = dict.fromkeys(COUNTER_NAMES[:7], 0.3)
    system.submit({"kind": "bert-base", "counters": readings, "id": "mine"})
    result = system.schedule_next_task()
    assert result.provenance["counters"] == "measured"
    assert result.attribution.question == "accounting" and result.attribution.missing == ("samples_per_s",)
    assert float(result.attribution.prediction) > result.attribution.base > 0.0


def test_a_function_may_decide():
    def first_domain(view):
        plan = Greedy().decide(view)
        return plan if plan is not None and set(plan.domains) == {0} else None

    system = System(small(), first_domain)
    result = system.schedule_next_task()
    assert result.decision.policy == "first_domain"
    assert result.decision.domains == ("east",)
    assert system.journal.header.policy == "first_domain"


def test_a_policy_that_never_places_does_not_hang(monkeypatch):
    monkeypatch.setattr("attribution_sched.system.system.PATIENCE", 40)
    system = System(small(arrivals=BUSY), lambda view: None)
    result = system.schedule_next_task()
    assert not result.placed
    assert result.decision.words == "wait"
    assert result.decision.record is None
    assert result.between == 39
    assert len(system.history()) == 40
    assert system.now_s > 0
    assert system.run(5).stopped == "nothing placed"
    assert system.run(hours=0.1).stopped == "hours"


def test_a_run_counts_what_happened():
    system = System(small(arrivals=BUSY), "sjf", seed=2)
    told = []
    summary = system.run(30, progress=lambda done, of: told.append((done, of)))
    table = system.history()
    assert told == [(n + 1, 30) for n in range(30)]
    assert (summary.placed, summary.decisions) == (30, len(table))
    assert summary.placed == (table["code"] == 1).sum()
    assert summary.mean_reward == pytest.approx(table.loc[table["code"] == 1, "reward"].mean())
    assert summary.stopped == "count"
    again = system.run(hours=0.25)
    assert again.cluster_h >= 0.25
    assert again.decisions == len(system.history()) - summary.decisions
    assert "decisions" in str(again)
    assert System(small(), "sjf", queue="empty").run(3).stopped == "nothing to decide"
    assert System(small(), "sjf", queue="empty").run(until="empty").decisions == 0


def test_what_the_cluster_earns_over_time_is_kept():
    from attribution_sched.scheduler.episode import play

    system = System(small(), "greedy", seed=5)
    known = play(system.world, Greedy(), 5)
    system.run(hours=1.0)
    table = system.history()
    paid = np.array([row["paid_since"] for row in table["outcome_details"]]).sum(axis=0)
    assert len(table) == known.decisions
    assert paid == pytest.approx([known.r_eff, known.r_util, known.r_cost], rel=0.2)


def test_a_file_of_settings_and_an_attributor_of_ones_own(tmp_path, system):
    path = tmp_path / "small.yaml"
    path.write_text(small().to_yaml(), encoding="utf-8")
    other = System(path, "greedy", seed=3, attributor=lambda counters: np.tanh(counters[:, :7]))
    result = other.schedule_next_task()
    assert result.decision == system.results[0].decision
    assert result.attribution.units == "share"
    assert result.provenance["attribution"] == "estimated (share)"
    assert "without unit" in str(result)


def test_a_journal_is_made_and_can_be_read_meanwhile(tmp_path):
    path = tmp_path / "run.journal"
    with System(small(), "greedy", journal=path) as system:
        result = system.schedule_next_task()
        with Journal.read(path) as journal:
            assert journal.last().id == result.id
            assert journal.header.preset == "small"


def test_a_decision_is_recorded_before_it_takes_effect(monkeypatch):
    system = System(small(), "greedy")
    carry_out, seen = system.cluster.carry_out, []

    def watched(action, key=""):
        last = system.journal.last()
        pending = [one.id for one in system.journal.pending()]
        seen.append((last.cluster_time_s, np.array_equal(last.action, action), pending))
        return carry_out(action, key)

    monkeypatch.setattr(system.cluster, "carry_out", watched)
    for _ in range(3):
        result = system.schedule_next_task()
        assert seen[-1] == (result.cluster_time_s, True, [result.id])
        assert system.journal.pending() == []


def test_what_cannot_be_recorded_takes_no_effect(monkeypatch):
    system = System(small(), "greedy")

    def full(*given, **more):
        raise OSError("full")

    monkeypatch.setattr(system.journal, "record_decision", full)
    with pytest.raises(OSError, match="full"):
        system.schedule_next_task()
    assert (system.cluster.running, len(system.history())) == (0, 0)
    monkeypatch.undo()
    other = System(small(), "greedy")
    assert system.schedule_next_task().decision == other.schedule_next_task().decision


def test_the_package_offers_it():
    assert attribution_sched.System is System
    assert "System" in attribution_sched.__all__
    with pytest.raises(AttributeError, match="has no attribute 'Sytem'"):
        attribution_sched.Sytem  # noqa: B018


def test_a_placement_says_what_was_expected_of_it_beside_what_came():
    with System(small(), "greedy", seed=3) as system:
        result = system.schedule_next_task()
        expected, outcome = result.outcome.predicted, result.outcome
        assert expected.provenance == "estimated"
        assert expected.start_s == result.cluster_time_s
        # A nominal task, alone: the very task differs by its latent demands, not by a factor of two.
        assert 0.5 < expected.step_s / outcome.step_s < 2.0
        assert 0.5 < expected.energy_j / outcome.energy_j_per_step < 2.0
        assert expected.r_eff == pytest.approx(1.0 - expected.step_s / outcome.baseline_step_s)
        assert f"nominal for its kind {expected.step_s:.4g} s" in str(result)
        assert result.to_dict()["outcome"]["predicted"]["step_s"] == expected.step_s
