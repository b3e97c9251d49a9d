"""Fit batch, precision and efficiency constants of each model family to published throughput tables.

Writes ``attribution_sched/cluster/constants/throughput.json``. Run from the repository root with the
measured tables in ``$ATTRIBUTION_SCHED_DATA``::

    python calibration/fit_throughput.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attribution_sched.cluster.throughput import fit_floor_law, floor_law

OUT = Path("attribution_sched/cluster/constants/throughput.json")

DLE = {
    "dataset": "nvidia_dle",
    "repository": "https://github.com/NVIDIA/DeepLearningExamples",
    "commit": "729963dd47e7c8bd462ad10bfac7a7b0b604e6dd",
    "licence": "Apache-2.0, BSD-3-Clause or MIT per model folder",
}
MLENERGY = {
    "dataset": "mlenergy_v2",
    "repository": "https://github.com/ml-energy/leaderboard-v2",
    "commit": "c3af7f31e231a2a7021c5f8e2a54dd712d02e6e2",
    "licence": "Apache-2.0",
}
MLPERF = {
    "dataset": "mlperf_power",
    "repository": "https://github.com/mlcommons/inference_results_v2.1",
    "commit": "91f7859b8b5847b7c5fdf95ce65699ad6477093b",
    "licence": "Apache-2.0",
}
ZEUS = {
    "dataset": "zeus",
    "repository": "https://github.com/ml-energy/zeus",
    "commit": "75a8b9398034eb9baf74ca0a830c2c31bcce52cd",
    "licence": "Apache-2.0",
}

PEAK = {"V100": 15.7e12, "A100": 156e12}
BANDWIDTH = {"A100": 1555e9, "H100": 3352e9}

# Forward multiply-adds per image as stated by the architectures' authors.
GMAC = {"resnet50v1.5": 4.09, "efficientnet-b0": 0.39, "efficientnet-b4": 4.2}
BLOCKS = {"resnet50v1.5": 16, "efficientnet-b0": 16, "efficientnet-b4": 32}

# Data folder of each family whose precision gain is measured.
SPEEDUP_FAMILIES = {
    "resnet": "ConvNets/resnet50",
    "resnext": "ConvNets/resnext101|ConvNets/se-resnext101",
    "efficientnet": "ConvNets/efficientnet",
    "bert": "LanguageModeling/BERT",
    "transformer": "Translation/Transformer",
    "transformer-xl": "Transformer-XL",
    "gnmt": "GNMT",
    "dlrm": "DLRM",
    "ncf": "NCF",
}

# Decoder blocks of served language models, from their published configurations.
DECODER_BLOCKS = {
    "meta-llama/Meta-Llama-3.1-8B-Instruct": (32, 8.03e9),
    "mistralai/Mistral-7B-Instruct-v0.3": (32, 7.25e9),
    "mistralai/Mistral-Nemo-Instruct-2407": (40, 12.2e9),
    "microsoft/Phi-3-mini-4k-instruct": (32, 3.82e9),
    "microsoft/Phi-3-small-8k-instruct": (32, 7.39e9),
    "microsoft/Phi-3-medium-4k-instruct": (40, 14.0e9),
    "google/gemma-2-2b-it": (26, 2.61e9),
    "google/gemma-2-9b-it": (42, 9.24e9),
    "bigcode/starcoder2-3b": (30, 3.03e9),
    "bigcode/starcoder2-7b": (32, 7.17e9),
    "codellama/CodeLlama-7b-hf": (32, 6.74e9),
}


def data_dir() -> Path:
    """Folder of the measured tables."""
    return Path(os.environ["ATTRIBUTION_SCHED_DATA"])


def bert_large_flops(sequence: int, training: bool) -> float:
    """FLOPs of one BERT-large sequence: 24 blocks of 12·h² weights and 4·s²·h attention products."""
    hidden, blocks = 1024, 24
    forward = blocks * (2 * 12 * hidden**2 * sequence + 4 * sequence**2 * hidden)
    return forward * (3 if training else 1)


def curve_errors(curves: list[tuple[np.ndarray, np.ndarray]], p: float) -> dict[str, float]:
    """In-sample and leave-one-batch-out relative errors of the floor law."""
    inside, interior, ends = [], [], []
    for batch, step_s in curves:
        theta = fit_floor_law(batch, step_s, p)
        inside += list(np.abs(floor_law(*theta, batch, p) / step_s - 1))
        for i in range(len(batch)):
            keep = np.arange(len(batch)) != i
            theta = fit_floor_law(batch[keep], step_s[keep], p)
            error = abs(floor_law(*theta, batch[i], p) / step_s[i] - 1)
            (interior if 0 < i < len(batch) - 1 else ends).append(error)
    return {
        "curves": len(curves),
        "rows": int(sum(len(b) for b, _ in curves)),
        "in_sample_median": float(np.median(inside)),
        "held_out_interior_mean": float(np.mean(interior)),
        "held_out_interior_median": float(np.median(interior)),
        "held_out_ends_mean": float(np.mean(ends)),
    }


def inference_curves() -> pd.DataFrame:
    """One row per (network, GPU, precision): fitted floor and per-sample seconds."""
    table = pd.read_csv(data_dir() / "nvidia_dle" / "batch_latency_inference.csv")
    table["network"] = table["variant"].fillna(table["model"].str.rsplit("/", n=1).str[-1])
    rows = []
    for (network, gpu, precision), group in table.groupby(["network", "gpu", "precision"]):
        group = group.sort_values("batch")
        batch = group["batch"].to_numpy(float)
        step_s = batch / group["throughput"].to_numpy(float)
        floor, slope = fit_floor_law(batch, step_s, 3)
        rows.append((network, gpu, "AMP" if precision == "AMP" else "FULL", floor, slope, (batch, step_s)))
    return pd.DataFrame(rows, columns=["network", "gpu", "precision", "floor_s", "t1_s", "curve"])


def zeus_training_curves() -> list[tuple[np.ndarray, np.ndarray]]:
    """Training step-time curves without a binding cap, all Zeus GPUs (time in epoch units)."""
    curves = []
    for name in ("v100", "a40", "rtx6000", "p100"):
        table = pd.read_csv(data_dir() / "zeus" / f"summary_power_{name}.csv")
        table = table[table["power_limit"] == table["power_limit"].max()]
        for _, group in table.groupby(["dataset", "network", "optimizer"]):
            group = group.sort_values("batch_size")
            batch = group["batch_size"].to_numpy(float)
            curves.append((batch, batch * group["time_per_epoch"].to_numpy(float)))
    return [c for c in curves if len(c[0]) >= 5]


def speedups() -> dict[str, dict[str, Any]]:
    """Median AMP gain per family and GPU, with the spread and a split-half check."""
    table = pd.read_csv(data_dir() / "nvidia_dle" / "precision_throughput.csv")
    out: dict[str, dict[str, Any]] = {}
    for family, pattern in SPEEDUP_FAMILIES.items():
        rows = table[table["model"].str.contains(pattern) & (table["kind"] == "training")]
        out[family] = {}
        for gpu, group in rows.groupby("gpu"):
            values = group["speedup"].to_numpy(float)
            median = float(np.median(values))
            held = [abs(np.median(np.delete(values, i)) / values[i] - 1) for i in range(len(values))]
            out[family][str(gpu)] = {
                "speedup": median,
                "rows": len(values),
                "min": float(values.min()),
                "max": float(values.max()),
                "in_sample_median_error": float(np.median(np.abs(median / values - 1))),
                "held_out_median_error": float(np.median(held)) if len(values) > 1 else None,
            }
    return out


def training_efficiency() -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Achieved fraction of the full-precision peak in one-GPU training, per family and GPU, and its errors."""
    table = pd.read_csv(data_dir() / "nvidia_dle" / "precision_throughput.csv")
    table = table[(table["kind"] == "training") & (table["n_gpus"] == 1)]
    samples: dict[tuple[str, str], list[float]] = {}
    for row in table.itertuples():
        model, gpu = str(row.model).rsplit("/", 1)[-1], str(row.gpu)
        if model == "resnet50v1.5":
            family, flops = "resnet", 6e9 * GMAC[model]
        elif model == "efficientnet":
            variant = str(row.variant).replace("-widese", "")
            # The 32 GB one-GPU rows of two networks are 2.3 times below the 16 GB and the 8-GPU rows.
            if gpu == "V100" and row.mem_gb == 32:
                continue
            family, flops = "efficientnet", 6e9 * GMAC[variant]
        elif model == "BERT" and row.seq_len == 128.0:
            # At nominal length 512 the FP32 rows exceed the V100's peak: padding is skipped there.
            family, flops = "bert", bert_large_flops(int(row.seq_len), True)
        else:
            continue
        samples.setdefault((family, gpu), []).append(float(row.throughput_full) * flops / PEAK[gpu])
    out: dict[str, dict[str, float]] = {}
    for (family, gpu), values in samples.items():
        out.setdefault(family, {})[gpu] = float(np.exp(np.mean(np.log(values))))
    return out, {"compute_training": {f"{f} {g}": spread(v) for (f, g), v in samples.items()}}


