"""Shares of a bill: time of exact ones, error and coverage of sampled ones, distance of the usual rules.

    python benchmarks/bill_games.py [--games 40] [--seed 0]

Games are random schedules: tenants hold devices at some hours of a week. Distance is |share − exact| / exact over
payers whose exact share is not 0; the reference of 1,000 payers is a run of four times as many orders, so a part of the
distance is its own.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from attribution_sched.billing.games import ORDERS, peak_capacity


def schedule(players: int, hours: int, rng: np.random.Generator) -> np.ndarray:
    """Devices held by the hour, (players, hours): sessions of random length, size and hour of the day."""
    held = np.zeros((players, hours))
    for player in range(players):
        for _ in range(rng.integers(1, 8)):
            begin, length = rng.integers(hours), int(rng.lognormal(1.5, 1.0)) + 1
            held[player, begin : begin + length] += rng.choice([1, 2, 4, 8, 16], p=[0.4, 0.2, 0.2, 0.15, 0.05])
    return held


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    peak_capacity(schedule(4, 24, np.random.default_rng(0)))
    peak_capacity(schedule(30, 24, np.random.default_rng(0)), orders=32)

    rng = np.random.default_rng([asked.seed, 22])
    profile = schedule(22, 168, rng)
    began = time.process_time()
    exact = peak_capacity(profile)
    print(f"22 tenants, 168 h, all coalitions: {time.process_time() - began:.2f} CPU-s, in the core: {exact.in_core}")

    inside, off, rules, cores = [], [], {"device-hours": [], "own peak": []}, []
    for game in range(asked.games):
        profile = schedule(16, 168, np.random.default_rng([asked.seed, game]))
        truth = peak_capacity(profile)
        found = peak_capacity(profile, exact_limit=0, seed=game)
        pays = truth.values > 0
        gap = np.abs(found.values - truth.values)[pays]
        inside.append(gap <= found.half_width[pays])
        off.append(gap / truth.values[pays])
        cores.append(truth.in_core)
        for name, key in (("device-hours", profile.sum(axis=1)), ("own peak", profile.max(axis=1))):
            share = key / key.sum() * truth.total
            rules[name].append(np.abs(share - truth.values)[pays] / truth.values[pays])
    deviation = np.concatenate(off)
    print(
        f"16 tenants sampled ({ORDERS:,} orders), {asked.games} games: mean distance {deviation.mean():.2%}, worst "
        f"{deviation.max():.2%}, 95 % intervals cover {np.concatenate(inside).mean():.1%}"
    )
    print(f"Shapley value in the core: {np.mean(cores):.0%} of games")
    for name, gaps in rules.items():
        every = np.concatenate(gaps)
        worst = np.mean([gap.max() for gap in gaps])
        print(f"rule by {name}: mean distance {every.mean():.1%}, worst tenant of a game {worst:.0%}")

    profile = schedule(1000, 168, np.random.default_rng([asked.seed, 1000]))
    began = time.process_time()
    found = peak_capacity(profile)
    spent = time.process_time() - began
    truth = peak_capacity(profile, orders=4 * ORDERS, seed=1)
    pays = truth.values > 0
    gap = np.abs(found.values - truth.values)[pays]
    print(
        f"1,000 tenants sampled: {spent:.1f} CPU-s, mean distance {np.mean(gap / truth.values[pays]):.2%}, worst "
        f"{np.max(gap / truth.values[pays]):.1%}, intervals cover {np.mean(gap <= found.half_width[pays]):.1%}"
    )


if __name__ == "__main__":
    main()
