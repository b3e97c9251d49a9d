"""Fit kernel and collective efficiencies to five published Megatron-LM runs; write ``constants/steps.json``.

Run: ``python calibration/fit_steps.py``
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from megatron_scaling import ROWS, predict  # noqa: E402

from attribution_sched.cluster.compute import Efficiencies  # noqa: E402

TARGET = ROOT / "attribution_sched" / "cluster" / "constants" / "steps.json"
MEMORY_EFFICIENCY = 0.8
COLLECTIVE_LATENCY_S = 2e-6
LOW, HIGH = np.array([0.4, 0.1, 0.4, 0.4]), np.array([0.95, 1.5, 0.95, 1.0])


def unpack(x: np.ndarray) -> Efficiencies:
    """Map the search vector to efficiencies inside their physical bounds."""
    compute, moved, nvlink, fabric = LOW + (HIGH - LOW) / (1 + np.exp(-x))
    return Efficiencies(
        round(float(compute), 3), MEMORY_EFFICIENCY, round(float(moved), 3), round(float(nvlink), 3),
        round(float(fabric), 3), COLLECTIVE_LATENCY_S,
    )  # fmt: skip


def loss(x: np.ndarray) -> float:
    """Worst error over the fitted rows, plus a little of the mean so that the optimum is unique."""
    errors = [abs(predict(r, unpack(x))[0] / r.published_tflops - 1) for r in ROWS if r.fitted]
    return max(errors) + 0.1 * float(np.mean(errors))


def main() -> None:
    """Fit and write."""
    simplex = np.vstack([np.zeros(4), np.eye(4)])
    options = {"maxiter": 200, "xatol": 1e-2, "fatol": 1e-4, "initial_simplex": simplex}
    found = minimize(loss, np.zeros(4), method="Nelder-Mead", options=options)
    best = unpack(found.x)
    errors = {r.name: predict(r, best)[0] / r.published_tflops - 1 for r in ROWS}
    fitted = [abs(errors[r.name]) for r in ROWS if r.fitted]
    others = [abs(errors[r.name]) for r in ROWS if not r.fitted]
    result = {
        "source": {
            "dataset": "Megatron-LM weak scaling, table 1: rows 1.7B, 7.5B, 39.1B, 145.6B, 529.6B",
            "paper": "Narayanan et al., SC 2021 (arXiv 2104.04473)",
            "assumed": "memory efficiency and collective latency",
        },
        "errors": {
            "fitted_mean": round(float(np.mean(fitted)), 4), "fitted_worst": round(max(fitted), 4),
            "held_out_mean": round(float(np.mean(others)), 4), "held_out_worst": round(max(others), 4),
        },
        "efficiencies": asdict(best),
    }  # fmt: skip
    TARGET.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
