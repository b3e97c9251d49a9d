"""How much of the carbon that a plan with foresight saves a policy saves: one plan a day.

    python benchmarks/carbon_foresight.py --days 24 --seed 1964000
    python benchmarks/carbon_foresight.py --days 24 --seed 1966000 --without-bpat

The plan knows every arrival, every task's true demands and every hour of every grid of the day. It picks for each task
a plan and when it starts; devices are counted every twenty minutes in every domain, never more than there are, nor more
tasks than may run at once. It does at least the work that ``cleanest-first`` does on the same day, in at most
``--slower`` per cent of that work more time in the cluster, with the fewest grams within the day. Links are at their
base and nothing moves; of a task fractions may run by different plans (a linear programme).

``rule+fork`` that pays for carbon is played on the same days, so that its share of the plan's saving has an interval.
What the hours are worth by themselves is told by a second plan, which knows only the day's mean of every grid and is
judged by the true hours: what it saves is the choice of regions and layouts, the rest is *when*, waiting for a cleaner
hour included. ``--slower`` is how much time that may take.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
from carbon_days import grams, slowness, world_of
from scipy.optimize import linprog
from scipy.sparse import csr_array, vstack

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.decision import Decision, encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.signals import Constant
from attribution_sched.cluster.world import World
from attribution_sched.planning.segment_table import single_domain_plans
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.rule import Rule, RuleFork
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.scheduler.rules import fewest_domains
from attribution_sched.scheduler.thinking import Think
from attribution_sched.stats.bootstrap import PairedBootstrap
from attribution_sched.types import FloatArray

HOUR_S = 3600.0
SLOT_S = 1200.0
"""Tasks start at multiples of it, and hold their devices to a multiple of it."""

RELAXED = (0.0, 0.02, 0.05, 0.1)
"""More time over the work, tried in turn where whole slots leave no plan within what is asked."""

LATEST_START_H = 18
"""A task waits no longer for a cleaner hour."""


@dataclass(frozen=True)
class Came:
    """A task of a day: its kind, when it came, its work and what it truly takes."""

    kind: int
    arrival_s: float
    steps: float
    factors: tuple[float, float, float]


@dataclass(frozen=True)
class Option:
    """One way to run a task: devices and watts by domain, and how long it takes."""

    devices: tuple[int, ...]
    watts: tuple[float, ...]
    hours: float


def arrivals(world: World, seed: int) -> list[Came]:
    """Every task that comes in a day, whoever decides: nobody is placed and nobody turned away."""
    engine = Engine(replace(world, queue_capacity=200))
    engine.seed([seed])
    engine.reset()
    while engine.state.event[0, st.DONE] == 0:
        engine.step(encode(engine, None, 0)[None])
    found = []
    for slot in np.flatnonzero(engine.state.slots[0, :, st.STATUS] != st.FREE).tolist():
        row = engine.arrays.pool[int(engine.state.slots[0, slot, st.POOL])]
        factors = row[st.P_FACTORS : st.P_FACTORS + 3]
        kind, arrived_s = int(row[st.P_KIND]), float(engine.state.tasks[0, slot, st.ARRIVAL])
        found.append(Came(kind, arrived_s, float(row[st.P_STEPS]), (factors[0], factors[1], factors[2])))
    return sorted(found, key=lambda each: each.arrival_s)


def first_view(world: World, seed: int) -> Decision:
    """The first decision of a day, on an empty cluster."""
    engine = Engine(world)
    engine.seed([seed])
    engine.reset()
    while True:
        seen = view(engine)
        if seen is not None:
            return seen
        engine.step(encode(engine, None, 0)[None])


def plans_of(seen: Decision, kind: int) -> PlanBatch:
    """Plans for a kind: all inside one domain, and over several what two rules make of every set of domains."""
    k, rule = len(seen.free_devices), Rule()
    wide: list[Plan] = []
    task = replace(seen.queue[0], kind_index=kind)
    for count in range(2, k + 1):
        for domains in combinations(range(k), count):
            for devices in product((8, 4), repeat=count) if count == 2 else ((8,) * count, (4,) * count):
                free = np.zeros(k, dtype=np.int64)
                free[list(domains)] = devices
                asked = replace(seen, free_devices=free, kind=seen.kinds[kind], kind_index=kind, queue=(task,))
                wide += [plan for plan in (fewest_domains(asked, kind), rule.decide(asked)) if plan is not None]
    narrow = single_domain_plans(seen, kind)
    batch = PlanBatch.of(dict.fromkeys(wide), seen.max_segments)
    inside = np.zeros((len(narrow), seen.max_segments, narrow.segments.shape[2]), dtype=np.int64)
    inside[:, : narrow.segments.shape[1]] = narrow.segments
    return PlanBatch(
        np.concatenate([inside, batch.segments]), np.concatenate([narrow.counts, batch.counts]),
        np.concatenate([narrow.schedules, batch.schedules]),
    )  # fmt: skip


def options_of(cost: CostModel, plans: PlanBatch, task: Came) -> list[Option]:
    """What the task's plans take, the beaten ones left out."""
    scored = cost.score(plans, task.kind, factors=task.factors, breakdown=False)
    k = len(cost.cluster)
    devices, watts = np.zeros((len(plans), k)), np.zeros((len(plans), k))
    rows = plans.segments
    used = np.arange(rows.shape[1]) < plans.counts[:, None]
    held = rows[:, :, 3] * rows[:, :, 4] * rows[:, :, 5] * used
    idle_w = np.array(cost.domains.rows["idle_w"])
    busy = scored.segment("busy_s") / scored.step_s[:, None]
    power = scored.segment("power_w")
    for at in range(rows.shape[1]):
        domain = rows[:, at, 0]
        mean_w = held[:, at] * (idle_w[domain] + (power[:, at] - idle_w[domain]) * busy[:, at])
        np.add.at(devices, (np.arange(len(plans)), domain), held[:, at])
        np.add.at(watts, (np.arange(len(plans)), domain), mean_w)
    hours = scored.step_s * task.steps / HOUR_S
    energy = watts.sum(axis=1) * hours
    # Of the plans on the same domains with as many devices the quickest and the one that draws least; over several
    # domains only where none holds the task alone.
    best: dict[tuple[object, ...], int] = {}
    ok = scored.fits & np.isfinite(hours)
    alone = ok & ((devices > 0).sum(axis=1) == 1)
    for at in np.flatnonzero(alone if alone.any() else ok).tolist():
        for name, value in (("time", hours), ("energy", energy)):
            key = (tuple(devices[at] > 0), int(devices[at].sum()), name)
            if key not in best or value[at] < value[best[key]]:
                best[key] = at
    kept = sorted(set(best.values()))
    return [Option(tuple(devices[at].astype(int)), tuple(watts[at]), float(hours[at])) for at in kept]