def spread(values: list[float]) -> dict[str, float | int | None]:
    """Rows, and the median relative error of their mean in-sample and leaving one row out."""
    logs = np.log(values)
    rest = [abs(np.mean(np.delete(logs, i)) - logs[i]) for i in range(len(logs))] if len(logs) > 1 else None
    return {
        "rows": len(values),
        "in_sample": float(np.expm1(np.median(np.abs(logs - logs.mean())))),
        "held_out": float(np.expm1(np.median(rest))) if rest else None,
    }


def decoder_floor() -> dict[str, dict[str, float]]:
    """Host floor per transformer block from the batch-free part of decoding, weight reads removed."""
    table = pd.read_csv(data_dir() / "mlenergy_v2" / "llm.csv")
    table = table[(table["tp"] * table["pp"] == 1) & (table["avg_batch"] <= 330)]
    out: dict[str, dict[str, float]] = {}
    for name in ("A100", "H100"):
        floors = []
        for model, (blocks, params) in DECODER_BLOCKS.items():
            rows = table[(table["model"] == model) & table["gpu"].str.contains(name)]
            if len(rows) < 3:
                continue
            intercept = np.polyfit(rows["avg_batch"], rows["avg_tpot_s"], 1)[1]
            reads = 2 * params / (0.75 * BANDWIDTH[name])
            if intercept > reads:
                floors.append((intercept**3 - reads**3) ** (1 / 3) / blocks)
        out[name] = {
            "floor_per_block_s": float(np.median(floors)),
            "models": len(floors),
            **spread(floors),
            "min": float(min(floors)),
            "max": float(max(floors)),
        }
    return out


