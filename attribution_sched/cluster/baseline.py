"""The named baseline of R_eff and R_cost: the static uniform split.

Layers are dealt evenly over all K domains in their given order (the first ones, if there are fewer layers than
domains); every domain gives as many devices as data parallelism over the largest microbatch can use, in half
precision, at base bandwidth. In a world of one domain a task runs on one device, in single precision.
It is the reference because the method's founding text names it, not because it is good; where it would not
fit memory its time is still the reference.
"""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.cluster.precision import Precision
from attribution_sched.cluster.world import TaskKind, World


def uniform_split(n_layers: int, parts: int) -> list[tuple[int, int]]:
    """Cut a chain into ``parts`` runs of nearly equal length."""
    stops = [round(n_layers * (p + 1) / parts) for p in range(parts)]
    return list(zip([0, *stops[:-1]], stops, strict=True))


def baseline_plan(world: World, kind: TaskKind) -> Plan:
    """Build the static uniform split of a task kind over the cluster."""
    cluster = world.cluster
    parts = min(len(cluster), len(kind.model))
    micro = kind.microbatches[1] if len(cluster) == 1 else kind.microbatches[-1]
    segments = []
    for domain, (first, stop) in enumerate(uniform_split(len(kind.model), parts)):
        gpu = cluster.domains[domain].gpu
        precision = Precision.FP16 if len(cluster) > 1 and gpu.supports(Precision.FP16) else Precision.FP32
        dp = 1
        # A one-domain world (the testbed) runs a task on one device.
        while len(cluster) > 1 and 2 * dp <= cluster.domains[domain].devices and micro % (2 * dp) == 0:
            dp *= 2
        segments.append(Segment(domain, first, stop, dp, 1, 1, precision))
    return Plan((Replica(tuple(segments), micro, kind.batch_size // micro),))


def baseline_costs(world: World, cost: CostModel) -> tuple[np.ndarray, np.ndarray]:
    """Step time (s) and cost (USD per step) of the baseline of every task kind, each of shape ``(n_kinds,)``."""
    steps, dollars = [], []
    reward = world.reward
    for k, kind in enumerate(world.kinds):
        scored = cost.score(baseline_plan(world, kind), k, breakdown=False)
        steps.append(float(scored.step_s[0]))
        dollars.append(
            float(scored.bill_usd[0])
            + reward.energy_usd_per_kwh / 3.6e6 * float(scored.energy_j[0])
            + reward.carbon_usd_per_kg / 1e3 * float(scored.carbon_g[0])
        )
    return np.array(steps), np.array(dollars)