@dataclass(frozen=True)
class Foresight:
    """A day planned, in kilograms per thousand baseline hours: with the hours of the grids, and by the day's means."""

    bound: float
    without_hours: float


def planned(world: World, seed: int, most_slowness: float, work_h: float, batches: dict[int, PlanBatch]) -> Foresight:
    """The plan of a day with the fewest grams within its time.

    Args:
        world: The day's world.
        seed: Its number.
        most_slowness: Time in the cluster over the baseline hours of the work done, less one, at most.
        work_h: Baseline hours of work to be done within the day, at least.
        batches: Kind → its plans; filled.
    """
    seen, cost = first_view(world, seed), Engine(world).cost
    tasks = arrivals(world, seed)
    grids = [domain.carbon or Constant(domain.carbon_g_per_kwh) for domain in world.cluster.domains]
    per_h = int(HOUR_S / SLOT_S)
    slots = 24 * per_h
    intensity = np.array([[grid.at(h * SLOT_S) for h in range(slots)] for grid in grids]) / per_h
    # What whole slots emitted so far, so that any stretch of time is a difference.
    summed = np.concatenate([np.zeros((len(grids), 1)), np.cumsum(intensity, axis=1)], axis=1)
    day_mean = intensity.mean(axis=1)
    columns, rows = [], []
    uses: list[tuple[int, int, float]] = []
    for i, task in enumerate(tasks):
        if task.kind not in batches:
            batches[task.kind] = plans_of(seen, task.kind)
        first, base_h = int(np.ceil(task.arrival_s / SLOT_S)), task.steps * float(seen.base_step_s[task.kind]) / HOUR_S
        # As the played day is judged: what falls into the day counts, and a task may be left for the next.
        columns.append(i)
        rows.append((0.0, 0.0, 24.0 - task.arrival_s / HOUR_S, 0.0))
        for option in options_of(cost, batches[task.kind], task):
            # Soon after it came at every slot, later on by the hour: the grids change by the hour.
            later = range(first + per_h + (-first) % per_h, min(slots, first + LATEST_START_H * per_h), per_h)
            for start in (*range(first, min(slots, first + per_h)), *later):
                stop = min(float(slots), start + option.hours * per_h)
                last = min(int(stop), slots - 1)
                part = summed[:, last] + (stop - last) * intensity[:, last] - summed[:, start]
                watts, done_h = np.array(option.watts), base_h * (stop - start) / per_h / option.hours
                here_h = stop / per_h - task.arrival_s / HOUR_S
                for slot in range(start, int(np.ceil(stop))):
                    uses += [(k * slots + slot, len(columns), n) for k, n in enumerate(option.devices) if n]
                    uses.append((len(grids) * slots + slot, len(columns), 1.0))
                columns.append(i)
                rows.append((float(watts @ part), float(watts @ day_mean) * (stop - start), here_h, done_h))
    n, k = len(columns), len(grids)
    true_g, mean_g, here, done = np.array(rows).T
    each = csr_array((np.ones(n), (np.array(columns), np.arange(n))), shape=(len(tasks), n))
    at, column, amount = (np.array(values) for values in zip(*uses, strict=True))
    shared = csr_array((amount, (at, column)), shape=((k + 1) * slots, n))
    devices = [domain.devices for domain in world.cluster.domains]
    room = np.concatenate([np.repeat(np.array(devices, dtype=float), slots), np.full(slots, world.max_running)])
    found = []
    for weight in (true_g, mean_g):
        for more in RELAXED:
            time, work = here - (most_slowness + more + 1.0) * done, -done
            limits = vstack([shared, csr_array(np.stack([time, work]))])
            plan = linprog(
                weight / 1e3, limits, np.append(room, [0.0, -work_h]), each, np.ones(len(tasks)), bounds=(0, 1)
            )
            if plan.x is not None:
                break
        found.append(np.nan if plan.x is None else float(true_g @ plan.x / (done @ plan.x)) / 1e3)
    return Foresight(*found)


