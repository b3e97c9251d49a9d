"""What the shipped policy loses when an input is taken away or a level is replaced by a rule; nothing is retrained.

    python benchmarks/hi_ppo_ablation.py                      # about five minutes of one core
    python benchmarks/hi_ppo_ablation.py --episodes 8 --scenarios ou30

Greedy decisions in batched held-out episodes, without the local search; differences to the full policy are paired by
episode and carry 95 % bootstrap intervals. "Hours not read off them": attributions are seen, but hours of waiting tasks
and gains of running ones are those of a nominal task. An input that is taken away after training shows how much the
policy leans on it, not how well it could have learnt without it.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from collections.abc import Callable

import numpy as np

from attribution_sched.cluster.world import World
from attribution_sched.config.scenarios import build_scenario
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.arena.stats import PairedBootstrap
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, load
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.decode import Actor, Choices, IntArray
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor
from attribution_sched.scheduler.hi_ppo.features import State
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork
from attribution_sched.scheduler.hi_ppo.partial_plans import PartialPlans
from attribution_sched.scheduler.hi_ppo.runtime_estimate import read_paces
from attribution_sched.scheduler.hi_ppo.teachers import ShortestFirst

FIRST_SEED = 950_000


class Mixed:
    """Some choices by the network, the others by the rule it was cloned from."""

    def __init__(self, network: HiPpoNetwork, heads: tuple[str, ...]) -> None:
        self._learnt, self._rule, self._heads = NetworkActor(network, None), ShortestFirst(), heads

    def task(self, state: State) -> IntArray:
        """Choose a task."""
        taken = self._learnt.task(state)
        return taken if "task" in self._heads else self._rule.task(state)

    def choose(self, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray) -> IntArray:
        """Choose by a head."""
        return (self._learnt if head in self._heads else self._rule).choose(head, offer, drafts, rows)


def returns(world: World, chooser: Actor, episodes: int, **options: object) -> np.ndarray:
    """Return of the first episode of every cluster."""
    field = ClusterBatch(world, episodes, FIRST_SEED, **options)  # type: ignore[arg-type]
    found, finished = np.zeros(episodes), np.zeros(episodes, dtype=bool)
    with one_thread():
        while not finished.all():
            move = field.step(chooser)
            worth = (move.terms * field.scale * field.engine.weights * (1.0, 1.0, -1.0)).sum(axis=1)
            found[~finished] += worth[~finished]
            finished |= move.ended
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=96)
    parser.add_argument("--scenarios", default="ou30,link-cut,burst,domain-lost")
    parser.add_argument("--weights", default=str(SHIPPED))
    options = parser.parse_args()
    network = load(options.weights)
    own = network.attributions

    def nothing(counters: np.ndarray) -> np.ndarray:
        return np.zeros((len(counters), 7))

    upper = ("task", "domain", "cut")
    lower = ("layout", "format", "level")

    def learnt() -> Actor:
        return NetworkActor(network, None)

    read = {"attributor": own, "paces": read_paces(network.demands, build_scenario().kinds, own)}
    cases: tuple[tuple[str, Callable[[], Actor], dict[str, object]], ...] = (
        ("full policy", learnt, read),
        ("no forecasts", learnt, read | {"predict": False}),
        ("hours not read off them", learnt, {"attributor": own}),
        ("attributions zeroed", learnt, {"attributor": nothing}),
        ("task by the rule", lambda: Mixed(network, ("domain", "cut", *lower)), read),
        ("lower level by the rule", lambda: Mixed(network, upper), read),
        ("all by the rule", ShortestFirst, read),
        ("rule, nominal hours", ShortestFirst, {"attributor": own}),
    )
    for scenario in options.scenarios.split(","):
        world = build_scenario("cross-domain", scenario)
        full = np.zeros(0)
        for name, make, given in cases:
            found = returns(world, make(), options.episodes, **given)
            if name == "full policy":
                full = found
                print(f"{scenario:12s} {name:24s} {found.mean():7.1f}", flush=True)
                continue
            resampled = PairedBootstrap(options.episodes, seed=0)
            gap = resampled.estimate(resampled.means(found - full))
            interval = f"{gap.value:+6.2f} [{gap.low:+.2f}, {gap.high:+.2f}]"
            print(f"{scenario:12s} {name:24s} {found.mean():7.1f}   {interval}", flush=True)


if __name__ == "__main__":
    main()
