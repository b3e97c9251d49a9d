"""A power cap per task, in the engine, in the simulator that is its test, and as an action."""

from dataclasses import replace

import numpy as np
import pytest
import simulator_agreement as agreement

from attribution_sched.cluster.codecs import CrossDomainCodec
from attribution_sched.cluster.cost import opaque_cap
from attribution_sched.cluster.counters import working_share
from attribution_sched.cluster.decision import encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.interference import measured_jobs
from attribution_sched.cluster.plan import CAP, PlanBatch
from attribution_sched.cluster.power import cap_reached
from attribution_sched.cluster.simulator.simulator import Shared
from attribution_sched.cluster.world import Cluster
from attribution_sched.config import load_settings
from attribution_sched.errors import AttributionSchedError, PlanError, SettingsError
from attribution_sched.explain.wording import describe_plan
from attribution_sched.planning.power_caps import capped, opaque_level, with_cap
from attribution_sched.scheduler.pairing import Packing, ReferenceBelief
from attribution_sched.scheduler.rules import ShortestJobFirst
from attribution_sched.system.decision_records import plan_of, plan_record
from attribution_sched.words.say import in_language
from tests.cluster.engine_worlds import BERT, begun, single, tiny_world

LEVELS = (0.9, 0.75, 0.5, 0.35)


def levelled(world, levels=LEVELS):
    """The world with other cap levels."""
    return replace(world, cluster=replace(world.cluster, cap_levels=levels))


def small_site(levels=LEVELS):
    """Eight devices of the shared site for half a day."""
    settings = load_settings("shared").model_dump(mode="json")
    settings["domain_defaults"]["devices"] = 8
    settings["arrivals"]["rate_per_hour"] = 3.0
    settings["episode"] |= {"horizon_s": 43_200.0, "pool_size": 256, "queue_capacity": 32, "max_running": 16}
    settings["cap_levels"] = levels
    return load_settings(settings).build_world()


class AtLevel:
    """A policy whose plans all get one cap level, or levels in turn."""

    def __init__(self, policy, levels):
        self.policy, self.levels, self.placed = policy, levels, 0
        self.name, self.pairs = policy.name, getattr(policy, "pairs", False)

    def reset(self, seed):
        self.policy.reset(seed)
        self.placed = 0

    def select(self, seen):
        return self.policy.select(seen)

    def decide(self, seen):
        plan = self.policy.decide(seen)
        if plan is None:
            return None
        self.placed += 1
        return with_cap(plan, self.levels[self.placed % len(self.levels)])


@pytest.mark.parametrize(("levels", "rule"), [
    ((0.5, 0.9), "descending"), ((1.0,), "below 1"), ((0.5, 0.5), "descending"), ((0.5, 0.0), "shares"),
    (tuple(0.9 - 0.05 * n for n in range(9)), "at most 8"),
])  # fmt: skip
def test_levels_that_make_no_sense_are_refused(levels, rule):
    world = tiny_world()
    with pytest.raises(SettingsError, match=rule):
        Cluster(world.cluster.domains, world.cluster.wan, cap_levels=levels)


def test_settings_name_the_wrong_level():
    settings = load_settings("shared").model_dump(mode="json")
    with pytest.raises(AttributionSchedError, match="cap_levels"):
        load_settings(settings | {"cap_levels": [0.5, 0.9]}).build_world()
    with pytest.raises(AttributionSchedError, match=r"cap_levels\[0\]"):
        load_settings(settings | {"cap_levels": [1.5]})


def test_a_level_is_a_share_of_the_rating_within_what_the_driver_accepts():
    cluster = levelled(tiny_world(), (0.5, 0.05)).cluster
    gpu = cluster.domains[0].gpu
    assert [cluster.cap_w(0, level) for level in range(3)] == [gpu.tdp_w, 0.5 * gpu.tdp_w, gpu.min_cap_w]


def test_levels_that_nobody_uses_change_nothing():
    from attribution_sched.scheduler.episode import play

    plain, with_levels = (play(world, ShortestJobFirst(), 5) for world in (tiny_world(), levelled(tiny_world())))
    assert plain == with_levels


def test_a_cap_slows_a_known_model_and_saves_energy():
    engine = begun(levelled(tiny_world()))
    seen = view(engine)
    plan = ShortestJobFirst().decide(seen)
    batch = PlanBatch.of([with_cap(plan, level) for level in range(5)])
    found = seen.cost.score(batch, seen.kind_index)
    assert (np.diff(found.step_s) >= 0).all() and found.step_s[4] > found.step_s[0]
    assert (np.diff(found.energy_j) <= 0).all() and found.energy_j[4] < found.energy_j[0]
    caps = [engine.world.cluster.cap_w(plan.segments[0].domain, level) for level in range(1, 5)]
    assert (found.segment("power_w")[1:, 0] <= cap_reached() * np.array(caps) + 1e-9).all()
    with pytest.raises(PlanError, match="cap"):
        seen.cost.score(with_cap(plan, 5), seen.kind_index)