def main() -> None:
    """Plan and play the days and print the share."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--days", type=int, default=24)
    asked.add_argument("--seed", type=int, default=1_964_000)
    asked.add_argument("--slower", type=float, default=3.0, help="per cent of baseline work above cleanest-first")
    asked.add_argument("--without-policy", action="store_true", help="plan only")
    asked.add_argument("--without-bpat", action="store_true")
    asked.add_argument("--keep", type=Path, help="file of days that were planned, a JSON line each; more are added")
    given = asked.parse_args()
    batches: dict[int, PlanBatch] = {}
    done: dict[str, list[float]] = {}
    if given.keep is not None and given.keep.exists():
        done = dict(json.loads(line) for line in given.keep.read_text("utf-8").splitlines())
    rows = []
    thinking = RuleFork(think=Think())
    for number in range(given.seed, given.seed + given.days):
        key = f"{number}{'/without BPAT' if given.without_bpat else ''}"
        if key in done:
            rows.append(done[key])
            continue
        world = world_of(number, 0.1, 0.5, without_bpat=given.without_bpat)
        day = play(world, make_policy("cleanest-first"), number)
        slower = slowness(day) + given.slower / 100.0
        plan = planned(world, number, slower, day.baseline_running_h, batches)
        own = np.nan
        if not given.without_policy:
            own = grams(play(world_of(number, 1000.0, 2.0, without_bpat=given.without_bpat), thinking, number))
        rows.append([grams(day), own, plan.bound, plan.without_hours])
        if given.keep is not None:
            with given.keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, rows[-1]]) + "\n")
        print(f"day {number}: " + " ".join(f"{value:7.1f}" for value in rows[-1]), flush=True)
    print_shares(np.array(rows))


LABELS = ("rule+fork, 1000 USD/kg, w_cost 2", "plan with foresight", "the same without hours")


def print_shares(table: FloatArray) -> None:
    """Grams over cleanest-first and the shares of the plan's saving, 95 % intervals by day."""
    for at, label in enumerate(LABELS, start=1):
        there = table[np.isfinite(table[:, at])]
        if len(there) < 2:
            continue
        boot = PairedBootstrap(len(there), seed=0)
        found = boot.estimate(boot.means(100.0 * (there[:, at] / there[:, 0] - 1.0)))
        print(
            f"{label}, {len(there)} days: grams {found.value:+.1f} % [{found.low:+.1f}, {found.high:+.1f}]", flush=True
        )
    table = table[np.isfinite(table[:, 2:]).all(axis=1)]
    rng = np.random.default_rng(0)
    drawn = table[rng.integers(len(table), size=(4000, len(table)))]
    saved = 1.0 - drawn[:, :, 1:4] / drawn[:, :, :1]
    share, hours = (saved[:, :, at].mean(axis=1) / saved[:, :, 1].mean(axis=1) for at in (0, 2))
    means = (1.0 - table[:, 1:4] / table[:, :1]).mean(axis=0)
    for name, value, spread in (
        ("share that thinking reaches", means[0] / means[1], share),
        ("share that is left without hours", means[2] / means[1], hours),
    ):
        if np.isfinite(value):
            low, high = np.quantile(spread, [0.025, 0.975])
            print(f"{name}: {100 * value:.0f} % [{100 * low:.0f}, {100 * high:.0f}]", flush=True)


if __name__ == "__main__":
    main()
