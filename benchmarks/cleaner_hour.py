"""Waiting for a cleaner hour where only time is left to choose: one site on California's grid, tasks of half a day.

    python benchmarks/cleaner_hour.py --draws 6 --price 1

Tasks come rarely and run for about half a day on all eight devices; ``rule+fork`` looks a day ahead. The same arrivals
are decided twice: with waiting for a cleaner hour among the choices, and with that choice cut. Time has its usual
weight; cost weighs 2, and carbon has the price that is asked for. Told are grams for the same work, hours of waiting,
and how often waiting was on offer and taken, with 95 % intervals over draws.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.live import PolicyCall, SimulatedCluster
from attribution_sched.cluster.plan import Plan
from attribution_sched.config import Settings, load_settings
from attribution_sched.scheduler import thinking
from attribution_sched.scheduler.hi_ppo.rule import RuleFork
from attribution_sched.scheduler.thinking import Think
from attribution_sched.stats.bootstrap import PairedBootstrap

THINK = Think(hours=24.0, arrivals=1e6)
"""A day ahead: a cleaner hour that comes after the end of all copies is not worth waiting for in any of them."""


def site(price: float) -> Settings:
    """One site in California that pays for carbon."""
    return load_settings(
        {
            "name": "one-site",
            "domains": [{"name": "california", "carbon": {"kind": "grid", "grid": "CISO", "seed": 1}}],
            "domain_defaults": {"gpu": "A100-80", "devices": 8, "node_devices": 8},
            "network": {"links": {"kind": "uniform", "gbps": 5.0, "latency_s": 0.02, "usd_per_gb": 0.08}},
            "kinds": [
                {"model": "bert-large", "batch_size": 64, "microbatches": [4, 8, 16, 32], "steps": [40000, 80000],
                 "epoch_steps": 1000}
            ],
            "arrivals": {"kind": "poisson", "rate_per_hour": 0.05},
            "episode": {"horizon_s": 172800.0, "max_segments": 2, "max_running": 6, "queue_capacity": 4,
                        "pool_size": 64},
            "reward": {"w_eff": 1.0, "w_util": 0.0, "w_cost": 2.0, "energy_usd_per_kwh": 0.1,
                       "carbon_usd_per_kg": price},
        }
    )  # fmt: skip


class Counting(RuleFork):
    """Counts how often waiting for a cleaner hour was on offer, and taken."""

    offered = taken = 0

    def decide(self, view: Decision) -> Plan | None:
        """The policy's plan."""
        plan = super().decide(view)
        thought = getattr(self.last, "thought", None)
        if thought is not None:
            self.offered += any(option.later is not None for option in thought.options)
            self.taken += thought.options[thought.chosen].later is not None
        return plan


def played(price: float, seed: int, hours: float, *, waits: bool) -> dict[str, float]:
    """Some days of the site: grams, work and waiting."""
    before = thinking.WAITED_SHARE
    thinking.WAITED_SHARE = before if waits else 0.0
    try:
        cluster, call = SimulatedCluster(site(price).build_world(), seed), PolicyCall()
        policy = Counting(think=THINK)
        while cluster.advance(3600.0 * hours) and cluster.now_s < 3600.0 * hours:
            answer = call.ask(policy, cluster)
            cluster.carry_out(call.encode(cluster, answer))
            call.note(answer)
    finally:
        thinking.WAITED_SHARE = before
    sums = cluster.totals()
    return {
        "carbon_g": sums["carbon_g"], "kwh": sums["task_j"] / 3.6e6, "steps": sums["steps_done"],
        "offered": policy.offered, "taken": policy.taken, "waiting_h": sums["wait_s"] / 3600.0,
        "completed": sums["completed"],
    }  # fmt: skip


def main() -> None:
    """Play what is not kept yet, and print."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--draws", type=int, default=6)
    asked.add_argument("--seed", type=int, default=4_200)
    asked.add_argument("--hours", type=float, default=240.0)
    asked.add_argument("--price", type=float, default=1.0, help="USD per kg of carbon")
    asked.add_argument("--keep", type=Path, help="file of draws that were played, a JSON line each; more are added")
    args = asked.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    if args.keep is not None and args.keep.exists():
        rows = dict(json.loads(line) for line in args.keep.read_text("utf-8").splitlines())
    for seed in range(args.seed, args.seed + args.draws):
        for waits in (True, False):
            key = f"{args.price:g}/{args.hours:g}/{seed}/{'waits' if waits else 'cut'}"
            if key not in rows:
                rows[key] = played(args.price, seed, args.hours, waits=waits)
                if args.keep is not None:
                    with args.keep.open("a", encoding="utf-8") as file:
                        file.write(json.dumps([key, rows[key]]) + "\n")
    keys = [f"{args.price:g}/{args.hours:g}/{args.seed + at}" for at in range(args.draws)]
    with_, without = ([rows[f"{key}/{how}"] for key in keys] for how in ("waits", "cut"))
    boot = PairedBootstrap(args.draws, seed=0)
    grams, waited = (
        boot.estimate(boot.means(np.array([change(a, b) for a, b in zip(with_, without, strict=True)])))
        for change in (
            lambda a, b: 100.0 * (a["carbon_g"] / a["steps"] / (b["carbon_g"] / b["steps"]) - 1.0),
            lambda a, b: (a["waiting_h"] - b["waiting_h"]) / max(1.0, b["completed"]),
        )
    )
    offered, taken = (int(sum(row[name] for row in with_)) for name in ("offered", "taken"))
    print(f"{args.draws} draws of {args.hours:g} h at {args.price:g} USD/kg: on offer {offered} times, taken {taken}")
    print(f"grams for the same work {grams.value:+.1f} % [{grams.low:+.1f}, {grams.high:+.1f}] over waiting cut")
    print(f"hours of waiting per task {waited.value:+.2f} [{waited.low:+.2f}, {waited.high:+.2f}]")


if __name__ == "__main__":
    main()
