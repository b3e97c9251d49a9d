"""What is gathered is what happened: counts, joules, traffic, targets and rivals against the run itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched import System
from attribution_sched.feedback.targets import Targets
from attribution_sched.feedback.window import Window
from attribution_sched.report.collect import reasons, rivals
from attribution_sched.report.collect.gather import gather
from attribution_sched.report.collect.passing import consequential, spread
from attribution_sched.report.data import Moment
from tests.report.runs import TARGETS, learnt, report, ruled
from tests.small_world import small


def moment(name, kind, hours):
    return Moment(
        name, "t", kind, 0.0, False, "", {}, "", 1, ("a",), 1.0, 1.0, None, 0.0, 0.0, (0, 0, 0), (1, 1, 1), 0.0, hours,
        None,
    )  # fmt: skip


moments = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.floats(0, 100)), max_size=12).map(
    lambda drawn: [moment(f"d{at}", kind, hours) for at, (kind, hours) in enumerate(drawn)]
)


@given(drawn=moments, most=st.integers(0, 8))
@settings(deadline=None, max_examples=50)
def test_the_largest_of_every_kind_come_first(drawn, most):
    chosen = consequential(drawn, most)
    known = [one for one in drawn if one.device_hours is not None]
    assert len(chosen) == min(most, len(known))
    hours = [one.device_hours for one in chosen]
    assert hours == sorted(hours, reverse=True)
    kinds = {one.kind for one in known}
    assert len({one.kind for one in chosen}) == min(len(kinds), most)
    if chosen:
        assert chosen[0].device_hours == max(one.device_hours for one in known)


@given(count=st.integers(0, 60), most=st.integers(0, 20))
@settings(deadline=None, max_examples=50)
def test_a_sample_is_spread_over_the_run(count, most):
    drawn = [moment(str(at), "a", 1.0) for at in range(count)]
    at = [int(one.decision) for one in spread(drawn, most)]
    assert len(set(at)) == len(at) == min(most, count)
    assert at == sorted(at)
    gaps = np.diff([-1, *at, count])
    if len(at) > 1:
        assert gaps.max() <= 2 * count / len(at) + 1


@pytest.mark.parametrize("name", ["learnt", "ruled", "alone"])
def test_counts_are_those_of_the_journal(name):
    from tests.report.runs import SYSTEMS

    history, found = SYSTEMS[name]().history(), report(name)
    totals = found.run.totals
    assert totals["decisions"].value == len(history)
    assert (
        totals["placed"].value
        == (history["code"] == 1).sum()
        == totals["arrived"].value - (totals["turned_away"].value + totals["waiting"].value)
    )
    assert len(found.timeline.moments) == (history["code"] > 0).sum()
    shares = [totals[part].value for part in ("placed", "moved", "kept", "waited", "refused")]
    assert sum(shares) == len(history)
    rewards = history["reward"][history["code"] == 1]
    assert totals["mean_reward"].value == pytest.approx(rewards.mean())


def test_device_hours_are_devices_by_time():
    for one in report("learnt").timeline.moments:
        assert one.device_hours == pytest.approx(one.devices * one.step_s * one.steps / 3600.0)
        assert one.devices > 0
        assert one.steps > 0


def test_joules_add_up_to_the_prediction():
    energy = report("alone").energy
    assert energy.unit == "J/sample"
    assert [task.task for task in energy.tasks] == ["EfficientNet", "ResNet50", "BERT"] or len(energy.tasks) == 3
    for task in energy.tasks:
        assert sum(task.parts) + task.base == pytest.approx(task.predicted)
        assert task.base > 0.0 and min(task.parts) >= 0.0 and len(task.errors) == len(task.parts)
        assert task.samples > 0


def test_targets_are_measured_over_the_plans_in_force():
    system, found = learnt(), report("learnt")
    outcomes = [outcome for _, outcome in system.journal.entries() if outcome.code > 0]
    window, targets = Window.of(outcomes, span_s=system.now_s), Targets.of(TARGETS)
    assert [one.target for one in found.targets] == list(TARGETS)
    for one in found.targets:
        value = window.measure(one.target).value
        assert one.measured.value == value
        assert one.violation == targets.violation(one.target, value)
        assert one.english
        assert one.chinese
    assert found.targets[1].violation > 0 > found.targets[2].violation


def test_traffic_costs_what_the_journal_says():
    found, prices = report("ruled"), ruled().world.cluster.wan
    assert found.cross_domain > 0
    known = {one.decision: one for one in found.timeline.moments}
    for one in found.traffic:
        sent = np.array(one.bytes_per_step)
        assert one.taken
        assert sent.sum() > 0
        assert (np.diag(sent) == 0).all()
        bill = float((sent * ruled().cluster.engine.arrays.domains.price_usd_per_byte).sum())
        assert bill == pytest.approx(known[one.decision].bill_usd, rel=1e-9)
    assert prices is not None


def test_without_plans_across_domains_the_split_not_taken_is_shown():
    system = System(small(), "sjf", seed=2)
    system.run(3)
    found = gather(system, explain=0, against=())
    if found.cross_domain == 0:
        assert len(found.traffic) == 1
        assert not found.traffic[0].taken
        assert np.array(found.traffic[0].bytes_per_step).sum() > 0
        assert found.traffic[0].provenance == "estimated"


def test_the_run_itself_is_among_the_contenders():
    system, found = learnt(), report("learnt").rivals
    own = found.contenders[0]
    assert own.own
    assert own.policy == "hi-ppo"
    assert found.span_s % system.world.tick_s == 0
    assert found.span_s >= system.now_s
    assert own.figures["energy_kwh"].value >= system.cluster.totals()["meter_j"] / 3.6e6
    assert [one.policy for one in found.contenders[1:]] == ["greedy", "sjf", "static-uniform"]
    assert not any(one.missing for one in found.contenders)


def test_a_rival_with_the_same_policy_does_the_same():
    system = System(small(), "sjf", seed=5)
    system.run(5)
    own = rivals._own(system, 7200.0)[0].figures
    other = rivals._rival(system, 7200.0, "sjf", 5).figures
    for name in own:
        if name != "decision_s":
            assert own[name].value == pytest.approx(other[name].value), name


def test_tasks_handed_in_are_handed_to_rivals_too():
    system = System("testbed", "sjf", queue="empty")
    for _ in range(2):
        system.submit("resnet-50", steps=300)
        system.schedule_next_task()
    found = gather(system, explain=0, against=("fcfs",)).rivals
    assert [one.figures["placed"].value for one in found.contenders] == [2, 2]


def test_a_rival_that_breaks_is_named_with_the_reason(monkeypatch):
    class Breaks:
        name = "greedy"

        def decide(self, view):
            raise ValueError("not made for this")

    monkeypatch.setattr(rivals, "make_policy", lambda name: Breaks())
    system = System(small(), "sjf", seed=2)
    system.run(1)
    found = gather(system, explain=0, against=("greedy",)).rivals
    assert found.contenders[1].missing == "ValueError: not made for this"
    assert found.contenders[1].figures == {}


def test_a_rival_that_searches_does_not_play_a_long_run_again_and_the_clock_decides_nothing(monkeypatch):
    monkeypatch.setattr(rivals, "MOST_SEARCHED", 0)
    monkeypatch.setattr(rivals, "SEARCHERS", frozenset({"greedy"}))
    system = System(small(), "sjf", seed=2)
    system.run(1)
    own, greedy, fcfs = gather(system, explain=0, against=("greedy", "fcfs")).rivals.contenders
    assert "a policy that searches plays up to 0 again" in greedy.missing and not greedy.figures
    assert own.figures and fcfs.figures and not fcfs.missing


def test_explanations_are_of_the_consequential_decisions():
    found = report("learnt")
    chosen = consequential(found.timeline.moments, 2)
    assert [one.decision for one in found.reasons.consequential] == [one.decision for one in chosen]
    assert all(one.explanation is not None and one.flips_sought for one in found.reasons.consequential)
    # The decision itself is explained, not what its plan is worth; and what else could have been done is told.
    assert found.reasons.output == "log_odds"
    for one in found.reasons.consequential:
        assert one.explanation["target"] == "decision"
        assert all(one.instead[lang]["sentence"] and len(one.instead[lang]["rows"]) > 1 for lang in ("en", "zh"))
    assert len(found.reasons.sample) == found.reasons.placements == 9
    tops = [driver.top for driver in found.reasons.drivers]
    assert tops == sorted(tops, reverse=True)
    assert sum(tops) <= 1.0 + 1e-9


def test_a_decision_that_cannot_be_explained_says_why(monkeypatch):
    from attribution_sched.errors import ExplanationError

    system = System(small(), "sjf", seed=2)
    system.run(2)

    def refuses(decision, **given):
        raise ExplanationError("no background")

    monkeypatch.setattr(system, "explain", refuses)
    found = reasons.reasons(system, gather(system, explain=0, against=()).timeline.moments, 2)
    assert [one.missing for one in found.consequential] == ["no background"] * 2
    assert found.drivers == ()


def test_an_empty_run_has_nothing_to_tell():
    found = report("empty")
    assert found.energy is None
    assert found.timeline.moments == ()
    assert found.reasons.consequential == ()
    assert found.rivals.missing == "nothing was decided"
    assert found.run.fingerprint == ""
