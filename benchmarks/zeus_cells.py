"""Predict training cells that Zeus measured and the fit never saw: interior power caps and batch sizes.

Each cell is one (model, optimiser, batch size, cap) with its measured seconds per epoch. A cap is predicted from the
other caps of its cell, with the GPU-wide offset P0 refitted without that cap; a batch from the other batches of its
curve. This tests the form of the two laws on curves of which other points are known; what the world makes of a model's
name, and every watt, is tested in ``benchmarks/watts.py``. End points are extrapolations and are reported apart. Only
the V100 rows have targets. Run with the measured tables in ``$ATTRIBUTION_SCHED_DATA``::

    python benchmarks/zeus_cells.py
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd

from attribution_sched.cluster.power import cap_slowdown, fit_cap_beta
from attribution_sched.cluster.throughput import fit_floor_law, floor_law

GPUS = ("v100", "rtx6000", "p100", "a40")
CAP_TARGET, BATCH_TARGET = 0.04, 0.07
CURVE = ["dataset", "network", "optimizer"]


def load(gpu: str) -> pd.DataFrame:
    """The measured cells of one GPU."""
    return pd.read_csv(Path(os.environ["ATTRIBUTION_SCHED_DATA"]) / "zeus" / f"summary_power_{gpu}.csv")


def cap_predictions(table: pd.DataFrame) -> pd.DataFrame:
    """Predicted over measured time of every held-out cap; one row per cell and cap."""
    caps_all = np.sort(table["power_limit"].unique()).astype(float)
    cells = []
    for _, group in table.groupby([*CURVE, "batch_size"]):
        group = group.sort_values("power_limit")
        cells.append(group[["power_limit", "time_per_epoch", "average_power"]].to_numpy(float))
    rows = []
    for held in caps_all[:-1]:  # the largest cap defines the natural draw and is never held out
        p0 = best_offset([cell[cell[:, 0] != held] for cell in cells], caps_all[0])
        for cell in cells:
            mine, rest = cell[cell[:, 0] == held], cell[cell[:, 0] != held]
            if len(mine) != 1 or len(rest) < 3:
                continue
            natural = rest[-1, 2]
            beta = fit_cap_beta(rest[:, 0], rest[:, 1], natural, p0)
            time = cap_slowdown(natural, min(natural, held), p0, beta) * rest[-1, 1]
            rows.append((held, natural > held, time / mine[0, 1], held > caps_all[0]))
    return pd.DataFrame(rows, columns=["cap_w", "binds", "time", "interior"])


def best_offset(cells: list[np.ndarray], lowest_cap: float) -> float:
    """P0 with the least mean time error over the given cells."""
    scores = {}
    for p0 in np.arange(50.0, lowest_cap - 4, 2.0):
        errors = []
        for cell in cells:
            natural = cell[-1, 2]
            beta = fit_cap_beta(cell[:, 0], cell[:, 1], natural, p0)
            drawn = np.minimum(natural, cell[:, 0])
            errors.append(np.abs(cap_slowdown(natural, drawn, p0, beta) * cell[-1, 1] / cell[:, 1] - 1))
        scores[float(p0)] = float(np.mean(np.concatenate(errors)))
    return min(scores, key=scores.__getitem__)


def batch_predictions(table: pd.DataFrame) -> pd.DataFrame:
    """Predicted over measured epoch time of every held-out batch at the largest cap."""
    table = table[table["power_limit"] == table["power_limit"].max()]
    rows = []
    for _, group in table.groupby(CURVE):
        group = group.sort_values("batch_size")
        batch = group["batch_size"].to_numpy(float)
        steps = batch * group["time_per_epoch"].to_numpy(float)
        if len(batch) < 4:
            continue
        for i in range(len(batch)):
            keep = np.arange(len(batch)) != i
            floor, t1 = fit_floor_law(batch[keep], steps[keep], 2)
            time = floor_law(floor, t1, batch[i], 2) / steps[i]
            rows.append((batch[i], time, 0 < i < len(batch) - 1))
    return pd.DataFrame(rows, columns=["batch", "time", "interior"])


def errors(rows: pd.DataFrame) -> tuple[int, float, float]:
    """(cells, median time error, mean time error)."""
    off = np.abs(rows["time"] - 1)
    return len(rows), float(off.median()), float(off.mean())


def main() -> None:
    """Print one table for caps and one for batches."""
    titles = ("cells", "time med", "time mean")
    print(f"{'gpu':9}{'held out':26}" + "".join(f"{t:>{w}}" for t, w in zip(titles, (6, 10, 11), strict=True)))
    for gpu in GPUS:
        table = load(gpu)
        caps, batches = cap_predictions(table), batch_predictions(table)
        groups = {
            "interior caps": caps[caps["interior"]],
            "interior caps that bind": caps[caps["interior"] & caps["binds"]],
            "lowest cap": caps[~caps["interior"]],
            "interior batches": batches[batches["interior"]],
            "end batches": batches[~batches["interior"]],
        }
        for name, rows in groups.items():
            n, median, mean = errors(rows)
            print(f"{gpu:9}{name:26}{n:6}{median:10.1%}{mean:11.1%}")
    print(f"targets on v100 (time med): interior caps {CAP_TARGET:.0%}, interior batches {BATCH_TARGET:.0%}")


if __name__ == "__main__":
    main()
