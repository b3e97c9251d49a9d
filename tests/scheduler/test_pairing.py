"""Pairing: what is believed of two tasks, and policies that put one beside another."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.cluster.decision import CoRunners, encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.interference import measured_jobs
from attribution_sched.config import load_settings
from attribution_sched.errors import PlanError
from attribution_sched.planning.candidates import feasible
from attribution_sched.rivals.lucid import sharing_score
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.pairing import (
    TYPICAL,
    LawBelief,
    Packing,
    ReferenceBelief,
    TrialBelief,
    VectorProfile,
    counter_profile,
    nearest_job,
    plan_beside,
)
from attribution_sched.scheduler.policy import pairs
from attribution_sched.scheduler.registry import POLICIES, make_policy
from attribution_sched.types import Task

PACKERS = ("packing", "lucid", "gavel-sharing", "matching", "matching[reference]", "pair-learner")


def crowded(hours=6.0, rate_per_hour=9.0):
    """The shared site with an eighth of its devices: something always waits."""
    settings = load_settings("shared").model_dump(mode="json")
    settings["domain_defaults"]["devices"] = 8
    settings["episode"] |= {"horizon_s": 3600.0 * hours, "pool_size": 256, "queue_capacity": 8, "max_running": 16}
    settings["arrivals"]["rate_per_hour"] = rate_per_hour
    return load_settings(settings).build_world()


@pytest.fixture(scope="module")
def moment():
    """A waiting task that finds no empty device, and an engine that stands there."""
    engine = Engine(crowded(48.0))
    engine.seed([3])
    engine.reset()
    alone = Packing(least_work=9.0)
    while True:
        seen = view(engine)
        if not seen.free_devices.any() and len(seen.neighbours) > 2 and seen.kind.batch_size == 1:
            return engine, seen
        engine.step(encode(engine, alone.decide(seen), seen.kind_index)[None])


def test_neighbours_are_running_tasks_with_devices_for_themselves(moment):
    engine, seen = moment
    occupant = engine.state.occupant[0, 0]
    assert sum(neighbour.devices for neighbour in seen.neighbours) == (occupant[:, 1] < 0).sum()
    assert all(neighbour.task.model.startswith("opaque") for neighbour in seen.neighbours)


def test_an_opaque_task_tells_request_tenant_and_counters_never_model_or_duration(moment):
    engine, seen = moment
    pool = engine.state.slots[0, seen.slot, st.POOL]
    truth = engine.arrays.pool[pool, st.P_STEPS]
    assert seen.task.model == "opaque-1" and seen.task.counters.size == 12 and seen.task.tenant != "default"
    assert seen.steps_left != truth and seen.task.steps != truth
    same_tenant = [t for t in seen.queue if t.tenant == seen.task.tenant]
    assert {t.steps_left for t in same_tenant} == {seen.steps_left}


def test_a_pair_runs_as_it_was_measured_and_ends_when_one_leaves(moment):
    engine, seen = moment
    world = engine.world
    neighbour = next(n for n in seen.neighbours if n.devices == 1)
    plan = plan_beside(seen, seen.kind_index, None, neighbour)
    assert plan.beside == neighbour.slot and feasible(seen, plan) is None
    kinds = engine.arrays.pool[:, st.P_TYPE].astype(int)
    own, other = (kinds[engine.state.slots[0, slot, st.POOL]] for slot in (seen.slot, neighbour.slot))
    told = engine.probe(0, encode(engine, plan, seen.kind_index)[None])
    speed = measured_jobs().pair_speed[own, other]
    if speed == 0.0:
        assert told["code"][0] == -6
    else:
        assert told["code"][0] == 1
        assert told["step_s"][0] == pytest.approx(1.0 / speed, rel=1e-3)
    assert world.share_limit == 2


def test_a_neighbour_must_be_there(moment):
    _, seen = moment
    with pytest.raises(PlanError, match="must be one of"):
        seen.beside(10**6)
    neighbour = seen.neighbours[0]
    wrong = replace(plan_beside(seen, 0, None, neighbour), beside=10**6)
    assert "0 are free" in feasible(seen, wrong)


def test_sharing_is_refused_where_a_device_holds_one_task(moment):
    _, seen = moment
    plan = plan_beside(seen, 0, None, seen.neighbours[0])
    engine = Engine(replace(crowded(), share_limit=1))
    engine.seed([0])
    engine.reset()
    assert view(engine).neighbours == ()
    with pytest.raises(PlanError, match="holds one task"):
        encode(engine, plan, 0)


def test_the_reference_job_is_found_by_its_counters():
    jobs = measured_jobs()
    found = [nearest_job(Task(counters=row)) for row in jobs.counters]
    assert np.mean(np.array(found) == np.arange(len(found))) > 0.9
    pair = Task(counters=jobs.counters[3]), Task(counters=jobs.counters[12])
    assert ReferenceBelief().speeds(*pair) == (jobs.pair_speed[3, 12], jobs.pair_speed[12, 3])


def test_the_law_believes_more_of_light_pairs_and_nothing_without_counters():
    jobs = measured_jobs()
    light = Task(counters=jobs.counters[jobs.names.index("ResNet-18 (batch size 16)")])
    heavy = Task(counters=jobs.counters[jobs.names.index("ResNet-50 (batch size 64)")])
    belief = LawBelief()
    assert sum(belief.speeds(light, light)) > sum(belief.speeds(heavy, heavy))
    assert belief.speeds(light, Task()) == (0.0, 0.0)
    assert sharing_score(light) < sharing_score(heavy) == sharing_score(Task()) == 2


@pytest.mark.parametrize("name", PACKERS)
def test_packers_share_where_others_wait(name):
    world = crowded(4.0, 40.0)
    policy = make_policy(name)
    assert pairs(policy) and POLICIES[name].pairs
    shared, alone = play(world, policy, 0), play(world, make_policy("sjf"), 0)
    assert shared.waiting_h < alone.waiting_h


def test_every_policy_states_whether_it_pairs():
    """In the registry as by its own attribute: who is not told of neighbours cannot put a task beside one."""
    for name, spec in POLICIES.items():
        assert spec.pairs == pairs(spec.make()), name
        thinks = name.startswith("hi-ppo") or name == "rule+fork"
        assert spec.caps == (thinks or name == "rule"), name
    assert all(POLICIES[name].pairs for name in (*PACKERS, "hi-ppo", "rule+fork"))
    assert not POLICIES["rule"].pairs


def test_energy_is_kept_when_devices_are_shared():
    world = crowded()
    found = play(world, make_policy("gavel-sharing"), 1)
    assert found.task_energy_kwh + found.idle_energy_kwh == pytest.approx(found.energy_kwh, rel=1e-9)
    assert 0.0 < found.utilisation <= 1.0


def co_running(view_, speeds, tasks):
    return replace(view_, co_runners=(CoRunners(*tasks, speeds),))


def test_a_belief_of_trials_learns_from_the_pairs_it_sees_and_forgets(moment):
    _, seen = moment
    jobs = measured_jobs()
    first, second, other = (Task(counters=jobs.counters[i], samples_per_s=float(jobs.samples[i])) for i in (2, 12, 17))
    belief = TrialBelief()
    assert belief.speeds(first, second) == (TYPICAL, TYPICAL)
    assert belief.learn(co_running(seen, (0.9, 0.3), (first, second)))
    assert not belief.learn(co_running(seen, (0.9, 0.3), (first, second)))
    told = belief.speeds(first, second)
    assert told == pytest.approx((0.9, 0.3), abs=0.05)
    assert belief.speeds(second, first) == pytest.approx(told[::-1])
    # Who was never seen is believed closer to typical than who was.
    assert abs(belief.speeds(other, other)[0] - TYPICAL) < abs(told[0] - TYPICAL)
    belief.forget()
    assert belief.speeds(first, second) == (TYPICAL, TYPICAL)


@pytest.fixture(scope="module")
def attributed():
    """Four measured jobs with their accounts and what their attributor makes of counters."""
    attributor, jobs = as_attributor(None, crowded()), measured_jobs()
    tasks = [Task(counters=jobs.counters[i], samples_per_s=float(jobs.samples[i])) for i in (2, 12, 17, 22)]
    return attributor, [replace(task, attribution=attributor.vector(task)) for task in tasks]


def test_the_vector_is_read_without_its_bound(attributed):
    attributor, tasks = attributed
    read = VectorProfile(attributor)
    for task in tasks:
        told = read(task)
        assert np.tanh(told[:7] / 1.5) == pytest.approx(task.attribution.state, abs=1e-6)
        assert told[7] == np.log(task.samples_per_s)
    # Two batches of one model, at the vector's end: the bounded numbers hardly differ, what is read does.
    jobs = measured_jobs()
    one, two = (attributor.vector(jobs.counters[jobs.names.index(f"ResNet-18 (batch size {n})")]) for n in (64, 256))
    apart = np.abs(read(replace(tasks[0], attribution=one)) - read(replace(tasks[0], attribution=two)))[:7]
    assert apart.max() > 1.0 and np.abs(one.state - two.state).max() < 0.05


def test_a_task_without_a_vector_is_read_from_its_counters_and_nan_is_as_usual(attributed):
    attributor, tasks = attributed
    read = VectorProfile(attributor)
    bare = replace(tasks[0], attribution=None)
    assert np.array_equal(read(bare), read(tasks[0]))
    unread = np.array(bare.counters)
    unread[4] = np.nan
    told = read(replace(bare, counters=unread, samples_per_s=0.0))
    assert np.isfinite(told).all()
    belief = TrialBelief(read)
    assert 0.0 < belief.speeds(replace(bare, counters=unread), tasks[1])[0] <= 1.0
    assert belief.speeds(Task(), tasks[1]) == (0.0, 0.0)
    assert counter_profile(bare).shape == (13,) and told.shape == (8,)


def test_what_shipped_policies_believe_of_a_pair_hangs_on_the_vector_and_not_on_counters(moment, attributed):
    """Other counters with the same vector are the same task to them; another vector with the same counters is not."""
    _, seen = moment
    tasks = attributed[1]
    belief = HiPpo().partners.belief
    belief.learn(co_running(seen, (0.9, 0.3), tasks[:2]))
    told = belief.speeds(*tasks[2:])
    other = [replace(task, counters=1.7 * task.counters) for task in tasks[2:]]
    assert belief.speeds(*other) == told
    swapped = [replace(a, attribution=b.attribution) for a, b in zip(tasks[2:], tasks[:2], strict=True)]
    assert belief.speeds(*swapped) != pytest.approx(told, abs=1e-3)


def test_what_was_seen_of_pairs_goes_on_after_a_copy_and_a_recall_and_not_into_another_profile(moment, attributed):
    _, seen = moment
    tasks = attributed[1]
    policy = HiPpo()
    policy.partners.belief.learn(co_running(seen, (0.9, 0.3), tasks[:2]))
    told, memory = policy.partners.belief.speeds(*tasks[:2]), policy.memory()
    assert memory["pairs.profiles"].shape == (1, 2, 8)
    twin = copy.deepcopy(policy.partners)
    assert twin.belief.speeds(*tasks[:2]) == told and twin.belief is not policy.partners.belief
    later = HiPpo()
    later.recall(memory)
    assert later.partners.belief.speeds(*tasks[:2]) == told
    # Pairs that an earlier release has kept by counters are learnt anew.
    old = TrialBelief()
    old.learn(co_running(seen, (0.9, 0.3), tasks[:2]))
    later.recall({f"pairs.{name}": array for name, array in old.memory().items()})
    assert later.partners.belief.speeds(*tasks[:2]) == (TYPICAL, TYPICAL)


def test_work_of_a_pair_is_asked_anew_for_another_vector(attributed):
    tasks = attributed[1]
    partners = HiPpo().partners
    partners.belief.speeds = lambda own, other: (own.attribution.state[0], 1.0)
    one, two = replace(tasks[0]), replace(tasks[0], attribution=tasks[1].attribution)
    assert partners.work(one, tasks[2]) != partners.work(two, tasks[2])


def paired(engine, seen):
    """The pending task beside some neighbour with whom the engine lets it run."""
    for neighbour in seen.neighbours:
        plan = plan_beside(seen, seen.kind_index, None, neighbour)
        if plan is not None and engine.probe(0, encode(engine, plan, seen.kind_index)[None])["code"][0] == 1:
            return plan
    raise AssertionError("no neighbour fits")


def test_co_runners_are_seen_and_one_gets_devices_of_its_own():
    settings = load_settings("shared").model_dump(mode="json")
    settings["domain_defaults"]["devices"] = 16
    settings["episode"] |= {"horizon_s": 86_400.0, "pool_size": 64, "queue_capacity": 8, "max_running": 8}
    settings["kinds"] = [kind | {"epoch_steps": 60} for kind in settings["kinds"]]
    settings["arrivals"]["rate_per_hour"] = 60.0
    engine = Engine(load_settings(settings).build_world())
    # Two language models: 0.71 of its speed each, and they fit.
    engine.arrays.pool[:, st.P_TYPE] = measured_jobs().names.index("LM (batch size 10)")
    engine.arrays.pool[:, st.P_STEPS] = 40_000.0
    engine.seed([4])
    engine.reset()
    policy, alone = Packing(), Packing(least_work=9.0)
    seen = view(engine)
    engine.step(encode(engine, alone.decide(seen), seen.kind_index)[None])
    while (seen := view(engine)).replanning or seen.kind.measured_devices > seen.neighbours[0].devices:
        engine.step(encode(engine, None, seen.kind_index)[None])
    engine.step(encode(engine, paired(engine, seen), seen.kind_index)[None])
    # Nobody else comes; at the next checkpoint one of the two is offered.
    engine.state.clock[0, st.NEXT_ARRIVAL] = 1e9
    while not (seen := view(engine)).replanning:
        engine.step(encode(engine, None, seen.kind_index)[None])
    seen = replace(seen, queue=())
    (pair,) = seen.co_runners
    assert 0.0 < min(pair.speeds) < 1.0
    plan = policy.decide(seen)
    assert plan is not None and plan.beside is None
    engine.step(encode(engine, plan, seen.kind_index)[None])
    assert engine.state.outcome[0, st.D_CODE] == 2
    assert (engine.state.occupant[0, 0, :, 1] < 0).all()
    assert engine.totals()["migrations"][0] == 1


def test_a_pair_that_the_cluster_refuses_is_not_asked_for_again_and_again(moment):
    _, seen = moment
    policy = Packing(TrialBelief())
    first = policy.decide(seen)
    assert first is not None and first.beside is not None
    # The same task at the same moment: the cluster has said no.
    second = policy.decide(seen)
    assert second is None or second.beside != first.beside
    asked = {first.beside}
    while second is not None and second.beside is not None:
        assert second.beside not in asked
        asked.add(second.beside)
        second = policy.decide(seen)
    assert len(asked) <= len(seen.neighbours)


def test_a_refusal_is_of_two_tasks_and_not_of_where_their_records_lie():
    """Records pass away, and others may come to lie in their place; what was refused goes on after a recall."""
    rng, policy = np.random.default_rng(0), HiPpo(think=False)

    def pair():
        own, other = (Task(counters=rng.uniform(1.0, 2.0, 12)) for _ in range(2))
        return own, SimpleNamespace(task=other)

    first = pair()
    kept = [each.copy() for each in (first[0].counters, first[1].task.counters)]
    policy.partners.refuse(first[0].counters, first[1].task.counters)
    assert policy.partners.refused(*first)
    del first
    for _ in range(200):
        assert not policy.partners.refused(*pair())
    memory, again = policy.memory(), HiPpo(think=False)
    again.recall(memory)
    assert again.partners.refused(Task(counters=kept[0]), SimpleNamespace(task=Task(counters=kept[1])))
    assert again.memory()["pairs.refused"].shape == (1, 24)
