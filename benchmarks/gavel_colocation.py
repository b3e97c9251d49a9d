"""Predict the throughput of two jobs that share a GPU, for pairs the fit never saw.

A random fifth of the unordered pairs is held out, the demand vectors and couplings are fitted to the
rest, and the summed normalised throughput (1.0: as if they took turns, 2.0: no interference) of the held-out
pairs is predicted. ``constant`` guesses the median of the fitted pairs. Run with the measured tables in
``$ATTRIBUTION_SCHED_DATA``::

    python benchmarks/gavel_colocation.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "calibration"))
from fit_interference import held_out, load, prior_of

TARGET = 0.15
SEEDS = range(10)


def memory_fit(worker: str, seeds: range) -> float:
    """Held-out accuracy of predicting which pairs fit in memory from one additive need per job."""
    from sklearn.linear_model import LogisticRegression

    jobs, pairs, throughput, _ = load(worker)
    fits = (throughput > 0).all(1)
    use = np.zeros((len(pairs), len(jobs)))
    np.add.at(use, (np.arange(len(pairs)), pairs[:, 0]), 1.0)
    np.add.at(use, (np.arange(len(pairs)), pairs[:, 1]), 1.0)
    scores = []
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(pairs))
        test, train = order[: len(order) // 5], order[len(order) // 5 :]
        # Balanced accuracy: only one pair in sixteen does not fit.
        model = LogisticRegression(C=10.0, class_weight="balanced", max_iter=2000).fit(use[train], fits[train])
        guess = model.predict(use[test])
        parts = [np.mean(guess[fits[test] == kind] == kind) for kind in (True, False) if (fits[test] == kind).any()]
        scores.append(float(np.mean(parts)))
    return float(np.mean(scores))


def main() -> None:
    """Print one table per GPU."""
    for worker in ("v100", "p100"):
        rows = pd.DataFrame(held_out(worker, SEEDS))
        print(f"{worker}: median absolute error of summed normalised throughput")
        print(rows.to_string(index=False, float_format=lambda v: f"{v:.3f}"))
        mean = rows.drop(columns=["seed", "pairs"]).mean()
        print("mean   " + "  ".join(f"{name} {value:.3f}" for name, value in mean.items()))
        print(f"fits in memory, balanced accuracy on held-out pairs: {memory_fit(worker, SEEDS):.2f}")
        anchored = np.isfinite(prior_of(load(worker)[3], worker)[0]).all(1)
        print(f"jobs with arithmetic anchors: {int(anchored.sum())}\n")
    print(f"target on v100: mean held_out <= {TARGET}")


if __name__ == "__main__":
    main()
