"""Agreement of the event simulator with the batched engine, job by job, and how much faster the engine is.

Both play the same worlds with the same seeds and the same policies: a rule (greedy) and a policy that draws any
plan at all (cut, replicated, mixed, sharing devices, often refused), which reaches more of the rules of
contention than good plans do. The figure is the largest relative difference over every job's start, finish,
energy and bill and over all sums of the episode.

Run: ``python benchmarks/simulator_agreement.py``
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.arrivals import ArrivalRow, Burst, Diurnal, Poisson, TraceArrivals
from attribution_sched.cluster.decision import Decision, encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import (
    PRICE_NETWORK,
    SETTLED,
    Engine,
    advance,
    begin,
    conclude,
    enact,
    reprice,
)
from attribution_sched.cluster.gpus import Precision, gpu
from attribution_sched.cluster.incidents import DomainLoss, LinkCut
from attribution_sched.cluster.models import model
from attribution_sched.cluster.plan import ANYBODY, Plan, Replica, Segment
from attribution_sched.cluster.simulator.job import JobStatus, SimulationResult
from attribution_sched.cluster.simulator.simulator import Decider, Shared, Simulator, simulate
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, TaskKind, World
from attribution_sched.rivals.greedy import Greedy

SHAPES = ((1,), (2,), (1, 1), (3,), (2, 1), (1, 1, 1))
"""Segments of each replica of a drawn plan."""

SEEDS = range(8)
TIMED_SEEDS = range(1, 4)
CLUSTERS = 64


class JobPath(NamedTuple):
    """What both sides must agree on for one job; NaN where it has not happened."""

    arrival_s: float
    start_s: float
    finish_s: float
    energy_j: float
    bill_usd: float
    steps_left: float


@dataclass(frozen=True)
class Journal:
    """An episode of either side.

    Attributes:
        jobs: By arrival number; jobs that were turned away are not in it.
        totals: Sums by name.
    """

    jobs: dict[int, JobPath]
    totals: dict[str, float]


class AnyPlan:
    """Draws plans of every shape, sensible or not; the same seed draws the same ones.

    Args:
        seed: Seed of the draws.
        keep: How often a running task is left where it is.
        share: How often a plan may share devices.
    """

    name = "any plan"

    def __init__(self, seed: int, keep: float = 0.6, share: float = 0.0) -> None:
        self._rng = np.random.default_rng(seed)
        self._keep, self._share = keep, share

    def decide(self, view: Decision) -> Plan | Shared | None:
        """Draw a plan that is well formed; whether it fits is left to the cluster."""
        rng, domains = self._rng, view.cost.cluster.domains
        if rng.random() < (self._keep if view.replanning else 0.1):
            return None
        shapes = [s for s in SHAPES if sum(s) <= min(view.max_segments, len(domains))]
        shape = shapes[int(rng.integers(len(shapes)))]
        order = [int(d) for d in rng.permutation(len(domains))]
        layers, replicas = len(view.kind.model), []
        for count in shape:
            micro = view.kind.microbatches[int(rng.integers(4))]
            cuts = sorted(int(c) for c in rng.choice(np.arange(1, layers), size=count - 1, replace=False))
            edges = [0, *cuts, layers]
            chain = [self._segment(order.pop(), first, stop, micro, view) for first, stop in pairwise(edges)]
            replicas.append(Replica(tuple(chain), micro, 1))
        plan = Plan(tuple(replicas))
        return Shared(plan) if rng.random() < self._share else plan

    def _segment(self, domain: int, first: int, stop: int, micro: int, view: Decision) -> Segment:
        rng, place = self._rng, view.cost.cluster.domains[domain]
        shape = [(dp, tp, pp) for dp in (1, 2, 4) for tp in (1, 2) for pp in (1, 2)]
        fits = [
            (dp, tp, pp)
            for dp, tp, pp in shape
            if dp * tp * pp <= place.devices and tp <= place.node_devices and micro % dp == 0 and pp <= stop - first
        ]
        dp, tp, pp = fits[int(rng.integers(len(fits)))]
        formats = [q for q in (Precision.FP32, Precision.FP16, Precision.BF16) if place.gpu.supports(q)]
        levels = len(view.cost.cluster.cap_levels)
        cap = int(rng.integers(levels + 1)) if levels else 0
        return Segment(domain, first, stop, dp, tp, pp, formats[int(rng.integers(len(formats)))], cap=cap)


def kinds(*, hours: float = 1.0) -> tuple[TaskKind, ...]:
    """A few kinds of different size; ``hours`` scales their work."""

    def steps(fewest: int, most: int) -> tuple[int, int]:
        return max(1, int(fewest * hours)), max(1, int(most * hours))

    return (
        TaskKind(model("resnet-50"), 256, (16, 32, 64, 128), steps(2000, 20000), 3000, priority=1),
        TaskKind(model("gpt2-medium"), 64, (2, 4, 8, 16), steps(300, 3000), 400),
        TaskKind(model("bert-large"), 64, (4, 8, 16, 32), steps(300, 3000), 500, share=0.5, priority=2),
    )


def one_domain(**changes: object) -> World:
    """Eight equal devices, nothing shared."""
    cluster = Cluster(
        (Domain("home", gpu("A100-80"), 8),), Wan.uniform(("home",), gbps=5, latency_s=0.03, usd_per_gb=0)
    )
    return _world(cluster, Poisson(8.0), changes)


def cross_domain(**changes: object) -> World:
    """Three unlike domains on thin, restless links, one of them short of power: cuts, replicas, moves."""
    names = ("east", "west", "north")
    wan = Wan.uniform(names, gbps=3.0, latency_s=0.03, usd_per_gb=0.05, spread=0.25, correlation=0.3, congestion=0.4)
    cluster = Cluster(
        (
            Domain("east", gpu("A100-80"), 8, node_devices=4, carbon_g_per_kwh=300.0),
            Domain("west", gpu("H100-80"), 4, power_budget_w=2400.0, carbon_g_per_kwh=50.0),
            Domain("north", gpu("V100-32"), 8, power_cap_w=200.0, carbon_g_per_kwh=100.0),
        ),
        wan,
    )
    return _world(cluster, Diurnal(8.0, peak_hour=2.0), changes)


def shared_devices(**changes: object) -> World:
    """Two small domains whose devices may hold two tasks."""
    wan = Wan.uniform(("left", "right"), gbps=6.0, latency_s=0.02, usd_per_gb=0.02, spread=0.2)
    cluster = Cluster((Domain("left", gpu("A100-80"), 4), Domain("right", gpu("A100-80"), 4)), wan)
    return _world(cluster, Poisson(12.0), {"share_limit": 2, **changes})


def together(**changes: object) -> World:
    """Tasks that arrive in groups at the very moments at which links change."""
    rows = tuple(
        ArrivalRow(600.0 * (n // 3), name, steps, batch, 0, "default")
        for n, (name, steps, batch) in enumerate(
            [("gpt2-medium", 900, 64), ("resnet-50", 4000, 256), ("bert-large", 1500, 64)] * 6
        )
    )
    wan = Wan.uniform(("left", "right"), gbps=6.0, latency_s=0.02, usd_per_gb=0.02, spread=0.2)
    cluster = Cluster((Domain("left", gpu("A100-80"), 8), Domain("right", gpu("A100-80"), 4)), wan)
    return _world(cluster, TraceArrivals(rows), {"share_limit": 2, "retry_s": 600.0, **changes})


def incidents(**changes: object) -> World:
    """The cross-domain world on a bad day: cuts that overlap, domains that go, together and from the start."""
    bad_day = (
        LinkCut(0, 1, 1500.0, 6000.0, 0.1),
        LinkCut(1, 0, 4000.0, 9000.0, 0.5, both_ways=False),
        DomainLoss(2, 0.0, 1300.0),
        DomainLoss(0, 2400.0, 4050.0),
        DomainLoss(1, 3900.0, 5400.0),
        DomainLoss(0, 7500.0, 9000.0),
        DomainLoss(2, 7500.0, float("inf")),
    )
    return cross_domain(**{"incidents": bad_day, "arrivals": Poisson(14.0, burst=Burst(0.5, 1.0, 3.0)), **changes})


def together_lost(**changes: object) -> World:
    """Groups of tasks that arrive at the very moments at which a domain goes and comes back."""
    lost = (DomainLoss(0, 1200.0, 2400.0), DomainLoss(1, 3600.0, 4200.0), DomainLoss(0, 4200.0, 4800.0))
    return together(**{"incidents": lost, "queue_capacity": 3, **changes})


def _world(cluster: Cluster, arrivals: Poisson | Diurnal | TraceArrivals, changes: dict[str, object]) -> World:
    settings: dict[str, object] = {
        "horizon_s": 6 * 3600.0,
        "max_running": 6,
        "queue_capacity": 5,
        "replan_threshold": 0.1,
        "pool_size": 64,
        "kinds": kinds(),
        "arrivals": arrivals,
        **changes,
    }
    return World(cluster=cluster, **settings)  # type: ignore[arg-type]


WORLDS: dict[str, Callable[..., World]] = {
    "one domain": one_domain,
    "cross domain": cross_domain,
    "shared devices": shared_devices,
    "arriving together": together,
    "incidents": incidents,
    "lost on arrival": together_lost,
}

POLICIES: dict[str, Callable[[int], Decider]] = {
    "greedy": lambda seed: Greedy(),
    "any plan": lambda seed: AnyPlan(seed),
    "any plan, sharing": lambda seed: AnyPlan(seed, share=0.7),
}


def engine_journal(world: World, policy: Decider, seed: int) -> Journal:
    """Play an episode on the batched engine, stopping at every completion to read the task's figures."""
    engine = Engine(world)
    engine.seed([seed])
    arrays, state, scratch = engine.arrays, engine.state, engine._scratch
    jobs: dict[int, JobPath] = {}

    def read(slot: int, finish_s: float) -> None:
        row = state.tasks[0, slot]
        started = state.slots[0, slot, st.STATUS] != st.QUEUED or row[st.EVICTED] > 0
        jobs[int(state.slots[0, slot, st.SERIAL])] = JobPath(
            float(row[st.ARRIVAL]), float(row[st.STARTED]) if started else np.nan, finish_s, float(row[st.ENERGY]),
            float(row[st.BILL]), float(row[st.LEFT]),
        )  # fmt: skip

    def run_on() -> None:
        while True:
            before = state.slots[0, :, st.STATUS].copy()
            wanted = advance(arrays, state, 0)
            # A task that a lost domain sent back waits in its slot; one that finished has left it.
            for slot in np.flatnonzero((before == st.RUNNING) & (state.slots[0, :, st.STATUS] == st.FREE)):
                read(int(slot), float(state.clock[0, st.NOW]))
            if wanted == SETTLED:
                return
            reprice(arrays, state, 0, wanted == PRICE_NETWORK, scratch)

    begin(arrays, state, 0)
    run_on()
    while state.event[0, st.DONE] == 0:
        seen = view(engine)
        if seen is None:
            break
        answer = policy.decide(seen)
        plan = replace(answer.plan, beside=ANYBODY) if isinstance(answer, Shared) else answer
        code = enact(arrays, state, 0, encode(engine, plan, seen.kind_index), -1, scratch)
        conclude(arrays, state, 0, code)
        if code > 0:
            reprice(arrays, state, 0, False, scratch)
        run_on()
    for slot in np.flatnonzero(state.slots[0, :, st.STATUS] != st.FREE):
        read(int(slot), np.nan)
    totals = {name: float(values[0]) for name, values in engine.totals().items()}
    more = {"arrived": float(state.event[0, st.TAKEN]), "overdue": float(engine.overdue()[0])}
    return Journal(jobs, totals | more)


