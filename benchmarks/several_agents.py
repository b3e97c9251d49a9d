"""One decision, several agents: MaskablePPO, a packer and Hi-PPO on the same states, where they differ, who was right.

    python benchmarks/several_agents.py --preset testbed --steps 4096 --decisions 60 --seed 3400000 --runs agents.jsonl

MaskablePPO (sb3-contrib) learns for ``--steps`` decisions on ``CandidateEnv`` (seed 19,000, nothing tuned; see
``foreign_learners.py``). ``hi-ppo[quick]`` then runs fresh days of the preset; at every ``--every``-th placement the
others are asked about the same task, all are explained against the same background, and all choices played in copies
under the same 32 futures of six hours, Hi-PPO's agents going on in each. *Right* is who chose what beats every other
choice beyond its 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from foreign_learners import maskable_ppo
from hi_ppo_presets import played

from attribution_sched import System
from attribution_sched.scheduler.registry import make_policy


def collect(given: argparse.Namespace) -> None:
    """Play days until enough placements were compared."""
    rows = played(given.runs)
    if len(rows) >= given.decisions:
        return
    learner, learn = maskable_ppo(given.preset)
    learner.name = "maskable-ppo"
    began = time.process_time()
    learn(given.steps)
    print(f"maskable-ppo: {given.steps} steps, {time.process_time() - began:.0f} s of CPU time", flush=True)
    day = len({row["seed"] for row in rows})
    while len(rows) < given.decisions:
        seed = given.seed + day
        agents = [learner, *(make_policy(name) for name in given.agents.split(","))]
        with System(given.preset, policy="hi-ppo[quick]", seed=seed) as system:
            system.run(given.tasks)
            placed = [each.id for each in system.journal.decisions() if each.plan is not None]
            for name in placed[given.skip :: given.every]:
                began = time.process_time()
                found = system.compare_agents(name, agents, rows=2000, precision=None)
                row = found.to_dict() | {"seed": seed, "cpu_s": time.process_time() - began}
                rows.append(row)
                with given.runs.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                if len(rows) >= given.decisions:
                    break
        day += 1


def table(rows: list[dict[str, Any]]) -> str:
    """One line an agent."""
    lines = [
        f"{len(rows)} placements of {len({row['seed'] for row in rows})} days; the agents differ in "
        f"{sum(row['differ'] for row in rows)}; somebody is right in {sum(bool(row['right']) for row in rows)}; "
        f"{np.mean([row['cpu_s'] for row in rows]):.2f} s of CPU time each",
        "",
        "| agent | as Hi-PPO | right, alone or with others | not, where somebody is | ΔR over Hi-PPO's choice where it "
        "differs | waits | leading drivers |",
        "|---|---|---|---|---|---|---|",
    ]
    names = [each["agent"] for each in rows[0]["agents"]]
    for at, name in enumerate(names):
        own = [row["agents"][at] for row in rows]
        first = [row["agents"][0] for row in rows]
        same = sum(a["choice"] == b["choice"] for a, b in zip(own, first, strict=True))
        somebody = [row for row in rows if row["right"]]
        right = sum(name in row["right"] for row in somebody)
        gains = np.array([
            a["reward"][0] for a, b in zip(own, first, strict=True) if a["choice"] != b["choice"] and a["reward"]
        ])  # fmt: skip
        rng = np.random.default_rng(0)
        cell = "–"
        if len(gains) > 2:
            draws = gains[rng.integers(len(gains), size=(2000, len(gains)))].mean(axis=1)
            cell = f"{gains.mean():+.2f} [{np.quantile(draws, 0.025):+.2f}, {np.quantile(draws, 0.975):+.2f}]"
        drivers = Counter(each["drivers"][0] for each in own if each["drivers"])
        told = ", ".join(f"{what} {count}" for what, count in drivers.most_common(3)) or "none certain"
        waits = sum(each["choice"] == "wait" for each in own)
        lines.append(
            f"| {name} | {same} of {len(rows)} | {right} of {len(somebody)} | {len(somebody) - right} | {cell} | "
            f"{waits} | {told} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="testbed")
    parser.add_argument("--agents", default="lucid,rule,hi-ppo-tree")
    parser.add_argument("--steps", type=int, default=4096)
    parser.add_argument("--decisions", type=int, default=60)
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--skip", type=int, default=10)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--seed", type=int, default=3_400_000)
    parser.add_argument("--runs", type=Path, required=True)
    given = parser.parse_args()
    collect(given)
    print(table(played(given.runs)))


if __name__ == "__main__":
    main()
