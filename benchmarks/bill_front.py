"""What a smaller traffic bill costs in throughput: exact fronts of several decisions.

    python benchmarks/bill_front.py                  # about two minutes
    python benchmarks/bill_front.py --output DIR     # also draws bill_front.png there

i1, i4 and i5 are two-region decisions of ``sailor_regions.py``; the others are tasks of the cross-domain-easy preset
(four regions of A100-80 at their base bandwidth) that find some of its devices taken. Each front runs from the fastest
plan to the one without cross-domain traffic, if there is one; the table gives the throughput to be given up for a bill
that is 10, 30, 50 or 100 % smaller. ``proven`` counts the points that no faster plan of as small a bill can exist for.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scheduler_instances import InstanceDecision, two_regions

from attribution_sched.cluster.cost import CostModel
from attribution_sched.config.sources import load_settings
from attribution_sched.planning.exact.solver import ExactSolver
from research.pareto_front import FrontPoint, pareto_front, price_of_saving

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SAVINGS = (0.1, 0.3, 0.5, 1.0)
BUDGET = 3_000_000
"""Effort of the proof per microbatch size and point."""

MAX_POINTS = 24
PRESET_DECISIONS = (("llama-2-70b", (8, 8, 8, 8)), ("opt-66b", (8, 4, 8, 4)), ("gpt3-13b", (4, 4, 4, 4)),
                    ("llama-2-7b", (2, 2, 2, 2)))  # fmt: skip


def preset_decision(model: str, free: tuple[int, ...]) -> InstanceDecision:
    """A task of the cross-domain-easy preset that finds so many devices free in each region."""
    world = load_settings("cross-domain-easy").build_world()
    kind = next(kind for kind in world.kinds if kind.model.name == model)
    cost = CostModel(world.cluster, [kind.model], [kind.training])
    wan = world.cluster.wan
    return InstanceDecision(
        f"{model} on {'+'.join(map(str, free))}", cost, kind.batch_size, kind.microbatches,
        np.array(wan.bandwidth_gbps), np.array(wan.latency_s), world.max_segments, free,
    )  # fmt: skip


def decisions() -> list[InstanceDecision]:
    """All decisions of the table."""
    found = [two_regions(name, blocking=True) for name in ("i1", "i4", "i5")]
    return found + [preset_decision(model, free) for model, free in PRESET_DECISIONS]


def draw_front(ax: Axes, name: str, front: tuple[FrontPoint, ...]) -> Axes:
    """Draw one front: share of the best throughput over share of the largest bill."""
    fastest = front[0]
    scale = fastest.bill_usd or 1.0
    bills = np.array([point.bill_usd / scale for point in front])
    speeds = np.array([fastest.step_s / point.step_s for point in front])
    ax.plot(bills, speeds, drawstyle="steps-pre", marker="o", markersize=4, label=name)
    return ax


def draw(fronts: dict[str, tuple[FrontPoint, ...]], path: Path) -> None:
    """Draw all fronts that have more than one point."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    for name, front in fronts.items():
        if len(front) > 1:
            draw_front(ax, name, front)
    ax.axvline(0.7, color="0.6", linewidth=1.0, linestyle="--")
    across = ax.get_xaxis_transform()
    ax.text(0.69, 0.02, "bill −30 %", rotation=90, ha="right", va="bottom", color="0.4", transform=across)
    ax.set(xlabel="traffic bill, share of the fastest plan's", ylabel="throughput, share of the fastest plan's")
    ax.set_xlim(-0.03, 1.03)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print the table; draw the fronts if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="folder for bill_front.png")
    given = parser.parse_args()
    heads = "".join(f"{f'-{saving:.0%} bill':>12}" for saving in SAVINGS)
    print(f"{'decision':<26}{'step s':>9}{'$/step':>8}{'points':>8}{'proven':>8}{heads}{'CPU s':>8}")
    fronts: dict[str, tuple[FrontPoint, ...]] = {}
    for decision in decisions():
        begun = time.process_time()
        front = pareto_front(decision.problem(), ExactSolver(BUDGET), MAX_POINTS)
        seconds = time.process_time() - begun
        fronts[decision.name] = front
        prices = [price_of_saving(front, saving) for saving in SAVINGS]
        cells = "".join(f"{'-':>12}" if np.isnan(p) else f"{-100 * p:>10.1f} %" for p in prices)
        print(
            f"{decision.name:<26}{front[0].step_s:>9.3f}{front[0].bill_usd:>8.3f}{len(front):>8}"
            f"{sum(point.proven for point in front):>8}{cells}{seconds:>8.1f}",
            flush=True,
        )
    if given.output:
        given.output.mkdir(parents=True, exist_ok=True)
        draw(fronts, given.output / "bill_front.png")


if __name__ == "__main__":
    main()
