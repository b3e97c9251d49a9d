"""The arena on real weeks: every policy meets the same tasks of the Philly log, on the preset ``shared``.

    python benchmarks/philly_weeks.py --draws 1 --policies fcfs,sjf,lucid,gavel-sharing,matching,pair-learner

Test weeks begin on the Mondays of ``attribution_sched.cluster.philly.TEST_WEEKS``; what is fitted to the log (the
preset's law of arrivals, tenants' histories) was fitted to what lies before the first of them. The log names no models:
a draw picks which of the measured jobs each task is. One task in three of the log is kept (load 0.7 to 0.9 of 64
devices); ``--days`` cuts weeks short. Runs are kept in ``--output`` as one JSON line each and not played again; pairs
of week and draw are what intervals are over. Beside it the same policies on days of the preset's own law.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched.cluster.philly import TEST_WEEKS, TRAIN_WEEKS
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.scheduler.arena.stats import PairedBootstrap
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.registry import make_policy

FIGURES = (
    "mean_completion_h", "p95_completion_h", "waiting_h", "gpu_h", "energy_kwh", "electricity_usd", "carbon_kg",
    "reward",
)  # fmt: skip
KEEP, SYNTHETIC_SEED = 3, 3_195_000


def world_of(monday: str | None, draw: int, days: float) -> World:
    """A week of the log on the shared site, or the preset's own law for as long."""
    settings = load_settings("shared").model_dump(mode="json")
    settings["episode"] |= {"horizon_s": 86_400.0 * days, "queue_capacity": 192}
    if monday is not None:
        path = str(Path(os.environ["ATTRIBUTION_SCHED_DATA"]) / "philly" / "philly.csv")
        settings["arrivals"] = {"kind": "philly_week", "path": path, "monday": monday, "keep": KEEP, "seed": draw}
    return load_settings(settings).build_world()


def table(rows: list[dict[str, Any]], against: str) -> str:
    """Mean of every figure by policy, and the difference of completion time and R to one of them, by pair."""
    by: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    for row in rows:
        by.setdefault(row["policy"], {})[row["week"], row["draw"]] = row
    pairs = sorted(set.intersection(*(set(runs) for runs in by.values())))
    if not pairs:
        return "no pair of week and draw was played by all"
    lines = [f"{len(pairs)} pairs of week and draw; " + ", ".join(sorted({week for week, _ in pairs}))]
    lines.append(f"{'':16}" + "".join(f"{name:>19}" for name in FIGURES))
    order = sorted(by, key=lambda policy: float(np.mean([by[policy][pair]["mean_completion_h"] for pair in pairs])))
    for policy in order:
        means = [float(np.mean([by[policy][pair][name] for pair in pairs])) for name in FIGURES]
        lines.append(f"{policy:16}" + "".join(f"{mean:19.2f}" for mean in means))
    if against in by and len(pairs) > 1:
        draws = PairedBootstrap(len(pairs), 0)
        for name in ("mean_completion_h", "reward"):
            for policy in order:
                gap = np.array([by[policy][pair][name] - by[against][pair][name] for pair in pairs])
                told = draws.estimate(draws.means(gap))
                lines.append(f"{name}, {policy} − {against}: {told.value:+.2f} [{told.low:+.2f}, {told.high:+.2f}]")
    return "\n".join(lines)


def main() -> None:
    """Play what is missing while time is left, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default="fcfs,sjf,lucid,gavel-sharing,matching,pair-learner")
    parser.add_argument(
        "--weeks", default=",".join(TEST_WEEKS), help=f"Mondays; training weeks {', '.join(TRAIN_WEEKS)}"
    )
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--synthetic", type=int, default=0, help="episodes of the preset's own law beside them")
    parser.add_argument("--cpu-minutes", type=float, default=8.0)
    parser.add_argument("--against", default="sjf")
    parser.add_argument("--output", default="arena/philly_weeks.jsonl")
    asked = parser.parse_args()
    path, began = Path(asked.output), time.process_time()
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(row["policy"], row["week"], row["draw"], row["days"]) for row in rows}
    names = asked.policies.split(",")
    wanted = [(week, draw) for draw in range(asked.draws) for week in asked.weeks.split(",")]
    wanted += [("synthetic", draw) for draw in range(asked.synthetic)]
    for week, draw in wanted:
        for name in names:
            if (name, week, draw, asked.days) in done or time.process_time() - began > 60.0 * asked.cpu_minutes:
                continue
            seed = SYNTHETIC_SEED + draw
            world = world_of(None if week == "synthetic" else week, draw, asked.days)
            summary = play(world, make_policy(name), seed)
            figures = {key: round(value, 6) for key, value in vars(summary).items() if isinstance(value, int | float)}
            row = {"policy": name, "week": week, "draw": draw, "days": asked.days} | figures
            rows.append(row)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
    rows = [row for row in rows if row["days"] == asked.days and row["policy"] in names]
    real = [row for row in rows if row["week"] != "synthetic"]
    print(
        f"Philly, test weeks, {asked.days:g} days each\n" + table(real, asked.against) if real else "nothing played yet"
    )
    made = [row for row in rows if row["week"] == "synthetic"]
    if made:
        print("\nthe preset's own law\n" + table(made, asked.against))


if __name__ == "__main__":
    main()
