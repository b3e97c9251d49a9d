"""The event simulator agrees with the batched engine, and its failures and preemptions keep their laws."""

import math
from dataclasses import replace

import numpy as np
import pytest
import simulator_agreement as agreement
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.arrivals import ArrivalRow, Poisson, TraceArrivals
from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.incidents import DomainLoss
from attribution_sched.cluster.models import model
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.cluster.reward import baseline_costs
from attribution_sched.cluster.simulator.dispatch import Failures, Preemption
from attribution_sched.cluster.simulator.job import Deployment, Job, JobStatus
from attribution_sched.cluster.simulator.simulator import Shared, Simulator, simulate
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, TaskKind, World
from attribution_sched.errors import PlanError, SettingsError
from attribution_sched.rivals.greedy import Greedy

TOLERANCE = 1e-6
HORIZON_S = 3 * 3600.0
SEEDS = range(5)

LOW = TaskKind(model("gpt2-medium"), 64, (2, 4, 8, 16), (500, 500), 200, priority=0)
HIGH = TaskKind(model("bert-large"), 64, (4, 8, 16, 32), (500, 500), 200, priority=1)


class Fixed:
    """Runs every task on so many devices of the first domain with room, and never moves one."""

    name = "fixed"

    def __init__(self, devices: int = 1, share: bool = False) -> None:
        self.devices, self.share = devices, share

    def decide(self, view):
        if view.replanning:
            return None
        for domain, free in enumerate(view.free_devices):
            if free >= self.devices or self.share:
                segment = Segment(domain, 0, len(view.kind.model), dp=self.devices)
                plan = Plan((Replica((segment,), view.kind.microbatches[-1], 1),))
                return Shared(plan) if self.share else plan
        return None


def traced(*tasks: tuple[float, TaskKind], devices: int = 4, domains: int = 1, **changes) -> World:
    """Tasks at given times on small domains of equal devices."""
    names = tuple(f"domain-{k}" for k in range(domains))
    wan = Wan.uniform(names, gbps=5.0, latency_s=0.02, usd_per_gb=0.05)
    cluster = Cluster(tuple(Domain(name, gpu("A100-80"), devices) for name in names), wan)
    rows = [ArrivalRow(at, kind.model.name, kind.steps[0], kind.batch_size, 0, "default") for at, kind in tasks]
    chosen = {"horizon_s": 12 * 3600.0, "idiosyncrasy": 0.0, **changes}
    return World(cluster, (LOW, HIGH), TraceArrivals(tuple(rows)), **chosen)


# Agreement with the batched engine


@pytest.mark.parametrize("name", agreement.WORLDS)
def test_every_job_and_every_sum_agrees_with_the_engine(name):
    world = agreement.WORLDS[name](horizon_s=HORIZON_S)
    seen = dict.fromkeys(("completed", "migrations", "rejected", "bill_usd", "missed", "overdue", "lost_steps"), 0.0)
    for seed in SEEDS:
        worst, where, journal = agreement.compare(world, lambda s: agreement.AnyPlan(s, share=0.5), seed)
        assert worst < TOLERANCE, f"seed {seed}: {where} differs by {worst}"
        seen = {key: seen[key] + journal.totals[key] for key in seen}
    # Agreement on an empty or tame run would say little.
    assert seen["completed"] > 30
    assert seen["migrations"] > 10
    assert seen["rejected"] > 10
    assert seen["missed"] + seen["overdue"] > 5
    assert (seen["bill_usd"] > 0) == (len(world.cluster) > 1)
    assert (seen["lost_steps"] > 1000) == bool(world.incidents)


@pytest.mark.parametrize("name", ["one domain", "cross domain", "shared devices", "incidents"])
def test_greedy_agrees_with_the_engine(name):
    world = agreement.WORLDS[name](horizon_s=HORIZON_S / 2)
    for seed in SEEDS:
        worst, where, journal = agreement.compare(world, lambda s: Greedy(), seed)
        assert worst < TOLERANCE, f"seed {seed}: {where} differs by {worst}"
        assert journal.totals["completed"] > 0


def test_agreement_holds_without_sharing_and_with_a_full_queue():
    world = agreement.cross_domain(horizon_s=HORIZON_S, share_limit=1, queue_capacity=2, max_running=3)
    dropped = 0.0
    for seed in SEEDS:
        worst, where, journal = agreement.compare(world, agreement.AnyPlan, seed)
        assert worst < TOLERANCE, f"seed {seed}: {where} differs by {worst}"
        dropped += journal.totals["dropped"]
    assert dropped > 0


