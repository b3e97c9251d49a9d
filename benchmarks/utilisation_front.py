"""How busy can the devices be? Fronts of episodes from pure utilisation to pure cost, and what the arrivals allow.

    python benchmarks/utilisation_front.py                     # about five minutes of one core
    python benchmarks/utilisation_front.py --days 2 --exact ""

Held-out days of the arena (seeds 1,000,000 on) in ``ou30``.

*Front*: Hi-PPO (greedy, without the local search) and ``exact-switch`` play the same days under several sets of reward
weights; every day is also judged by the preset's own.

*Bound*: which tasks come, and when, does not depend on who places them. A task keeps devices busy for the seconds that
its steps compute, which depends on its layout. Were all devices to work on whatever has come and is not done, every
task in the 16-bit layout inside one domain that keeps devices busy *longest* (however badly it uses them), no such
policy could be busier: that is the bound. The load is the same with the layouts that need the fewest busy seconds.

*While tasks wait*: only then is there anything that a scheduler could still place. More arrivals (``--loads``) show
what happens when there always is.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from dataclasses import replace

import numpy as np
from field_days import Array, Days, play_days

from attribution_sched.cluster.arrivals import TraceArrivals
from attribution_sched.cluster.cost import BUSY_S
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import ACTION_COLUMNS, Engine
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.world import World
from attribution_sched.config.scenarios import build_scenario
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.exact_policy import ExactSwitch
from attribution_sched.scheduler.hi_ppo.action_masks import fastest_inside
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, load
from attribution_sched.scheduler.hi_ppo.decode import Planner
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork

FIRST_SEED = 1_000_000
WEIGHTS = {
    "utilisation only": (0.0, 2.0, 0.0),
    "mostly utilisation": (0.2, 1.6, 0.2),
    "preset": (1.0, 0.5, 0.5),
    "mostly efficiency": (1.8, 0.1, 0.1),
    "mostly cost": (0.2, 0.2, 1.6),
}
"""w_eff, w_util and w_cost."""

SIGNS = np.array([1.0, 1.0, -1.0])


def weighted(world: World, weights: tuple[float, float, float]) -> World:
    """The world with other reward weights."""
    eff, util, cost = weights
    return replace(world, reward=replace(world.reward, w_eff=eff, w_util=util, w_cost=cost))


def hi_ppo(network: HiPpoNetwork, world: World, days: int) -> Days:
    """Days of the shipped policy, greedy."""
    return play_days(world, NetworkActor(network, None), days, FIRST_SEED, network.attributions)


def front(network: HiPpoNetwork, world: World, days: int, exact: list[str]) -> None:
    """Print both fronts."""
    own = np.array(WEIGHTS["preset"])
    print("| policy | told | utilisation | bill (USD) | R_eff | R_util | R_cost | return, as the preset pays |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for name, weights in WEIGHTS.items():
        found = hi_ppo(network, weighted(world, weights), days)
        _line("hi-ppo", name, found.utilisation, found.bill_usd, found.terms, own)
    for name in exact:
        played = [play(weighted(world, WEIGHTS[name]), ExactSwitch(), FIRST_SEED + i) for i in range(days)]
        terms = np.array([[one.r_eff, one.r_util, one.r_cost] for one in played])
        use, bill = (np.array([getattr(one, part) for one in played]) for part in ("utilisation", "traffic_usd"))
        _line("exact-switch", name, use, bill, terms, own)


def _line(policy: str, name: str, use: Array, bill: Array, terms: Array, own: Array) -> None:
    eff, util, cost = terms.mean(axis=0)
    judged = float((terms * SIGNS * own).sum(axis=1).mean())
    print(f"| {policy} | {name} | {100 * use.mean():.1f} % | {bill.mean():.0f} | {eff:.1f} | {util:.1f} | {cost:.3f} |"
          f" {judged:.1f} |", flush=True)  # fmt: skip


def arrivals(world: World, days: int) -> list[list[tuple[float, int]]]:
    """Time and pool instance of every task that comes, by day: nobody is placed, and the queue is long enough."""
    engine = Engine(replace(world, queue_capacity=256), days)
    engine.seed([FIRST_SEED + i for i in range(days)])
    engine.reset()
    idle = np.zeros((days, world.max_segments, len(ACTION_COLUMNS)), dtype=np.int64)
    idle[:, :, 0] = len(world.cluster)
    state = engine.state
    while True:
        live = state.event[:, st.DONE] == 0
        if not live.any():
            break
        waiting = state.slots[:, :, st.STATUS] == st.QUEUED
        state.tasks[:, :, st.OFFERED] = np.where(waiting, np.inf, state.tasks[:, :, st.OFFERED])
        engine.step(idle, active=live)
        # The task that was refused would be offered again; all that matters is that it came.
        waiting = state.slots[:, :, st.STATUS] == st.QUEUED
        old = waiting & (state.tasks[:, :, st.ARRIVAL] < state.clock[:, st.NOW][:, None])
        state.tasks[:, :, st.OFFERED] = np.where(old, np.inf, state.tasks[:, :, st.OFFERED])
    found = []
    for e in range(days):
        here = np.flatnonzero(state.slots[e, :, st.STATUS] == st.QUEUED)
        if state.totals[e, st.DROPPED] > 0:
            raise RuntimeError("the queue was too short to hold a day")
        found.append(sorted((float(state.tasks[e, s, st.ARRIVAL]), int(state.slots[e, s, st.POOL])) for s in here))
    return found


def busy_seconds(world: World) -> tuple[Array, Array]:
    """Fewest and most device-seconds that every task keeps devices busy, 16 bits, inside one domain, each ``(n,)``."""
    engine = Engine(world, 1)
    pool, kinds = engine.pool, engine.arrays.kinds
    base = kinds[:, st.K_BASE_STEP].copy(), kinds[:, st.K_BASE_COST].copy()
    t = Planner.of(engine.cost, world.kinds, *base, world.max_segments).tables
    least, most = np.full(len(pool), np.inf), np.zeros(len(pool))
    half = Precision.BF16.index
    for k, kind in enumerate(world.kinds):
        n, at = len(kind.model), np.flatnonzero(pool.kinds == k)
        fastest_inside(t, k, 0, int(t.domains.rows[0].devices), 0, 0, n)
        for lay, level in np.argwhere((t.reach[k, 0, 0, n, :, half] == 0) & np.isfinite(t.whole_s[k, 0, :, half])):
            micro = int(t.micro[k, level])
            row = [0, 0, n, *t.layouts[lay], half, 0, micro, kind.batch_size // micro]
            rows = np.repeat(np.array(row, dtype=np.int64)[None, None], len(at), axis=0)
            batch = PlanBatch(rows, np.ones(len(at), dtype=np.int64), np.zeros(len(at), dtype=np.int64))
            cost = engine.cost.score(batch, k, factors=pool.demands.factors[at], breakdown=False)
            busy = pool.steps[at] * t.sizes[lay] * np.minimum(cost.segments[:, 0, BUSY_S], cost.step_s)
            least[at], most[at] = np.minimum(least[at], busy), np.maximum(most[at], busy)
    return least, most


def filled(came: list[tuple[float, int]], busy_s: Array, devices: int, until_s: float) -> float:
    """Share of all device time that is busy if all devices work on whatever has come and is not done."""
    done = backlog = before = 0.0
    for when, task in [*came, (until_s, -1)]:
        served = min(backlog, devices * (when - before))
        done, backlog, before = done + served, backlog - served, when
        if task >= 0:
            backlog += float(busy_s[task])
    return done / (devices * until_s)


def bound(network: HiPpoNetwork, world: World, days: int) -> None:
    """Print what the arrivals of every day allow, and what came of it."""
    least, most = busy_seconds(world)
    played = hi_ppo(network, world, days)
    size, until = world.cluster.devices, world.horizon_s
    rows = []
    print("\n| day | tasks | load | at best, thriftiest layouts | bound, busiest layouts | Hi-PPO | while tasks wait |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for day, came in enumerate(arrivals(world, days)):
        load = sum(float(least[task]) for _, task in came) / (size * until)
        two = [filled(came, each, size, until) for each in (least, most)]
        rows.append([len(came), load, *two, played.utilisation[day], played.waiting_use[day]])
    for name, row in [*zip(map(str, range(days)), rows, strict=True), ("mean", np.nanmean(rows, axis=0))]:
        print(f"| {name} | {row[0]:.0f} |" + "".join(f" {100 * value:.1f} % |" for value in row[1:]), flush=True)


def loads(network: HiPpoNetwork, world: World, factors: list[float], days: int) -> None:
    """Print utilisation with more arrivals."""
    print("\n| arrivals | utilisation | share of time in which tasks wait | utilisation then | return | turned away |")
    print("|---|---:|---:|---:|---:|---:|")
    came = world.arrivals
    if isinstance(came, TraceArrivals):
        raise SystemExit("a recording of arrivals has no rate to be changed")
    for factor in factors:
        more = replace(world, arrivals=replace(came, rate_per_hour=came.rate_per_hour * factor))
        found = hi_ppo(network, more, days)
        then = found.waiting_use * found.waiting_share
        words = f"{100 * found.waiting_share.mean():.1f} % | {100 * np.nansum(then) / found.waiting_share.sum():.1f} %"
        print(f"| × {factor:g} | {100 * found.utilisation.mean():.1f} % | {words} | {found.returns.mean():.1f} |"
              f" {found.dropped.mean():.1f} a day |", flush=True)  # fmt: skip


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=6)
    parser.add_argument("--exact", default="utilisation only,preset", help="weights exact-switch plays with, by name")
    parser.add_argument("--loads", default="1,1.2,1.4,1.8,2.5")
    parser.add_argument("--load-days", type=int, default=32)
    parser.add_argument("--weights", default=str(SHIPPED))
    given = parser.parse_args()
    network, world, start = load(given.weights), build_scenario("cross-domain", "ou30"), time.process_time()
    bound(network, world, given.days)
    loads(network, world, [float(part) for part in given.loads.split(",")], given.load_days)
    print()
    front(network, world, given.days, [part for part in given.exact.split(",") if part])
    print(f"\n{time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()
