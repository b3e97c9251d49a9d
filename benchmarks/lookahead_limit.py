"""How far policies are from the look-ahead bound on small worlds: return and share of the limit, with intervals.

    python benchmarks/lookahead_limit.py                      # 12 episodes of each world
    python benchmarks/lookahead_limit.py --episodes 20 --output DIR   # also writes lookahead.json there

Three domains of two devices, a ±30 % network, a handful of tasks in four hours. Models of the catalogue are cut into
four blocks of layers, so that every plan there is can be listed. In ``large models`` the larger kind does not fit a
domain and must span two or three; in ``queue`` tasks come three times as often and wait for each other, which the bound
leaves out: there part of the distance is contention, not lack of foresight.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from attribution_sched.cluster.arrivals import Poisson
from attribution_sched.cluster.domains import Cluster, Domain
from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.layers import Layer, Model
from attribution_sched.cluster.runtime import Runtime
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import TaskKind, World
from attribution_sched.cluster.zoo import model
from attribution_sched.scheduler.arena import evaluate, held_out_seeds
from attribution_sched.scheduler.lookahead import Clairvoyant

POLICIES = ("static-uniform", "greedy", "exact", "exact-resolve", "exact-switch")
SUMS = (
    "params", "conv_flops", "fc_flops", "attention_flops", "activation_elements", "score_elements", "moved_elements",
    "tp_reduced_elements",
)  # fmt: skip


def in_blocks(name: str, blocks: int = 4) -> Model:
    """A model of the catalogue with its layers merged into a few blocks of equal length."""
    whole = model(name)
    edges = np.linspace(0, len(whole), blocks + 1).round().astype(int)
    merged = []
    for number, (first, stop) in enumerate(pairwise(edges)):
        part = whole.layers[first:stop]
        sums = {field: float(sum(getattr(layer, field) for layer in part)) for field in SUMS}
        merged.append(
            Layer(
                name=f"{name} {number}", kind="block", input_elements=part[0].input_elements,
                output_elements=part[-1].output_elements, tp_sharded=True, **sums,
            )
        )  # fmt: skip
    return replace(whole, name=f"{name}-{blocks}", layers=tuple(merged))


def worlds() -> dict[str, World]:
    """The worlds of the table, by name."""
    names = ("west", "east", "north")
    wan = Wan(
        names,
        bandwidth_gbps=np.array([[100.0, 8.0, 7.0], [8.0, 100.0, 6.0], [7.0, 6.0, 100.0]]),
        latency_s=np.array([[1e-4, 0.02, 0.04], [0.02, 1e-4, 0.05], [0.04, 0.05, 1e-4]]),
        price_usd_per_gb=np.array([[0.0, 0.02, 0.02], [0.02, 0.0, 0.05], [0.02, 0.05, 0.0]]),
        spread=0.2,
    )
    cards = ("A100-80",) * 3
    domains = tuple(Domain(name, gpu(card), 2, node_devices=2) for name, card in zip(names, cards, strict=True))
    small = TaskKind(in_blocks("gpt3-xl"), 32, (4, 4, 8, 8), (400, 1600), 200)
    large = TaskKind(in_blocks("gpt3-13b"), 32, (1, 1, 4, 4), (200, 600), 20)
    spanning = World(
        Cluster(domains, wan, Runtime()), (small, large), Poisson(0.8), horizon_s=4 * 3600.0, pool_size=12,
        max_running=6, queue_capacity=6, share_limit=1, max_segments=3,
    )  # fmt: skip
    return {"large models": spanning, "queue": replace(spanning, arrivals=Poisson(2.4))}


def main() -> None:
    """Print one table per world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    seeds = held_out_seeds(chosen.episodes, chosen.seed)
    report: dict[str, object] = {"episodes": chosen.episodes, "seed": chosen.seed}
    for name, world in worlds().items():
        began = time.perf_counter()
        seer = Clairvoyant(world)
        limits = [seer.limit(seed) for seed in seeds]
        bounds = [found.reward for found in limits]
        took_s = time.perf_counter() - began
        result = evaluate(POLICIES, {name: world}, chosen.episodes, chosen.seed, bounds={name: bounds})
        tasks = sum(len(found.arrivals) for found in limits)
        rows = [row for found in limits for row in found.plans]
        print(f"\n## {name}\n")
        print(f"{tasks} tasks in {chosen.episodes} episodes, {max((r[0] for r in rows), default=0):,} plans at most, of ")
        print(f"which {max((r[1] for r in rows), default=0)} at most are worth having; bound in {took_s / max(1, tasks):.2f} s per task.\n")
        print("| policy | return | share of the limit |\n|---|---|---|")
        table = {}
        for row in result.scenarios[0].rows:
            earned, share = row.metrics["return"], row.share_of_limit
            above = [r.summary.reward - b for r, b in zip((r for r in result.records if r.policy == row.policy), bounds, strict=True)]
            if max(above) > 1e-6:
                raise RuntimeError(f"{row.policy} earns {max(above):g} more than the bound in {name}")
            print(f"| {row.policy} | {earned.text()} | {share.text()} |")
            table[row.policy] = {"return": earned.mean, "share_of_limit": share.mean}
        print(f"| limit | {np.mean(bounds):.3f} | 100 % |")
        report[name] = {"limit": float(np.mean(bounds)), "seconds": took_s, "tasks": tasks, "policies": table}
    if chosen.output:
        chosen.output.mkdir(parents=True, exist_ok=True)
        (chosen.output / "lookahead.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