def test_the_comparison_sees_a_small_difference():
    world = agreement.one_domain(horizon_s=HORIZON_S)
    journal = agreement.engine_journal(world, Greedy(), 0)
    serial = next(iter(journal.jobs))
    off = journal.jobs[serial]._replace(energy_j=journal.jobs[serial].energy_j * (1 + 2e-6))
    worst, where = agreement.worst_difference(journal, replace(journal, jobs=journal.jobs | {serial: off}))
    assert worst == pytest.approx(2e-6, rel=1e-3)
    assert where == f"job {serial} energy_j"


# Deadlines and incidents


def test_deadline_misses_are_the_late_the_overdue_and_the_turned_away():
    world = agreement.one_domain(horizon_s=HORIZON_S, queue_capacity=1, max_running=2)
    run = simulate(world, agreement.AnyPlan(3), 3)
    base_s, _ = baseline_costs(world, Simulator(world, Greedy(), 0).floor.prices.cost)
    late = dict.fromkeys(JobStatus, 0)
    for job in run.jobs:
        end_s = world.horizon_s if job.finish_s is None else job.finish_s
        overdue = end_s - job.arrival_s > 2.0 * job.steps * base_s[job.kind]
        late[job.status] += job.status is JobStatus.TURNED_AWAY or overdue
    assert run.deadline_misses == sum(late.values())
    assert run.totals.missed == late[JobStatus.FINISHED] > 0
    assert run.totals.overdue == late[JobStatus.WAITING] + late[JobStatus.RUNNING] > 0
    assert run.totals.dropped == late[JobStatus.TURNED_AWAY] > 0


def test_a_lost_domain_sends_its_jobs_back_in_their_turn_and_state_is_not_charged():
    world = traced((0.0, LOW), (10.0, LOW), (20.0, LOW), devices=1, domains=2, incidents=(DomainLoss(1, 60.0, 3600.0),))
    run = simulate(world, Fixed(), 0)
    told = [(h.what, h.job) for h in run.timeline if h.time_s == 300.0]
    assert told[:2] == [("lost", None), ("evicted", 1)]
    assert run.jobs[1].evictions == run.jobs[1].restarts == run.totals.evictions == 1
    assert run.totals.bill_usd == 0.0
    assert run.totals.restart_s == world.restart_s
    assert run.totals.down_device_s == 3300.0
    assert run.energy_gap < 1e-9
    # The one sent back keeps its turn: it starts before the one that came after it.
    again = [h.job for h in run.timeline if h.what == "placed"]
    assert again == [0, 1, 1, 2]


def test_a_device_that_is_repaired_in_a_lost_domain_stays_out_of_service():
    world = traced((1e9, LOW), devices=8, incidents=(DomainLoss(0, 0.0, math.inf),))
    run = simulate(world, Fixed(), 0, failures=Failures(2.0, 1.0, 10))
    assert run.totals.failures > 0
    assert run.totals.meter_j == 0.0


# Failures


def test_a_job_with_failures_takes_exactly_what_failures_cost():
    world = traced((100.0, LOW))
    calm = simulate(world, Fixed(), 0).jobs[0]
    step_s = (calm.finish_s - calm.start_s) / calm.steps
    stopped = 0
    for seed in range(12):
        run = simulate(world, Fixed(), seed, failures=Failures(mtbf_h=0.1, repair_h=0.3, checkpoint_steps=60))
        job = run.jobs[0]
        if job.status is not JobStatus.FINISHED:
            continue
        stopped += job.failures
        assert job.finish_s >= calm.finish_s * (1 - 1e-12)
        # Pauses that a failure cut short are booked whole, so only uncut runs have the closed form.
        worked = (job.steps + job.lost_steps) * step_s
        assert run.totals.steps_done == pytest.approx(job.steps + job.lost_steps, rel=1e-9)
        booked = worked + run.totals.wait_s + run.totals.restart_s
        assert job.finish_s - job.arrival_s <= booked * (1 + 1e-9)
        if job.failures == job.restarts == 1:
            assert job.finish_s - job.arrival_s == pytest.approx(booked, rel=1e-9)
    assert stopped > 5