def hopper_over_ampere() -> dict[str, float]:
    """Speed ratio of H100 to A100 in compute-bound diffusion at the largest common batch."""
    table = pd.read_csv(data_dir() / "mlenergy_v2" / "diffusion.csv")
    ratios = []
    for _, group in table.groupby("model"):
        time = group.pivot_table(
            index="batch_size", columns=group["gpu"].str.contains("H100"), values="batch_latency_s"
        )
        time = time.dropna()
        if len(time) and time.shape[1] == 2:
            last = time.iloc[-1]
            ratios.append(float(last[False] / last[True]))
    return {
        "speed_ratio": float(np.median(ratios)),
        "models": len(ratios),
        "min": min(ratios),
        "max": max(ratios),
    }


def int8_gain() -> dict[str, float]:
    """INT8 over FP16 throughput of BERT offline on eight A100 (DGX)."""
    table = pd.read_csv(data_dir() / "mlperf_power" / "inference_power.csv")
    rows = table[table["system"].str.startswith("DGX-A100") & (table["scenario"] == "Offline")]
    rate = rows.set_index("benchmark")["samples_per_s"]
    watts = rows.set_index("benchmark")["avg_wall_w"]
    return {
        "speedup_over_fp16": float(rate["bert-99"] / rate["bert-99.9"]),
        "wall_power_ratio": float(watts["bert-99"] / watts["bert-99.9"]),
    }


