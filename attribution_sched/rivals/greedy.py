"""The greedy rule: price every sensible plan with the cost model and take the best one now.

Candidates are all layouts inside one domain and, where a task may span domains, speed-proportional cuts over
every ordered pair of domains with room. One batched call prices them. A running task is moved only if the
time gained over its remaining work exceeds what moving costs.
"""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.cluster.cost import PlanCosts
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.plan import MAX_PP, Plan, PlanBatch, Replica, Segment, layouts_within
from attribution_sched.planning.instance import usable_devices

PAIR_DOMAINS = 6
"""Pipelines over two domains are tried between this many domains with most room."""

MOVE_PAUSE_S = 900.0
"""Pause a move is expected to cost when its gain is weighed (state of tens of GB over a few Gb/s)."""


class Greedy:
    """Best plan of the moment by step time, traffic priced in.

    Args:
        seconds_per_usd: Step seconds a dollar of traffic per step is worth.
        seconds_per_device: Share of the step time each device held must save, so that small tasks stay small.
    """

    name = "greedy"

    def __init__(self, seconds_per_usd: float = 1.0, seconds_per_device: float = 0.02) -> None:
        self.seconds_per_usd = seconds_per_usd
        self.seconds_per_device = seconds_per_device

    def decide(self, view: Decision) -> Plan | None:
        """Take the best plan that fits memory; wait if none does."""
        candidates = self._candidates(view)
        if not candidates:
            return None
        batch = PlanBatch.of(candidates)
        priced = view.cost.score(
            batch, view.kind_index, bandwidth_gbps=view.bandwidth_gbps, latency_s=view.latency_s, breakdown=False
        )
        score = self._score(priced, candidates)
        best = int(np.argmin(score))
        if not np.isfinite(score[best]):
            return None
        if view.current_plan is not None and not self._worth_moving(view, float(priced.step_s[best])):
            return None
        return candidates[best]

    def _score(self, priced: PlanCosts, candidates: list[Plan]) -> np.ndarray:
        devices = np.array([sum(s.device_count for s in plan.segments) for plan in candidates])
        time = priced.step_s + self.seconds_per_usd * priced.bill_usd
        return np.where(priced.fits, time * (1.0 + self.seconds_per_device * devices), np.inf)

    def _worth_moving(self, view: Decision, step_s: float) -> bool:
        now = view.cost.score(
            PlanBatch.of([view.current_plan] if view.current_plan else []),
            view.kind_index,
            bandwidth_gbps=view.bandwidth_gbps,
            latency_s=view.latency_s,
            breakdown=False,
        )
        return (float(now.step_s[0]) - step_s) * view.steps_left > 2.0 * MOVE_PAUSE_S

    def _candidates(self, view: Decision) -> list[Plan]:
        kind, cluster = view.kind, view.cost.cluster
        n = len(kind.model)
        formats = (Precision.BF16, Precision.FP16, Precision.FP32)
        precision = next(q for q in formats if all(d.gpu.supports(q) for d in cluster.domains))
        plans = []
        free_devices = [int(room) for room in usable_devices(view)]
        # Domains with the same hardware and room give plans of the same time; the first stands for all.
        first = {(cluster.domains[d].gpu.name, free): d for d, free in reversed(list(enumerate(free_devices)))}
        for micro in kind.microbatches:
            count = kind.batch_size // micro
            for (_, free), domain in first.items():
                if free == 0:
                    continue
                for dp, tp, pp in layouts_within(free, cluster.domains[domain].node_devices):
                    if micro % dp == 0 and pp <= n:
                        segment = Segment(domain, 0, n, dp, tp, pp, precision)
                        plans.append(Plan((Replica((segment,), micro, count),)))
            if view.max_segments > 1:
                plans += self._cuts(view, micro, count, free_devices, n, precision)
        return plans

    def _cuts(
        self, view: Decision, micro: int, count: int, free_devices: list[int], n: int, precision: Precision
    ) -> list[Plan]:
        """Pipelines over two domains, cut in proportion to the devices each gives."""
        plans = []
        domains = view.cost.cluster.domains
        widest = sorted(range(len(free_devices)), key=lambda d: -free_devices[d])[:PAIR_DOMAINS]
        for i in widest:
            for j in widest:
                first_free, second_free = free_devices[i], free_devices[j]
                if i == j or min(first_free, second_free) == 0:
                    continue
                for tp in TP_DEGREES:
                    shapes = []
                    for domain, room in ((i, first_free), (j, second_free)):
                        if tp > min(room, domains[domain].node_devices):
                            break
                        pp = 1 << ((room // tp).bit_length() - 1)
                        shapes.append((domain, 1, tp, min(pp, MAX_PP)))
                    if len(shapes) < 2:
                        continue
                    weights = [tp_ * pp for _, _, tp_, pp in shapes]
                    cut = max(1, min(n - 1, round(n * weights[0] / sum(weights))))
                    bounds = ((0, cut), (cut, n))
                    segments = tuple(
                        Segment(d, a, z, dp, t, min(pp, z - a), precision)
                        for (d, dp, t, pp), (a, z) in zip(shapes, bounds, strict=True)
                    )
                    if all((s.pp & (s.pp - 1)) == 0 for s in segments):
                        plans.append(Plan((Replica(segments, micro, count),)))
        return plans