def test_lost_steps_are_bounded_by_the_checkpoint_interval():
    lost = {}
    for every in (10, 100, 1000):
        runs = [simulate(traced((0.0, LOW)), Fixed(), seed, failures=Failures(0.05, 0.1, every)) for seed in range(6)]
        for run in runs:
            assert run.jobs[0].lost_steps <= every * run.jobs[0].failures
            assert run.totals.lost_steps == run.jobs[0].lost_steps
        lost[every] = sum(run.totals.lost_steps for run in runs) / sum(run.jobs[0].failures for run in runs)
    assert 0 < lost[10] < lost[100] < lost[1000]


def test_a_stopped_job_returns_to_the_front_of_its_queue():
    world = traced(*[(float(n), LOW) for n in range(5)], devices=1)
    stops = 0
    for seed in range(4):
        run = simulate(world, Fixed(), seed, failures=Failures(0.1, 0.1, 50))
        for at, happening in enumerate(run.timeline):
            if happening.what == "stopped":
                stops += 1
                started = next((h.job for h in run.timeline[at:] if h.what == "placed"), happening.job)
                assert started == happening.job
    assert stops > 3


def test_the_queue_serves_the_urgent_then_those_sent_back_then_the_early():
    def waiting(serial: int, kind: TaskKind, returned: bool = False) -> Job:
        return Job(serial, serial, 0, 0, kind, 0.0, 1.0, returned=returned)

    queue = [waiting(0, LOW), waiting(1, HIGH), waiting(2, LOW), waiting(3, LOW, True), waiting(4, HIGH, True)]
    assert [job.serial for job in sorted(queue, key=lambda job: job.turn)] == [4, 1, 3, 0, 2]


def test_a_restart_elsewhere_pays_for_sending_the_state():
    world = traced((0.0, LOW), devices=1, domains=2)
    found = False
    for seed in range(6):
        run = simulate(world, Fixed(), seed, failures=Failures(0.2, 5.0, 50))
        job = run.jobs[0]
        if job.restarts:
            found = True
            assert job.bill_usd > 0
            assert run.totals.restart_s > job.restarts * world.restart_s
    assert found


def test_a_failed_device_draws_nothing():
    world = traced((1e9, LOW), devices=8)
    run = simulate(world, Fixed(), 0, failures=Failures(2.0, 1.0, 10))
    idle_w = world.cluster.domains[0].gpu.idle_w
    assert run.totals.down_device_s > 0
    up_s = 8 * world.horizon_s - run.totals.down_device_s
    assert run.totals.meter_j == pytest.approx(idle_w * up_s, rel=1e-12)


def test_devices_are_out_of_service_as_often_as_the_settings_say():
    world = traced((1e9, LOW), devices=64, horizon_s=30 * 86_400.0, tick_s=86_400.0)
    run = simulate(world, Fixed(), 0, failures=Failures(9.0, 1.0, 10))
    assert run.totals.down_device_s / (64 * world.horizon_s) == pytest.approx(0.1, abs=0.01)


def test_devices_that_never_fail_change_nothing():
    world = agreement.cross_domain(horizon_s=HORIZON_S)
    plain = simulate(world, agreement.AnyPlan(0, share=0.5), 0)
    sturdy = simulate(world, agreement.AnyPlan(0, share=0.5), 0, failures=Failures(1e12))
    assert sturdy == plain


# Laws under failures and preemption


class Inspector:
    """Looks at every device whenever the policy is asked."""

    def __init__(self, inner):
        self.inner, self.name, self.looks, self.simulator = inner, inner.name, 0, None

    def decide(self, view):
        floor, limit = self.simulator.floor, self.simulator.world.share_limit
        self.looks += 1
        seats = {}
        for device in (d for row in floor.devices for d in row):
            assert len(device.jobs) <= limit
            assert device.in_service or not device.jobs
            assert len(set(map(id, device.jobs))) == len(device.jobs)
            for job in device.jobs:
                seats.setdefault(job.slot, []).append(device)
        assert seats.keys() == floor.running.keys()
        assert not floor.running.keys() & floor.waiting.keys()
        assert len(floor.running) <= self.simulator.world.max_running
        for slot, devices in seats.items():
            assert len(devices) == sum(s.device_count for s in floor.running[slot].deployment.segments)
        return self.inner.decide(view)


