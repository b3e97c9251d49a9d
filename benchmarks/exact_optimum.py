"""How long the exact optimum of one decision takes, how often it is proven, and whether brute force ever disagrees.

    python benchmarks/exact_optimum.py                   # about four minutes
    python benchmarks/exact_optimum.py --instances 1     # a quick look

Chains of 26 (OPT-350M), 35 (LLaMA-3-8B) and 101 layers (LLaMA-3-8B in thinner blocks) over K pools of A100-80, A100-40
and V100-16 in random AWS regions, bandwidth within 30 % of what was measured, 64 samples a step, least step time. CPU
seconds on one core with kernels compiled and every cache of the solver empty; median over instances, and the longest.
Instances on which nothing fits memory are passed over.

``proven`` counts the instances on which the search was exhaustive. For the others ``gap`` is the most by which the plan
found could be missed: 1 - bound / value, the largest; ``none`` means that the search was left without a bound.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scheduler_instances import chain_instance

from attribution_sched.planning.exact.solver import ExactSolver, Solution

sys.path.insert(0, str(Path(__file__).parents[1]))

DOMAINS = (2, 4, 6, 8, 10)
LAYERS = (26, 35, 101)
INSTANCES = 3
TRIED = 40
"""Instances looked at in search of some on which the model fits."""

SEEDS = 300
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Setting:
    """What may be chosen.

    Attributes:
        label: Readable name.
        single: One card per pool and one microbatch size.
        segments: Most domains in a plan; all if None.
        replicate: Whether the model may be replicated.
        long_instances: Instances of 101 layers; the full number if None.
    """

    label: str
    single: bool
    segments: int | None
    replicate: bool
    long_instances: int | None = None


SETTINGS = (
    Setting("one card per domain, one microbatch size: order and cuts alone, over all K", True, None, False),
    Setting("pools of 1, 2 or 4, four microbatch sizes, at most 4 domains, replicas too", False, 4, True, 1),
    Setting("pools of 1, 2 or 4, four microbatch sizes, over all K, no replicas", False, None, False, 1),
)


def solve(setting: Setting, layers: int, domains: int, seed: int) -> tuple[Solution | None, float]:
    """Solve one instance from scratch; the solution and CPU seconds."""
    most = domains if setting.segments is None else setting.segments
    task = chain_instance(layers, domains, seed, most, single=setting.single).problem(replicate=setting.replicate)
    begun = time.process_time()
    found = ExactSolver().try_solve(task)
    return found, time.process_time() - begun


def row(setting: Setting, layers: int, domains: int, instances: int) -> str:
    """One line of the table."""
    if layers == max(LAYERS) and setting.long_instances is not None:
        instances = min(instances, setting.long_instances)
    found, seconds = [], []
    for seed in range(TRIED):
        solution, took = solve(setting, layers, domains, seed)
        if solution is not None:
            found.append(solution)
            seconds.append(took)
        if len(found) == instances:
            break
    if not found:
        return f"{layers:>6}{domains:>4}   nothing fits"
    gap = max(1.0 - s.bound / s.value for s in found)
    gap_text = "none" if np.isinf(gap) else f"{gap:.1%}"
    proven = f"{sum(s.proven for s in found)}/{len(found)}"
    tried, priced = (int(np.median([getattr(s, field) for s in found])) for field in ("tried", "priced"))
    return (
        f"{layers:>6}{domains:>4}{np.median(seconds):>10.3f}{max(seconds):>10.3f}{proven:>9}{gap_text:>8}"
        f"{tried:>13,}{priced:>10,}"
    )


def mismatches(seeds: int) -> tuple[int, int, int]:
    """Disagreements with brute force, solutions not proven, and plans that brute force priced."""
    from tests.planning.exact.instances import brute_force, random_problem

    wrong = unproven = plans = 0
    for seed in range(seeds):
        task = random_problem(seed)
        truth, count = brute_force(task)
        found = ExactSolver().try_solve(task)
        value = float("inf") if found is None else found.value
        plans += count
        unproven += found is not None and not found.proven
        wrong += not (value == truth or abs(value - truth) <= TOLERANCE * max(1.0, abs(truth)))
    return wrong, unproven, plans


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=INSTANCES, help="instances per row")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="small instances compared with brute force")
    parser.add_argument("--only-brute-force", action="store_true", help="the last line alone")
    given = parser.parse_args()
    if given.only_brute_force:
        _print_mismatches(given.seeds)
        return
    for setting in SETTINGS:  # Compiles every kernel.
        solve(setting, min(LAYERS), 3, 0)
    for setting in SETTINGS:
        print(setting.label)
        heads = f"{'layers':>6}{'K':>4}{'median s':>10}{'longest':>10}{'proven':>9}{'gap':>8}"
        print(heads + f"{'looked at':>13}{'priced':>10}")
        for layers in LAYERS:
            for domains in DOMAINS:
                print(row(setting, layers, domains, given.instances), flush=True)
        print()
    _print_mismatches(given.seeds)


def _print_mismatches(seeds: int) -> None:
    wrong, unproven, plans = mismatches(seeds)
    print(
        f"brute force over {plans:,} plans of {seeds} small instances (cuts, layouts, formats, replicas, five "
        f"objectives): {wrong} mismatches, {unproven} not proven"
    )


if __name__ == "__main__":
    main()
