"""What mixed precision gains per model family, as the cost model sees it, against published tables.

Every row of the published training tables is predicted by the whole path (achieved efficiency, launch
floor, floor law at the recipe's batch size), not by the stored gain alone. A second table predicts
inference throughput over batch sizes, where mixed precision first loses and then wins. Run with the
measured tables in ``$ATTRIBUTION_SCHED_DATA``::

    python benchmarks/precision_speedups.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd

from attribution_sched.cluster.gpus import Precision, gpu
from attribution_sched.cluster.models import model
from attribution_sched.cluster.throughput import efficiency

TARGET = 0.15
FAMILIES = {
    "resnet": "ConvNets/resnet50",
    "efficientnet": "ConvNets/efficientnet",
    "bert": "LanguageModeling/BERT",
}
DEVICE = {"V100": "V100-32", "A100": "A100-80"}
# The convolution tables do not state the batch; their recipes use 128 to 256 samples per device.
CONV_BATCH = 128.0


def load(name: str) -> pd.DataFrame:
    """One table of the published throughputs."""
    return pd.read_csv(Path(os.environ["ATTRIBUTION_SCHED_DATA"]) / "nvidia_dle" / name)


def recipe(family: str, row: pd.Series) -> tuple[float, float, float, float]:
    """(forward FLOPs, blocks, batch in full precision, batch in mixed precision) of a table row."""
    if family == "resnet":
        return model("resnet-50").forward_flops, 16, CONV_BATCH, CONV_BATCH
    if family == "efficientnet":
        name = "efficientnet-b4" if "b4" in str(row["variant"]) else "efficientnet-b0"
        return model(name).forward_flops, 32 if "b4" in name else 16, CONV_BATCH, CONV_BATCH
    sequence = float(row["seq_len"]) if row["seq_len"] == row["seq_len"] else 384.0
    flops = model("bert-large").forward_flops * sequence / 512.0
    batches = [float(b) for b in re.findall(r"\d+", str(row["batch"]))]
    # Batches in the thousands are accumulated over many small steps that keep about 8192 tokens.
    full, mixed = (b if b <= 512 else 8192.0 / sequence for b in batches)
    return flops, 24, full, mixed


def predicted_speedup(family: str, row: pd.Series) -> float:
    """Mixed over full throughput of one training row."""
    flops, blocks, full, mixed = recipe(family, row)
    device = gpu(DEVICE[str(row["gpu"])])
    slow = efficiency(family, device, Precision.FP32).step_time_s(full, flops, blocks) / full
    fast = efficiency(family, device, Precision.FP16).step_time_s(mixed, flops, blocks) / mixed
    return float(slow / fast)


def training_table() -> pd.DataFrame:
    """Median measured and predicted gain per family and GPU, and a gain fitted on every second row."""
    table = load("precision_throughput.csv")
    rows = []
    for family, pattern in FAMILIES.items():
        mine = table[table["model"].str.contains(pattern) & (table["kind"] == "training")]
        for device, group in mine.groupby("gpu"):
            measured = group["speedup"].to_numpy(float)
            predicted = np.array([predicted_speedup(family, row) for _, row in group.iterrows()])
            stored = efficiency(family, gpu(DEVICE[str(device)]), Precision.FP16).speedup
            rows.append({
                "family": family, "gpu": device, "rows": len(group), "measured": float(np.median(measured)),
                "predicted": float(np.median(predicted)), "t1_gain": stored,
                "off": float(np.median(predicted) / np.median(measured) - 1),
                "worst_row": float(np.abs(predicted / measured - 1).max()),
                "split_half": float(np.median(measured[::2]) / np.median(measured[1::2]) - 1),
            })  # fmt: skip
    return pd.DataFrame(rows)


def inference_table() -> pd.DataFrame:
    """ResNet-50 on V100: mixed over full throughput, measured and predicted, per batch."""
    table = load("batch_latency_inference.csv")
    table = table[table["model"].str.endswith("resnet50v1.5") & (table["gpu"] == "V100")]
    wide = table.pivot_table(index="batch", columns="precision", values="throughput")
    batch = wide.index.to_numpy(float)
    flops = model("resnet-50").forward_flops
    time = {p: efficiency("resnet", gpu("V100-16"), p, training=False).step_time_s(batch, flops, 16)
            for p in (Precision.FP32, Precision.FP16)}  # fmt: skip
    return pd.DataFrame({
        "batch": batch, "measured": (wide["AMP"] / wide["FP32"]).to_numpy(),
        "predicted": time[Precision.FP32] / time[Precision.FP16],
        "full_img_s": batch / time[Precision.FP32], "measured_full_img_s": wide["FP32"].to_numpy(),
    })  # fmt: skip


def int8_measured() -> float:
    """INT8 over FP16 offline throughput of BERT on eight A100."""
    table = pd.read_csv(Path(os.environ["ATTRIBUTION_SCHED_DATA"]) / "mlperf_power" / "inference_power.csv")
    rows = table[table["system"].str.startswith("DGX-A100") & (table["scenario"] == "Offline")]
    rate = rows.set_index("benchmark")["samples_per_s"]
    return float(rate["bert-99"] / rate["bert-99.9"])


def main() -> None:
    """Print both tables."""
    print("training, mixed over full precision (off: target within 15 %)")
    print(training_table().to_string(index=False, float_format=lambda v: f"{v:.3f}"))
    print("\ninference, ResNet-50 on V100")
    print(inference_table().to_string(index=False, float_format=lambda v: f"{v:.3f}"))
    bert = [efficiency("bert", gpu("A100-80"), p, training=False).speedup for p in (Precision.FP16, Precision.INT8)]
    print(f"\nINT8 over FP16, BERT inference on A100: {bert[1] / bert[0]:.3f} (measured {int8_measured():.3f})")


if __name__ == "__main__":
    main()
