"""Fit what jobs that share a GPU demand of host, compute, memory and PCIe.

Writes ``attribution_sched/cluster/constants/interference.json``. Run from the repository root with the
measured tables in ``$ATTRIBUTION_SCHED_DATA``::

    python calibration/fit_interference.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd

from attribution_sched.cluster.interference import (
    MEMORY_EFFICIENCY,
    PCIE_BYTES_PER_S,
    RESOURCES,
    fit_demands,
    summed_throughput,
)

OUT = Path("attribution_sched/cluster/constants/interference.json")
SOURCE = {
    "dataset": "gavel",
    "repository": "https://github.com/stanford-futuredata/gavel",
    "commit": "c4fa40097339e9608ab71fd64c8bdea96a5e4a4c",
    "licence": "MIT",
}

# Per sample: training FLOPs, bytes moved in device memory, input bytes. ResNet-50 on 224x224 images,
# ResNet-18 on 32x32 images, Transformer (d 512, 6+6 layers) on sentence pairs of about 15 tokens.
# Moved bytes: three passes over about six reads and writes of every activation in FP32.
ARITHMETIC = {
    "ResNet-50": (6 * 4.09e9, 3 * 6 * 4 * 11.1e6, 4 * 3 * 224**2),
    "ResNet-18": (6 * 0.56e9, 3 * 6 * 4 * 0.6e6, 4 * 3 * 32**2),
    "Transformer": (6 * 49e6 * 15, 3 * 6 * 4 * 15 * 12 * 6 * 512, 8 * 15),
}
FLOPS_PER_S = {"ResNet-50": 0.565, "ResNet-18": 0.565, "Transformer": 0.754}
DEVICE = {"v100": (15.7e12, 900e9), "p100": (10.6e12, 732e9)}
ANCHORED, FREE = 0.03, 0.003


def job_name(model: str, batch: float) -> str:
    """Name of a job in the co-location table."""
    return model if np.isnan(batch) else f"{model} (batch size {int(batch)})"


def load(worker: str) -> tuple[list[str], np.ndarray, np.ndarray, pd.DataFrame]:
    """Jobs, unordered pairs, their mean normalised throughputs (0: did not fit), and isolated rates."""
    folder = Path(os.environ["ATTRIBUTION_SCHED_DATA"]) / "gavel"
    alone = pd.read_csv(folder / "isolated_throughput.csv")
    alone = alone[(alone["worker"] == worker) & (alone["scale_factor"] == 1) & (alone["consolidated"] == 1)].copy()
    alone["job"] = [job_name(m, b) for m, b in zip(alone["model"], alone["batch_size"], strict=True)]
    alone = alone[alone["steps_per_s"] > 0].sort_values("job").reset_index(drop=True)
    rate, index = (
        dict(zip(alone["job"], alone["steps_per_s"], strict=True)),
        {j: i for i, j in enumerate(alone["job"])},
    )
    shared = pd.read_csv(folder / "colocated_throughput.csv")
    shared = shared[(shared["worker"] == worker) & (shared["scale_factor"] == 1)]
    found: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for row in shared.itertuples():
        if row.job_a not in rate or row.job_b not in rate:
            continue
        a, b = index[row.job_a], index[row.job_b]
        values = (row.steps_per_s_a / rate[row.job_a], row.steps_per_s_b / rate[row.job_b])
        key, values = ((a, b), values) if a <= b else ((b, a), values[::-1])
        found.setdefault(key, []).append(values)
    pairs = np.array(list(found), dtype=np.int64)
    throughput = np.array([np.mean(v, axis=0) for v in found.values()])
    return list(alone["job"]), pairs, throughput, alone


def arithmetic(alone: pd.DataFrame, worker: str) -> np.ndarray:
    """Busy shares by arithmetic, ``(n_jobs, R)``; NaN rows where a job's arithmetic is not modelled."""
    peak, bandwidth = DEVICE[worker]
    out = np.full((len(alone), len(RESOURCES)), np.nan)
    for i, row in enumerate(alone.itertuples()):
        if row.model in ARITHMETIC:
            flops, moved, inputs = ARITHMETIC[row.model]
            samples_per_s = row.batch_size * row.steps_per_s
            compute = min(1.0, flops * samples_per_s / (FLOPS_PER_S[row.model] * peak))
            memory = min(1.0, moved * samples_per_s / (MEMORY_EFFICIENCY * bandwidth))
            out[i] = (1 - max(compute, memory), compute, memory, inputs * samples_per_s / PCIE_BYTES_PER_S)
    return out