@given(
    seed=st.integers(0, 10_000),
    world=st.sampled_from(["one domain", "cross domain", "shared devices", "incidents"]),
    mtbf_h=st.sampled_from([0.5, 3.0, 30.0]),
    checkpoint=st.sampled_from([1, 50, 1000]),
    preempt=st.booleans(),
)
@settings(deadline=None, max_examples=15, derandomize=True)
def test_nothing_is_lost_and_no_device_is_oversubscribed(seed, world, mtbf_h, checkpoint, preempt):
    inspector = Inspector(agreement.AnyPlan(seed, share=0.5))
    simulator = Simulator(
        agreement.WORLDS[world](horizon_s=2 * 3600.0),
        inspector,
        seed,
        failures=Failures(mtbf_h, 0.5, checkpoint),
        preemption=Preemption(preempt),
    )
    inspector.simulator = simulator
    run = simulator.run()
    sums = run.totals
    assert inspector.looks > 0
    assert len(run.jobs) == sums.arrived == sum(run.count(status) for status in JobStatus)
    assert run.count(JobStatus.FINISHED) == sums.completed
    assert run.count(JobStatus.TURNED_AWAY) == sums.dropped
    assert run.energy_gap < 1e-9
    assert sum(job.energy_j for job in run.jobs) == pytest.approx(sums.task_j, rel=1e-9)
    assert sum(job.bill_usd for job in run.jobs) == pytest.approx(sums.bill_usd, rel=1e-9)
    kept = sum(job.steps - job.steps_left for job in run.jobs)
    assert sums.steps_done == pytest.approx(kept + sums.lost_steps, rel=1e-9, abs=1e-6)
    for job in run.jobs:
        epoch_steps = simulator.world.kinds[job.kind].epoch_steps
        assert job.lost_steps <= checkpoint * job.failures + epoch_steps * job.evictions + 1e-6
        assert job.restarts <= job.failures + job.preemptions + job.evictions
        if job.finish_s is not None:
            assert abs(job.steps_left) < 1e-6
            assert job.arrival_s <= job.start_s < job.finish_s
    times = [happening.time_s for happening in run.timeline]
    assert times == sorted(times)


# Preemption


def test_an_urgent_task_takes_the_devices_of_a_less_urgent_one():
    world = traced((0.0, LOW), (50.0, HIGH))
    run = simulate(world, Fixed(4), 0, preemption=Preemption(True))
    low, high = run.jobs
    assert high.start_s == 50.0
    assert (low.preemptions, low.restarts, low.failures, low.lost_steps) == (1, 1, 0, 0.0)
    alone = simulate(traced((0.0, LOW)), Fixed(4), 0).jobs[0]
    expected = alone.finish_s + (high.finish_s - high.start_s) + world.restart_s
    assert low.finish_s == pytest.approx(expected, rel=1e-9)
    assert run.energy_gap < 1e-9


def test_without_preemption_the_urgent_task_waits():
    low, high = simulate(traced((0.0, LOW), (50.0, HIGH)), Fixed(4), 0).jobs
    assert low.preemptions == 0
    assert high.start_s == low.finish_s


def test_equals_do_not_preempt_each_other():
    first, second = simulate(traced((0.0, HIGH), (50.0, HIGH)), Fixed(4), 0, preemption=Preemption(True)).jobs
    assert first.preemptions == 0
    assert second.start_s == first.finish_s


def test_a_free_device_makes_preemption_needless():
    low, high = simulate(traced((0.0, LOW), (50.0, HIGH)), Fixed(2), 0, preemption=Preemption(True)).jobs
    assert (low.preemptions, high.start_s) == (0, 50.0)


def test_the_last_started_makes_room_first():
    tasks = [(0.0, LOW), (10.0, LOW), (20.0, LOW), (30.0, LOW), (50.0, HIGH)]
    run = simulate(traced(*tasks), Fixed(1), 0, preemption=Preemption(True))
    assert [job.preemptions for job in run.jobs] == [0, 0, 0, 1, 0]
    assert run.jobs[4].start_s == 50.0


def test_a_full_house_gives_way_too_and_only_as_much_as_needed():
    tasks = [(0.0, LOW), (10.0, LOW), (50.0, HIGH)]
    run = simulate(traced(*tasks, max_running=2), Fixed(1), 0, preemption=Preemption(True))
    assert [job.preemptions for job in run.jobs] == [0, 1, 0]


