"""The glass-box twin: distil trees from Hi-PPO, say how often they choose as it does, and what their days are worth.

    python benchmarks/tree_twin.py --distil trees.safetensors             # two minutes; the shipped file is its output
    python benchmarks/tree_twin.py --fidelity 6 --seed 3200000            # on days that nothing was distilled from
    python benchmarks/tree_twin.py --days 24 --seed 3200000 --runs twin.jsonl
    python benchmarks/tree_twin.py --runs twin.jsonl --table
    python benchmarks/tree_twin.py --show                                 # the trees as text

Days are played by ``sjf``, ``rule``, ``lucid``, ``hi-ppo[quick]`` (what the trees stand for: agents and search, without
thinking), ``hi-ppo-tree`` and the trees without search, on the same seeds. Every finished episode is a line of
``--runs``. The share is (trees − sjf) / (hi-ppo[quick] − sjf), its interval a paired bootstrap over days.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from hi_ppo_presets import played, world_of

from attribution_sched.cluster.decision import Decision
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.glass_box.tree_distil import distil as distil_trees
from attribution_sched.scheduler.glass_box.tree_policy import HiPpoTree
from attribution_sched.scheduler.glass_box.trees import HEADS, SHIPPED, Distilled, leaves_of, load, save, text_of
from attribution_sched.scheduler.hi_ppo.coordinator import Coordination, HiPpo
from attribution_sched.scheduler.policy import unhurried
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.stats.bootstrap import PairedBootstrap

WORLDS = "cross-domain,cross-domain-easy,testbed"
"""Where the trees were distilled, and where they are judged."""

FIRST, DAYS = 3_000_000, {"testbed": 6}
"""Seed of the days distilled from, 16 days of each world a round unless written here."""

POLICIES = "sjf,rule,lucid,hi-ppo[quick],hi-ppo-tree,hi-ppo-tree[propose]"


def distil(names: list[str], path: Path) -> None:
    """Distil trees and write them."""
    began = time.process_time()
    made = distil_trees(HiPpo(), [(world_of(name), DAYS.get(name, 16)) for name in names], FIRST)
    save(path, made, {"command": "python benchmarks/tree_twin.py --distil", "worlds": names})
    print(f"{time.process_time() - began:.0f} s of CPU time")


class Both(HiPpo):
    """Hi-PPO decides; the twin is asked beside it about every decision."""

    def __init__(self, twin: HiPpoTree) -> None:
        super().__init__()
        self.twin = twin
        self.same: list[tuple[bool, bool, bool]] = []

    def coordinate(self, view: Decision, *, others: int | None = None) -> Coordination:
        """As Hi-PPO does, with the twin's answer noted."""
        own, twin = super().coordinate(view, others=others), self.twin.coordinate(view, others=others)
        if (np.asarray(view.free_devices) > 0).any():
            acts = (own.plan is None) == (twin.plan is None) and (own.plan is None or own.slot == twin.slot)
            self.same.append((acts, acts and places(own.plan) == places(twin.plan), own.plan is not None))
        return own


def places(plan: Any) -> object:
    """Domains, layers and devices of a plan."""
    if plan is None:
        return None
    return [(each.domain, each.first, each.stop, each.device_count) for each in plan.segments]


def fidelity(name: str, days: int, seed: int, trees: Distilled) -> str:
    """How often the trees choose as Hi-PPO does, in the states that it comes to."""
    per_day = []
    for day in range(days):
        both = Both(HiPpoTree(trees))
        with unhurried(both), unhurried(both.twin):
            play(world_of(name), both, seed + day)
        per_day.append(np.array(both.same, dtype=np.float64).reshape(-1, 3))
    draws = PairedBootstrap(days, 0)
    cells = []
    for column, only in ((0, False), (1, False), (1, True)):
        hits = np.array([(day[:, column] * (day[:, 2] if only else 1)).sum() for day in per_day])
        count = np.array([day[:, 2].sum() if only else len(day) for day in per_day])
        low, high = np.quantile(draws.means(hits)[1:] / draws.means(count)[1:], [0.025, 0.975])
        cells.append(f"{hits.sum() / count.sum():.3f} [{low:.3f}, {high:.3f}]")
    return f"| {name} | {sum(map(len, per_day))} | " + " | ".join(cells) + " |"


