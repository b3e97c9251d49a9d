"""Fit host CPU power against load, collect node idle facts and the dependence between CPU counters.

Writes ``attribution_sched/cluster/constants/host.json``. Run from the repository root with the measured
tables in ``$ATTRIBUTION_SCHED_DATA``::

    python calibration/fit_host.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
from fit_throughput import MLPERF, data_dir, rounded
from scipy.optimize import least_squares

from research.host_power import load_curve

OUT = Path("attribution_sched/cluster/constants/host.json")
CODECARBON = {
    "dataset": "codecarbon",
    "repository": "https://github.com/mlco2/codecarbon",
    "commit": "b05965e43b690cdc53787c7577adbe6e2caf4ed9",
    "licence": "MIT",
}
KEPLER = {
    "dataset": "kepler_nx12",
    "repository": "https://github.com/sustainable-computing-io/kepler-model-db",
    "commit": "3bb4d645243226603b052938f653f94f1ff50878",
    "licence": "Apache-2.0",
}
MLPERF_H200 = {
    **MLPERF,
    "repository": "https://github.com/mlcommons/inference_results_v4.1",
    "commit": "198fc46799b3328b36ee4bcbdebfa2db5a8e6183",
}
SYSTEMS = {
    "DGX-A100": ("DGX-A100", 8),
    "A100-PCIe": ("A100-PCIe-80GBx8", 8),
    "XE8545-A100": ("XE8545_A100", 4),
    "H200-SXM": ("H200-SXM-141GBx8", 8),
}


def fit(load: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Idle share and curvature of the load curve."""
    return least_squares(lambda v: load_curve(load, v[0], v[1]) - share, [0.1, 1.5], bounds=([0, 0.01], [0.6, 8])).x


def cpu_power() -> dict[str, object]:
    """Fit the curve on package power over its maximum, and leave one machine out at a time."""
    table = pd.read_csv(data_dir() / "codecarbon" / "cpu_load_vs_rapl.csv")
    # The first reading of every sweep is below 2 W on 100 W parts: the energy counter had not moved yet.
    table = table[table["cpu_load"] >= 5]
    share = table["rapl_power"] / table.groupby(["machine", "mode"])["rapl_power"].transform("max")
    load, value = table["cpu_load"].to_numpy(float) / 100, share.to_numpy(float)
    theta = fit(load, value)
    outside = []
    for machine in table["machine"].unique():
        mine = (table["machine"] == machine).to_numpy()
        outside += list(np.abs(load_curve(load[mine], *fit(load[~mine], value[~mine])) - value[mine]))
    return {
        "source": CODECARBON,
        "idle_share": theta[0],
        "curvature": theta[1],
        "rows": len(table),
        "machines": int(table["machine"].nunique()),
        "error_unit": "share of maximum package power, mean absolute",
        "in_sample": float(np.mean(np.abs(load_curve(load, *theta) - value))),
        "held_out_by_machine": float(np.mean(outside)),
    }


def node_facts() -> dict[str, object]:
    """Wall watts of whole nodes before and under load."""
    table = pd.read_csv(data_dir() / "mlperf_power" / "inference_power.csv")
    nodes = {}
    for name, (prefix, gpus) in SYSTEMS.items():
        rows = table[table["system"].str.startswith(prefix)]
        nodes[name] = {
            "gpus": gpus,
            "rows": len(rows),
            "idle_wall_w": float(rows["pre_run_min_wall_w"].median()),
            "load_wall_w_min": float(rows["avg_wall_w"].min()),
            "load_wall_w_max": float(rows["avg_wall_w"].max()),
        }
    return {
        "source": [MLPERF, MLPERF_H200],
        "note": "idle is the lowest reading before the run: an upper bound",
        "nodes": nodes,
    }


def counter_dependence() -> dict[str, object]:
    """Correlations, instructions and misses per cycle of a server under a stress sweep."""
    table = pd.read_csv(data_dir() / "kepler_nx12" / "preprocess_abs_default_rapl_Basic.csv")
    counters = table[["cpu_cycles", "cpu_instructions", "cache_miss"]]
    corr = counters.corr().to_numpy()
    ipc = table["cpu_instructions"] / table["cpu_cycles"]
    return {
        "source": KEPLER,
        "rows": len(table),
        "cycles_instructions": corr[0, 1],
        "cycles_misses": corr[0, 2],
        "instructions_misses": corr[1, 2],
        "instructions_per_cycle": float(ipc.median()),
        "log_instructions_per_cycle_std": float(np.log(ipc).std()),
        "misses_per_cycle": float((table["cache_miss"] / table["cpu_cycles"]).median()),
    }


def main() -> None:
    """Fit every group and write the constants."""
    constants = {"cpu_power": cpu_power(), "nodes": node_facts(), "counters": counter_dependence()}
    OUT.write_text(json.dumps(rounded(json.loads(json.dumps(constants, default=float))), indent=1) + "\n")
    print(OUT.read_text())


if __name__ == "__main__":
    main()
