"""Counters to package watts on a real server, judged on time the model has not seen.

    ATTRIBUTION_SCHED_DATA=<tables> python benchmarks/kepler_energy_model.py
    ATTRIBUTION_SCHED_DATA=<tables> python benchmarks/kepler_energy_model.py --blocks    # both meters, block by block

Every row of the table is nested: within each of five outer folds the model chooses its candidate, its blend
weight and its interval widths by its own inner blocks, and is then asked once about the outer fold.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time
from dataclasses import dataclass

import numpy as np

from attribution_sched.attribution.energy_candidates import (
    Folds,
    Score,
    blocked_folds,
    score,
    shuffled_folds,
)
from attribution_sched.attribution.energy_model import EnergyModel
from attribution_sched.attribution.recording_presets import KEPLER_COUNTERS, kepler

FOLDS = 5


@dataclass(frozen=True)
class Outcome:
    """What a nested evaluation found."""

    score: Score
    coverage: tuple[float, ...]
    width_w: float
    chosen: tuple[str, ...]
    cpu_time_s: float


def nested(candidates: tuple[object, ...], folds: Folds, seed: int = 0, meter: str = "package_power_w") -> Outcome:
    """Fit and choose inside, test outside, for every outer fold of the recording."""
    recording = kepler()
    x, y = recording.select(KEPLER_COUNTERS), recording.column(meter)
    times = recording.timestamps_s
    assert times is not None
    start = time.process_time()
    predicted, width = np.empty_like(y), np.empty_like(y)
    coverage, chosen = [], []
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(y)), fold)
        model = EnergyModel(candidates, names=KEPLER_COUNTERS, unit="W", seed=seed)  # type: ignore[arg-type]
        model.fit(x[rest], y[rest], times[rest])
        predicted[fold] = model.predict(x[fold])
        low, high = model.interval(x[fold])
        coverage.append(float(((low <= y[fold]) & (y[fold] <= high)).mean()))
        width[fold] = high - low
        chosen.append(model.report.chosen)
    cpu_time_s = time.process_time() - start
    return Outcome(score(y, predicted), tuple(coverage), float(width.mean()), tuple(chosen), cpu_time_s)


def main() -> None:
    """Print the table."""
    import torch
    from sklearn.linear_model import LinearRegression

    torch.set_num_threads(1)
    n = len(kepler())
    if "--blocks" in sys.argv:
        print("| meter | model | MAE W | 90 % interval covers, by time block | mean width W |\n|---|---|---|---|---|")
        for meter in ("package_power_w", "dram_power_w"):
            for name, single in (("linear", (LinearRegression(),)), ("boosting", ("boosting",))):
                o = nested(single, blocked_folds(n, FOLDS), meter=meter)
                shares = " · ".join(f"{share:.3f}" for share in o.coverage)
                print(f"| {meter} | {name} | {o.score.mae:.2f} | {shares} | {o.width_w:.1f} |", flush=True)
        return
    splits = {"blocked": blocked_folds(n, FOLDS), "shuffled": shuffled_folds(n, FOLDS, 0)}
    rows: tuple[tuple[str, tuple[object, ...]], ...] = (
        ("linear", (LinearRegression(),)),
        ("boosting", ("boosting",)),
        ("network", ("network",)),
        ("chosen (boosting, network, blend)", ("boosting", "network", "blend")),
    )
    print(f"kepler nx12, package watts, {n} rows, {FOLDS} outer folds, 90 % intervals")
    print("| model | split | MAE W | R2 | coverage (min-max over folds) | mean width W | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name, candidates in rows:
        for split, folds in splits.items():
            o = nested(candidates, folds)
            sizes = [len(f) for f in folds]
            mean = float(np.average(o.coverage, weights=sizes))
            spread = f"{mean:.3f} ({min(o.coverage):.2f}-{max(o.coverage):.2f})"
            numbers = f"{o.score.mae:.2f} | {o.score.r2:.4f} | {spread} | {o.width_w:.1f} | {o.cpu_time_s:.0f}"
            print(f"| {name} | {split} | {numbers} |")
            if len(candidates) > 1:
                print(f"  chosen per fold: {', '.join(o.chosen)}")


if __name__ == "__main__":
    main()
