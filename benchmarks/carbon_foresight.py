"""How much of the carbon that a plan with foresight saves a policy saves: one plan a day.

    python benchmarks/carbon_foresight.py --days 24 --seed 1964000 --saved 9.4
    python benchmarks/carbon_foresight.py --days 24 --seed 1966000 --without-bpat --saved 4.2

The plan knows every arrival, every task's true demands and every hour of every grid of the day. It picks for each task
a plan and when it starts; devices are counted every ten minutes in every domain, never
more than there are, nor more tasks than may run at once. It uses the fewest grams whose time in the cluster is at most
``--slower`` per cent of the baseline's work above that of ``cleanest-first`` on the same day. Links are at their base
and nothing moves. The linear programme's plan may give fractions of a task to several plans: capacity is kept, and
nobody can do better. A whole plan is then sought around its prices; it is not always found.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from itertools import combinations, product

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
from attribution_sched.scheduler.arena.stats import PairedBootstrap
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.rule import Rule
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.scheduler.rules import fewest_domains
from attribution_sched.types import FloatArray, IntArray

HOUR_S = 3600.0
SLOT_S = 600.0
"""Tasks start at multiples of it, and hold their devices to a multiple of it."""

ORDERS = 3
"""Orders of the tasks from which the plan is sought."""

MARGINS_H = (0.0, 6.0, 9.0, 13.0)
"""Hours by which the linear programme is held shorter than asked, so that whole tasks end within it."""

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
    """A day planned: grams per thousand baseline hours, time in the cluster over it; and the bound."""

    kg_per_kh: float
    slower: float
    bound: float


def planned(world: World, seed: int, most_slowness: float, batches: dict[int, PlanBatch]) -> Foresight:
    """The plan of a day with the fewest grams within its time."""
    seen, cost = first_view(world, seed), Engine(world).cost
    tasks = arrivals(world, seed)
    grids = [domain.carbon or Constant(domain.carbon_g_per_kwh) for domain in world.cluster.domains]
    per_h = int(HOUR_S / SLOT_S)
    hours = (24 + LATEST_START_H + 48) * per_h
    intensity = np.array([[grid.at(h * SLOT_S) for h in range(hours)] for grid in grids]) / per_h
    # What whole slots emitted so far, so that any stretch of time is a difference.
    summed = np.concatenate([np.zeros((len(grids), 1)), np.cumsum(intensity, axis=1)], axis=1)
    columns, grams_of, delay_of, spent_of = [], [], [], []
    rows_at: list[tuple[int, int, float]] = []
    for i, task in enumerate(tasks):
        if task.kind not in batches:
            batches[task.kind] = plans_of(seen, task.kind)
        first = int(np.ceil(task.arrival_s / SLOT_S))
        for option in options_of(cost, batches[task.kind], task):
            # Soon after it came at every slot, later on by the hour: the grids change by the hour.
            later = range(first + per_h + (-first) % per_h, first + LATEST_START_H * per_h, per_h)
            for start in (*range(first, first + per_h), *later):
                stop = start + option.hours * per_h
                if stop >= hours:
                    continue
                last = int(stop)
                part = summed[:, last] + (stop - last) * intensity[:, last] - summed[:, start]
                at = len(columns)
                columns.append(i)
                grams_of.append(float(np.array(option.watts) @ part) / 1e3)
                # Of the day only, as the played day is judged: its hours in the cluster less those its work may take.
                inside = max(0.0, min(stop / per_h, 24.0) - start / per_h) / option.hours
                own_base_h = task.steps * float(seen.base_step_s[task.kind]) / HOUR_S
                here_h = min(stop / per_h, 24.0) - task.arrival_s / HOUR_S
                delay_of.append(here_h - (most_slowness + 1.0) * inside * own_base_h)
                spent_of.append((here_h, inside * own_base_h))
                for hour in range(start, int(np.ceil(stop))):
                    for domain, devices in enumerate(option.devices):
                        if devices:
                            rows_at.append((domain * hours + hour, at, float(devices)))
                    rows_at.append((len(grids) * hours + hour, at, 1.0))
    n, k = len(columns), len(grids)
    each = csr_array((np.ones(n), (np.array(columns), np.arange(n))), shape=(len(tasks), n))
    at, column, amount = (np.array(values) for values in zip(*rows_at, strict=True))
    shared = csr_array((amount, (at, column)), shape=((k + 1) * hours, n))
    devices = [domain.devices for domain in world.cluster.domains]
    room = np.concatenate([np.repeat(np.array(devices, dtype=float), hours), np.full(hours, world.max_running)])
    base_h = sum(task.steps * float(seen.base_step_s[task.kind]) for task in tasks) / HOUR_S
    delay, weight = np.array(delay_of), np.array(grams_of)
    time = csr_array(delay[None])
    owners = np.array(columns)
    # Rows that cannot bind are left out: no plan of the day reaches them.
    busy = np.flatnonzero(np.diff(shared.indptr))
    dense, room_there = shared[busy].toarray().astype(np.float32), room[busy]
    limits = vstack([shared, time]).tocsr()
    best: tuple[float, IntArray] | None = None
    bound = np.nan
    for margin_h in MARGINS_H:
        # Capacity and time get prices from the linear programme; whole tasks are put in by what they cost at those.
        relaxed = linprog(weight, limits, np.append(room, -margin_h), each, np.ones(len(tasks)), bounds=(0, 1))
        if relaxed.x is None:
            break
        bound = float(relaxed.fun) if np.isnan(bound) else bound
        worth = weight - limits.T @ relaxed.ineqlin.marginals
        for trial in range(ORDERS if margin_h else 0):
            rng = np.random.default_rng([seed, trial])
            found = _whole(owners, worth, relaxed.x, dense, room_there, rng)
            if found is not None and delay[found].sum() <= 0.0:
                total = float(weight[found].sum())
                best = (total, found) if best is None or total < best[0] else best
    scale = 1.0 / base_h  # grams per baseline hour are kilograms per thousand
    if best is None:
        return Foresight(np.nan, np.nan, bound * scale)
    picked = best[1]
    if (dense[:, picked].sum(axis=1) > room_there + 1e-6).any():
        raise SystemExit(f"day {seed}: the plan holds more devices than there are")
    here_h, done_h = np.array(spent_of)[picked].sum(axis=0)
    return Foresight(float(weight[picked].sum()) * scale, float(here_h / done_h - 1.0), bound * scale)


def _whole(
    owner: IntArray, worth: FloatArray, fraction: FloatArray, uses: FloatArray, room: FloatArray,
    rng: np.random.Generator,
) -> IntArray | None:  # fmt: skip
    """One column a task within capacity: the surest of the programme first, then each put back where it costs least."""
    tasks = int(owner.max()) + 1
    own = [np.flatnonzero(owner == i) for i in range(tasks)]
    sure = np.array([fraction[each].max() for each in own])
    order = np.argsort(-(sure + 0.2 * rng.random(tasks)), kind="stable").tolist()
    load, chosen = np.zeros(len(room)), np.full(tasks, -1)
    for _ in range(5):
        changed = False
        for i in order:
            if chosen[i] >= 0:
                load -= uses[:, chosen[i]]
            fits = own[i][(uses[:, own[i]] <= (room - load + 1e-9)[:, None]).all(axis=0)]
            if not len(fits):
                return None
            # Where costs are alike, what the programme itself chose.
            at = int(fits[np.lexsort((-fraction[fits], np.round(worth[fits], 6)))[0]])
            changed |= at != chosen[i]
            chosen[i] = at
            load += uses[:, at]
        if not changed:
            break
    return chosen


def main() -> None:
    """Plan the days and print the share."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--days", type=int, default=24)
    asked.add_argument("--seed", type=int, default=1_964_000)
    asked.add_argument("--slower", type=float, default=3.0, help="per cent of baseline work above cleanest-first")
    asked.add_argument("--saved", type=float, default=9.4, help="per cent of grams that a policy saves on these days")
    asked.add_argument("--without-bpat", action="store_true")
    given = asked.parse_args()
    batches: dict[int, PlanBatch] = {}
    rows = []
    for number in range(given.seed, given.seed + given.days):
        world = world_of(number, 0.1, 0.5, without_bpat=given.without_bpat)
        day = play(world, make_policy("cleanest-first"), number)
        plan = planned(world, number, slowness(day) + given.slower / 100.0, batches)
        rows.append([grams(day), plan.kg_per_kh, plan.bound])
        print(f"day {number}: {rows[-1][0]:7.1f} -> {plan.kg_per_kh:7.1f} kg/kh (bound {plan.bound:7.1f})", flush=True)
    table = np.array(rows)
    for label, column in (("whole plan found by search", 1), ("plan of fractions of tasks", 2)):
        there = table[np.isfinite(table[:, column])]
        if not len(there):
            print(f"{label}: found on none of {len(table)} days")
            continue
        boot = PairedBootstrap(len(there), seed=0)
        found = boot.estimate(boot.means(100.0 * (there[:, column] / there[:, 0] - 1.0)))
        print(
            f"{label}, {len(there)} of {len(table)} days: grams {found.value:+.1f} %"
            f" [{found.low:+.1f}, {found.high:+.1f}] of cleanest-first;"
            f" a saving of {given.saved:g} % is {-100 * given.saved / found.value:.0f} % of it",
            flush=True,
        )


if __name__ == "__main__":
    main()
