"""Blame against the day itself: each blamed decision really replaced by its runner-up, the same day lived again.

    python benchmarks/blame_replay.py --policies sjf,rule --days 8 --seed 3300000 --runs blame.jsonl

A system runs a day of ``--preset``; of the tasks that waited longest, ``blame`` is asked. Then every decision that it
names is replaced in a new run of the same day (same arrivals, same links, same policy otherwise) and the task's start
compared: that is one day's truth, where blame is an expectation over what was not known at the decision. Printed: rank
correlation of the two, and agreement of sign where either moves the start by more than six minutes.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from hi_ppo_presets import played
from scipy.stats import spearmanr

from attribution_sched import System
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan
from attribution_sched.scheduler.registry import make_policy

MOVED_H = 0.1
"""A start that moves by less counts as not moved."""


def replaced(name: str, time_s: float, task: str, plan: Plan | None) -> Any:
    """A policy that decides otherwise once."""
    policy: Any = make_policy(name)
    decide, done = policy.decide, []

    def instead(view: Decision) -> Plan | None:
        own = view.task is not None and view.task.id == task
        if own and not done and view.time_s == time_s:
            done.append(True)
            return plan
        found: Plan | None = decide(view)
        return found

    policy.decide = instead
    return policy


def start_h(system: System, task: str, tasks: int) -> float:
    """When a task starts in a day; NaN if it does not."""
    system.run(tasks)
    began = [each.cluster_time_s for each in system.journal.decisions_on(task) if each.plan is not None]
    return began[0] / 3600.0 if began else float("nan")


def day(preset: str, name: str, seed: int, tasks: int, asked: int, most: int) -> list[dict[str, Any]]:
    """Blame of the longest waits of a day, and what the day says itself."""
    rows = []
    with System(preset, policy=make_policy(name), seed=seed) as system:
        system.run(tasks)
        waits: dict[str, float] = {}
        for each in system.journal.decisions():
            if each.plan is not None and each.task_id not in waits:
                waits[str(each.task_id)] = each.cluster_time_s - system.journal.task(str(each.task_id)).submitted_s
        for task in sorted(waits, key=lambda one: -waits[one])[:asked]:
            if waits[task] < 1800.0:
                continue
            began = time.process_time()
            found = system.blame(task, most=most)
            cpu_s = time.process_time() - began
            own_h = system.journal.task(task).submitted_s / 3600.0 + waits[task] / 3600.0
            for each in found.entries:
                other = replaced(name, each.time_s, each.task, each.runner_up)
                with System(preset, policy=other, seed=seed) as again:
                    then_h = start_h(again, task, tasks + 8)
                span = each.span
                rows.append({
                    "preset": preset, "policy": name, "seed": seed, "task": task, "decision": each.decision,
                    "waited_h": found.waited_h, "left_h": found.left_h, "blame_h": span.mean, "low": span.low,
                    "high": span.high, "day_h": own_h - then_h, "cpu_s": cpu_s, "single": found.single,
                })  # fmt: skip
            if not found.entries:
                rows.append({
                    "preset": preset, "policy": name, "seed": seed, "task": task, "decision": "", "blame_h": 0.0,
                    "waited_h": found.waited_h, "left_h": found.left_h, "cpu_s": cpu_s, "single": found.single,
                })  # fmt: skip
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """One line a policy."""
    lines = [
        "| policy | tasks | decisions blamed | ρ with the day itself | same sign, of those that move it | "
        "same, of certain blame | "
        "wait, h | accounted for, h | CPU s a task |",
        "|---|---:|---:|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["policy"] for row in rows):
        own = [row for row in rows if row["policy"] == name]
        pairs = np.array([
            (row["blame_h"], row["day_h"]) for row in own if row["decision"] and np.isfinite(row["day_h"])
        ])  # fmt: skip
        tasks = {(row["seed"], row["task"]): row for row in own}
        rho = spearmanr(*pairs.T).statistic if len(pairs) > 3 else float("nan")
        rng = np.random.default_rng(0)
        if len(pairs) <= 3:
            lines.append(f"| {name} | {len(tasks)} | {len(pairs)} | too few | | | | | |")
            continue
        draws = [spearmanr(*pairs[rng.integers(len(pairs), size=len(pairs))].T).statistic for _ in range(400)]
        low, high = np.nanquantile(draws, [0.025, 0.975])
        moves = pairs[(np.abs(pairs) > MOVED_H).any(axis=1)]
        same = int((np.sign(moves[:, 0]) == np.sign(moves[:, 1])).sum())
        sure = [row for row in own if row["decision"] and np.isfinite(row["day_h"]) and row["low"] > 0.0]
        sure = [row for row in sure if row["blame_h"] > MOVED_H]
        right = sum(row["day_h"] > 0.0 for row in sure)
        waited = np.mean([row["waited_h"] for row in tasks.values()])
        told = np.mean([row["waited_h"] - row["left_h"] for row in tasks.values()])
        cpu = np.mean([row["cpu_s"] for row in tasks.values()])
        lines.append(
            f"| {name} | {len(tasks)} | {len(pairs)} | {rho:.2f} [{low:.2f}, {high:.2f}] | {same} of {len(moves)} | "
            f"{right} of {len(sure)} | {waited:.2f} | {told:+.2f} | {cpu:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cross-domain-easy")
    parser.add_argument("--policies", default="sjf,rule")
    parser.add_argument("--days", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--asked", type=int, default=3, help="tasks of a day, the longest waits")
    parser.add_argument("--most", type=int, default=40, help="decisions looked at for each")
    parser.add_argument("--seed", type=int, default=3_300_000)
    parser.add_argument("--runs", type=Path, required=True)
    given = parser.parse_args()
    done = {(row["policy"], row["seed"]) for row in played(given.runs)}
    for number in range(given.days):
        for name in given.policies.split(","):
            if (name, given.seed + number) in done:
                continue
            for row in day(given.preset, name, given.seed + number, given.tasks, given.asked, given.most):
                with given.runs.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(table(played(given.runs)))


if __name__ == "__main__":
    main()
