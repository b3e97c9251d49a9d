"""Hi-PPO beside its rivals on the shipped presets and in worlds nobody tuned on: the same days for all, resumable.

    python benchmarks/hi_ppo_presets.py --presets cross-domain,shared --days 8 --seed 2100000 --runs days.jsonl
    python benchmarks/hi_ppo_presets.py --presets unseen --policies hi-ppo,RULES --days 4 --seed 2200000 --runs w.jsonl
    python benchmarks/hi_ppo_presets.py --runs days.jsonl --table

Every finished episode is a line of ``--runs``; episodes that are there are not played again. The table is over the days
that all of a preset's policies have played: return, work done, hours to completion, kWh and dollars, and the gain of
``--against`` over each with its 95 % interval (paired bootstrap over days). ``--holm`` holds it against the best rule
of every world (the largest mean on these very days, which flatters the rule), p-values of paired t-tests corrected by
Holm over the worlds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from fork_gain import world_of as fork_world
from scipy.stats import ttest_rel

from attribution_sched.cluster.arrivals import ArrivalRow, TraceArrivals
from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.config.scenarios import build_scenario
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.checkpoint import load
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.upper_agent import rule_theta
from attribution_sched.scheduler.policy import Policy
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.stats.bootstrap import PairedBootstrap

POLICIES = "hi-ppo,hi-ppo[quick],rule,rule+fork,lucid,gavel-sharing,matching,pair-learner,exact-switch,sjf"
PRESETS = "cross-domain,shared,testbed,cross-domain-easy"
SHARED_HOURS = 36.0
"""Of ``shared``, whose episode is three days, this many hours are played."""

IMITATION = "imitation"
"""Hi-PPO's agents as learning begins: with the rule's numbers, without thinking."""

RULES = "rule,sjf,least-loaded,greedy,fcfs"
"""The rules that the best of is taken for ``--holm``."""

Row = dict[str, Any]


def world_of(name: str, seed: int = 0) -> World:
    """A preset, a preset and one of its scenarios as ``preset:scenario``, or one of :data:`UNSEEN`."""
    if name in UNSEEN:
        return UNSEEN[name](load_settings("cross-domain-easy").build_world(), seed)
    preset, _, scenario = name.partition(":")
    world = build_scenario(preset, scenario) if scenario else load_settings(preset).build_world()
    return replace(world, horizon_s=3600.0 * SHARED_HOURS) if preset == "shared" else world


def policy_of(name: str) -> Policy:
    """A policy of the registry, :data:`IMITATION`, or a checkpoint's without thinking."""
    if name.endswith(".safetensors"):
        return HiPpo(load(name))
    return HiPpo(load().with_agents(rule_theta())) if name == IMITATION else make_policy(name)


def other_regions(first: int, count: int, devices: int) -> World:
    """The work of ``cross-domain-easy`` in proportion, in regions that it does not have."""
    names = [name for name in load_settings("large").domain_names if ":" in name][first : first + count]
    settings = load_settings("cross-domain-easy").model_dump(exclude_none=True)
    settings["domains"] = [{"name": name, "carbon_g_per_kwh": 300.0} for name in names]
    settings["domain_defaults"] |= {"devices": devices}
    share = count * devices / 64.0
    settings["arrivals"]["rate_per_hour"] *= share
    settings["episode"] |= {"max_running": int(12 * share) + 1, "queue_capacity": int(16 * share) + 1}
    return load_settings(settings).build_world()


def of_gpus(world: World, name: str, devices: int) -> World:
    """The same world on other hardware."""
    domains = tuple(replace(domain, gpu=gpu(name), devices=devices) for domain in world.cluster.domains)
    return replace(world, cluster=replace(world.cluster, domains=domains))


def at_rate(world: World, rate_per_hour: float) -> World:
    """The same world with more or fewer tasks."""
    arrivals: Any = world.arrivals
    return replace(world, arrivals=replace(arrivals, rate_per_hour=rate_per_hour))


def of_kinds(world: World, models: tuple[str, ...], rate_per_hour: float) -> World:
    """Only some of its kinds, at another rate."""
    kinds = tuple(kind for kind in world.kinds if kind.model.name in models)
    return at_rate(replace(world, kinds=kinds), rate_per_hour)


def heavy_tailed(world: World, seed: int) -> World:
    """Sessions of like tasks, their sizes lognormal (σ 1.6) around the middle of their kind's."""
    rng, now_s, rows = np.random.default_rng([seed, 11]), 0.0, list[ArrivalRow]()
    shares = np.array([kind.share for kind in world.kinds])
    while now_s < world.horizon_s:
        now_s += 3600.0 * rng.exponential(1.0 / 0.35)
        kind = world.kinds[rng.choice(len(shares), p=shares / shares.sum())]
        middle = np.sqrt(kind.steps[0] * kind.steps[1])
        for i in range(rng.geometric(0.25)):
            steps = int(np.clip(middle * np.exp(1.6 * rng.standard_normal() - 0.6), 1, 20 * kind.steps[1]))
            rows.append(ArrivalRow(now_s + 60.0 * i, kind.model.name, steps, kind.batch_size, 0, kind.tenant))
    rows.sort(key=lambda row: row.arrival_s)
    return replace(world, arrivals=TraceArrivals(tuple(rows)))


def priced(world: World, **changes: Any) -> World:
    """The same world with another reward."""
    return replace(world, reward=replace(world.reward, **changes))