def test_jobs_that_are_not_in_the_way_are_spared():
    # The urgent task wants one whole domain; lifting goes by start time and meets the other domain first.
    class SecondDomain(Fixed):
        def decide(self, view):
            if view.replanning or view.kind is LOW:
                return super().decide(view)
            if view.free_devices[0] < 4:
                return None
            return Plan((Replica((Segment(0, 0, len(view.kind.model), dp=4),), view.kind.microbatches[-1], 1),))

    tasks = [(0.0, LOW), (10.0, LOW), (50.0, HIGH)]
    run = simulate(traced(*tasks, domains=2), SecondDomain(4), 0, preemption=Preemption(True))
    assert [job.preemptions for job in run.jobs] == [1, 0, 0]
    assert run.jobs[2].start_s == 50.0


@pytest.mark.parametrize("seed", range(4))
def test_only_more_urgent_tasks_preempt(seed):
    world = agreement.cross_domain(horizon_s=HORIZON_S, arrivals=Poisson(20.0))
    run = simulate(world, Greedy(), seed, preemption=Preemption(True))
    assert run.totals.preemptions > 0
    for at, happening in enumerate(run.timeline):
        if happening.what == "preempted":
            placed = next(h for h in reversed(run.timeline[:at]) if h.what == "placed")
            assert placed.time_s == happening.time_s
            assert run.jobs[placed.job].priority > run.jobs[happening.job].priority
    assert run.totals.preemptions == sum(job.preemptions for job in run.jobs)


# Records, seeds and mistakes


def test_work_too_small_to_move_the_clock_is_over():
    job = Job(0, 0, 0, 0, LOW, 0.0, 1.0)
    job.deployment = Deployment.of(Plan((Replica((Segment(0, 0, 1),), 2, 1),)), 1)
    job.deployment.step_s = 1e-6
    assert job.over(1e-10, 0.0)
    assert job.over(1e-7, 1e6)
    assert not job.over(1e-3, 1e2)


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    world = agreement.cross_domain(horizon_s=HORIZON_S)

    def run(seed):
        options = {"failures": Failures(2.0, 0.5, 20), "preemption": Preemption(True)}
        return simulate(world, agreement.AnyPlan(7, share=0.5), seed, **options)

    assert run(1) == run(1)
    assert run(1).jobs != run(2).jobs


def test_failures_do_not_change_the_arrivals():
    world = agreement.one_domain(horizon_s=HORIZON_S)
    calm = simulate(world, Greedy(), 5)
    rough = simulate(world, Greedy(), 5, failures=Failures(0.5))
    assert [(j.arrival_s, j.instance) for j in calm.jobs] == [(j.arrival_s, j.instance) for j in rough.jobs]


def test_the_timeline_tells_the_life_of_a_job():
    run = simulate(traced((0.0, LOW)), Fixed(), 0)
    told = [h.what for h in run.timeline if h.job == 0]
    assert told[:2] == ["arrived", "placed"]
    assert told[-1] == "finished"
    assert set(told[2:-1]) == {"kept"}


def test_a_plan_the_world_cannot_express_is_refused_loudly():
    class Odd(Fixed):
        def decide(self, view):
            return Plan((Replica((Segment(0, 0, len(view.kind.model), dp=3),), 3, 1),))

    with pytest.raises(PlanError, match="microbatch"):
        simulate(traced((0.0, LOW)), Odd(), 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mtbf_h": 0.0}, "mtbf_h"),
        ({"mtbf_h": -1.0}, "mtbf_h"),
        ({"mtbf_h": math.nan}, "mtbf_h"),
        ({"mtbf_h": math.inf}, "mtbf_h"),
        ({"repair_h": -0.1}, "repair_h"),
        ({"repair_h": math.inf}, "repair_h"),
        ({"checkpoint_steps": 0}, "checkpoint_steps"),
        ({"checkpoint_steps": 1.5}, "checkpoint_steps"),
    ],
)
def test_bad_failure_settings_are_refused(change, message):
    with pytest.raises(SettingsError, match=message):
        Failures(**{"mtbf_h": 10.0, **change})


def test_bad_preemption_settings_are_refused():
    with pytest.raises(SettingsError, match="enabled"):
        Preemption("yes")


def test_a_run_with_no_task_reads_idle_meters():
    world = traced((1e9, LOW))
    run = simulate(world, Fixed(), 0)
    assert run.jobs == ()
    assert run.totals.meter_j == run.totals.idle_j
    assert np.isclose(run.totals.meter_j, 4 * world.cluster.domains[0].gpu.idle_w * world.horizon_s)
