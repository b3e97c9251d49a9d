"""Hi-PPO beside its rivals on the shipped presets: the same days for everybody, resumable.

    python benchmarks/hi_ppo_presets.py --presets cross-domain,shared --days 8 --seed 2100000 --runs days.jsonl
    python benchmarks/hi_ppo_presets.py --runs days.jsonl --table

Every finished episode is a line of ``--runs``; episodes that are there are not played again. The table is over the days
that all of a preset's policies have played: return, work done, hours to completion, kWh and dollars, and the gain of
the last column's policy over each with its 95 % interval (paired bootstrap over days).
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.config.scenarios import build_scenario
from attribution_sched.scheduler.arena.stats import PairedBootstrap
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.registry import make_policy

POLICIES = "hi-ppo,hi-ppo[quick],rule,rule+fork,lucid,gavel-sharing,matching,pair-learner,exact-switch,sjf"
PRESETS = "cross-domain,shared,testbed,cross-domain-easy"
SHARED_HOURS = 36.0
"""Of ``shared``, whose episode is three days, this many hours are played."""

Row = dict[str, Any]


def world_of(name: str) -> World:
    """A preset, or a preset and one of its scenarios as ``preset:scenario``."""
    preset, _, scenario = name.partition(":")
    world = build_scenario(preset, scenario) if scenario else load_settings(preset).build_world()
    return replace(world, horizon_s=3600.0 * SHARED_HOURS) if preset == "shared" else world


def played(path: Path) -> list[Row]:
    """Episodes that were played before; a line that was cut off is none."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def dollars(row: Row) -> float:
    """Traffic, electricity and carbon of an episode."""
    return float(row["traffic_usd"] + row["electricity_usd"] + row["carbon_usd"])


def table(rows: list[Row], against: str) -> str:
    """One table per preset."""
    lines = []
    for preset in dict.fromkeys(row["preset"] for row in rows):
        by: dict[str, dict[int, Row]] = {}
        for row in rows:
            if row["preset"] == preset:
                by.setdefault(row["name"], {})[row["seed"]] = row
        days = sorted(set.intersection(*(set(found) for found in by.values())))
        lines += [
            "",
            f"`{preset}`, {len(days)} days, seeds {days[0] if days else ''} to {days[-1] if days else ''}",
            "",
        ]
        lines += [
            f"| policy | return | {against} over it | work (baseline h) | completion h | done | kWh | $ | CPU s |"
        ]
        lines += ["|---|---:|---|---:|---:|---:|---:|---:|---:|"]
        if len(days) < 2:
            continue
        boot = PairedBootstrap(len(days), 0)
        for name, found in by.items():
            mine = [found[day] for day in days]
            mean = {
                key: float(np.mean([row[key] for row in mine]))
                for key in mine[0]
                if key not in ("preset", "name", "policy")
            }
            gain = "" if against not in by or name == against else _gain(boot, by[against], found, days)
            lines.append(
                f"| `{name}` | {mean['reward']:.2f} | {gain} | {mean['baseline_running_h']:.1f} | "
                f"{mean['mean_completion_h']:.3f} | {mean['completed']:.1f} | {mean['energy_kwh']:.1f} | "
                f"{np.mean([dollars(row) for row in mine]):.2f} | {mean['cpu_s']:.1f} |"
            )
    return "\n".join(lines)


def _gain(boot: PairedBootstrap, own: dict[int, Row], other: dict[int, Row], days: list[int]) -> str:
    apart = np.array([own[day]["reward"] - other[day]["reward"] for day in days])
    found = boot.estimate(boot.means(apart))
    return f"{apart.mean():+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def main() -> None:
    """Play what is missing and print the tables."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--presets", default=PRESETS)
    asked.add_argument("--policies", default=POLICIES)
    asked.add_argument("--days", type=int, default=4)
    asked.add_argument("--seed", type=int, default=2_100_000)
    asked.add_argument("--runs", type=Path, required=True, help="file of finished episodes")
    asked.add_argument("--minutes", type=float, default=9.0, help="begin no further episode after so many CPU minutes")
    asked.add_argument("--against", default="hi-ppo")
    asked.add_argument("--table", action="store_true", help="print the tables of what was played, play nothing")
    given = asked.parse_args()
    rows = played(given.runs)
    done = {(row["preset"], row["name"], row["seed"]) for row in rows}
    began = time.process_time()
    for day in [] if given.table else range(given.days):
        for preset in given.presets.split(","):
            for name in given.policies.split(","):
                seed = given.seed + day
                if (preset, name, seed) in done or (time.process_time() - began) / 60.0 > given.minutes:
                    continue
                since = time.process_time()
                row = {"preset": preset, "name": name, **asdict(play(world_of(preset), make_policy(name), seed))}
                row["cpu_s"] = time.process_time() - since
                with given.runs.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                rows.append(row)
    print(table(rows, given.against))


if __name__ == "__main__":
    main()
