"""Where dual smoothing overtakes integer programming: time and value over the size of the assignment problem.

    python benchmarks/assignment_crossover.py                     # crossover, about two minutes
    python benchmarks/assignment_crossover.py --output DIR        # also writes crossover.json and crossover.png there
    python benchmarks/assignment_crossover.py --quality           # distance to HiGHS over 36 instances, four minutes

HiGHS solves every instance twice, to a gap of 1 % and of 0.01 %, dual smoothing once with its defaults; all three in
one run, one thread, side by side. Each cell gives the seconds, the value as a share of the best value anybody found,
and the gap between the solver's own bound and value. A run that meets its time limit is marked ``*``: its ratio is a
lower limit of the true one.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched.rivals.assignment import Assignment, Solution
from attribution_sched.rivals.assignment_solvers import solve_dual_smoothing, solve_milp

FAMILIES = ("uniform", "generic", "correlated", "subset-sum", "tight")
SIZES = ((20, 5), (50, 10), (100, 10), (200, 20), (500, 30), (1000, 40), (2000, 50))
QUALITY_SIZES = ((20, 5), (50, 10), (200, 20))
QUALITY_FAMILIES = ("generic", "correlated", "subset-sum", "tight")
GAPS = {"milp 1 %": 1e-2, "milp 0.01 %": 1e-4}
DUAL = "dual smoothing"
Row = dict[str, Any]


def random_problem(family: str, n: int, m: int, seed: int) -> Assignment:
    """A generalised assignment problem in which not every task finds room.

    ``generic`` and ``correlated`` are types C and D of the literature turned into maximisation: whole numbers,
    capacity for four fifths of the mean demand, utility independent of demand or rising with it. In ``subset-sum``
    utility is demand and the same everywhere, as in utilisation; ``uniform`` has real numbers; ``tight`` has room
    for three tenths.
    """
    rng = np.random.default_rng([seed, n, m])
    if family == "subset-sum":
        demand = np.repeat(rng.integers(1, 101, (n, 1)).astype(float), m, axis=1)
        share = rng.uniform(0.5, 1.5, m)
        return Assignment(demand, demand, np.floor(0.8 * demand[:, 0].sum() * share / share.sum()))
    if family == "correlated":
        demand = rng.integers(1, 101, (n, m)).astype(float)
        utility = demand + rng.integers(0, 21, (n, m))
    elif family == "generic":
        demand, utility = rng.integers(5, 26, (n, m)).astype(float), rng.integers(10, 51, (n, m)).astype(float)
    else:
        demand, utility = rng.uniform(5.0, 25.0, (n, m)), rng.uniform(10.0, 50.0, (n, m))
    return Assignment(utility, demand, (0.3 if family == "tight" else 0.8) * demand.sum(axis=0) / m)


def solvers(limit_s: float) -> dict[str, Callable[[Assignment], Solution]]:
    """All three, by name."""

    def milp(gap: float) -> Callable[[Assignment], Solution]:
        return lambda programme: solve_milp(programme, limit_s, gap)

    return {name: milp(gap) for name, gap in GAPS.items()} | {DUAL: solve_dual_smoothing}


def measure(family: str, n: int, m: int, seed: int, limit_s: float) -> Row:
    """Solve one instance by everybody."""
    programme = random_problem(family, n, m, seed)
    row: Row = {"family": family, "tasks": n, "columns": m, "seed": seed}
    for name, solve in solvers(limit_s).items():
        found = solve(programme)
        if not programme.feasible(found.choice):
            raise RuntimeError(f"{name} returned an infeasible choice on {row}")
        row[name] = {
            "seconds": found.seconds,
            "value": found.value,
            "bound": found.bound,
            "status": found.status,
            "gap": found.relative_gap,
        }
    row["best_value"] = max(row[name]["value"] for name in solvers(limit_s))
    row["best_bound"] = min(row[name]["bound"] for name in solvers(limit_s))
    return row


def crossover(family: str, sizes: Sequence[tuple[int, int]], limit_s: float) -> list[Row]:
    """Measure one instance per size and print it as it comes."""
    print(f"\n{family}: seconds, value as a share of the best, own gap; ratio = HiGHS' time over dual smoothing's")
    print(f"{'size':>9} " + " ".join(f"{name:>26}" for name in (*GAPS, DUAL)) + "   ratio 1 %  ratio 0.01 %")
    rows = []
    for n, m in sizes:
        row = measure(family, n, m, 0, limit_s)
        cells = [
            f"{row[name]['seconds']:7.2f}{'*' if row[name]['status'] == 'time limit' else ' '} "
            f"{100 * row[name]['value'] / row['best_value']:7.2f} % {100 * row[name]['gap']:5.2f} %"
            for name in (*GAPS, DUAL)
        ]
        ratios = [row[name]["seconds"] / row[DUAL]["seconds"] for name in GAPS]
        line = " ".join(f"{cell:>26}" for cell in cells) + "  " + " ".join(f"{ratio:10.1f}" for ratio in ratios)
        print(f"{n:>5}x{m:<3} {line}", flush=True)
        rows.append(row)
    return rows


def quality(limit_s: float, seeds: int) -> list[Row]:
    """Distance of dual smoothing to the best value HiGHS finds in its time, over many instances."""
    rows = []
    print(
        f"\ndual smoothing against HiGHS (0.01 %, {limit_s:.0f} s): shortfall of the value, negative where it is better"
    )
    print(f"{'family':>11} {'size':>8} {'proven':>7} {'mean':>8} {'worst':>8} {'dual s':>8} {'HiGHS s':>8}")
    for family in QUALITY_FAMILIES:
        for n, m in QUALITY_SIZES:
            group = []
            for seed in range(seeds):
                programme = random_problem(family, n, m, seed)
                rival, found = solve_milp(programme, limit_s, 1e-4), solve_dual_smoothing(programme)
                group.append(
                    {
                        "family": family,
                        "tasks": n,
                        "columns": m,
                        "seed": seed,
                        "proven": rival.status == "optimal",
                        "shortfall": 1.0 - found.value / rival.value,
                        "gap": found.relative_gap,
                        "dual_s": found.seconds,
                        "milp_s": rival.seconds,
                    }
                )
            short = [row["shortfall"] for row in group]
            proven = sum(row["proven"] for row in group)
            dual_s, milp_s = (np.mean([row[name] for row in group]) for name in ("dual_s", "milp_s"))
            figures = f"{100 * np.mean(short):6.3f} % {100 * max(short):6.3f} % {dual_s:8.3f} {milp_s:8.2f}"
            print(f"{family:>11} {n:>4}x{m:<3} {proven:>4}/{seeds} {figures}", flush=True)
            rows += group
    short = [row["shortfall"] for row in rows]
    within = sum(s <= 0.01 for s in short)
    print(f"all {len(rows)} instances: mean {100 * np.mean(short):.3f} %, worst {100 * max(short):.3f} %, "
          f"within 1 %: {within}/{len(rows)}")  # fmt: skip
    return rows


def draw(rows: list[Row], path: Path, limit_s: float) -> None:
    """Plot time over the number of pairs, one panel per family."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    families = list(dict.fromkeys(row["family"] for row in rows))
    figure, axes = plt.subplots(1, len(families), figsize=(6 * len(families), 4.2), squeeze=False, sharey=True)
    for axis, family in zip(axes[0], families, strict=True):
        mine = [row for row in rows if row["family"] == family]
        pairs = [row["tasks"] * row["columns"] for row in mine]
        for name, marker in zip((*GAPS, DUAL), "so^", strict=True):
            axis.loglog(pairs, [row[name]["seconds"] for row in mine], marker=marker, label=name)
        axis.axhline(limit_s, color="grey", linestyle=":", label=f"time limit {limit_s:.0f} s")
        axis.set(title=family, xlabel="tasks × columns", ylabel="seconds")
        axis.grid(alpha=0.3)
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse arguments, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=["uniform"])
    parser.add_argument("--limit", type=float, default=20.0, help="seconds HiGHS may take per instance")
    parser.add_argument("--quality", action="store_true", help="measure the distance to HiGHS instead")
    parser.add_argument("--seeds", type=int, default=3, help="instances per family and size of --quality")
    parser.add_argument("--output", type=Path, help="folder for JSON and plot")
    parser.add_argument("--quick", action="store_true", help="the three smallest sizes, a limit of 2 s")
    given = parser.parse_args(arguments)
    solve_dual_smoothing(random_problem("uniform", 4, 2, 0))  # compiles
    if given.quality:
        # A third of the limit keeps 36 instances within minutes.
        found = {"quality": quality(2.0 if given.quick else 0.4 * given.limit, given.seeds)}
    else:
        limit_s = 2.0 if given.quick else given.limit
        sizes = SIZES[:3] if given.quick else SIZES
        found = {"crossover": [row for family in given.families for row in crossover(family, sizes, limit_s)]}
    if given.output:
        given.output.mkdir(parents=True, exist_ok=True)
        for name, rows in found.items():
            (given.output / f"{name}.json").write_text(json.dumps(rows, indent=2))
        if "crossover" in found:
            draw(found["crossover"], given.output / "crossover.png", given.limit)


if __name__ == "__main__":
    main()
