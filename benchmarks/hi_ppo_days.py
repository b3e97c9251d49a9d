"""Days of the shipped policy: fixed against adaptive reward weights, and how much progress is lost under other loads.

    python benchmarks/hi_ppo_days.py                       # under a minute of one core
    python benchmarks/hi_ppo_days.py --episodes 8 --modes ou30 --loads load+20

Greedy decisions in batched held-out episodes, without the local search. *Weights*: the policy is told either the
preset's weights or, at every decision, those of ``AdaptiveWeights`` for the bandwidth of that moment; both are judged
by the preset's reward, paired by day. *Progress*: steps that were lost over steps that were done, by day.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time

import numpy as np
from field_days import Days, interval, play_days

from attribution_sched.cluster.engine import state as st
from attribution_sched.config.scenarios import build_scenario
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, load
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkChooser
from attribution_sched.scheduler.hi_ppo.field import Field
from attribution_sched.scheduler.hi_ppo.paces import read_paces
from attribution_sched.scheduler.hi_ppo.weights import AdaptiveWeights, RewardWeights

FIRST_SEED = 970_000


class Adapted:
    """Tells every cluster of a field the weights that its network asks for."""

    def __init__(self, base: RewardWeights) -> None:
        self._mode = AdaptiveWeights(base)
        self.told: list[float] = []

    def __call__(self, field: Field) -> None:
        """Write the weights of this moment."""
        engine = field.engine
        rate = engine.state.links[:, 1]
        for e in range(field.clusters):
            engine.weights[e] = self._mode.weights(rate[e], engine.arrays.base[0]).vector
        live = engine.state.event[:, st.DONE] == 0
        self.told.extend(engine.weights[live, 2].tolist())


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
    parser.add_argument("--weights", default=str(SHIPPED))
    given = parser.parse_args()
    network, start = load(given.weights), time.process_time()
    paces = read_paces(network.demands, build_scenario().kinds, network.attributions)
    print("| scenario | weights | return | R_eff | R_util | R_cost | bill (USD) | utilisation | adaptive over fixed |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in given.modes.split(","):
        world, chooser = build_scenario("cross-domain", name), NetworkChooser(network, None)
        fixed = play_days(world, chooser, given.episodes, FIRST_SEED, network.attributions, None, paces)
        told = Adapted(RewardWeights.of(world.reward))
        adapted = play_days(world, chooser, given.episodes, FIRST_SEED, network.attributions, told, paces)
        low, high = np.quantile(told.told, [0.01, 0.99])
        print(row(name, "fixed", fixed, ""))
        apart = interval(adapted.returns - fixed.returns)
        print(row(name, f"adaptive, w_cost {low:.2f}-{high:.2f}", adapted, apart), flush=True)
    print("\n| scenario | days | return | steps a day | lost | worst day's stability | tasks turned away |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in given.loads.split(","):
        world = build_scenario("cross-domain", name)
        chooser = NetworkChooser(network, None)
        days = play_days(world, chooser, given.episodes, FIRST_SEED, network.attributions, None, paces)
        stable = 100 * (1.0 - days.lost / days.steps).min()
        sums = f"{days.steps.mean():,.0f} | {days.lost.sum():.0f} | {stable:.2f} % | {days.dropped.sum():.0f}"
        print(f"| {name} | {given.episodes} | {days.returns.mean():.1f} | {sums} |", flush=True)
    print(f"\n{time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()
