"""The ranker taught in four ways at one budget of followed decisions, and what each gains on days of its own.

    python benchmarks/ranker_arms.py --folder arms                      # testbed: forks 30 days, teaches, judges 40
    python benchmarks/ranker_arms.py --folder arms --minutes 9          # begins nothing new after so many CPU minutes
    python benchmarks/ranker_arms.py --folder arms --table              # what is there

*fork, PPO*: the clipped objective on the fork's advantage (what ships). *fork, cross-entropy*: to targets improved by
softmax(logit + β·Q̂), expert iteration. *shuffled*: PPO on the same forked decisions, their gains dealt out anew among
all candidates: nothing is left to learn, and nothing may be gained. *GAE*: PPO on whole sampled days
(``research/ranker_gae.py``), as many followed decisions as the forks of the other arms took. All from the shipped
agents and the same first numbers. Judged as it acts, without thinking, on fresh days against the agents without a
ranker: the same days for all, 95 % intervals of paired differences. Whatever is in ``--folder`` is not done again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.checkpoint import Weights, describe, load, save
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.fork_ppo import ForkPpo, learn_ranker, untrained
from attribution_sched.scheduler.hi_ppo.forked_decisions import ForkedDecisions, ForkingHiPpo, collect_by
from attribution_sched.scheduler.hi_ppo.policy_search import Days
from attribution_sched.scheduler.hi_ppo.ranker import Ranker
from attribution_sched.scheduler.training import training_world
from research.ranker_gae import GaePpo, Rollout, learn_by_gae

FORKED, JUDGED = 560_000, 4_870_000
"""First seeds of the days that are forked, and of those that judge."""

PPO = ForkPpo(rounds=30, epochs=2, learning_rate=3e-3)
"""As ``presets/hi_ppo.yaml`` has it."""

ARMS = ("fork, PPO", "fork, cross-entropy", "shuffled", "GAE")


def shuffled(data: ForkedDecisions, seed: int) -> ForkedDecisions:
    """Gains of candidates dealt out anew among all that are not somebody's own choice."""
    there = data.there.astype(bool).copy()
    there[:, 0] = False
    order = np.random.default_rng(seed).permutation(int(there.sum()))
    q, parts = data.q.copy(), data.components.copy()
    q[there], parts[there] = data.q[there][order], data.components[there][order]
    return replace(data, q=q, components=parts)


def forked(folder: Path, world: str, days: int, agents: Weights) -> tuple[ForkedDecisions, int, float]:
    """Forked decisions of some days, the decisions that were followed for them, and the CPU seconds it took."""
    file, told = folder / f"forked-{world}-{days}.npz", folder / f"forked-{world}-{days}.json"
    if not told.is_file():
        began, policy = time.process_time(), ForkingHiPpo(16, weights=agents)
        collect_by(policy, training_world(world), range(FORKED, FORKED + days)).save(file)
        told.write_text(json.dumps({"followed": policy.thinker().followed, "cpu_s": time.process_time() - began}))
    found = json.loads(told.read_text())
    return ForkedDecisions.load(file), int(found["followed"]), float(found["cpu_s"])


def taught(arm: str, world: str, data: ForkedDecisions, followed: int, agents: Weights, args: Any) -> Ranker:
    """The ranker of an arm."""
    if arm == "GAE":
        gae = GaePpo(gamma=args.gamma, learning_rate=args.rate, temperature=PPO.temperature)
        days = Days(training_world(world), args.rolled, agents)

        def told(at: int, one: Rollout) -> None:
            if at % 10 == 9:
                print(f"  GAE, rollout {at + 1}: {one.returns.mean():.1f} a day, drawn", flush=True)

        return learn_by_gae(days, agents.theta, untrained(data, 0), gae, followed, told=told)[0]
    how = replace(PPO, expert=args.beta) if arm == "fork, cross-entropy" else PPO
    return learn_ranker(shuffled(data, 0) if arm == "shuffled" else data, how, 0)


