"""Edge-conditioned GraphSAGE, GINE and GATv2 as encoder of Hi-PPO under the same small training.

    python benchmarks/hi_ppo_encoders.py                       # about five minutes of one core
    python benchmarks/hi_ppo_encoders.py --seeds 1 --decisions 480 --compared 24 --episodes 8

Within a seed all three imitate the same decisions of the rule and learn from the same comparisons of choices (made
once, around a clone with the default encoder), so they differ in the encoder alone. Then they play held-out days
greedily, without the local search. Processor seconds are those of imitating and preferring; making the lessons and
comparisons, which all three share, is not in them.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from field_days import interval, play_days

from attribution_sched.cluster.world import World
from attribution_sched.config.scenarios import build_scenario
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.cloning import Lesson, clone, watch
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.counterfactual_rollouts import Comparison, compare, prefer
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork, NetworkSize
from attribution_sched.scheduler.hi_ppo.teachers import ShortestFirst
from attribution_sched.scheduler.hi_ppo.topology_encoder import Conv
from attribution_sched.training_phases import attribute

CONVS: tuple[Conv, ...] = get_args(Conv)
SCENARIOS = ("ou30", "domains-8")
CLUSTERS, COPIES, BETWEEN, EPOCHS, MINIBATCH = 24, 192, 12, 4, 64
FIRST_SEED = 980_000


def begun(conv: Conv, world: World, seed: int) -> HiPpoNetwork:
    """A network that has learnt nothing."""
    network = HiPpoNetwork(NetworkSize(conv=conv), torch.Generator().manual_seed(seed))
    attribute(network)
    return network


def lessons_of(worlds: dict[str, World], network: HiPpoNetwork, seed: int, decisions: int) -> list[Lesson]:
    """Decisions of the rule in every world."""
    found = []
    with one_thread():
        for i, world in enumerate(worlds.values()):
            field = ClusterBatch(world, CLUSTERS, 10_000 * seed + 500 * i, network.attributions)
            found.append(watch(field, ShortestFirst(), math.ceil(decisions / CLUSTERS), 0.99))
    return found


def compared(worlds: dict[str, World], network: HiPpoNetwork, seed: int, decisions: int) -> list[Comparison]:
    """Choices tried side by side in every world, around those of a network."""
    found, rng, rule = [], np.random.default_rng(seed), ShortestFirst()
    with one_thread():
        for i, world in enumerate(worlds.values()):
            field = ClusterBatch(world, CLUSTERS, 10_000 * seed + 500 * i + 5000, network.attributions)
            copies = ClusterBatch(world, COPIES, 0, network.attributions)
            for _ in range(math.ceil(decisions / CLUSTERS)):
                for _ in range(BETWEEN):
                    field.step(NetworkActor(network, None) if rng.random() < 0.5 else rule)
                one = compare(network, field, copies, rule, rng, futures=1, hours=6.0)
                found += [] if one is None else [one]
    return found


def trained(
    network: HiPpoNetwork, lessons: list[Lesson], comparisons: list[Comparison], seed: int
) -> dict[str, list[float] | float]:
    """Let a network imitate, then prefer; what it took."""
    start = time.process_time()
    losses = clone(network, lessons, EPOCHS, 1e-3, MINIBATCH, torch.Generator().manual_seed(seed))
    cloned = time.process_time() - start
    reached = prefer(network, comparisons, lessons, EPOCHS, 3e-4, np.random.default_rng(seed), 0.3)
    whole = time.process_time() - start
    return {"loss": losses[-1], "worth": reached[-1], "clone_s": cloned, "prefer_s": whole - cloned}


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--decisions", type=int, default=1800, help="imitated in each world")
    parser.add_argument("--compared", type=int, default=48, help="decisions compared in each world")
    parser.add_argument("--episodes", type=int, default=48, help="held-out days; a third as many with 8 domains")
    parser.add_argument("--output", type=Path, help="keep every run here (JSON), and reuse those already in it")
    given = parser.parse_args()
    worlds = {name: build_scenario("cross-domain", name) for name in SCENARIOS}
    first, runs = worlds[SCENARIOS[0]], {}
    if given.output is not None and given.output.exists():
        runs = json.loads(given.output.read_text(encoding="utf-8"))
    import_layers()
    for seed in range(given.seeds):
        missing = [conv for conv in CONVS if f"{conv}/{seed}" not in runs]
        if not missing:
            continue
        guide = begun("edge-sage", first, 1000 + seed)
        lessons = lessons_of(worlds, guide, seed, given.decisions)
        clone(guide, lessons, EPOCHS // 2, 1e-3, MINIBATCH, torch.Generator().manual_seed(1000 + seed))
        comparisons = compared(worlds, guide, seed, given.compared)
        for conv in missing:
            network = begun(conv, first, seed)
            run: dict[str, Any] = dict(trained(network, lessons, comparisons, seed))
            for name, world in worlds.items():
                start, days = time.process_time(), given.episodes if name == SCENARIOS[0] else given.episodes // 3
                found = play_days(world, NetworkActor(network, None), days, FIRST_SEED, network.attributions)
                run |= {name: found.returns.tolist(), f"{name} s": time.process_time() - start}
            runs[f"{conv}/{seed}"] = run
            if given.output is not None:
                given.output.write_text(json.dumps(runs), encoding="utf-8")
            print(conv, seed, {k: round(v, 2) for k, v in run.items() if isinstance(v, float)}, flush=True)
    report(runs, given.seeds)


def import_layers() -> None:
    """Import torch-geometric now, so that it counts in nobody's time."""
    import torch_geometric.nn  # noqa: F401


def report(runs: dict[str, Any], seeds: int) -> None:
    """Print the table; intervals are over seeds."""
    print("\n| encoder | ou30 | over edge-sage | domains-8 | over edge-sage | loss | CPU s cloning | preferring |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    own = [[runs[f"{CONVS[0]}/{seed}"][name] for name in SCENARIOS] for seed in range(seeds)]
    for conv in CONVS:
        ones = [runs[f"{conv}/{seed}"] for seed in range(seeds)]
        words = []
        for i, name in enumerate(SCENARIOS):
            apart = np.array([np.mean(one[name]) - np.mean(own[seed][i]) for seed, one in enumerate(ones)])
            gap = "" if conv == CONVS[0] else interval(apart)
            words.append(f"{np.mean([np.mean(one[name]) for one in ones]):.1f} | {gap}")
        costs = [np.mean([one[part] for one in ones]) for part in ("loss", "clone_s", "prefer_s")]
        print(f"| {conv} | {words[0]} | {words[1]} | {costs[0]:.3f} | {costs[1]:.1f} | {costs[2]:.1f} |")


if __name__ == "__main__":
    main()
