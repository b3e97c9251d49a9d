"""How long Hi-PPO takes to decide: both levels, the local search, thinking, everything; one thread.

    python benchmarks/hi_ppo_latency.py                        # 4, 8 and 64 domains, thinking
    python benchmarks/hi_ppo_latency.py --scenarios ou30       # a quick look
    python benchmarks/hi_ppo_latency.py --scenarios cross-domain   # a preset
    python benchmarks/hi_ppo_latency.py --wall                 # by the clock instead of processor time

Days of the arena are played until enough decisions were taken at which something could be placed or moved. "Upper" is
what is free and next released, the masks and the choices of task, domains and cuts; "lower" all lower agents together;
"search" the local search around the proposal; "think" the copies that are played on; "all" the whole coordination with
reading the view and the forecast. Processor time, because others' load is no property of the policy.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time

import numpy as np
from fork_gain import world_of

from attribution_sched import kernels
from attribution_sched.cluster.decision import Decision
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.coordinator import Coordination, HiPpo

FIRST_SEED = 1_000_000


class Watched(HiPpo):
    """Keeps how every coordination went."""

    def __init__(self, weights: str | None, wall: bool) -> None:
        super().__init__(weights, think=True, clock=kernels.clock if wall else time.process_time)
        self.seen: list[Coordination] = []

    def coordinate(self, view: Decision, *, others: int | None = None) -> Coordination:
        """Coordinate and remember."""
        found = super().coordinate(view, others=others)
        if found.upper_s > 0.0:
            self.seen.append(found)
        return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", default="ou30,domains-8,domains-64")
    parser.add_argument("--warm", type=int, default=5, help="days played before the clock starts")
    parser.add_argument("--decisions", type=int, default=300)
    parser.add_argument("--weights", default=None, help="a checkpoint; the shipped one by default")
    parser.add_argument("--wall", action="store_true", help="by the clock")
    options = parser.parse_args()
    print(f"p50 / p99 / largest, ms of {'the clock' if options.wall else 'processor time'}\n")
    print("| scenario | decisions | upper | lower | search | think | all | fallbacks |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for scenario in options.scenarios.split(","):
        world = world_of(scenario)
        policy = Watched(options.weights, options.wall)
        seed = FIRST_SEED
        # The first days fill the tables of what fits where.
        for _ in range(options.warm):
            play(world, policy, seed)
            seed += 1
        policy.seen.clear()
        while len(policy.seen) < options.decisions:
            play(world, policy, seed)
            seed += 1
        columns = []
        for part in ("upper_s", "lower_s", "search_s", "think_s", "total_s"):
            values = 1e3 * np.array([getattr(found, part) for found in policy.seen])
            columns.append(f"{np.percentile(values, 50):.1f} / {np.percentile(values, 99):.1f} / {values.max():.1f}")
        late = sum(found.source.startswith("fallback") for found in policy.seen)
        print(f"| `{scenario}` | {len(policy.seen)} | {' | '.join(columns)} | {late} |", flush=True)


if __name__ == "__main__":
    main()