def test_an_action_carries_the_cap_and_the_engine_remembers_it():
    engine = begun(levelled(tiny_world()))
    seen = view(engine)
    plan = with_cap(ShortestJobFirst().decide(seen), 3)
    engine.step(encode(engine, plan, seen.kind_index)[None])
    assert engine.state.plans[0, seen.slot, 0, CAP] == 3
    rows = PlanBatch.of([plan])
    assert rows.plan(0).segments[0].cap == 3 and (rows.segments[0, : len(plan.segments), CAP] == 3).all()
    with pytest.raises(PlanError, match="cap"):
        encode(engine, with_cap(plan, 5), seen.kind_index)
    with pytest.raises(PlanError, match="cap"):
        encode(begun(tiny_world()), with_cap(plan, 1), seen.kind_index)
    assert CrossDomainCodec(engine).masks().shape[1] == engine.choices.sum() * engine.world.max_segments


def test_a_cap_is_told_and_kept_in_journals():
    plan = with_cap(single(BERT), 3)
    told = describe_plan(plan, ["east", "west"])
    assert "power cap level 3" in str(told) and "功率上限 3 级" in in_language(told, "zh")
    assert plan_of(plan_record(plan, ["east", "west"], replanning=False), ["east", "west"]) == plan
    assert "cap" not in str(plan_record(single(BERT), ["east", "west"], replanning=False))


def test_an_opaque_job_feels_a_cap_as_much_as_its_device_works():
    cost = Engine(small_site()).cost
    found = np.array([opaque_cap(cost.domains, cost.power_law, 0, 1, 3, u) for u in (0.05, 0.3, 0.6, 1.0)])
    stretch, above_w, joules = found.T
    assert (stretch[:2] == 1.0).all() and (joules[:2] == 1.0).all(), "less is drawn than any cap"
    assert (np.diff(stretch[1:]) > 0).all() and (np.diff(above_w[1:]) < 0).all() and (joules[2:] < 1.0).all()


def test_counters_tell_how_much_a_device_works():
    jobs = measured_jobs()
    error = np.abs(working_share(jobs.counters) - jobs.device_busy)
    assert np.median(error) < 0.02 and error.max() < 0.15


def test_the_last_comer_sets_the_cap_of_a_shared_device_and_a_pair_works_more():
    engine, policy = Engine(small_site()), AtLevel(Packing(ReferenceBelief()), (3,))
    engine.seed([3])
    engine.reset()
    policy.reset(0)
    world, state, both = engine.arrays, engine.state, 0
    while not state.event[0, st.DONE]:
        seen = view(engine)
        chosen = policy.select(seen)
        if chosen != seen.slot:
            state.event[0, st.SLOT] = chosen
            seen = view(engine)
        engine.step(encode(engine, policy.decide(seen), seen.kind_index)[None])
        shared = np.argwhere(state.occupant[0, 0, :, 1] >= 0)
        both += len(shared)
        watts = float(state.clock[0, st.METER_W])
        caps = [world.domains.caps_w[0, state.plans[0, slots[slots >= 0][-1], 0, CAP]] if (slots >= 0).any() else 37.0
                for slots in state.occupant[0, 0, :8]]  # fmt: skip
        assert watts <= sum(caps) + 1e-6
    assert both > 10


@pytest.mark.parametrize("name", ["cross domain", "shared devices", "arriving together", "site"])
def test_the_simulator_and_the_engine_agree_under_caps(name):
    capped = 0
    for seed in range(3):
        world = small_site() if name == "site" else levelled(agreement.WORLDS[name](horizon_s=20_000.0))
        worst, where, journal = agreement.compare(world, lambda s: agreement.AnyPlan(s, share=0.5), seed)
        assert worst < 1e-9, where
        plain = agreement.engine_journal(levelled(world, ()), Uncapped(agreement.AnyPlan(seed, share=0.5)), seed)
        capped += journal.totals["task_j"] != plain.totals["task_j"]
    assert capped


class Uncapped:
    """The same policy without caps."""

    name = "uncapped"

    def __init__(self, policy):
        self.policy = policy

    def decide(self, seen):
        answer = self.policy.decide(seen)
        if answer is None:
            return None
        return Shared(with_cap(answer.plan, 0)) if isinstance(answer, Shared) else with_cap(answer, 0)


def test_a_device_that_two_share_is_capped_only_where_the_time_of_both_is_worth_it():
    """Charged the time of one alone, a pair lost twice what its cap saved: Hi-PPO did worse with caps than without."""
    engine = Engine(small_site())
    engine.seed([1])
    engine.reset()
    seen = view(engine)
    plan, levels = ShortestJobFirst().decide(seen), []
    for working in np.linspace(0.05, 1.0, 20).tolist():
        own = opaque_level(
            engine.cost.domains, engine.cost.power_law, 0, plan.segments[0].precision.index, working,
            seen.reward.w_eff, seen.reward.w_cost,
        )  # fmt: skip
        pair = capped(seen, plan, seen.task, working=working).segments[0].cap
        levels.append((own, pair))
    assert all(pair <= own for own, pair in levels)
    assert sum(pair < own for own, pair in levels) > 3
