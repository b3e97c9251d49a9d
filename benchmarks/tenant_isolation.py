"""Does one tenant that hands in ten times as much push the others back? Philly's tenants, with and without shares.

    python benchmarks/tenant_isolation.py --draws 5 --seed 41 --hours 12 --keep draws.jsonl

Tasks of the preset ``shared`` (requests, durations and tenants drawn as fitted to the Philly log) come over some hours.
Every task of the tenant with most tasks then comes ten times, a minute apart; the others' tasks are the same ones at
the same times. Told is how long the others wait for their start, before and after: the mean over draws of arrivals of
the median and of the mean, with 95 % intervals, and the 90th percentile. What has not started by the end counts with
the time it has waited.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from attribution_sched.cluster.live import PolicyCall, SimulatedCluster, TaskInstance
from attribution_sched.config import load_settings
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.stats.bootstrap import PairedBootstrap
from attribution_sched.types import FloatArray

TICK_S = 300.0


def waits_h(policy: str, rule: str, seed: int, hours: float, times: int, loud: str) -> tuple[FloatArray, str, float]:
    """Hours that each task of the other tenants waits; the loud tenant; utilisation."""
    world = replace(load_settings("shared").build_world(), share_rule=rule, tick_s=TICK_S)
    cluster, asked = SimulatedCluster(world, seed, arrivals=False), PolicyCall()
    rng = np.random.default_rng([seed, 23])
    count = rng.poisson(16.0 * hours)
    came_s = np.sort(rng.uniform(0.0, 3600.0 * hours, count))
    rows = rng.integers(len(cluster._tasks), size=count)
    made = [cluster._tasks.instance(int(row), world.kinds) for row in rows]
    loud = loud or Counter(task.tenant for task, _ in made).most_common(1)[0][0]
    coming = []
    for at, (time_s, (task, demands)) in enumerate(zip(came_s.tolist(), made, strict=True)):
        copies = range(times if task.tenant == loud else 1)
        coming += [(time_s + 60.0 * copy, f"{at}.{copy}", TaskInstance(task, demands)) for copy in copies]
    coming.sort(key=lambda each: each[0])
    chosen, arrived, started, tenants = make_policy(policy), {}, {}, {}
    end_s, skipped_s = 3600.0 * hours, 0.0
    while cluster.now_s + skipped_s < end_s:
        if coming and not (cluster.waiting or cluster.running):
            # An empty cluster's clock stands still until somebody comes.
            skipped_s = max(skipped_s, coming[0][0] - cluster.now_s)
        while coming and coming[0][0] <= cluster.now_s + skipped_s:
            _, name, instance = coming.pop(0)
            arrived[name], tenants[name] = cluster.now_s + skipped_s, instance.task.tenant
            cluster.hand_in(instance, name)
        until_s = min(coming[0][0] if coming else end_s, end_s) - skipped_s
        if not cluster.advance(until_s):
            if not coming and not cluster.running:
                break
            continue
        answer = asked.ask(chosen, cluster)
        name = answer.view.task.id if answer.view.task is not None else ""
        outcome = cluster.carry_out(asked.encode(cluster, answer))
        asked.note(answer)
        if outcome.code == 1 and name not in started:
            started[name] = cluster.now_s + skipped_s
    others = [name for name in arrived if tenants[name] != loud]
    waited = [(started.get(name, end_s) - arrived[name]) / 3600.0 for name in others]
    busy = cluster.totals()["busy_device_s"] / (world.cluster.devices * end_s)
    return np.array(waited), loud, busy


def main() -> None:
    """Play what is not kept yet, and print."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--draws", type=int, default=5, help="draws of arrivals")
    asked.add_argument("--seed", type=int, default=41)
    asked.add_argument("--hours", type=float, default=48.0)
    asked.add_argument("--policies", default="fcfs,sjf")
    asked.add_argument("--rules", default="none,fair-share")
    asked.add_argument("--keep", type=Path, help="file of draws that were played, a JSON line each; more are added")
    args = asked.parse_args()
    played: dict[str, tuple[list[float], float]] = {}
    if args.keep is not None and args.keep.exists():
        for line in args.keep.read_text("utf-8").splitlines():
            row = json.loads(line)
            played[row["key"]] = row["waits_h"], row["busy"]
    combinations = list(product(args.policies.split(","), args.rules.split(","), (1, 10)))
    for draw, (policy, rule, times) in product(range(args.seed, args.seed + args.draws), combinations):
        key = f"{policy}/{rule}/{times}/{draw}/{args.hours:g}"
        if key not in played:
            waits, _, busy = waits_h(policy, rule, draw, args.hours, times, "")
            played[key] = waits.tolist(), busy
            if args.keep is not None:
                with args.keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"key": key, "waits_h": played[key][0], "busy": busy}) + "\n")
    print(
        "policy     share rule  times  hours others wait: mean of the draws' medians, of their means; p90; tasks; busy"
    )
    boot = PairedBootstrap(args.draws, seed=0)
    for policy, rule, times in combinations:
        keys = [f"{policy}/{rule}/{times}/{args.seed + at}/{args.hours:g}" for at in range(args.draws)]
        draws = [np.array(played[key][0]) for key in keys]
        middle = boot.estimate(boot.means(np.array([np.median(each) for each in draws])))
        mean = boot.estimate(boot.means(np.array([each.mean() for each in draws])))
        everybody = np.concatenate(draws)
        print(
            f"{policy:10s} {rule:11s} {times:5d} {middle.value:7.2f} [{middle.low:.2f}, {middle.high:.2f}]"
            f"  mean {mean.value:.2f} [{mean.low:.2f}, {mean.high:.2f}] p90 {np.quantile(everybody, 0.9):7.2f}"
            f" {len(everybody):6d} {np.mean([played[key][1] for key in keys]):6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