def simulator_journal(result: SimulationResult) -> Journal:
    """Write a run of the event simulator in the form of the engine's."""
    nan = float("nan")
    jobs = {
        job.serial: JobPath(
            job.arrival_s, nan if job.start_s is None else job.start_s, nan if job.finish_s is None else job.finish_s,
            job.energy_j, job.bill_usd, job.steps_left,
        )
        for job in result.jobs
        if job.status is not JobStatus.TURNED_AWAY
    }  # fmt: skip
    return Journal(jobs, {name: float(value) for name, value in vars(result.totals).items()})


def difference(one: float, other: float, scale: float = 0.0) -> float:
    """Relative difference; NaN agrees with NaN only. Figures below ``scale`` are measured against it."""
    if np.isnan(one) or np.isnan(other):
        return 0.0 if np.isnan(one) and np.isnan(other) else np.inf
    size = max(abs(one), abs(other), scale)
    return abs(one - other) / size if size > 0.0 else 0.0


def worst_difference(engine: Journal, simulator: Journal) -> tuple[float, str]:
    """Largest relative difference over jobs and sums, and where it is."""
    if engine.jobs.keys() != simulator.jobs.keys():
        return np.inf, "other jobs were accepted"
    found = [(0.0, "nothing to compare")]
    for serial, path in engine.jobs.items():
        for name, one, other in zip(JobPath._fields, path, simulator.jobs[serial], strict=True):
            # Steps left of a finished job are rounding; a step is the natural scale.
            found.append((difference(one, other, 1.0 if name == "steps_left" else 0.0), f"job {serial} {name}"))
    found += [(difference(value, simulator.totals[name]), f"total {name}") for name, value in engine.totals.items()]
    return max(found)


