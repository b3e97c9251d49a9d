"""Fit the natural draw of a device and the effect of power caps to measured runs.

Writes ``attribution_sched/cluster/constants/power.json``. Run from the repository root with the
measured tables in ``$ATTRIBUTION_SCHED_DATA``::

    python calibration/fit_power.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fit_throughput import DECODER_BLOCKS, MLENERGY, MLPERF, ZEUS, data_dir, rounded
from scipy.optimize import least_squares

from attribution_sched.cluster.power import cap_slowdown, draw_w, fit_cap_beta
from attribution_sched.cluster.throughput import fit_floor_law, floor_law
from benchmarks.zeus_cells import cap_predictions, load
from benchmarks.zeus_cells import errors as errors_of

OUT = Path("attribution_sched/cluster/constants/power.json")

# Key-value bytes per token of each served model: layers · kv heads · head size · 2 · 2 bytes.
KV_BYTES = {
    "meta-llama/Meta-Llama-3.1-8B-Instruct": 131072,
    "mistralai/Mistral-7B-Instruct-v0.3": 131072,
    "mistralai/Mistral-Nemo-Instruct-2407": 163840,
    "microsoft/Phi-3-mini-4k-instruct": 393216,
    "microsoft/Phi-3-small-8k-instruct": 131072,
    "microsoft/Phi-3-medium-4k-instruct": 204800,
    "google/gemma-2-2b-it": 106496,
    "google/gemma-2-9b-it": 344064,
}
# FP16 FLOP/s reached at large batch, HBM bytes/s, TDP and idle watts.
DEVICE = {"A100": (137e12, 1555e9, 400.0, 55.0), "H100": (288e12, 3352e9, 700.0, 68.0)}
MEMORY_EFFICIENCY = 0.75
V100_IDLE_W, V100_TDP_W = 37.0, 250.0


def device_of(name: str) -> str:
    """Chip of a dataset's GPU name."""
    return "A100" if "A100" in name else "H100"


def decode_rows() -> list[tuple[str, str, float, float, float]]:
    """(group, run, u_compute, u_memory, activity) of single-GPU language-model serving."""
    table = pd.read_csv(data_dir() / "mlenergy_v2" / "llm.csv")
    table = table[(table["tp"] * table["pp"] == 1) & table["model"].isin(KV_BYTES)]
    rows = []
    for row in table.itertuples():
        rate, bandwidth, tdp, idle = DEVICE[device_of(row.gpu)]
        params = DECODER_BLOCKS[row.model][1]
        watts = row.energy_per_req_j / row.avg_output_tokens * row.token_tput
        compute = 2 * params * row.avg_batch / rate / row.avg_tpot_s
        moved = 2 * params + KV_BYTES[row.model] * row.avg_output_tokens * row.avg_batch
        memory = moved / (MEMORY_EFFICIENCY * bandwidth) / row.avg_tpot_s
        run = f"{device_of(row.gpu)} {row.model}"
        rows.append(("decode", run, min(compute, 1), min(memory, 1), (watts - idle) / (tdp - idle)))
    return rows


def diffusion_rows() -> list[tuple[str, str, float, float, float]]:
    """The same for diffusion; u_memory is left open (NaN) and tied to u_compute by one fitted ratio."""
    table = pd.read_csv(data_dir() / "mlenergy_v2" / "diffusion.csv")
    rows = []
    for (model, gpu), group in table.groupby(["model", "gpu"]):
        if len(group) < 4:
            continue
        _, _, tdp, idle = DEVICE[device_of(gpu)]
        batch, time = group["batch_size"].to_numpy(float), group["batch_latency_s"].to_numpy(float)
        floor, t1 = fit_floor_law(batch, time, 3)
        watts = group["energy_per_item_j"].to_numpy(float) * batch / time
        for b, w in zip(batch, watts, strict=True):
            busy = b * t1 / floor_law(floor, t1, b, 3)
            rows.append(("diffusion", f"{device_of(gpu)} {model}", busy, np.nan, (w - idle) / (tdp - idle)))
    return rows


def zeus_rows() -> list[tuple[str, str, float, float, float]]:
    """The same for V100 training without a binding cap."""
    table = pd.read_csv(data_dir() / "zeus" / "summary_power_v100.csv")
    table = table[(table["power_limit"] == 250) & ~table["network"].isin(["ncf", "deepspeech2"])]
    rows = []
    for (dataset, network, _), group in table.groupby(["dataset", "network", "optimizer"]):
        batch = group["batch_size"].to_numpy(float)
        floor, t1 = fit_floor_law(batch, batch * group["time_per_epoch"].to_numpy(float), 2)
        for b, w in zip(batch, group["average_power"], strict=True):
            busy = b * t1 / floor_law(floor, t1, b, 2)
            activity = (w - V100_IDLE_W) / (V100_TDP_W - V100_IDLE_W)
            rows.append(("training", f"V100 {network} {dataset}", busy, np.nan, activity))
    return rows


