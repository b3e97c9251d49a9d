"""Trade-offs of agents asked with many reward weights: the volume they dominate, learnt with one w or with many.

    python benchmarks/hi_ppo_pareto.py --world cross-domain --groups 12 --seeds 3

Points are mean R_eff, R_util and −R_cost of a day, one for every w of ``WEIGHTS``, on held-out days that are the same
for all. The reference is the worst of every axis over all points of the table less a hundredth of its range. ``rule``
and the shipped numbers are asked with each w; ``one w`` has learnt from the rule's numbers with the preset's own
weights, ``drawn w`` with the same budget and weights drawn anew for every group. Compiled days, no thinking.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

import numpy as np

from attribution_sched.cluster.reward import total_of
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.scheduler.hi_ppo.checkpoint import load
from attribution_sched.scheduler.hi_ppo.policy_search import Days, Search, next_group
from attribution_sched.scheduler.hi_ppo.upper_agent import rule_theta
from attribution_sched.types import FloatArray
from research.hypervolume import hypervolume

WEIGHTS = ((1.0, 0.5, 0.5), (1.0, 0.0, 0.0), (0.2, 1.0, 0.2), (0.5, 0.25, 2.0), (0.25, 0.25, 4.0), (2.0, 0.5, 0.25))
"""w_eff, w_util, w_cost that policies are asked with."""

GROUP, LEARNING, HELD_OUT = 20, 8_000_000, 8_100_000


def weighed(world: World, w: tuple[float, float, float]) -> World:
    """The same world with other weights."""
    return replace(world, reward=replace(world.reward, w_eff=w[0], w_util=w[1], w_cost=w[2]))


def mean_return(days: Days, at: int, theta: FloatArray) -> float:
    """Of the days from a seed on, by the agents with these numbers."""
    return float(days.returns(theta, at).mean())


def learnt(pools: list[Days], drawn: bool, groups: int, seed: int) -> FloatArray:
    """Numbers after so many groups with the first weights, or with those that are drawn for each."""
    search, rng = Search.begun(), np.random.default_rng([seed, 17])
    for group in range(groups):
        days = pools[int(rng.integers(len(pools))) if drawn else 0]
        at = LEARNING + 10_000 * seed + group * days.days
        search = next_group(search, partial(mean_return, days, at), GROUP, seed)
    return search.theta


def main() -> None:
    """Learn, ask with every w, print the table."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--world", default="cross-domain")
    asked.add_argument("--groups", type=int, default=12)
    asked.add_argument("--days", type=int, default=24)
    asked.add_argument("--held-out", type=int, default=80)
    asked.add_argument("--seeds", type=int, default=3)
    given = asked.parse_args()
    world, weights = load_settings(given.world).build_world(), load()
    learning = [Days(weighed(world, w), given.days, weights) for w in WEIGHTS]
    judged = [Days(weighed(world, w), given.held_out, weights) for w in WEIGHTS]
    numbers = {"rule": [rule_theta()], "shipped": [weights.theta]}
    for name, drawn in (("one w", False), ("drawn w", True)):
        numbers[name] = [learnt(learning, drawn, given.groups, seed) for seed in range(given.seeds)]
    played = {
        name: [np.stack([days.sums(theta, HELD_OUT)[:, 2:5].mean(axis=0) for days in judged]) for theta in each]
        for name, each in numbers.items()
    }
    signs = np.array([1.0, 1.0, -1.0])
    every = np.concatenate([front * signs for fronts in played.values() for front in fronts])
    reach = every.max(axis=0) - every.min(axis=0)
    floor = every.min(axis=0) - 0.01 * reach
    print(f"`{given.world}`, {given.held_out} held-out days, {len(WEIGHTS)} w, {given.groups} groups of {GROUP} on")
    print(f"{given.days} days, {given.seeds} seeds; volume over that of `rule`; return at each w over `rule`\n")
    print("| numbers | volume | " + " | ".join(str(w) for w in WEIGHTS) + " |")
    print("|---|---|" + "---:|" * len(WEIGHTS))
    base = played["rule"][0]
    whole = hypervolume(base * signs, floor)
    for name, fronts in played.items():
        volumes = np.array([hypervolume(front * signs, floor) / whole for front in fronts])
        half = 1.96 * volumes.std(ddof=1) / np.sqrt(len(volumes)) if len(volumes) > 1 else 0.0
        over = [np.mean([total_of(f[i] - base[i], np.array(w)) for f in fronts]) for i, w in enumerate(WEIGHTS)]
        spread = f" ± {half:.3f}" if half else ""
        print(f"| {name} | {volumes.mean():.3f}{spread} | " + " | ".join(f"{each:+.2f}" for each in over) + " |")


if __name__ == "__main__":
    main()
