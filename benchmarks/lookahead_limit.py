"""How far policies are from the look-ahead bound on small worlds: return and share of the limit, with intervals.

    python benchmarks/lookahead_limit.py                      # 12 episodes of each world
    python benchmarks/lookahead_limit.py --episodes 20 --output DIR   # also writes lookahead.json there
    python benchmarks/lookahead_limit.py --policies 'hi-ppo,hi-ppo[quick],rule,rule+fork,sjf'

Three domains of two devices, a ±30 % network, a few tasks in an episode. Models of the catalogue are merged into three
or four blocks of layers, so that every plan there is can be listed. In ``wandering`` every task is a GPT-3 13B that
fits no domain and must span two or three. ``cut`` is the same with the fastest link down to a tenth from hour 2 to 4.
In ``queue`` smaller models come too, and tasks stand in each other's way. The bound leaves that out: there, part of the
distance is contention and not lack of foresight.
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
from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.incidents import LinkCut
from attribution_sched.cluster.models import Layer, Model, model
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Runtime, TaskKind, World
from attribution_sched.rivals.arena.play import evaluate, held_out_seeds
from attribution_sched.rivals.arena.report import interval
from research.lookahead import Clairvoyant

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
    small = TaskKind(in_blocks("gpt3-xl", 3), 32, (4, 4, 8, 8), (400, 1600), 200)
    large = TaskKind(in_blocks("gpt3-13b"), 32, (1, 1, 4, 4), (300, 900), 20)
    wandering = World(
        Cluster(domains, wan, Runtime()), (large,), Poisson(0.2), horizon_s=6 * 3600.0, pool_size=12, max_running=6,
        queue_capacity=6, share_limit=1, max_segments=3,
    )  # fmt: skip
    return {
        "wandering": wandering,
        "cut": replace(wandering, incidents=(LinkCut(0, 1, 2 * 3600.0, 4 * 3600.0, 0.1),)),
        "queue": replace(wandering, kinds=(small, large), arrivals=Poisson(1.5), horizon_s=3 * 3600.0),
    }


def main() -> None:
    """Print one table per world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policies", type=lambda text: tuple(text.split(",")), default=POLICIES)
    parser.add_argument("--worlds", type=lambda text: tuple(text.split(",")), default=tuple(worlds()))
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    seeds = held_out_seeds(chosen.episodes, chosen.seed)
    report: dict[str, object] = {"episodes": chosen.episodes, "seed": chosen.seed}
    for name, world in ((name, world) for name, world in worlds().items() if name in chosen.worlds):
        began = time.perf_counter()
        seer = Clairvoyant(world)
        limits = [seer.limit(seed) for seed in seeds]
        bounds = [found.reward for found in limits]
        took_s = time.perf_counter() - began
        result = evaluate(chosen.policies, {name: world}, chosen.episodes, chosen.seed, bounds={name: bounds})
        tasks = sum(len(found.arrivals) for found in limits)
        listed, useful = (max((row[c] for found in limits for row in found.plans), default=0) for c in (0, 1))
        print(f"\n## {name}\n\n{tasks} tasks in {chosen.episodes} episodes; up to {listed:,} plans, of which up to")
        print(f"{useful} are worth having; the bound takes {took_s / max(1, tasks):.2f} s per task.\n")
        print("| policy | return [95 %] | share of the limit [95 %] | moves |\n|---|---|---|---|")
        table = {}
        for row in result.scenarios[0].rows:
            earned = [record.summary.reward for record in result.records if record.policy == row.policy]
            above = max(own - bound for own, bound in zip(earned, bounds, strict=True))
            if above > 1e-6:
                raise RuntimeError(f"{row.policy} earns {above:g} more than the bound in {name}")
            cells = (interval(row.metrics["return"], "{:+.3f}"), interval(row.share, "{:.1%}"))
            print(f"| {row.policy} | {' | '.join(cells)} | {row.metrics['moves'].value:.2f} |")
            table[row.policy] = {"return": row.metrics["return"].value, "share_of_limit": row.share.value}
        print(f"| limit | {np.mean(bounds):+.3f} | 100 % | |")
        report[name] = {"limit": float(np.mean(bounds)), "seconds": took_s, "tasks": tasks, "policies": table}
    if chosen.output:
        chosen.output.mkdir(parents=True, exist_ok=True)
        (chosen.output / "lookahead.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