def prior_of(alone: pd.DataFrame, worker: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arithmetic, prior and prior weight of every job's demands."""
    known = arithmetic(alone, worker)
    anchored = ~np.isnan(known).any(1)
    prior = np.where(anchored[:, None], known, [0.5, 0.4, 0.3, 0.2])
    weight = np.where(anchored[:, None], ANCHORED, FREE) * np.ones_like(prior)
    return known, prior, weight / len(alone) * 10


def held_out(worker: str, seeds: range) -> list[dict[str, float]]:
    """Median errors on a random 20 % of the pairs that were not fitted, one row per seed."""
    _, pairs, throughput, alone = load(worker)
    fits = (throughput > 0).all(1)
    pairs, throughput = pairs[fits], throughput[fits]
    _, prior, weight = prior_of(alone, worker)
    rows = []
    for seed in seeds:
        test = np.zeros(len(pairs), bool)
        test[np.random.default_rng(seed).permutation(len(pairs))[: len(pairs) // 5]] = True
        demands, strength = fit_demands(pairs[~test], throughput[~test], prior, weight)
        predicted = summed_throughput(demands[pairs[:, 0]], demands[pairs[:, 1]], strength)
        error = np.abs(predicted - throughput.sum(1))
        constant = np.abs(np.median(throughput[~test].sum(1)) - throughput.sum(1))
        rows.append(
            {
                "seed": seed,
                "pairs": int(test.sum()),
                "in_sample": float(np.median(error[~test])),
                "held_out": float(np.median(error[test])),
                "held_out_mean": float(np.mean(error[test])),
                "constant": float(np.median(constant[test])),
            }
        )
    return rows


def main() -> None:
    """Fit all pairs, compare with the held-out errors and write the constants."""
    constants: dict[str, object] = {"source": SOURCE, "resources": list(RESOURCES)}
    for worker in ("v100", "p100"):
        jobs, pairs, throughput, alone = load(worker)
        fits = (throughput > 0).all(1)
        known, prior, weight = prior_of(alone, worker)
        demands, strength = fit_demands(pairs[fits], throughput[fits], prior, weight)
        predicted = summed_throughput(demands[pairs[fits, 0]], demands[pairs[fits, 1]], strength)
        rows = held_out(worker, range(10))
        group = {
            "rows": int(fits.sum()), "pairs_that_do_not_fit": int((~fits).sum()),
            "error_unit": "median absolute error of summed normalised throughput",
            "in_sample": float(np.median(np.abs(predicted - throughput[fits].sum(1)))),
            "held_out_by_seed": [round(r["held_out"], 4) for r in rows],
            "held_out_note": "prior weights and epsilon were chosen on seeds 0 to 5 of the V100",
            "held_out": float(np.mean([r["held_out"] for r in rows])),
            "held_out_constant_guess": float(np.mean([r["constant"] for r in rows])),
        }  # fmt: skip
        constants[worker] = group
        print(worker, json.dumps(group, indent=1), strength.round(3))
        print(
            pd.DataFrame(np.hstack([demands, known]), index=jobs, columns=[*RESOURCES, *(f"{r}*" for r in RESOURCES)])
            .round(2)
            .to_string()
        )
        if worker == "v100":
            anchored = ~np.isnan(known).any(1)
            gain = (known[anchored] * demands[anchored]).sum(0) / (known[anchored] ** 2).sum(0)
            constants["strength"] = [float(f"{k:.5g}") for k in strength]
            constants["gain"] = [float(f"{g:.5g}") for g in gain]
            constants["gain_how"] = "least squares through the origin, fitted demand on arithmetic busy share"
            measured = np.percentile(1.0 / throughput[fits], 95)
            constants["slowdown_cap"] = float(f"{measured:.4g}")
            constants["slowdown_cap_how"] = "95th percentile of the measured slow-downs; worse ones are not resolved"
            constants["jobs_v100"] = {j: [round(float(x), 4) for x in d] for j, d in zip(jobs, demands, strict=True)}
            print("gain", gain)
    OUT.write_text(json.dumps(constants, indent=1) + "\n")


if __name__ == "__main__":
    main()