def policy_of(name: str, trees: Distilled) -> Any:
    """A policy by its name; the twin with these trees."""
    if name.startswith("hi-ppo-tree"):
        made = HiPpoTree(trees, search="propose" not in name)
        made.name = name
        return made
    return make_policy(name)


def run_days(names: list[str], policies: list[str], days: int, seed: int, runs: Path, trees: Distilled) -> None:
    """Play what has not been played."""
    done = {(row["preset"], row["name"], row["seed"]) for row in played(runs)}
    for day in range(days):
        for name in names:
            for policy in policies:
                if (name, policy, seed + day) in done:
                    continue
                made = asdict(play(world_of(name), policy_of(policy, trees), seed + day))
                with runs.open("a") as file:
                    file.write(json.dumps({"preset": name, "name": policy} | made) + "\n")


def table(runs: Path) -> str:
    """Mean returns, gains over sjf and the share of Hi-PPO's that the trees keep, by world."""
    rows, lines = played(runs), list[str]()
    for preset in dict.fromkeys(row["preset"] for row in rows):
        by: dict[str, dict[int, float]] = {}
        for row in rows:
            if row["preset"] == preset:
                by.setdefault(row["name"], {})[row["seed"]] = row["reward"]
        seeds = sorted(set.intersection(*(set(each) for each in by.values())))
        r = {name: np.array([each[s] for s in seeds]) for name, each in by.items()}
        draws = PairedBootstrap(len(seeds), 0)
        lines += [f"{preset}, {len(seeds)} days", "", "| policy | return | over sjf |", "|---|---|---|"]
        for name, values in sorted(r.items(), key=lambda each: -each[1].mean()):
            gain = values - r["sjf"]
            low, high = np.quantile(draws.means(gain)[1:], [0.025, 0.975])
            lines.append(f"| {name} | {values.mean():.2f} | {gain.mean():+.2f} [{low:+.2f}, {high:+.2f}] |")
        tree, teacher, rule = r["hi-ppo-tree"], r["hi-ppo[quick]"], r["rule"]
        kept = draws.means(tree - r["sjf"])[1:] / draws.means(teacher - r["sjf"])[1:]
        low, high = np.quantile(kept, [0.025, 0.975])
        share = (tree - r["sjf"]).mean() / (teacher - r["sjf"]).mean()
        lines += ["", f"share of hi-ppo[quick]'s gain over sjf: {share:.2f} [{low:.2f}, {high:.2f}]"]
        for label, other in (("rule", rule), ("hi-ppo[quick]", teacher)):
            apart = tree - other
            low, high = np.quantile(draws.means(apart)[1:], [0.025, 0.975])
            lines.append(f"hi-ppo-tree over {label}: {apart.mean():+.2f} [{low:+.2f}, {high:+.2f}]")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--distil", type=Path, help="write trees here")
    parser.add_argument("--trees", type=Path, default=SHIPPED, help="trees to judge")
    parser.add_argument("--worlds", default=WORLDS)
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--fidelity", type=int, default=0, help="days to compare choices on")
    parser.add_argument("--days", type=int, default=0, help="days to play")
    parser.add_argument("--seed", type=int, default=3_200_000)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    names = given.worlds.split(",")
    if given.distil:
        distil(names, given.distil)
    if given.show:
        trees = load(given.trees).trees
        for head in HEADS:
            print(f"{head} ({leaves_of(trees, head)} leaves)\n{text_of(trees, head)}\n")
    if given.fidelity:
        print("| world | decisions | same task, or nothing | same domain, layers and devices | of placements |")
        print("|---|---:|---|---|---|")
        for name in names:
            print(fidelity(name, given.fidelity, given.seed, load(given.trees)), flush=True)
    if given.days:
        run_days(names, given.policies.split(","), given.days, given.seed, given.runs, load(given.trees))
    if given.table:
        print(table(given.runs))


if __name__ == "__main__":
    main()