def fit_draw(table: pd.DataFrame) -> np.ndarray:
    """Fit (a_c, a_m, g, memory share of compute-bound work, compute share of ShuffleNet)."""
    weight = 1 / np.sqrt(table.groupby("group")["group"].transform("size").to_numpy(float))
    observed = table["activity"].to_numpy(float)

    def residual(theta: np.ndarray) -> np.ndarray:
        return weight * (predicted(table, theta) - observed)

    bounds = ([0.2, 0.1, 1.0, 0.2, 0.05], [1, 1, 4, 1, 1])
    return least_squares(residual, [0.6, 0.5, 2.0, 0.5, 0.3], bounds=bounds).x


def predicted(table: pd.DataFrame, theta: np.ndarray) -> np.ndarray:
    """Activity (0 = idle, 1 = TDP) of every row; a depthwise network keeps memory busier than compute."""
    busy = table["u_compute"].to_numpy(float)
    depthwise = table["run"].str.contains("shufflenet").to_numpy()
    memory = np.where(np.isnan(table["u_memory"]), theta[3] * busy, table["u_memory"])
    memory = np.where(depthwise, busy, memory)
    compute = np.where(depthwise, theta[4] * busy, busy)
    return draw_w(0.0, 1.0, compute, memory, 1.0, theta[0], theta[1], theta[2])


def natural_draw() -> dict[str, Any]:
    """Fit the draw law, with errors in-sample and leaving one model out at a time."""
    rows = decode_rows() + diffusion_rows() + zeus_rows()
    table = pd.DataFrame(rows, columns=["group", "run", "u_compute", "u_memory", "activity"])
    theta = fit_draw(table)
    inside = np.abs(predicted(table, theta) - table["activity"])
    outside = pd.Series(index=table.index, dtype=float)
    for run in table["run"].unique():
        mask = table["run"] == run
        outside[mask] = np.abs(predicted(table[mask], fit_draw(table[~mask])) - table.loc[mask, "activity"])
    medians = {}
    for (group, chip), part in table.groupby(["group", table["run"].str.split(" ").str[0]]):
        if group == "training":
            continue
        # The typical decode run; for diffusion the saturated runs (device busy more than 95 %).
        part = part if group == "decode" else part[part["u_compute"] > 0.95]
        memory = part["u_memory"].fillna(theta[3] * part["u_compute"])
        medians[f"{group} {chip}"] = {
            "u_compute": part["u_compute"].median(),
            "u_memory": memory.median(),
            "measured_activity": part["activity"].median(),
            "predicted_activity": float(np.median(predicted(part, theta))),
        }
    return {
        "medians": medians,
        "source": [MLENERGY, ZEUS],
        "a_c": theta[0],
        "a_m": theta[1],
        "g": theta[2],
        "memory_share_of_dense_work": theta[3],
        "compute_share_of_depthwise_work": theta[4],
        "error_unit": "share of TDP - idle, mean absolute",
        "rows": {g: int(n) for g, n in table.groupby("group").size().items()},
        "in_sample": {g: float(e) for g, e in inside.groupby(table["group"]).mean().items()},
        "held_out_by_model": {g: float(e) for g, e in outside.groupby(table["group"]).mean().items()},
        "assumed": "A100 and H100 idle watts; achieved FLOP/s and 0.75 of HBM bandwidth in decoding",
    }


def cells(name: str) -> list[tuple[tuple[str, ...], np.ndarray, np.ndarray, float]]:
    """(key, caps, times, natural draw) of every (model, batch) cell that some cap binds."""
    table = pd.read_csv(data_dir() / "zeus" / f"summary_power_{name}.csv")
    out = []
    for key, group in table.groupby(["dataset", "network", "optimizer", "batch_size"]):
        group = group.sort_values("power_limit")
        natural = float(group["average_power"].iloc[-1])
        caps, times = group["power_limit"].to_numpy(float), group["time_per_epoch"].to_numpy(float)
        if natural > caps[0] * 1.05 and len(caps) >= 4:
            out.append((key, caps, times, natural))
    return out


