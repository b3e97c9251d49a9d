"""The policy in random states: deterministic, never refused, in time or honest about it."""

import copy
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from attribution_sched.cluster.decision import view
from attribution_sched.config import load_settings
from attribution_sched.errors import PlanError
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.policy import twin
from attribution_sched.scheduler.registry import make_policy

from ..states import check_states
from . import worlds


def policy(**options):
    given = {"weights": worlds.weights(), "attributor": worlds.attributor, "deadline_s": np.inf}
    return HiPpo(**(given | options))


@pytest.mark.parametrize("name", ["equal", "incidents", "mixed", "tight", "power", "served"])
def test_no_plan_is_refused_in_random_states(name):
    assert check_states(worlds.worlds()[name], policy(), 50, 1) >= 3


def test_the_same_view_gives_the_same_plan():
    seen = view(worlds.begun(worlds.worlds()["mixed"], 1, 2))
    assert policy().decide(seen) == policy().decide(seen)


def test_after_the_deadline_a_rule_decides_and_this_is_said():
    seen = view(worlds.begun(worlds.worlds()["equal"], 1, 2))
    late = policy(deadline_s=2.0, clock=count(0.0, 5.0).__next__)
    plan = late.decide(seen)
    assert plan == late.fallback.decide(seen) is not None
    assert late.last.source == "fallback:sjf" and "took" in late.last.reason


def test_a_search_that_the_clock_cut_short_is_no_decision_of_its_own():
    """A plan that depends on how busy the machine was would be kept in the journal under the policy's own name."""
    seen = view(worlds.begun(worlds.worlds()["equal"], 1, 2))
    asked = policy(deadline_s=2.0)
    in_time = asked.decide(seen)
    assert asked.last.source == "policy+search"
    late, past = [0.0], asked._agree
    asked.clock = lambda: late[0]

    def agree(*given):
        late[0] = 2.5
        return past(*given)

    asked._agree = agree
    assert asked.decide(seen) == asked.fallback.decide(seen) and in_time is not None
    assert asked.last.source == "fallback:sjf" and asked.last.reason.endswith("at: search")


def test_nothing_chosen_for_the_queue_holds_for_all_of_it_until_something_changes():
    engine = worlds.begun(worlds.worlds()["equal"], 1, 2)
    seen, asked = view(engine), policy()
    calls = []
    real = asked.coordinate
    asked.coordinate = lambda v: calls.append(v) or replace(real(v), plan=None)
    assert asked.select(seen) == seen.slot and asked.decide(seen) is None
    assert asked.select(replace(seen, slot=seen.slot)) == seen.slot and len(calls) == 1
    asked.select(replace(seen, time_s=seen.time_s + 1.0))
    asked.select(replace(seen, free_devices=np.array([1, 4, 4])))
    assert len(calls) == 3


def test_bad_views_are_refused():
    seen = view(worlds.begun(worlds.worlds()["equal"], 1, 2))
    with pytest.raises(PlanError, match="domains"):
        policy().decide(replace(seen, observed=np.full((3, 20), np.nan)))
    with pytest.raises(PlanError, match="shape"):
        policy().decide(replace(seen, observed=np.zeros((1, 20))))
    with pytest.raises(PlanError, match="attributor"):
        policy(attributor=lambda counters: np.zeros((1, 3))).decide(seen)


@pytest.mark.parametrize("name", ["hi-ppo[quick]", "hi-ppo", "rule", "rule+fork"])
def test_what_is_no_number_and_what_is_of_another_preset_is_refused(name):
    """NaN devices, baselines and paces were decided on as if they had been read."""
    asked, seen = make_policy(name), view(worlds.begun(worlds.worlds()["equal"], 1, 2))
    other = view(worlds.begun(load_settings("testbed").build_world(), 1, 2))
    nan = float("nan")
    for changed, match in (
        ({"free_devices": np.array([nan, 4.0, 4.0])}, r"free_devices\[0\] = nan: must be finite"),
        ({"base_step_s": np.full_like(seen.base_step_s, nan)}, "base_step_s"),
        ({"base_cost_usd": np.full_like(seen.base_cost_usd, nan)}, "base_cost_usd"),
        ({"samples_per_s": nan, "queue": ()}, "samples_per_s = nan"),
        ({"queue": tuple(replace(task, samples_per_s=nan) for task in seen.queue)}, "samples_per_s of task"),
        ({"bandwidth_gbps": seen.bandwidth_gbps * nan}, "nan"),
        ({"steps_left": nan, "queue": tuple(replace(task, steps_left=nan) for task in seen.queue)}, "nan"),
        ({"free_devices": other.free_devices}, "free_devices.shape"),
        ({"observed": other.observed}, "observed.shape"),
        ({"moment": other.moment}, "another cluster"),
    ):
        with pytest.raises(PlanError, match=match):
            asked.decide(replace(seen, **changed))
    assert asked.decide(seen) is None or asked.decide(seen).segments


def test_tables_are_kept_from_episode_to_episode_and_not_mixed_up():
    asked = policy()
    first, again = (view(worlds.begun(worlds.worlds()["equal"], 1, seed)) for seed in (1, 2))
    other = view(worlds.begun(worlds.worlds()["mixed"], 1, 1))
    assert first.cost is not again.cost
    assert asked.planner(first) is asked.planner(again)
    assert asked.planner(first) is not asked.planner(other)
    assert asked.planner(first) is not asked.planner(replace(again, base_step_s=2.0 * again.base_step_s))


def test_a_copy_has_a_memory_of_its_own_whatever_was_looked_up_before():
    """What was kept of a decision or a world could not be copied; a copy that shares memory forgets it for both."""
    world = replace(load_settings("shared").build_world(), horizon_s=4 * 3600.0)
    asked = make_policy("hi-ppo[quick]")
    seen = []

    class Watching(type(asked)):
        def coordinate(self, view, **options):
            if self.partners.apply(view):
                seen.append(view)
                self.partners.table(view, world)
                self.rivals(view)
            return super().coordinate(view, **options)

    asked.__class__ = Watching
    play(world, asked, 0)
    assert seen and asked._rivals is not None and asked.partners._tables
    other = copy.deepcopy(asked)
    assert other.partners is not asked.partners and other.partners.belief is not asked.partners.belief
    assert other._rivals is None and not other.partners._tables
    before = asked.memory()
    twin(asked)
    after = asked.memory()
    assert before.keys() == after.keys() and all((before[name] == after[name]).all() for name in before)


def test_a_decision_with_the_moment_of_another_cluster_is_refused():
    """Copies of that other cluster would be compared."""
    seen, other = (view(worlds.begun(worlds.worlds()[name], 1, 2)) for name in ("equal", "served"))
    with pytest.raises(PlanError, match=r"decision\.moment = .*is of another cluster.*Use the moment that came with"):
        policy(think=True).coordinate(replace(seen, moment=other.moment))
    # The same models and as many domains do not make it the same cluster.
    seen, other = (
        view(worlds.begun(load_settings(name).build_world(), 1, 1)) for name in ("cross-domain", "cross-domain-easy")
    )
    with pytest.raises(PlanError, match=r"decision\.moment = .*gcp:europe-west4-a ×16.*is of another cluster"):
        policy(think=True).coordinate(replace(seen, moment=other.moment))
