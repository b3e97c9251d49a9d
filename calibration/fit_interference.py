"""Fit what jobs that share a GPU demand of host, compute, memory and the input path, and keep the measured pairs.

Writes ``attribution_sched/cluster/constants/interference.json`` (the law) and ``measured_jobs.json`` (26 jobs of the
table: throughput alone, counters from their arithmetic, demands fitted to pairs, and how each ran beside each). Run
from the repository root with the measured tables in ``$ATTRIBUTION_SCHED_DATA``::

    python calibration/fit_interference.py

Counters of a job come from its arithmetic and its throughput alone. Demands are fitted to pairs: they are what the
simulated device feels and no scheduler sees. Where a model family must count as unknown, :func:`left_out_demands` says
its demands from arithmetic and throughput by a regression over the other families.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.counters import COUNTER_NAMES, REFERENCES_PER_MISS
from attribution_sched.cluster.demands import CLOCK_HZ, LOADER_WORKERS, PREPARE_S_PER_ELEMENT
from attribution_sched.cluster.interference import (
    MEMORY_EFFICIENCY,
    PCIE_BYTES_PER_S,
    RESOURCES,
)
from research.interference_fit import fit_demands, pair_throughput

CONSTANTS = Path("attribution_sched/cluster/constants")
SOURCE = {
    "dataset": "gavel",
    "repository": "https://github.com/stanford-futuredata/gavel",
    "commit": "c4fa40097339e9608ab71fd64c8bdea96a5e4a4c",
    "licence": "MIT",
}
DEVICE = {"v100": (15.7e12, 900e9), "p100": (10.6e12, 732e9)}
MEMORY_BYTES = 16e9
COMPUTE_EFFICIENCY = 0.6
"""Achieved share of the FP32 peak, the same for all (ResNets reach 0.57, Transformers 0.75 in the shipped fits)."""

PRIOR, SPREAD_OF_COUPLING = 0.001, 0.001
"""Weight of the arithmetic prior of a demand, and of couplings near 1; see ``fit_demands``."""

INSTRUMENT_GAIN = (0.82809, 1.0355, 1.1172, 20.485)
"""What domain instruments show of the cost model's shares; kept from the first edition, whose networks read them."""


@dataclass(frozen=True)
class Arithmetic:
    """What one training sample of a model takes.

    Attributes:
        flops: Training FLOPs.
        moved: Bytes read and written in device memory.
        inputs: Bytes that come over the bus.
        prepare_s: Processor seconds to prepare it.
        split: Shares of convolution, matrix products and attention in the FLOPs.
        host_cores: Processor cores that work beside the loader whatever the rate.
        memory: Device bytes: fixed, and per sample (assumed, then moved so that the measured refusals hold).
    """

    flops: float
    moved: float
    inputs: float
    prepare_s: float
    split: tuple[float, float, float]
    host_cores: float = 1.0
    memory: tuple[float, float] = (1e9, 0.0)


def _image(pixels: int) -> tuple[float, float]:
    return 4.0 * 3 * pixels**2, PREPARE_S_PER_ELEMENT * 3 * pixels**2