def judge(
    rows: list[dict[str, Any]], path: Path, policies: dict[str, Weights], world: str, days: int, ends: Any
) -> None:
    """Play what is missing, day by day for all."""
    done = {(row["arm"], row["seed"]) for row in rows}
    players = {name: HiPpo(weights, deadline_s=np.inf) for name, weights in policies.items()}
    built = training_world(world)
    for seed in range(JUDGED, JUDGED + days):
        for name, policy in players.items():
            if (name, seed) in done or ends():
                continue
            began = time.process_time()
            row = {"arm": name, "seed": seed, "reward": play(built, policy, seed).reward}
            rows.append({**row, "cpu_s": time.process_time() - began})
            with path.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")


def table(rows: list[dict[str, Any]], cpu_s: dict[str, float], followed: int) -> str:
    """Gain of every arm over the agents, paired by day."""
    by: dict[str, dict[int, float]] = {}
    for row in rows:
        by.setdefault(row["arm"], {})[row["seed"]] = row["reward"]
    days = sorted(set.intersection(*map(set, by.values())))
    own = np.array([by["agents"][day] for day in days])
    lines = [
        f"{len(days)} days from {JUDGED}; agents {own.mean():.1f} a day; {followed:,} followed decisions an arm", "",
        "| taught by | over the agents, a day | days ahead | CPU min to teach |", "|---|---:|---:|---:|",
    ]  # fmt: skip
    for arm in ARMS:
        if arm in by:
            gain = np.array([by[arm][day] for day in days]) - own
            half = 1.96 * gain.std(ddof=1) / np.sqrt(len(gain))
            minutes = cpu_s.get(arm, float("nan")) / 60.0
            lines.append(f"| {arm} | {gain.mean():+.2f} ± {half:.2f} | {(gain > 0).sum()} | {minutes:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Fork, teach, judge, print."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--folder", type=Path, required=True, help="of forked decisions, rankers and judged days")
    asked.add_argument("--world", default="testbed")
    asked.add_argument("--days", type=int, default=30, help="whose decisions are forked")
    asked.add_argument("--judged", type=int, default=40, help="fresh days")
    asked.add_argument("--beta", type=float, default=1.0, help="of the improved targets")
    asked.add_argument("--gamma", type=float, default=0.99, help="of GAE")
    asked.add_argument("--rate", type=float, default=1e-3, help="learning rate of GAE")
    asked.add_argument("--rolled", type=int, default=100, help="days that GAE plays side by side")
    asked.add_argument("--minutes", type=float, default=60.0, help="begin nothing new after so many CPU minutes")
    asked.add_argument("--table", action="store_true", help="print the table of what is there, do nothing")
    args = asked.parse_args()
    began, runs, agents = time.process_time(), args.folder / "days.jsonl", replace(load(), ranker=None)
    args.folder.mkdir(parents=True, exist_ok=True)

    def ends() -> bool:
        return (time.process_time() - began) / 60.0 > args.minutes

    data, followed, fork_s = forked(args.folder, args.world, args.days, agents)
    print(
        f"{args.world}: {len(data):,} decisions of {args.days} days forked, {followed:,} followed, {fork_s:.0f} CPU s"
    )
    cpu_s, policies = dict[str, float](), {"agents": agents}
    for arm in ARMS:
        file = args.folder / f"{arm.replace(', ', '-').lower()}.safetensors"
        if not file.is_file() and not args.table and not ends():
            since = time.process_time()
            ranker = taught(arm, args.world, data, followed, agents, args)
            took = time.process_time() - since + (0.0 if arm == "GAE" else fork_s)
            save(file, replace(agents, ranker=ranker), {"arm": arm, "followed": followed, "cpu_s": took})
            print(f"  {arm}: taught, {took:.0f} CPU s", flush=True)
        if file.is_file():
            policies[arm], cpu_s[arm] = load(file), float(describe(file)["cpu_s"])
    rows = [json.loads(line) for line in runs.read_text().splitlines()] if runs.is_file() else []
    if not args.table:
        judge(rows, runs, policies, args.world, args.judged, ends)
    print(table(rows, cpu_s, followed))


if __name__ == "__main__":
    main()