def compare(world: World, policy: Callable[[int], Decider], seed: int) -> tuple[float, str, Journal]:
    """Play a world on both sides; returns the worst difference, where it is, and the engine's journal."""
    engine = engine_journal(world, policy(seed), seed)
    worst, where = worst_difference(engine, simulator_journal(simulate(world, policy(seed), seed)))
    return worst, where, engine


class Recorded:
    """Gives the answers of another policy again, so that only the worlds are timed."""

    name = "recorded"

    def __init__(self, answers: Sequence[Plan | Shared | None]) -> None:
        self._answers = iter(answers)

    def decide(self, view: Decision) -> Plan | Shared | None:
        """Return the next answer."""
        return next(self._answers)


def _speeds(world: World) -> tuple[float, float, float]:
    """Seconds per episode on one engine, on an engine of many clusters, and on the simulator."""
    single, many = Engine(world), Engine(world, CLUSTERS)
    spent = np.zeros(3)
    for seed in (0, *TIMED_SEEDS):
        policy, answers, actions = AnyPlan(seed), [], []
        single.seed([seed])
        single.reset()
        while (seen := view(single)) is not None:
            answers.append(policy.decide(seen))
            plan = answers[-1].plan if isinstance(answers[-1], Shared) else answers[-1]
            actions.append(encode(single, plan, seen.kind_index))
            single.step(actions[-1][None])
        for side, engine in enumerate((single, many)):
            begun = time.perf_counter()
            engine.seed([seed] * engine.clusters)
            engine.reset()
            for action in actions:
                engine.step(np.broadcast_to(action, (engine.clusters, *action.shape)))
            # The first round compiles.
            spent[side] += (time.perf_counter() - begun) / engine.clusters if seed else 0.0
        simulator = Simulator(world, Recorded(answers), seed)
        begun = time.perf_counter()
        simulator.run()
        spent[2] += time.perf_counter() - begun if seed else 0.0
    one, batched, events = spent / len(TIMED_SEEDS)
    return float(one), float(batched), float(events)


