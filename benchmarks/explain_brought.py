"""Must: drivers of ΔR_eff, ΔR_util and ΔR_cost against paired rollouts.

    python benchmarks/explain_brought.py [--seed 57000] [--decisions 100] [--futures 192] [--truth 1024]
        [--policy hi-ppo] [--runs explain_brought.jsonl] [--seconds 500]

Placements, waits and moves of fresh days of ``cross-domain-easy``, each against the best other choice by the fork. What
the product prints (``futures`` a coalition) is held against the same Shapley values of ``truth`` other futures:
Spearman's ρ over all drivers of all decisions that are not printed as 0, and over the drivers of one decision (mean
over decisions), per component; the truth's own ceiling is the correlation of its two halves, stepped up to all of it
(Spearman and Brown). *Covered*: 95 % intervals that hold the truth's mean; *wide*: that hold it within both errors, the
truth's own included. A line per decision is kept in ``--runs``, so a run that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from explain_joint import days, spread

from attribution_sched.config import load_settings
from attribution_sched.explain.brought import COMPONENTS, Brought, brought
from attribution_sched.explain.played import play_choices
from attribution_sched.explain.quality import rank_correlation
from attribution_sched.explain.recorder import Decided
from attribution_sched.explain.room import best_across, best_inside
from attribution_sched.scheduler.policy import Policy
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.stats.interval import quantile

PRINTED = 5e-4
"""What is smaller is printed as 0, and not counted here."""


def best_other(policy: Policy, one: Decided) -> tuple[bool, object]:
    """Whether there is another choice, and the best by the fork."""
    view = one.view
    plans = [best_inside(view, k) for k in range(len(view.free_devices))] + [best_across(view)]
    others = [plan for plan in plans if plan is not None and plan not in (one.plan, view.current_plan)]
    others += [] if one.plan is None else [None]
    if not others:
        return False, None
    played = play_choices(policy, view, [one.plan, *others], futures=8)[1:]
    known = [(row.reward.mean, i) for i, row in enumerate(played) if row is not None]
    return (True, others[max(known)[1]]) if known else (False, None)


def ceiling(halves: list[np.ndarray]) -> float:
    """Reliability of the whole from the correlation of its halves."""
    rho = rank_correlation(*halves)
    return 2.0 * rho / (1.0 + rho)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=57_000)
    parser.add_argument("--decisions", type=int, default=100)
    parser.add_argument("--futures", type=int, default=192)
    parser.add_argument("--truth", type=int, default=1024)
    parser.add_argument("--policy", default="hi-ppo")
    parser.add_argument("--seconds", type=float, default=500.0, help="stop then and print what there is")
    parser.add_argument("--preset", default="cross-domain-easy")
    parser.add_argument("--runs", type=Path, default=Path("explain_brought.jsonl"), help="a line per decision")
    args = parser.parse_args()
    policy, began = make_policy(args.policy), time.process_time()
    taken = days(load_settings(args.preset).build_world(), policy, args.seed, 3 * args.decisions, per_day=100)
    lines = [json.loads(line) for line in args.runs.read_text().splitlines()] if args.runs.exists() else []
    known = {line["key"] for line in lines}
    for one in spread(taken, 3 * args.decisions):
        key = f"{args.preset} {args.policy} {one.id} {args.futures} {args.truth}"
        if len(lines) >= args.decisions or time.process_time() - began > args.seconds:
            break
        if key in known or (line := of_one(policy, one, args)) is None:
            continue
        lines.append({"key": key, **line})
        with args.runs.open("a") as file:
            file.write(json.dumps(lines[-1]) + "\n")
    told = [tuple(np.array(line[name]) for name in ("mean", "bounds", "halves", "error")) for line in lines]
    report(args, told, np.array([line["crossing"] for line in lines], dtype=bool), [line["took"] for line in lines])


def of_one(policy: Policy, one: Decided, args: argparse.Namespace) -> dict[str, object] | None:
    """Shares as the product tells them and in other futures; None where there is nothing to compare."""
    there, other = best_other(policy, one)
    if not there:
        return None
    start = time.process_time()
    said = brought(policy, one.view, one.plan, other, futures=args.futures, seed=1)
    took = time.process_time() - start
    real = [brought(policy, one.view, one.plan, other, futures=args.truth // 2, seed=seed) for seed in (2, 3)]
    if said is None or None in real:
        return None
    halves = np.stack([of_drivers(half, "mean") for half in real])
    freedom = args.truth // 2 - 1.0
    error = np.linalg.norm([of_drivers(half, "half_width") for half in real], axis=0) / 2.0 / quantile(freedom, 0.975)
    plans = [plan for plan in (one.plan, other) if plan is not None]
    return {
        "mean": of_drivers(said, "mean").tolist(), "halves": halves.tolist(), "error": error.tolist(), "took": took,
        "bounds": np.stack([of_drivers(said, "low"), of_drivers(said, "high")], axis=-1).tolist(),
        "crossing": any(len(set(plan.domains)) > 1 for plan in plans),
    }  # fmt: skip


def of_drivers(told: Brought, name: str) -> np.ndarray:
    """A number of every driver's spans, (drivers, components)."""
    return np.array([[getattr(span, name) for span in driver.spans] for driver in told.drivers])


def report(args: argparse.Namespace, told: list, crossing: np.ndarray, took: list[float]) -> None:
    """Print the table."""
    print(f"{len(told)} decisions of {args.policy}, seed {args.seed}, {args.futures} futures against {args.truth}")
    print("| component | ρ over all drivers | ρ within a decision | ceiling | covered | wide | certain driver |")
    print("|---|---|---|---|---|---|---|")
    for c, name in enumerate(COMPONENTS):
        mean = np.concatenate([each[0][:, c] for each in told])
        halves = [np.concatenate([each[2][h, :, c] for each in told]) for h in range(2)]
        real = (halves[0] + halves[1]) / 2.0
        low, high = (np.concatenate([each[1][:, c, side] for each in told]) for side in range(2))
        error = np.concatenate([each[3][:, c] for each in told])
        moving = np.maximum(np.abs(real), np.abs(mean)) >= PRINTED
        inside = (low <= real) & (real <= high)
        # Two errors that know nothing of each other add up in quadrature.
        wide = np.abs(mean - real) <= np.hypot((high - low) / 2.0, 1.96 * error)
        each_rho = [rank_correlation(e[0][:, c], e[2][:, :, c].mean(axis=0)) for e in told]
        certain = np.array([bool(((e[1][:, c, 0] > 0) | (e[1][:, c, 1] < 0)).any()) for e in told])
        cross = f"{certain.mean():.2f}, crossing {certain[crossing].mean():.2f} of {crossing.sum()}"
        print(
            f"| {name} | {rank_correlation(mean[moving], real[moving]):.3f} | {np.nanmean(each_rho):.3f} | "
            f"{ceiling([half[moving] for half in halves]):.3f} | {inside[moving].mean():.3f} | "
            f"{wide[moving].mean():.3f} | {cross} |"
        )
    print(f"CPU s a decision: median {np.median(took):.2f}, p95 {np.quantile(took, 0.95):.2f}", flush=True)


if __name__ == "__main__":
    main()
