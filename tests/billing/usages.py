"""Usages made up for tests: random ones that conserve their meters."""

from __future__ import annotations

import numpy as np

from attribution_sched.billing.usage import TaskUse, Usage


def random_usage(seed: int, *, tasks: int = 12, tenants: int = 4, domains: int = 2, intervals: int = 9) -> Usage:
    """Tasks of several tenants that hold devices of some domains in some intervals."""
    rng = np.random.default_rng(seed)
    devices = rng.integers(8, 20, domains)
    edges = np.concatenate([[0.0], np.cumsum(rng.uniform(60.0, 7200.0, intervals))])
    free = np.repeat(devices[:, None], intervals, axis=1).astype(float)
    spans = []
    for task in range(tasks):
        begin, end = np.sort(rng.integers(0, intervals + 1, 2))
        domain, wanted = int(rng.integers(domains)), float(rng.integers(1, 5))
        if begin == end or (free[domain, begin:end] < wanted).any():
            continue
        free[domain, begin:end] -= wanted
        dynamic_w = rng.uniform(10.0, 300.0)
        spans += [(t, task, domain, wanted, rng.uniform(0.2, 1.0), dynamic_w) for t in range(begin, end)]
    lengths, idle_w = np.diff(edges), 50.0
    table = np.array(spans, dtype=float).reshape(-1, 6)
    at, who, where = (table[:, column].astype(np.int64) for column in range(3))
    held = table[:, 3]
    seconds = lengths[at] if len(at) else np.zeros(0)
    idle_j = (free * lengths).T * idle_w
    dynamic_j, static_j = held * table[:, 5] * seconds, held * idle_w * seconds
    egress = rng.uniform(0.0, 5.0, tasks)
    return Usage(
        domains=tuple(f"d{k}" for k in range(domains)),
        devices=devices,
        edges_s=edges,
        tasks=tuple(
            TaskUse(f"t{n}", f"tenant-{n % tenants}", f"m{n % 3}", 0.0, requested=int(rng.integers(1, 9)) or None,
                    egress_usd=float(egress[n]))
            for n in range(tasks)
        ),
        span_interval=at,
        span_task=who,
        span_domain=where,
        span_devices=held,
        span_busy_s=held * table[:, 4] * seconds,
        span_dynamic_j=dynamic_j,
        span_static_j=static_j,
        idle_j=idle_j,
        carbon_g_per_j=rng.uniform(1e-5, 2e-4, (intervals, domains)),
        electricity_usd_per_j=rng.uniform(1e-8, 5e-8, (intervals, domains)),
        meter_j=float(dynamic_j.sum() + static_j.sum() + idle_j.sum()),
        meter_egress_usd=float(egress.sum()),
    )  # fmt: skip
