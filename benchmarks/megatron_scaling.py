"""Published Megatron-LM weak scaling against the cost model: one set of constants for every row.

Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
SC 2021, table 1 (A100-80, sequence 2048, vocabulary 51,200, mixed precision, activation recomputation).
The constants were fitted to the five rows marked "fit"; the others were left out.

Run: ``python benchmarks/megatron_scaling.py``
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.compute import Efficiencies, efficiencies
from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.models.transformers import megatron_gpt
from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Runtime

SEQUENCE, VOCABULARY, NODE = 2048, 51_200, 8


class Row(NamedTuple):
    """One published run."""

    name: str
    heads: int
    hidden: int
    layers: int
    tp: int
    pp: int
    gpus: int
    batch: int
    published_tflops: float
    fitted: bool


ROWS = (
    Row("1.7B", 24, 2304, 24, 1, 1, 32, 512, 137, True),
    Row("3.6B", 32, 3072, 30, 2, 1, 64, 512, 138, False),
    Row("7.5B", 32, 4096, 36, 4, 1, 128, 512, 142, True),
    Row("18.4B", 48, 6144, 40, 8, 1, 256, 1024, 135, False),
    Row("39.1B", 64, 8192, 48, 8, 2, 512, 1536, 138, True),
    Row("76.1B", 80, 10240, 60, 8, 4, 1024, 1792, 140, False),
    Row("145.6B", 96, 12288, 80, 8, 8, 1536, 2304, 148, True),
    Row("310.1B", 128, 16384, 96, 8, 16, 1920, 2160, 155, False),
    Row("529.6B", 128, 20480, 105, 8, 35, 2520, 2520, 163, True),
    Row("1008.0B", 160, 25600, 128, 8, 64, 3072, 3072, 163, False),
)


def predict(row: Row, achieved: Efficiencies | None = None) -> tuple[float, int]:
    """TFLOP/s per GPU at the best microbatch that fits memory, and that microbatch."""
    model = megatron_gpt(heads=row.heads, hidden=row.hidden, layers=row.layers)
    wan = Wan.uniform(["dc"], gbps=1.0, latency_s=0.01, usd_per_gb=0.0)
    runtime = Runtime(recompute=True, zero_stage=0, flash_attention=False)
    cluster = Cluster((Domain("dc", gpu("A100-80"), row.gpus, NODE),), wan, runtime)
    cost = CostModel(cluster, [model], achieved=achieved)
    dp = row.gpus // (row.tp * row.pp)
    sizes = [b for b in (1, 2, 4, 8) if row.batch % (dp * b) == 0]
    plans = [
        Plan((Replica((Segment(0, 0, len(model), dp, row.tp, row.pp),), b * dp, row.batch // (dp * b)),)) for b in sizes
    ]
    scored = cost.score(PlanBatch.of(plans), breakdown=False)
    flops = 96 * row.batch * SEQUENCE * row.layers * row.hidden**2
    flops *= 1 + SEQUENCE / (6 * row.hidden) + VOCABULARY / (16 * row.layers * row.hidden)
    tflops = np.where(scored.fits, flops / scored.step_s / row.gpus / 1e12, 0.0)
    best = int(np.argmax(tflops))
    return float(tflops[best]), sizes[best]


def main() -> None:
    """Print the table."""
    print(f"{'model':>8} {'tp':>3} {'pp':>3} {'GPUs':>5} {'published':>9} {'predicted':>9} {'error':>7}  used")
    errors = {True: [], False: []}  # type: dict[bool, list[float]]
    for row in ROWS:
        tflops, micro = predict(row)
        error = tflops / row.published_tflops - 1
        errors[row.fitted].append(abs(error))
        print(
            f"{row.name:>8} {row.tp:>3} {row.pp:>3} {row.gpus:>5} {row.published_tflops:>9.0f} {tflops:>9.1f} "
            f"{error:>+7.1%}  {'fit' if row.fitted else 'held out'} (microbatch {micro})"
        )
    for fitted, label in ((True, "fitted rows"), (False, "held-out rows")):
        print(f"{label}: mean error {np.mean(errors[fitted]):.1%}, worst {max(errors[fitted]):.1%}")
    print("constants:", efficiencies())


if __name__ == "__main__":
    main()