def main() -> None:
    """Fit every group and write the constants."""
    curves = inference_curves()
    wide = curves.pivot_table(index=["network", "gpu"], columns="precision", values=["floor_s", "t1_s"])
    amp_floor = wide["floor_s"]["AMP"] / wide["floor_s"]["FULL"]
    gain = wide["t1_s"]["FULL"] / wide["t1_s"]["AMP"]
    (train, errors), speed, decode = training_efficiency(), speedups(), decoder_floor()
    hopper, int8 = hopper_over_ampere(), int8_gain()
    zeus_curves = zeus_training_curves()

    def of(series: pd.Series, network: str, gpu: str) -> float:
        picked = series[series.index.map(lambda k: network in k[0] and k[1] == gpu)]
        return float(np.median(picked))

    full = {(r.network, r.gpu): r for r in curves[curves["precision"] == "FULL"].itertuples()}
    per_block = {(n, g): full[(n, g)].floor_s / BLOCKS[n] for n in BLOCKS for g in ("V100", "A100") if (n, g) in full}
    variants = ("efficientnet-b0", "efficientnet-b4")
    host_ratio = float(np.median([per_block[(n, "A100")] / per_block[(n, "V100")] for n in variants]))
    infer_fraction = {(n, g): 2e9 * GMAC[n] / full[(n, g)].t1_s / PEAK[g] for n in GMAC for g in PEAK if (n, g) in full}
    effnet = {g: float(np.sqrt(np.prod([infer_fraction[(n, g)] for n in variants]))) for g in PEAK}
    resnet_v = infer_fraction[("resnet50v1.5", "V100")]
    rows = pd.read_csv(data_dir() / "nvidia_dle" / "precision_throughput.csv")
    bert_row = rows[rows["model"].str.endswith("BERT") & (rows["kind"] == "inference")].iloc[0]
    bert_infer = float(bert_row["throughput_full"]) * bert_large_flops(384, False) / PEAK["A100"]

    def over(table: dict[str, Any], gpu: str, other: str) -> float:
        return float(table[gpu]["speedup"] / table[other]["speedup"])

    families = {
        "resnet": {
            "reference_blocks": 16,
            "V100": {
                "compute_training": train["resnet"]["V100"],
                "compute_inference": resnet_v,
                "speedup_training": speed["resnet"]["V100"]["speedup"],
                "speedup_inference": of(gain, "resnet50", "V100"),
                "floor_per_block_s": per_block[("resnet50v1.5", "V100")],
                "floor_amp_factor": of(amp_floor, "resnet50", "V100"),
                "estimated": [],
            },
            "A100": {
                "compute_training": train["resnet"]["A100"],
                "compute_inference": train["resnet"]["A100"] * resnet_v / train["resnet"]["V100"],
                "speedup_training": speed["resnet"]["A100"]["speedup"],
                "speedup_inference": of(gain, "resnet50", "V100") * over(speed["resnet"], "A100", "V100"),
                "floor_per_block_s": per_block[("resnet50v1.5", "V100")] * host_ratio,
                "floor_amp_factor": of(amp_floor, "efficientnet", "A100"),
                "estimated": [
                    "compute_inference",
                    "speedup_inference",
                    "floor_per_block_s",
                    "floor_amp_factor",
                ],
            },
        },
        "efficientnet": {
            "reference_blocks": 16,
            **{
                g: {
                    "compute_training": train["efficientnet"][g],
                    "compute_inference": effnet[g],
                    "speedup_training": speed["efficientnet"][g]["speedup"],
                    "speedup_inference": of(gain, "efficientnet", g),
                    "floor_per_block_s": float(np.mean([per_block[(n, g)] for n in variants])),
                    "floor_amp_factor": of(amp_floor, "efficientnet", g),
                    "estimated": [],
                }
                for g in ("V100", "A100")
            },
        },
        "bert": {
            "reference_blocks": 24,
            "V100": {
                "compute_training": train["bert"]["V100"],
                "compute_inference": train["bert"]["V100"] * bert_infer / train["bert"]["A100"],
                "speedup_training": speed["bert"]["V100"]["speedup"],
                "speedup_inference": float(bert_row["speedup"]) * over(speed["bert"], "V100", "A100"),
                "floor_per_block_s": decode["A100"]["floor_per_block_s"] / host_ratio,
                "floor_amp_factor": float(np.median(amp_floor)),
                "estimated": [
                    "compute_inference",
                    "speedup_inference",
                    "floor_per_block_s",
                    "floor_amp_factor",
                ],
            },
            "A100": {
                "compute_training": train["bert"]["A100"],
                "compute_inference": bert_infer,
                "speedup_training": speed["bert"]["A100"]["speedup"],
                "speedup_inference": float(bert_row["speedup"]),
                "floor_per_block_s": decode["A100"]["floor_per_block_s"],
                "floor_amp_factor": float(np.median(amp_floor)),
                "estimated": ["floor_per_block_s", "floor_amp_factor"],
            },
        },
    }
    peak_ratio = 495 / 156
    for family in families.values():
        base: dict[str, Any] = family["A100"]  # type: ignore[assignment]
        hopper_floor = (
            base["floor_per_block_s"] * decode["H100"]["floor_per_block_s"] / decode["A100"]["floor_per_block_s"]
        )
        family["H100"] = {
            **base,
            "compute_training": base["compute_training"] * hopper["speed_ratio"] / peak_ratio,
            "compute_inference": base["compute_inference"] * hopper["speed_ratio"] / peak_ratio,
            "floor_per_block_s": hopper_floor,
            "estimated": [k for k in base if k != "estimated"],
        }

    forward_int8 = int8["speedup_over_fp16"]
    constants = {
        "floor_law": {
            "p_inference": 3,
            "p_training": 2,
            "source_inference": DLE,
            "source_training": ZEUS,
            "errors_inference": curve_errors(list(curves["curve"]), 3),
            "errors_training": curve_errors(zeus_curves, 2),
        },
        "families": {"source": DLE, "floor_source": {"transformers": MLENERGY}, "errors": errors, "values": families},
        "training_floor_factor": {
            "value": 3.0,
            "how": "estimated: forward, backward and update launch about three times the kernels; "
            "the Zeus ResNet-50 V100 floor is 29 ms, three inference floors are 31 ms",
        },
        "decoder_floor": {"source": MLENERGY, "values": decode},
        "host_floor_ratio_a100_over_v100": host_ratio,
        "h100": {"source": MLENERGY, "how": "extrapolated: diffusion speed ratio over peak ratio", **hopper},
        "int8": {
            "source": MLPERF,
            "speedup_over_fp16_inference": forward_int8,
            "wall_power_ratio": int8["wall_power_ratio"],
            "speedup_over_fp16_training": 1 / (1 / (3 * forward_int8) + 2 / 3),
            "how_training": "estimated: forward pass in INT8, the two backward thirds in FP16",
        },
        "speedups": {"source": DLE, "values": speed},
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(rounded(constants), indent=1) + "\n")
    print(json.dumps(rounded({k: constants[k] for k in ("floor_law", "families", "h100", "decoder_floor")}), indent=1))


def rounded(value: Any) -> Any:
    """Five significant digits: more would pretend to a precision the tables do not have."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return value


if __name__ == "__main__":
    main()
