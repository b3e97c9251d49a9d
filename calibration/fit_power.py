"""Fit the natural draw of a device, the host time of serving and the effect of power caps to measured runs.

Everything is fitted through the package's own cost model: ``benchmarks/watts.py`` turns a model's name, a GPU and a
batch into the seconds and shares that the power law reads, so that what is fitted here is what the world draws. Writes
``attribution_sched/cluster/constants/power.json``. Run from the repository root with the measured tables in
``$ATTRIBUTION_SCHED_DATA``::

    PYTHONPATH=. python calibration/fit_power.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fit_throughput import MLENERGY, MLPERF, ZEUS, data_dir, rounded

from attribution_sched.cluster.gpus import gpu
from benchmarks.watts import (
    Cell,
    Predictor,
    cap_runs,
    decode_cells,
    diffusion_cells,
    every_other,
    fit_caps,
    fit_draw,
    fit_host,
    held_out,
    reached_share,
    stretched,
    zeus_cells,
)

OUT = Path("attribution_sched/cluster/constants/power.json")


def errors(cells: list[Cell], watts: np.ndarray) -> dict[str, float]:
    """Median relative error of the watts of every group."""
    off = pd.Series(np.abs(watts / np.array([cell.watts for cell in cells]) - 1))
    return {group: float(part.median()) for group, part in off.groupby([cell.group for cell in cells])}


def main() -> None:
    """Fit every group and write the constants."""
    cells = [*zeus_cells(), *decode_cells(), *diffusion_cells()]
    host = fit_host(cells)
    law, g = fit_draw(cells, host)
    predictor = Predictor(cells)
    predictor.set_host(host)
    predictor.set_draw(law, g)
    watts, seconds = predictor.score()
    left = held_out(cells, every_other(cells))
    off = (left["predicted_w"] / left["watts"] - 1).abs()
    runs = cap_runs(law, g)
    rho = reached_share(runs)
    caps, k = fit_caps(runs, rho)
    stretch_off = []
    for run in runs:
        p0, beta_c, beta_m = caps[run.card]
        time, _ = stretched(run, run.caps, p0, (beta_c, beta_m), k, rho)
        binds = run.watts[-1] > run.caps
        stretch_off += list(np.abs(time / (run.seconds / run.seconds[-1]) - 1)[binds])
    draws = {gpu(card).chip: {"a_c": a_c, "a_m": a_m} for card, (a_c, a_m) in law.items()}
    decode = [(cell.seconds, s) for cell, s in zip(cells, seconds, strict=True) if cell.group == "decode"]
    constants: dict[str, Any] = {
        "natural_draw": {
            "source": [MLENERGY, ZEUS],
            "chips": draws,
            "median": {name: float(np.median([each[name] for each in draws.values()])) for name in ("a_c", "a_m")},
            "g": g,
            "error_unit": "relative, median over cells of name + GPU + batch to watts through the cost model",
            "rows": {
                group: sum(cell.group == group for cell in cells) for group in ("decode", "diffusion", "training")
            },
            "in_sample": errors(cells, watts),
            "held_out_every_other_batch": {group: float(part.median()) for group, part in off.groupby(left["group"])},
            "assumed": "A100 and H100 idle watts; compute part of diffusion; prompt length of ML.ENERGY's requests; "
            "length of tweets",
        },
        "decode_host": {
            "source": MLENERGY,
            "s_per_token": {gpu(card).chip: value for card, value in host.items()},
            "how": "median of what a token takes beyond the floor law of the device's work, per sequence in flight",
            "rows": len(decode),
            "in_sample": float(np.median([abs(found / measured - 1) for measured, found in decode])),
            "error_unit": "relative, median, seconds per token",
        },
        "cap": {
            "source": ZEUS,
            "chips": {
                gpu(card).chip: {
                    "p0_w": p0,
                    "p0_position": (p0 - gpu(card).idle_w) / (gpu(card).min_cap_w - gpu(card).idle_w),
                    "beta_c": beta_c,
                    "beta_m": beta_m,
                }
                for card, (p0, beta_c, beta_m) in caps.items()
            },
            "k": k,
            "reached": rho,
            "rows": len(stretch_off),
            "in_sample": float(np.median(stretch_off)),
            "error_unit": "relative, median, time under caps that bind",
            "assumed": "every chip that Zeus did not sweep takes the constants of the chip it is like, else the V100's",
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
