"""One policy that is told its reward weights against policies trained for one set of weights each.

    python benchmarks/pareto_front.py                       # about eight minutes of one core
    python benchmarks/pareto_front.py --decisions 2000 --episodes 4

Both start from the shipped weights and learn from the same number of decisions in all: the conditioned policy from
episodes that draw their weights, the others each from its own share at fixed weights. Then every policy plays the same
held-out episodes greedily, the conditioned one under all sets of weights. A front is the set of mean (R_eff, R_util,
-R_cost) per episode; its hypervolume is taken above the worst of all points in each direction.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import copy
from dataclasses import replace

import numpy as np

from attribution_sched.cluster.world import World
from attribution_sched.config.scenarios import build_scenario
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, load
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork
from attribution_sched.scheduler.hi_ppo.trainer import HiPpoSettings, Trainer
from attribution_sched.scheduler.ppo.settings import PpoSettings
from research.hypervolume import hypervolume

WEIGHTS = ((1.0, 0.5, 0.5), (1.8, 0.1, 0.1), (0.2, 1.6, 0.2), (0.2, 0.2, 1.6))
"""w_eff, w_util and w_cost: the preset's, and one that cares for each component most."""

CLUSTERS = 64
FIRST_SEED = 900_000


def weighted(world: World, weights: tuple[float, float, float]) -> World:
    """The world with other reward weights."""
    eff, util, cost = weights
    return replace(world, reward=replace(world.reward, w_eff=eff, w_util=util, w_cost=cost))


def trained(start: HiPpoNetwork, world: World, decisions: int, seed: int, *, pareto: bool) -> HiPpoNetwork:
    """Let a copy of the weights learn on."""
    network = copy.deepcopy(start).train()
    field = ClusterBatch(world, CLUSTERS, seed, network.attributions, pareto=pareto)
    settings = HiPpoSettings(
        PpoSettings(lr=3e-4, gae_lambda=0.9, entropy_coef=0.003, num_steps=2048, update_epochs=3, minibatch_size=512,
                    target_kl=0.03)
    )  # fmt: skip
    trainer = Trainer(network, [field], settings, seed)
    while trainer.decisions < decisions:
        trainer.iterate(trainer.decisions / decisions)
    return network


def outcome(network: HiPpoNetwork, world: World, episodes: int) -> np.ndarray:
    """Mean R_eff, R_util and -R_cost of held-out episodes."""
    field = ClusterBatch(world, episodes, FIRST_SEED, network.attributions)
    terms, finished = np.zeros((episodes, 3)), np.zeros(episodes, dtype=bool)
    with one_thread():
        while not finished.all():
            move = field.step(NetworkActor(network, None))
            terms[~finished] += move.terms[~finished] * field.scale
            finished |= move.ended
    return terms.mean(axis=0) * (1.0, 1.0, -1.0)


def main() -> None:
    """Print both fronts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=240_000, help="of all training together, for each side")
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--weights", default=str(SHIPPED), help="checkpoint to start from")
    options = parser.parse_args()
    world, start = build_scenario("cross-domain", "ou30"), load(options.weights)
    one = trained(start, world, options.decisions, 100_000, pareto=True)
    points: dict[str, list[np.ndarray]] = {"shipped": [], "conditioned": [], "separate": []}
    print("w_eff w_util w_cost |  shipped: R_eff  R_util -R_cost |  conditioned               |  trained for these")
    for number, weights in enumerate(WEIGHTS):
        own_world = weighted(world, weights)
        share = options.decisions // len(WEIGHTS)
        own = trained(start, own_world, share, 200_000 + 1000 * number, pareto=False)
        row = []
        for name, network in (("shipped", start), ("conditioned", one), ("separate", own)):
            points[name].append(outcome(network, own_world, options.episodes))
            row.append(" ".join(f"{value:8.1f}" for value in points[name][-1]))
        print(f"{weights[0]:5.1f} {weights[1]:6.1f} {weights[2]:6.1f} | {' | '.join(row)}", flush=True)
    every = np.concatenate([np.array(group) for group in points.values()])
    reference = every.min(axis=0) - 1.0
    volumes = {name: hypervolume(np.array(group), reference) for name, group in points.items()}
    for name, volume in volumes.items():
        print(f"hypervolume, {name}: {volume:.0f} ({volume / volumes['separate']:.3f} of the separate policies')")


if __name__ == "__main__":
    main()
