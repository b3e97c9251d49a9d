"""Twenty correlated counters: sampled coalitions against the exact conditional Shapley values.

    python benchmarks/conditional_shapley_d20.py            # writes docs/results_attribution.md
    python benchmarks/conditional_shapley_d20.py --quick    # fewer rows and one seed, prints only

Gaussian counters and a quadratic function: the value of each of the 1,048,576 coalitions is then closed-form.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.conditional_shapley import write_section
from benchmarks.conditional_truth import (
    GaussianWorld,
    quadratic_energy,
    quadratic_gaussian_values,
    shapley_from_values,
)

D = 20


def exact(made: GaussianWorld, rows: np.ndarray) -> np.ndarray:
    """Shapley values of :func:`quadratic_energy` over all coalitions, (rows, 20)."""
    signs = np.where(np.arange(D) % 2 == 0, 1.0, -1.0)
    form = np.diag(0.5 * signs) + 0.3 * (np.eye(D, k=1) + np.eye(D, k=-1))
    return shapley_from_values(quadratic_gaussian_values(made.cov, np.full(D, 0.7), form, rows), D)


def shap_permutation(train: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Marginal Shapley values by shap's permutation explainer."""
    import shap

    masker = shap.maskers.Independent(train[:100], max_samples=100)
    return np.asarray(shap.explainers.Permutation(quadratic_energy, masker)(rows, silent=True).values)


def shapiq_gaussian(train: np.ndarray, rows: np.ndarray, budget: int) -> np.ndarray:
    """Conditional values by shapiq's Gaussian imputer and its kernel regression."""
    import shapiq
    from shapiq import imputer

    made = imputer.GaussianImputer(quadratic_energy, train, sample_size=100, random_state=0)
    out = np.empty(rows.shape)
    for i, row in enumerate(rows):
        made.fit(row)
        answer = shapiq.KernelSHAP(n=D, random_state=0).approximate(budget, made)
        out[i] = [answer[(j,)] for j in range(D)]
    return out


def measure(seed: int, n_rows: int) -> dict[str, dict[str, Any]]:
    """Error, time and coverage of every method for one seed."""
    from attribution_sched.attribution import EmSHAP

    made = GaussianWorld(dimension=D)
    train = made.sample(2000, np.random.default_rng([31, seed]))
    rows = made.sample(n_rows, np.random.default_rng([32, seed]))
    truth = exact(made, rows)
    out: dict[str, dict[str, Any]] = {}

    def note(name: str, phi: np.ndarray, spent: float, **more: Any) -> None:
        error = float(np.abs(phi - truth).mean() / np.abs(truth).mean())
        out[name] = {"error": error, "row_s": spent / n_rows, **more}
        print(f"seed {seed} {name}: {out[name]}", flush=True)

    shap_permutation(train, rows[:1])
    start = time.process_time()
    note("shap Permutation (marginal)", shap_permutation(train, rows), time.process_time() - start)
    start = time.process_time()
    note(
        "shapiq Gaussian + KernelSHAP, 2,048 coalitions",
        shapiq_gaussian(train, rows, 2048),
        time.process_time() - start,
    )
    start = time.process_time()
    model = EmSHAP().fit(train)
    fit_s = time.process_time() - start
    for budget in (1024, 2048, 4096):
        model.set_params(n_coalitions=budget, replicates=8)
        start = time.process_time()
        got = model.attribute(quadratic_energy, rows)
        spent = time.process_time() - start
        low, high = got.interval(0.95)
        inside = float(((low <= truth) & (truth <= high)).mean())
        note(
            f"EmSHAP auto, {budget:,} coalitions",
            got.values,
            spent,
            fit_s=fit_s,
            model=model.model_.kind,
            coverage=inside,
        )
    return out


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, 5 rows, nothing written")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    n_rows = 5 if options.quick else 20
    results = [measure(seed, n_rows) for seed in range(1 if options.quick else options.seeds)]
    lines = [
        "### Twenty counters, sampled coalitions",
        "",
        "Gaussian, correlation 0.7^|i-j|, quadratic function, 2,000 training rows, "
        f"{n_rows} test rows a seed, {len(results)} seeds.",
        "Truth: all 1,048,576 coalitions in closed form. Command: `python benchmarks/conditional_shapley_d20.py`",
        "",
        "| method | relative error, mean (range) | truth inside 95 % | s a row |",
        "|---|---|---|---|",
    ]
    for name in results[0]:
        errors = [r[name]["error"] for r in results]
        spent = np.mean([r[name]["row_s"] for r in results])
        inside = [r[name]["coverage"] for r in results if "coverage" in r[name]]
        covers = f"{np.mean(inside):.3f} ({min(inside):.2f}–{max(inside):.2f})" if inside else "–"
        span = f"{np.mean(errors):.3f} ({min(errors):.3f}–{max(errors):.3f})"
        lines.append(f"| {name} | {span} | {covers} | {spent:.3f} |")
    fit_s = np.mean([r["EmSHAP auto, 2,048 coalitions"]["fit_s"] for r in results])
    kinds = sorted({str(r["EmSHAP auto, 2,048 coalitions"]["model"]) for r in results})
    lines += [
        "",
        f"Fit of EmSHAP auto ({', '.join(kinds)}): {fit_s:.0f} s. Intervals are of the truth, model error in them.",
    ]
    text = "\n".join(lines)
    print(text)
    if not options.quick:
        write_section("conditional_shapley_d20", text)


if __name__ == "__main__":
    main()