def cap_errors(name: str, p0: float) -> float:
    """Mean relative time error of all cells of a GPU at one P0."""
    errors = []
    for _, caps, times, natural in cells(name):
        beta = fit_cap_beta(caps, times, natural, p0)
        errors += list(np.abs(cap_slowdown(natural, caps, p0, beta) * times[-1] / times - 1))
    return float(np.mean(errors))


def fit_beta_law(busy: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """(beta_max, k) of ``beta_max · busy^k``."""
    return least_squares(lambda v: v[0] * busy ** v[1] - beta, [0.25, 1.0], loss="soft_l1", f_scale=0.05).x


def beta_held_out(busy: np.ndarray, beta: np.ndarray, names: np.ndarray) -> float:
    """Mean absolute error of beta for models the law was not fitted to."""
    errors = []
    for name in np.unique(names):
        top, k = fit_beta_law(busy[names != name], beta[names != name])
        errors += list(np.abs(top * busy[names == name] ** k - beta[names == name]))
    return float(np.mean(errors))


def main() -> None:
    """Fit every group and write the constants."""
    floors = {}
    for name, lowest in (("v100", 100), ("rtx6000", 100), ("p100", 125), ("a40", 100)):
        grid = np.arange(50, lowest - 4, 1.0)
        errors = [cap_errors(name, p0) for p0 in grid]
        best = int(np.argmin(errors))
        floors[name.upper()] = {
            "p0_w": float(grid[best]),
            "cells": len(cells(name)),
            "in_sample": errors[best],
        }
    p0 = floors["V100"]["p0_w"]
    busy_beta = []
    table = pd.read_csv(data_dir() / "zeus" / "summary_power_v100.csv")
    by_model: dict[str, list[float]] = {}
    for key, caps, times, natural in cells("v100"):
        curve = table[table["power_limit"] == 250]
        for column, value in zip(("dataset", "network", "optimizer"), key, strict=False):
            curve = curve[curve[column] == value]
        batch = curve["batch_size"].to_numpy(float)
        floor, t1 = fit_floor_law(batch, batch * curve["time_per_epoch"].to_numpy(float), 2)
        beta = fit_cap_beta(caps, times, natural, p0)
        busy_beta.append((float(key[3]) * t1 / floor_law(floor, t1, float(key[3]), 2), beta))
        by_model.setdefault(f"{key[1]}/{key[0]}", []).append(beta)
    busy, beta = np.array(busy_beta).T
    names = np.array([f"{key[1]}/{key[0]}" for key, *_ in cells("v100")])
    # One gentle power law; fitted by absolute error so that near-zero betas do not dominate.
    fit = fit_beta_law(busy, beta)
    held = cap_predictions(load("v100"))
    constants = {
        "natural_draw": natural_draw(),
        "cap_floor": {
            "source": ZEUS,
            "gpus": floors,
            "held_out_v100_interior_caps_median": errors_of(held[held["interior"]])[1],
            "share_idle_to_min_cap": (p0 - V100_IDLE_W) / (100.0 - V100_IDLE_W),
            "assumed": "A100 and H100 take the V100's position between idle and lowest cap",
        },
        "cap_beta": {
            "source": ZEUS,
            "beta_max": fit[0],
            "k": fit[1],
            "rows": len(beta),
            "in_sample_mean_abs": float(np.mean(np.abs(fit[0] * busy ** fit[1] - beta))),
            "held_out_by_model": beta_held_out(busy, beta, names),
            "by_model_v100": {m: float(np.median(b)) for m, b in by_model.items()},
        },
        "precision_factor": {
            "source": MLPERF,
            "values": {"fp32": 1.0, "fp16": 1.0, "bf16": 1.0, "int8": int8_factor()},
            "how": "int8 from DGX-A100 BERT offline wall power above idle, int8 over fp16; "
            "the others are assumed equal at equal utilisation",
        },
    }
    OUT.write_text(json.dumps(rounded(json.loads(json.dumps(constants, default=float))), indent=1) + "\n")
    print(OUT.read_text())


def int8_factor() -> float:
    """Dynamic wall power of INT8 over FP16 at full load."""
    table = pd.read_csv(data_dir() / "mlperf_power" / "inference_power.csv")
    rows = table[table["system"].str.startswith("DGX-A100") & (table["scenario"] == "Offline")]
    dynamic = rows.set_index("benchmark")["avg_wall_w"] - rows.set_index("benchmark")["pre_run_min_wall_w"]
    return float(dynamic["bert-99"] / dynamic["bert-99.9"])


if __name__ == "__main__":
    main()
