"""Measured training steps (iteration time, peak memory) against the cost model.

Source: the validation runs published with Sailor (SOSP 2025): OPT-350M and GPT-Neo-2.7B on GH200 nodes with
four devices each, and OPT-350M on eight-card nodes of mixed consumer GPUs behind gigabit Ethernet. Each
consumer node is a domain of its own: data parallelism between them is replication over a wide-area link.

Run: ``ATTRIBUTION_SCHED_DATA=<folder> python benchmarks/measured_steps.py``
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.gpus import Gpu, Precision, gpu
from attribution_sched.cluster.models.catalogue import profiled_model
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Runtime

ETHERNET_GBPS, ETHERNET_LATENCY_S = 0.94, 1e-4
"""Payload rate of gigabit Ethernet."""


def consumer(name: str, fp32: float, memory_gb: float, hbm_gb_s: float, tdp_w: float) -> Gpu:
    """Describe a consumer card from its datasheet; only full precision is used here."""
    return Gpu(name, {Precision.FP32: fp32 * 1e12}, memory_gb * 1e9, hbm_gb_s * 1e9, tdp_w, tdp_w / 3, 20.0, 12e9)


GPUS = {
    "GH-96": gpu("H100-96"),
    "Titan-RTX": consumer("Titan-RTX", 16.3, 24, 672, 280),
    "RTX-2080": consumer("RTX-2080", 13.4, 11, 616, 250),
    "RTX-3090": consumer("RTX-3090", 35.6, 24, 936, 350),
}
FABRIC_GBPS, FABRIC_SHARE, FABRIC_LATENCY_S = 200.0, 0.73, 5e-6
"""One Slingshot port per device, and the share of it that point-to-point transfers reach."""
RUNTIME = Runtime(recompute=False, zero_stage=0, flash_attention=False, blocking_sends=True)
"""The runtime that was measured synchronises after every transfer."""
RESERVED_SUPERCHIP_BYTES, RESERVED_CARD_BYTES = 5.6e9, 3.5e9
"""Fitted, one figure per kind of device: what it held beyond states and activations (CUDA context, communicator
buffers, flattened gradient buckets, kernel workspaces, allocator slack). A GH200 reserves more than a consumer
card: it has 132 multiprocessors to keep a context for, not 68-82, and its collectives open more channels."""
DOUBTFUL = {
    "clariden__GPT-NEO__N8__plan_config_N8_D2": "28.5 GB where the same stages at D4, D8 and D16 took 37.3-37.5 GB",
    "mit__N2__plan_config_N2_D2": "5.9 GB where score matrices alone need 6.4 GB at tp 2 without recomputation",
}  # fmt: skip
"""Runs whose recorded peak memory contradicts arithmetic or their siblings; their times are not in doubt."""


@dataclass(frozen=True)
class Comparison:
    """One measured run next to its prediction."""

    name: str
    measured_s: float
    predicted_s: float
    measured_bytes: float
    predicted_bytes: float

    @property
    def time_error(self) -> float:
        """Signed relative error of the step time."""
        return self.predicted_s / self.measured_s - 1

    @property
    def memory_error(self) -> float:
        """Signed relative error of the peak memory."""
        return self.predicted_bytes / self.measured_bytes - 1


def compare(path: Path) -> Comparison:
    """Predict one measured run."""
    run: dict[str, Any] = json.loads(path.read_text())
    pipeline = run["pipeline_list"][0]
    model = profiled_model("GPT-Neo-2.7" if "GPT-NEO" in path.name else "OPT-350")
    stages = pipeline["tmp_per_stage"]
    # A stage lists, per data-parallel rank, [[[gpu, count, zone]], tensor-parallel degree].
    ranks = [[(GPUS[rank[0][0][0]], int(rank[1])) for rank in stage] for stage in stages]
    stops = np.cumsum([len(layers) for layers in pipeline["layers_per_stage"]])
    stops[-1] = len(model)
    microbatches = run["gbs"] // (run["mbs"] * len(ranks[0]))
    if all(card.name == "H100-96" for stage in ranks for card, _ in stage):
        plan, cluster = one_site(ranks, stops, run["mbs"], microbatches)
    else:
        plan, cluster = one_domain_per_node(ranks, stops, run["mbs"], microbatches)
    cost = CostModel(cluster, [model]).score(plan)
    return Comparison(
        path.stem,
        run["real"],
        float(cost.step_s[0]),
        run["max_mem"],
        float(cost.segment("memory_bytes").max()),
    )


def one_site(ranks: list[list[tuple[Gpu, int]]], stops: Any, mbs: int, m: int) -> tuple[Plan, Cluster]:
    """Equal nodes on one fast fabric: each stage is a node group of the same domain.

    The cost model keeps one segment per domain, so each stage gets a domain whose links are the fabric's.
    """
    card, tp = ranks[0][0]
    dp, names = len(ranks[0]), [f"nodes {s}" for s in range(len(ranks))]
    domains = tuple(Domain(name, card, dp * tp, tp, FABRIC_GBPS) for name in names)
    # All dp ranks of a stage send at once, each over its own interface.
    wan = Wan.uniform(names, gbps=FABRIC_GBPS * dp * FABRIC_SHARE, latency_s=FABRIC_LATENCY_S, usd_per_gb=0.0)
    segments = tuple(
        Segment(s, 0 if s == 0 else int(stops[s - 1]), int(stops[s]), dp, tp, 1, Precision.FP32)
        for s in range(len(ranks))
    )
    runtime = replace(RUNTIME, reserved_bytes=RESERVED_SUPERCHIP_BYTES)
    return Plan((Replica(segments, mbs * dp, m),)), Cluster(domains, wan, runtime)


def one_domain_per_node(ranks: list[list[tuple[Gpu, int]]], stops: Any, mbs: int, m: int) -> tuple[Plan, Cluster]:
    """Unequal nodes: every data-parallel rank is a replica, every node a domain."""
    dp = len(ranks[0])
    names = [f"node {r}.{s}" for r in range(dp) for s in range(len(ranks))]
    domains, replicas = [], []
    for r in range(dp):
        segments = []
        for s, stage in enumerate(ranks):
            card, tp = stage[r]
            first = 0 if s == 0 else int(stops[s - 1])
            segments.append(Segment(len(domains), first, int(stops[s]), 1, tp, 1, Precision.FP32))
            domains.append(Domain(names[len(domains)], card, tp, tp))
        replicas.append(Replica(tuple(segments), mbs, m))
    wan = Wan.uniform(names, gbps=ETHERNET_GBPS, latency_s=ETHERNET_LATENCY_S, usd_per_gb=0.0)
    runtime = replace(RUNTIME, reserved_bytes=RESERVED_CARD_BYTES)
    return Plan(tuple(replicas)), Cluster(tuple(domains), wan, runtime)


def compare_all(folder: Path) -> list[Comparison]:
    """Predict every measured run in a folder."""
    return [compare(path) for path in sorted(folder.glob("*.json"))]


def main() -> None:
    """Print the table."""
    data = os.environ.get("ATTRIBUTION_SCHED_DATA")
    if not data:
        sys.exit("Set ATTRIBUTION_SCHED_DATA to the folder that holds sailor/measured_steps")
    rows = compare_all(Path(data) / "sailor" / "measured_steps")
    print(f"{'run':<46} {'measured s':>10} {'model s':>8} {'error':>7} {'meas. GB':>8} {'model GB':>8} {'error':>7}")
    for row in rows:
        print(
            f"{row.name:<46} {row.measured_s:>10.3f} {row.predicted_s:>8.3f} {row.time_error:>+7.1%} "
            f"{row.measured_bytes / 1e9:>8.1f} {row.predicted_bytes / 1e9:>8.1f} {row.memory_error:>+7.1%}"
        )
    sound = [r for r in rows if r.name not in DOUBTFUL]
    for label, errors in (
        ("time", [r.time_error for r in rows]),
        ("memory", [r.memory_error for r in rows]),
        (f"memory, {len(sound)} runs", [r.memory_error for r in sound]),
    ):
        absolute = np.abs(errors)
        print(
            f"{label}: mean error {absolute.mean():.1%}, median {np.median(absolute):.1%}, worst {absolute.max():.1%}"
        )
    print("the last line leaves out:")
    for name, reason in DOUBTFUL.items():
        print(f"  {name}: {reason}")


if __name__ == "__main__":
    main()