def main() -> None:
    """Print the agreement table and the speed of both."""
    print(f"Event simulator against batched engine, {len(SEEDS)} seeds each\n")
    counted = f"{'jobs':>5} {'done':>5} {'moves':>5} {'refused':>7}"
    print(f"{'world':18} {'policy':18} {counted}  worst relative difference (where)")
    for world_name, build in WORLDS.items():
        world = build()
        for policy_name, policy in POLICIES.items():
            if "sharing" in policy_name and world.share_limit < 2:
                continue
            runs = [compare(world, policy, seed) for seed in SEEDS]
            worst, where, _ = max(runs, key=lambda run: run[0])
            sums = {key: int(sum(run[2].totals[key] for run in runs)) for key in
                    ("arrived", "completed", "migrations", "rejected")}  # fmt: skip
            counts = f"{sums['arrived']:5} {sums['completed']:5} {sums['migrations']:5} {sums['rejected']:7}"
            print(f"{world_name:18} {policy_name:18} {counts} {worst:10.1e} ({where})")
    print(
        f"\nMilliseconds per episode of {world.horizon_s / 3600:.0f} h with recorded decisions, and simulator : engine"
    )
    print(f"{'world':18} {'1 cluster':>10} {f'{CLUSTERS} clusters':>12} {'simulator':>10} {'ratios':>15}")
    for world_name, build in WORLDS.items():
        one, batched, events = _speeds(build())
        ratios = f"{events / one:6.0f}x {events / batched:6.0f}x"
        print(f"{world_name:18} {1e3 * one:10.2f} {1e3 * batched:12.2f} {1e3 * events:10.1f} {ratios:>15}")


if __name__ == "__main__":
    main()
