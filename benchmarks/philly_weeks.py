"""The arena on real weeks: every policy meets the same tasks of the Philly log, on the preset ``shared``.

    python benchmarks/philly_weeks.py --days 1.5 --draws 2 --synthetic 4 --cpu-minutes 30

Test weeks begin on the Mondays of ``attribution_sched.cluster.philly.TEST_WEEKS``; what is fitted to the log (the
preset's law of arrivals, tenants' histories) was fitted to what lies before the first of them. The log names no models:
a draw picks which of the measured jobs each task is. One task in three of the log is kept (load 0.7 to 0.9 of 64
devices); ``--days`` cuts weeks short. Runs are kept in ``--output`` as one JSON line each and not played again; pairs
of week and draw are what intervals are over. Beside it the same policies on days of the preset's own law, and how far
the two orders of policies agree: Kendall's tau of their means, its interval over episodes drawn again. Policies that
did the same in every episode (on one site many differ in nothing) are one row, and count once.

Policies are played one after another, all episodes each. One whose first run takes more than ``--slowest`` seconds of
processor time, or that time was too short for, is left out of the tables and named.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from attribution_sched.cluster.philly import TEST_WEEKS, TRAIN_WEEKS
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.errors import AttributionSchedError
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.registry import POLICIES, make_policy
from attribution_sched.stats.bootstrap import PairedBootstrap

FIGURES = (
    "mean_completion_h", "p95_completion_h", "waiting_h", "gpu_h", "energy_kwh", "electricity_usd", "carbon_kg",
    "reward",
)  # fmt: skip
KEEP, SYNTHETIC_SEED = 3, 3_195_000
HEAVY = ("hi-ppo[quick]", "hi-ppo", "rule+fork", "exact-switch", "exact", "exact-resolve")
"""Played last; of Hi-PPO's variants only the one without thinking: the others differ in what they know of links."""


def world_of(monday: str | None, draw: int, days: float) -> World:
    """A week of the log on the shared site, or the preset's own law for as long."""
    settings = load_settings("shared").model_dump(mode="json")
    settings["episode"] |= {"horizon_s": 86_400.0 * days, "queue_capacity": 192}
    if monday is not None:
        path = str(Path(os.environ["ATTRIBUTION_SCHED_DATA"]) / "philly" / "philly.csv")
        settings["arrivals"] = {"kind": "philly_week", "path": path, "monday": monday, "keep": KEEP, "seed": draw}
    return load_settings(settings).build_world()


def played_by_all(rows: list[dict[str, Any]], wanted: set[tuple[str, int]]) -> dict[str, dict[tuple[str, int], Any]]:
    """Policy → pair of week and draw → run, of the policies that have played all that are wanted."""
    by: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    for row in rows:
        if (row["week"], row["draw"]) in wanted:
            by.setdefault(row["policy"], {})[row["week"], row["draw"]] = row
    return {policy: runs for policy, runs in by.items() if set(runs) == wanted}


def table(by: dict[str, dict[tuple[str, int], Any]], against: str) -> str:
    """Mean of every figure by policy, and the difference of completion time and R to one of them, by pair."""
    if not by:
        return "no policy has played all pairs of week and draw"
    pairs = sorted(next(iter(by.values())))
    lines = [f"{len(pairs)} pairs of week and draw; " + ", ".join(sorted({week for week, _ in pairs}))]
    lines.append(f"{'':18}" + "".join(f"{name:>19}" for name in FIGURES))
    order = sorted(by, key=lambda policy: float(np.mean([by[policy][pair]["mean_completion_h"] for pair in pairs])))
    for policy in order:
        means = [float(np.mean([by[policy][pair][name] for pair in pairs])) for name in FIGURES]
        lines.append(f"{policy:18}" + "".join(f"{mean:19.2f}" for mean in means))
    if against in by and len(pairs) > 1:
        draws = PairedBootstrap(len(pairs), 0)
        for name in ("mean_completion_h", "reward"):
            for policy in order:
                gap = np.array([by[policy][pair][name] - by[against][pair][name] for pair in pairs])
                told = draws.estimate(draws.means(gap))
                lines.append(f"{name}, {policy} − {against}: {told.value:+.2f} [{told.low:+.2f}, {told.high:+.2f}]")
    return "\n".join(lines)


