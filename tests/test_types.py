"""The four records: one import, one moment after the other, predicted and observed side by side."""

import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from attribution_sched import types
from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.types import Outcome, Quantities, RewardTerms, Task, provenance_of


def test_all_four_are_found_in_one_place():
    assert types.Decision is Decision
    assert (types.Plan, types.PlanBatch) == (Plan, PlanBatch)
    assert all(hasattr(types, name) for name in types.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        types.Nothing  # noqa: B018


def test_a_task_at_another_moment_is_the_same_task():
    task = Task(
        "a",
        2,
        "resnet-50",
        500.0,
        tenant="lab",
        priority=3,
        deadline_s=60.0,
        devices=4,
        hold=True,
        counters=np.ones(12),
    )
    later = task.at(5, 120.0, 33.0)
    assert (later.slot, later.steps_left, later.waited_s) == (5, 120.0, 33.0)
    assert (task.slot, task.steps_left, task.waited_s) == (-1, 0.0, 0.0)
    assert later.counters is task.counters
    assert replace(later, slot=-1, steps_left=0.0, waited_s=0.0) == task
    with pytest.raises(FrozenInstanceError):
        later.slot = 1


def test_how_counters_were_got_is_kept_for_each():
    ways = provenance_of(COUNTER_NAMES, "simulated")
    assert set(ways) == set(COUNTER_NAMES) and Task(provenance=ways).provenance["conv"] == "simulated"
    with pytest.raises(TypeError):
        ways["conv"] = "measured"


def test_an_outcome_has_both_accounts_and_says_what_was_observed():
    observed = Quantities(1.0, 2.0, 0.0, 50.0, 0.25, 3.0, 0.5, 0.75, 0.125, "measured")
    outcome = Outcome(1, observed, predicted=Quantities(step_s=4.0, provenance="estimated"))
    assert (outcome.step_s, outcome.energy_j, outcome.bill_usd, outcome.terms) == (2.0, 50.0, 0.25, (0.5, 0.75, 0.125))
    assert outcome.predicted.step_s == 4.0 and outcome.predicted.energy_j is None
    waits = Outcome(0, Quantities())
    assert waits.step_s == 0.0 and waits.terms == (0.0, 0.0, 0.0)


def test_r_is_the_weighted_sum():
    assert math.isclose(RewardTerms(0.5, 0.8, 0.2, 1.0, 0.5, 2.0).total, 0.5 + 0.4 - 0.4)