ARITHMETIC = {
    # Images of 224 and 32 pixels; moved: three passes over about six reads and writes of each FP32 activation.
    "ResNet-50": Arithmetic(6 * 4.09e9, 72 * 11.1e6, *_image(224), (0.98, 0.02, 0), memory=(0.8e9, 85e6)),
    "ResNet-18": Arithmetic(6 * 0.56e9, 72 * 0.6e6, *_image(32), (0.98, 0.02, 0), memory=(0.8e9, 12e6)),
    # d 512, 6+6 layers, sentence pairs of about 15 tokens.
    "Transformer": Arithmetic(6 * 49e6 * 15, 72 * 15 * 12 * 6 * 512, 8 * 15, 1e-5, (0, 0.9, 0.1), memory=(1.5e9, 40e6)),
    # Two LSTM layers of 200 and a word table of 33,278 on WikiText-2, 35 tokens: the logits carry nearly all of it.
    "LM": Arithmetic(6 * 7.3e6 * 35, 8 * 35 * 33278 * 4, 8 * 35, 1e-6, (0, 1.0, 0), memory=(1.2e9, 60e6)),
    # An autoencoder 20,108-200-20,108 (MovieLens-20M); rows of numbers take a third of the time of decoded pixels.
    "Recommendation": Arithmetic(
        12 * 20108 * 200, 40 * 20108, 4 * 20108, PREPARE_S_PER_ELEMENT / 24 * LOADER_WORKERS * 20108, (0, 1.0, 0),
        memory=(1.5e9, 0.4e6),
    ),
    # Two generators of nine residual blocks and two discriminators at 256 pixels, one pair of images a step.
    "CycleGAN": Arithmetic(
        48 * 50e9, 72 * 8 * 20e6, 2 * _image(256)[0], 2 * _image(256)[1], (1, 0, 0), memory=(6e9, 0),
    ),
    # Four actors that play and learn on the processor; the network is a few megaFLOPs.
    "A3C": Arithmetic(1e9, 1e8, 4 * 84**2 * 80, 0.0, (1.0, 0, 0), host_cores=4.0, memory=(5e9, 0)),
}  # fmt: skip


def job_name(model: str, batch: float) -> str:
    """Name of a job in the co-location table."""
    return model if np.isnan(batch) else f"{model} (batch size {int(batch)})"


def family(job: str) -> str:
    """Model of a job, whatever its batch."""
    return job.split(" (")[0]


def isolated() -> pd.DataFrame:
    """All throughputs alone on one server, with the job's name."""
    table = pd.read_csv(Path(os.environ["ATTRIBUTION_SCHED_DATA"]) / "gavel" / "isolated_throughput.csv")
    table = table[(table["consolidated"] == 1) & (table["steps_per_s"] > 0)].copy()
    table["job"] = [job_name(m, b) for m, b in zip(table["model"], table["batch_size"], strict=True)]
    return table


def load(worker: str) -> tuple[list[str], np.ndarray, np.ndarray, pd.DataFrame]:
    """Jobs, unordered pairs, their mean normalised throughputs (0: did not fit), and isolated rates."""
    alone = isolated()
    alone = alone[(alone["worker"] == worker) & (alone["scale_factor"] == 1)].sort_values("job").reset_index(drop=True)
    rate = dict(zip(alone["job"], alone["steps_per_s"], strict=True))
    index = {j: i for i, j in enumerate(alone["job"])}
    shared = pd.read_csv(Path(os.environ["ATTRIBUTION_SCHED_DATA"]) / "gavel" / "colocated_throughput.csv")
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
    """Busy shares of a job's own step by arithmetic and throughput, shape ``(n_jobs, R)``."""
    peak, bandwidth = DEVICE[worker]
    rows = []
    for row in alone.itertuples():
        each = ARITHMETIC[row.model]
        samples_per_s = row.steps_per_s * (1.0 if np.isnan(row.batch_size) else row.batch_size)
        compute = min(1.0, each.flops * samples_per_s / (COMPUTE_EFFICIENCY * peak))
        memory = min(1.0, each.moved * samples_per_s / (MEMORY_EFFICIENCY * bandwidth))
        loader = min(1.0, (each.prepare_s * samples_per_s + each.host_cores - 1.0) / LOADER_WORKERS)
        rows.append((1.0 - max(compute, memory), compute, memory, loader))
    return np.array(rows)


def scaling(alone: pd.DataFrame, worker: str) -> np.ndarray:
    """log(throughput on eight devices / eight times that on one), shape ``(n_jobs,)``; 0 where not measured."""
    table = isolated()
    eight = table[(table["worker"] == worker) & (table["scale_factor"] == 8)].set_index("job")["steps_per_s"]
    ratio = eight.reindex(alone["job"]).to_numpy() / (8.0 * alone["steps_per_s"].to_numpy())
    return np.where(np.isnan(ratio), 0.0, np.log(np.where(np.isnan(ratio), 1.0, ratio)))


