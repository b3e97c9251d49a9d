"""Days of the shipped policy: reward weights, progress under other loads, and which attribution vector it is shown.

    python benchmarks/hi_ppo_days.py                       # under a minute of one core
    python benchmarks/hi_ppo_days.py --episodes 8 --modes ou30 --loads load+20

Greedy decisions in batched held-out episodes, without the local search. *Weights*: the policy is told either the
preset's weights or, at every decision, those of ``AdaptiveWeights`` for the bandwidth of that moment; both are judged
by the preset's reward, paired by day. *Progress*: steps that were lost over steps that were done, by day.
*Attributions*: the agents without thinking, their hours believed by the vector they learnt from, by what ``System``'s
attributor gives them through its versioned adapter, and by the same with two to four of the seven counters of every
task unread: carried by EmSHAP with its interval, with the interval cut, taken for zeros; and by no attribution.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from dataclasses import replace

import numpy as np
from field_days import Days, interval, play_days
from numpy.typing import NDArray

from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.attribution.vector import state_vectors
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.config.scenarios import build_scenario
from attribution_sched.scheduler.beliefs import AttributionBeliefs
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, load
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork
from attribution_sched.scheduler.hi_ppo.policy_search import Days as AgentDays
from attribution_sched.scheduler.hi_ppo.reward_weights import AdaptiveWeights, RewardWeights
from attribution_sched.scheduler.hi_ppo.runtime_estimate import read_paces
from attribution_sched.types import Task

FIRST_SEED = 970_000
CARRIED = "2-4 unread: EmSHAP, its interval read"
Array = NDArray[np.float64]


class Adapted:
    """Tells every cluster of a field the weights that its network asks for."""

    def __init__(self, base: RewardWeights) -> None:
        self._mode = AdaptiveWeights(base)
        self.told: list[float] = []

    def __call__(self, field: ClusterBatch) -> None:
        """Write the weights of this moment."""
        engine = field.engine
        rate = engine.state.links[:, 1]
        for e in range(field.clusters):
            engine.weights[e] = self._mode.weights(rate[e], engine.arrays.base[0]).vector
        live = engine.state.event[:, st.DONE] == 0
        self.told.extend(engine.weights[live, 2].tolist())


def unread(counters: Array) -> Array:
    """Counters ``(n, 12)`` with two to four of the first seven NaN in every row."""
    rng, holes = np.random.default_rng(5), counters.copy()
    for task in holes:
        task[rng.permutation(7)[: rng.integers(2, 5)]] = np.nan
    return holes


def attribution_arms(world: World, tasks: list[Task], network: HiPpoNetwork) -> dict[str, list[Task]]:
    """The same tasks, attributed in several ways; that of the network itself first."""
    account = as_attributor(None, world, network)
    holes = unread(np.array([task.counters for task in tasks]))

    def shown(rows: Array) -> list[Task]:
        given = [replace(task, counters=row) for task, row in zip(tasks, rows, strict=True)]
        return [replace(task, attribution=account.vector(task)) for task in given]

    def states(rows: Array) -> list[Task]:
        vector = state_vectors(network.attributions, DEMAND_NAMES)
        return [replace(task, attribution=vector(row)) for task, row in zip(tasks, rows, strict=True)]

    carried = shown(holes)
    vectors = [task.attribution for task in carried]
    sure = [replace(vector, state_covariance=None) for vector in vectors if vector is not None]
    return {
        "vector it learnt from": states(np.array([task.counters for task in tasks])),
        "attributor of System": shown(np.array([task.counters for task in tasks])),
        CARRIED: carried,
        "2-4 unread: EmSHAP, interval cut": [replace(t, attribution=v) for t, v in zip(carried, sure, strict=True)],
        "2-4 unread: as zeros": states(np.nan_to_num(holes)),
        "no attribution": [replace(task, attribution=None) for task in tasks],
    }


def attribution_days(world: World, network: HiPpoNetwork, scenario: str, days: int) -> list[str]:
    """Print how near beliefs by each way of attributing are; rows of the agents' returns by them."""
    played, beliefs = AgentDays(world, max(days, 1), network), AttributionBeliefs(world, network.attributions)
    pool = played.engine.pool
    arms = attribution_arms(world, [pool.task(row, world.kinds) for row in range(len(pool))], network)
    truth = np.log(np.column_stack([pool.demands.factors, pool.demands.ratio[:, 3]]))
    for arm, given in arms.items():
        believed = beliefs.of(given)
        spread = np.sqrt(np.einsum("nij,nij->ni", believed.root, believed.root))
        off = np.abs(believed.mean - truth)
        columns = (np.sqrt(np.square(off).mean(axis=0)), (off <= 1.96 * spread).mean(axis=0))
        told = " | ".join(" · ".join(f"{x:.3f}" for x in column) for column in columns)
        print(f"| {scenario} | {arm} | {told} |", flush=True)
    rows = []
    for paced in (True, False) if days else ():
        found = {}
        for arm, given in arms.items():
            seen = given if paced else [replace(task, samples_per_s=0.0) for task in given]
            played.believe(beliefs.of(seen))
            found[arm] = played.returns(network.theta, FIRST_SEED)
        first, carried = next(iter(found.values())), found[CARRIED]
        for arm, returns in found.items():
            apart = f"{interval(returns - first)} | {interval(carried - returns)}"
            rows.append(f"| {scenario} | {'yes' if paced else 'no'} | {arm} | {returns.mean():.2f} | {apart} |")
    return rows