UNSEEN: dict[str, Callable[[World, int], World]] = {
    "six-domains": lambda world, seed: other_regions(10, 6, 16),
    "twelve-domains": lambda world, seed: other_regions(20, 12, 8),
    "h100": lambda world, seed: of_gpus(world, "H100-80", 8),
    "mixed-gpus": lambda world, seed: fork_world("mixed-gpus"),
    "llm-only": lambda world, seed: of_kinds(world, ("llama-2-7b", "gpt3-13b", "llama-2-70b", "opt-66b"), 1.0),
    "vision-only": lambda world, seed: of_kinds(world, ("vit-l-16", "bert-large"), 5.0),
    "overload": lambda world, seed: at_rate(world, 2.5),
    "cost-heavy": lambda world, seed: priced(
        build_scenario("cross-domain-easy", "half-domains"), w_eff=0.5, w_util=0.25, w_cost=4.0
    ),
    "energy-priced": lambda world, seed: priced(world, energy_usd_per_kwh=0.12, carbon_usd_per_kg=0.1, w_cost=1.0),
    "tight-deadlines": lambda world, seed: replace(
        world, kinds=tuple(replace(kind, deadline_slack=1.1) for kind in world.kinds)
    ),
    "heavy-tailed": heavy_tailed,
}
"""Worlds that nothing was tuned on, by name: how each is made of ``cross-domain-easy`` and a day's seed."""


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


def by_policy(rows: list[Row], preset: str) -> dict[str, dict[int, Row]]:
    """Policy → seed → episode."""
    by: dict[str, dict[int, Row]] = {}
    for row in rows:
        if row["preset"] == preset:
            by.setdefault(row["name"], {})[row["seed"]] = row
    return by


def common_days(by: dict[str, dict[int, Row]]) -> list[int]:
    """Seeds that everybody has played."""
    return sorted(set.intersection(*(set(found) for found in by.values())))


def holm(rows: list[Row], against: str) -> str:
    """One policy against the best rule of every world, p-values corrected over the worlds."""
    found = []
    for preset in dict.fromkeys(row["preset"] for row in rows):
        by = by_policy(rows, preset)
        days, rules = common_days(by), [name for name in RULES.split(",") if name in by]
        if len(days) < 2 or not rules or against not in by:
            continue
        returns = {name: np.array([by[name][day]["reward"] for day in days]) for name in (against, *rules)}
        best = max(rules, key=lambda name: float(returns[name].mean()))
        apart = returns[against] - returns[best]
        p = float(ttest_rel(returns[against], returns[best]).pvalue) if apart.std() > 0.0 else 1.0
        found.append((p, preset, len(days), best, float(returns[best].mean()), _gain(by[against], by[best], days)))
    lines = [
        "",
        f"| world | days | best rule | its return | {against} over it | p, Holm |",
        "|---|---:|---|---:|---|---:|",
    ]
    least = 0.0
    for at, (p, preset, days_played, best, mean, gain) in enumerate(sorted(found)):
        least = max(least, min(1.0, p * (len(found) - at)))
        lines.append(f"| `{preset}` | {days_played} | `{best}` | {mean:.1f} | {gain} | {least:.3f} |")
    return "\n".join(lines)


def table(rows: list[Row], against: str) -> str:
    """One table per preset."""
    lines = []
    for preset in dict.fromkeys(row["preset"] for row in rows):
        by = by_policy(rows, preset)
        days = common_days(by)
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
        for name, found in by.items():
            mine = [found[day] for day in days]
            mean = {
                key: float(np.mean([row[key] for row in mine]))
                for key in mine[0]
                if key not in ("preset", "name", "policy")
            }
            gain = "" if against not in by or name == against else _gain(by[against], found, days)
            lines.append(
                f"| `{name}` | {mean['reward']:.2f} | {gain} | {mean['baseline_running_h']:.1f} | "
                f"{mean['mean_completion_h']:.3f} | {mean['completed']:.1f} | {mean['energy_kwh']:.1f} | "
                f"{np.mean([dollars(row) for row in mine]):.2f} | {mean['cpu_s']:.1f} |"
            )
    return "\n".join(lines)


def _gain(own: dict[int, Row], other: dict[int, Row], days: list[int]) -> str:
    boot = PairedBootstrap(len(days), 0)
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
    asked.add_argument("--holm", action="store_true", help="the best rule of every world instead of all policies")
    given = asked.parse_args()
    presets = [each for name in given.presets.split(",") for each in (UNSEEN if name == "unseen" else (name,))]
    policies = list(dict.fromkeys(given.policies.replace("RULES", RULES).split(",")))
    rows = played(given.runs)
    done = {(row["preset"], row["name"], row["seed"]) for row in rows}
    began = time.process_time()
    for day in [] if given.table else range(given.days):
        for preset in presets:
            for name in policies:
                seed = given.seed + day
                if (preset, name, seed) in done or (time.process_time() - began) / 60.0 > given.minutes:
                    continue
                since = time.process_time()
                row = {"preset": preset, "name": name, **asdict(play(world_of(preset, seed), policy_of(name), seed))}
                row["cpu_s"] = time.process_time() - since
                with given.runs.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                rows.append(row)
    print(holm(rows, given.against) if given.holm else table(rows, given.against))


if __name__ == "__main__":
    main()