def fit(
    pairs: np.ndarray, throughput: np.ndarray, prior: np.ndarray, train: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Demands and couplings from pairs that fit in memory."""
    use = (throughput > 0).all(1) if train is None else train & (throughput > 0).all(1)
    return fit_demands(
        pairs[use], throughput[use], prior, np.full_like(prior, PRIOR), coupling_weight=SPREAD_OF_COUPLING
    )


def left_out_demands(
    demands: np.ndarray, known: np.ndarray, shares: np.ndarray, scale: np.ndarray, rates: np.ndarray
) -> np.ndarray:
    """Demands of jobs that no pair was fitted to, from arithmetic and throughput.

    Ridge regression (weight 0.3) over the known jobs on four numbers: how throughput grows to eight devices, compute
    share, input path, log of the steps per second.
    """
    features = np.stack([scale, shares[:, 1], shares[:, 3], np.log(rates) / 5.0], axis=1)
    middle, centre = features[known].mean(0), demands[known].mean(0)
    x = features[known] - middle
    slope = np.linalg.solve(x.T @ x + 0.3 * np.eye(x.shape[1]), x.T @ (demands[known] - centre))
    found = demands.copy()
    found[~known] = np.clip(centre + (features[~known] - middle) @ slope, 0.0, 1.0)
    return found


def family_left_out(worker: str = "v100") -> list[tuple[str, np.ndarray, np.ndarray]]:
    """For every model family: its name, all jobs' demands and the couplings when no pair of it was seen."""
    jobs, pairs, throughput, alone = load(worker)
    shares, scale = arithmetic(alone, worker), scaling(alone, worker)
    names, found = np.array([family(job) for job in jobs]), []
    for name in dict.fromkeys(names):
        demands, strength = fit(pairs, throughput, shares, ~(names[pairs] == name).any(1))
        rates = alone["steps_per_s"].to_numpy()
        found.append((str(name), left_out_demands(demands, names != name, shares, scale, rates), strength))
    return found


def held_out(worker: str, seeds: range) -> list[dict[str, float]]:
    """Median errors on a random 20 % of the pairs that were not fitted, one row per seed."""
    _, pairs, throughput, alone = load(worker)
    fits = (throughput > 0).all(1)
    pairs, throughput = pairs[fits], throughput[fits]
    prior, rows = arithmetic(alone, worker), []
    for seed in seeds:
        test = np.zeros(len(pairs), bool)
        test[np.random.default_rng(seed).permutation(len(pairs))[: len(pairs) // 5]] = True
        demands, strength = fit(pairs, throughput, prior, ~test)
        error = np.abs(pair_throughput(demands, pairs, strength).sum(1) - throughput.sum(1))
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


def counters_of(alone: pd.DataFrame, worker: str) -> np.ndarray:
    """True rates of the twelve counters by arithmetic and throughput, shape ``(n_jobs, 12)``."""
    peak, bandwidth = DEVICE[worker]
    law = load_constants("host")["counters"]
    rows = []
    for row in alone.itertuples():
        each = ARITHMETIC[row.model]
        samples_per_s = row.steps_per_s * (1.0 if np.isnan(row.batch_size) else row.batch_size)
        operators = np.minimum(1.0, each.flops * samples_per_s / (COMPUTE_EFFICIENCY * peak)) * np.array(each.split)
        moved, shipped = each.moved * samples_per_s, each.inputs * samples_per_s
        dram = min(1.0, moved / (MEMORY_EFFICIENCY * bandwidth))
        cores = each.host_cores + each.prepare_s * samples_per_s
        cycles = CLOCK_HZ * cores
        misses = law["misses_per_cycle"] * cycles + shipped / 64.0
        found = {
            "cpu_cycles": cycles, "l3_misses": misses, "memory_bandwidth": moved, "pcie_bandwidth": shipped,
            "conv": operators[0], "fc": operators[1], "attention": operators[2],
            "instructions": cycles * law["instructions_per_cycle"], "llc_references": misses * REFERENCES_PER_MISS,
            "sm_active": min(1.0, operators.sum() + dram), "dram_active": dram, "cpu_seconds": cores,
        }  # fmt: skip
        rows.append([float(found[name]) for name in COUNTER_NAMES])
    return np.array(rows)


def fit_gain(pairs: np.ndarray, throughput: np.ndarray, shares: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """What turns busy shares by arithmetic into demands for jobs that nobody measured, shape ``(R,)``.

    Shares of the device's time are demands as they are. The bus share stands for the whole input path, whose loader is
    slower by what preparing an element takes. How much of the unexplained time is demand of the host is fitted.
    """
    from scipy.optimize import minimize_scalar

    loader = PCIE_BYTES_PER_S * PREPARE_S_PER_ELEMENT / LOADER_WORKERS / 4.0

    def error(host: float) -> float:
        told = pair_throughput(np.clip(shares * [host, 1.0, 1.0, loader], 0.0, 1.0), pairs, strength)
        return float(np.sqrt((told.sum(1) - throughput.sum(1)) ** 2 + 1e-3).mean())

    return np.array([minimize_scalar(error, bounds=(0.0, 1.0), method="bounded").x, 1.0, 1.0, loader])


def memory_of(alone: pd.DataFrame, pairs: np.ndarray, throughput: np.ndarray) -> np.ndarray:
    """Device bytes of every job: by arithmetic, moved as little as makes the measured refusals come out."""
    from scipy.optimize import minimize

    sizes = [1.0 if np.isnan(b) else b for b in alone["batch_size"]]
    guess = np.array(
        [ARITHMETIC[m].memory[0] + ARITHMETIC[m].memory[1] * b for m, b in zip(alone["model"], sizes, strict=True)]
    )
    guess, refused = np.minimum(guess, 15e9) / 1e9, (throughput == 0).any(1)
    limit = MEMORY_BYTES / 1e9

    def objective(log_gb: np.ndarray) -> float:
        both = np.exp(log_gb)[pairs].sum(1)
        over = np.where(refused, np.maximum(0.0, limit + 0.05 - both), np.maximum(0.0, both - limit + 0.05))
        return float((over**2).sum() * 100 + ((log_gb - np.log(guess)) ** 2).sum() * 0.1)

    bounds = [(np.log(0.3), np.log(15.5))] * len(guess)
    return np.exp(minimize(objective, np.log(guess), bounds=bounds, method="L-BFGS-B").x) * 1e9


def main() -> None:
    """Fit all pairs, compare with the held-out errors and write the constants."""
    constants: dict[str, object] = {"source": SOURCE, "resources": list(RESOURCES)}
    for worker in ("v100", "p100"):
        jobs, pairs, throughput, alone = load(worker)
        fits = (throughput > 0).all(1)
        shares = arithmetic(alone, worker)
        demands, strength = fit(pairs, throughput, shares)
        predicted = pair_throughput(demands, pairs[fits], strength).sum(1)
        rows = held_out(worker, range(10))
        constants[worker] = {
            "rows": int(fits.sum()), "pairs_that_do_not_fit": int((~fits).sum()),
            "error_unit": "median absolute error of summed normalised throughput",
            "in_sample": float(np.median(np.abs(predicted - throughput[fits].sum(1)))),
            "held_out_by_seed": [round(r["held_out"], 4) for r in rows],
            "held_out_note": "weights of prior and couplings were chosen on seeds 0 to 2 of the V100",
            "held_out": float(np.mean([r["held_out"] for r in rows])),
            "held_out_constant_guess": float(np.mean([r["constant"] for r in rows])),
        }  # fmt: skip
        print(worker, json.dumps(constants[worker], indent=1), strength.round(3))
        table = pd.DataFrame(np.hstack([demands, shares]), jobs, [*RESOURCES, *(f"{r}*" for r in RESOURCES)])
        print(table.round(2).to_string())
        if worker == "v100":
            # The engine's fourth share is the bus alone; its loader is about so many times slower.
            bus = shares.copy()
            bus[:, 3] = counters_of(alone, worker)[:, COUNTER_NAMES.index("pcie_bandwidth")] / PCIE_BYTES_PER_S
            gain = fit_gain(pairs[fits], throughput[fits], bus, strength)
            constants |= {
                "strength": [float(f"{k:.5g}") for k in strength],
                "gain": [float(f"{g:.5g}") for g in gain],
                "gain_how": "device time as it is; input path by the loader; host fitted to the pairs",
                "instrument_gain": list(INSTRUMENT_GAIN),
                "instrument_gain_how": "what instruments show; the first edition's fit, which shipped networks read",
                "slowdown_cap": float(f"{np.percentile(1.0 / throughput[fits], 95):.4g}"),
                "slowdown_cap_how": "95th percentile of the measured slow-downs; worse ones are not resolved",
            }
            print("gain", gain)
            _write_jobs(jobs, pairs, throughput, alone, demands, shares)
    (CONSTANTS / "interference.json").write_text(json.dumps(constants, indent=1) + "\n")


def _write_jobs(
    jobs: list[str], pairs: np.ndarray, throughput: np.ndarray, alone: pd.DataFrame, demands: np.ndarray,
    shares: np.ndarray,
) -> None:  # fmt: skip
    table = isolated()
    table = table[table["worker"] == "v100"]
    rates, memory = counters_of(alone, "v100"), memory_of(alone, pairs, throughput)
    speed: list[list[float | None]] = [[None] * len(jobs) for _ in jobs]
    for (a, b), (x, y) in zip(pairs.tolist(), throughput.tolist(), strict=True):
        refused = x == 0 or y == 0
        speed[a][b], speed[b][a] = (0.0, 0.0) if refused else (round(min(1.0, x), 3), round(min(1.0, y), 3))
    listed = []
    for i, job in enumerate(jobs):
        own = table[table["job"] == job].set_index("scale_factor")["steps_per_s"]
        listed.append({
            "name": job, "family": family(job),
            "samples": 1 if np.isnan(alone["batch_size"][i]) else int(alone["batch_size"][i]),
            "steps_per_s": {str(n): float(f"{own[n]:.4g}") for n in (1, 2, 4, 8) if n in own.index},
            "demands": [round(float(d), 4) for d in demands[i]],
            "memory_bytes": float(f"{memory[i]:.4g}"),
            "device_busy": round(float(shares[i, 1:3].max()), 4),
            "counters": [float(f"{x:.5g}") for x in rates[i]],
        })  # fmt: skip
    constants = {
        "source": SOURCE,
        "gpu": "V100",
        "how": {
            "steps_per_s": "measured alone on 1, 2, 4, 8 devices of one server",
            "pair_speed": "row beside column on one device, over alone; mean of both orders; 0: does not fit",
            "demands": "fitted to the pairs; the simulated device feels them, no scheduler sees them",
            "counters": "arithmetic and throughput alone, calibration/fit_interference.py; order of COUNTER_NAMES",
            "memory_bytes": "arithmetic, moved as little as makes the measured refusals come out",
        },
        "jobs": listed,
        "pair_speed": speed,
    }
    text = json.dumps(constants)
    (CONSTANTS / "measured_jobs.json").write_text(text.replace('{"name"', '\n{"name"').replace("], [", "],\n[") + "\n")


if __name__ == "__main__":
    main()