def row(name: str, mode: str, days: Days, more: str) -> str:
    """A line of the table of weights."""
    eff, util, cost = days.terms.mean(axis=0)
    words = f"{days.returns.mean():.2f} | {eff:.2f} | {util:.2f} | {cost:.4f} | {days.bill_usd.mean():.1f}"
    return f"| {name} | {mode} | {words} | {100 * days.utilisation.mean():.2f} % | {more} |"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--modes", default="ou30,link-cut,domain-lost", help="scenarios of the table of weights")
    parser.add_argument("--loads", default="load-20,load+20", help="scenarios of the table of progress")
    parser.add_argument(
        "--shown",
        default="cross-domain/ou30,cross-domain/load+20,testbed",
        help="preset/scenario of the table of attributions",
    )
    parser.add_argument("--days", type=int, default=640, help="days of the table of attributions; 0 for beliefs alone")
    parser.add_argument("--weights", default=str(SHIPPED))
    given = parser.parse_args()
    network, start = load(given.weights), time.process_time()
    paces = read_paces(network.demands, build_scenario().kinds, network.attributions)
    print("| scenario | weights | return | R_eff | R_util | R_cost | bill (USD) | utilisation | adaptive over fixed |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in filter(None, given.modes.split(",")):
        world, chooser = build_scenario("cross-domain", name), NetworkActor(network, None)
        fixed = play_days(world, chooser, given.episodes, FIRST_SEED, network.attributions, None, paces)
        told = Adapted(RewardWeights.of(world.reward))
        adapted = play_days(world, chooser, given.episodes, FIRST_SEED, network.attributions, told, paces)
        low, high = np.quantile(told.told, [0.01, 0.99])
        print(row(name, "fixed", fixed, ""))
        apart = interval(adapted.returns - fixed.returns)
        print(row(name, f"adaptive, w_cost {low:.2f}-{high:.2f}", adapted, apart), flush=True)
    print("\n| scenario | days | return | steps a day | lost | worst day's stability | tasks turned away |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in filter(None, given.loads.split(",")):
        world = build_scenario("cross-domain", name)
        chooser = NetworkActor(network, None)
        days = play_days(world, chooser, given.episodes, FIRST_SEED, network.attributions, None, paces)
        stable = 100 * (1.0 - days.lost / days.steps).min()
        sums = f"{days.steps.mean():,.0f} | {days.lost.sum():.0f} | {stable:.2f} % | {days.dropped.sum():.0f}"
        print(f"| {name} | {given.episodes} | {days.returns.mean():.1f} | {sums} |", flush=True)
    print("\n| scenario | attributions | error of log compute · memory · host · input | inside the believed 95 % |")
    print("|---|---|---|---|")
    rows = []
    for name in filter(None, given.shown.split(",")):
        preset, _, scenario = name.rpartition("/")
        world = build_scenario(preset, scenario) if preset else load_settings(scenario).build_world()
        rows += attribution_days(world, network, scenario, given.days)
    print("\n| scenario | pace | attributions | return | over the vector it learnt from | EmSHAP over it |")
    print("\n".join(("|---|---|---|---:|---:|---:|", *rows)))
    print(f"\n{time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()