def merged(rows: list[dict[str, Any]], wanted: set[tuple[str, int]]) -> list[tuple[str, ...]]:
    """Policies that have played all that is wanted, those together whose every run had the same figures."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for policy, runs in played_by_all(rows, wanted).items():
        did = tuple(tuple(runs[pair][name] for name in FIGURES) for pair in sorted(runs))
        groups.setdefault(did, []).append(policy)
    return [tuple(group) for group in groups.values()]


def order_agrees(real: dict[str, dict[tuple[str, int], Any]], made: dict[str, dict[tuple[str, int], Any]]) -> str:
    """Kendall's tau between the orders of the policies on the log and on the preset's own law, with an interval."""
    policies = sorted(set(real) & set(made))
    if len(policies) < 3:
        return "fewer than three policies have played both: no order to compare"
    lines = [f"order of {len(policies)} policies, log against the preset's own law"]
    rng = np.random.default_rng(0)
    for name in ("mean_completion_h", "reward"):
        # policies × episodes, of each of the two
        logged, drawn = (
            np.array([[by[policy][pair][name] for pair in sorted(by[policy])] for policy in policies])
            for by in (real, made)
        )
        found = kendalltau(logged.mean(axis=1), drawn.mean(axis=1)).statistic
        again = [
            kendalltau(*(side[:, rng.integers(side.shape[1], size=side.shape[1])].mean(axis=1)
                         for side in (logged, drawn))).statistic
            for _ in range(1000)
        ]  # fmt: skip
        low, high = np.nanquantile(again, [0.025, 0.975])
        lines.append(f"  {name}: Kendall's tau {found:+.2f} [{low:+.2f}, {high:+.2f}]")
    return "\n".join(lines)


def main() -> None:
    """Play what is missing while time is left, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default="all", help="names with commas between, or all")
    parser.add_argument(
        "--weeks", default=",".join(TEST_WEEKS), help=f"Mondays; training weeks {', '.join(TRAIN_WEEKS)}"
    )
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--synthetic", type=int, default=0, help="episodes of the preset's own law beside them")
    parser.add_argument("--cpu-minutes", type=float, default=8.0)
    parser.add_argument("--slowest", type=float, default=60.0, help="processor seconds of a run")
    parser.add_argument("--against", default="sjf")
    parser.add_argument("--output", default="arena/philly_weeks.jsonl")
    asked = parser.parse_args()
    path, began = Path(asked.output), time.process_time()
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(row["policy"], row["week"], row["draw"]) for row in rows if row["days"] == asked.days}
    light = [name for name in POLICIES if name not in HEAVY and not name.startswith("hi-ppo[")]
    names = asked.policies.split(",") if asked.policies != "all" else [*light, *HEAVY]
    weeks = [(week, draw) for draw in range(asked.draws) for week in asked.weeks.split(",")]
    own = [("synthetic", draw) for draw in range(asked.synthetic)]
    left_out: dict[str, str] = {}
    for name in names:
        for week, draw in (*own, *weeks):
            if (name, week, draw) in done or name in left_out:
                continue
            if time.process_time() - began > 60.0 * asked.cpu_minutes:
                left_out[name] = "no time was left"
                continue
            world = world_of(None if week == "synthetic" else week, draw, asked.days)
            started = time.process_time()
            try:
                summary = play(world, make_policy(name), SYNTHETIC_SEED + draw)
            except AttributionSchedError as error:
                left_out[name] = str(error)
                continue
            seconds = time.process_time() - started
            figures = {key: round(value, 6) for key, value in vars(summary).items() if isinstance(value, int | float)}
            row = {"policy": name, "week": week, "draw": draw, "days": asked.days, "cpu_s": round(seconds, 1)} | figures
            rows.append(row)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            if seconds > asked.slowest:
                left_out[name] = f"{seconds:.0f} s a run"
    rows = [row for row in rows if row["days"] == asked.days and row["policy"] in names]
    alike = merged(rows, {*weeks, *own})
    rows = [row for row in rows if row["policy"] in {group[0] for group in alike}]
    real, made = played_by_all(rows, set(weeks)), played_by_all(rows, set(own)) if own else {}
    print(f"Philly, test weeks, {asked.days:g} days each (training weeks begin {', '.join(TRAIN_WEEKS)})")
    print(table(real, asked.against))
    if made:
        print("\nthe preset's own law\n" + table(made, asked.against))
        print("\n" + order_agrees(real, made))
    if same := [group for group in alike if len(group) > 1]:
        print("\ndid the same in every episode: " + "; ".join(" = ".join(group) for group in same))
    found = {name for group in alike for name in group}
    if missing := [f"{name} ({left_out.get(name, 'not played through')})" for name in names if name not in found]:
        print("\nleft out: " + ", ".join(missing))


if __name__ == "__main__":
    main()
