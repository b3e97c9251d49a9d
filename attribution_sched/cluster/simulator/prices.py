"""What running jobs cost each other: shared links, shared devices, and the moving of state.

The rules of contention of the batched world, written a second time in plain Python over the cost model's own
interface, so that each implementation is the other's test:

- a job gets what others leave of a link, at least a tenth, and its latency rises with their load;
- the load of others is as it stood before anything was priced anew;
- a segment is stretched by the worst of the co-runners on its devices;
- figures are per global batch, whatever number of samples the plan's microbatches come to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.cost import BYTES_PER_GB, BYTES_PER_GBIT, CostModel
from attribution_sched.cluster.incidents import LinkCut
from attribution_sched.cluster.interference import PCIE_BYTES_PER_S, slowdown, strengths
from attribution_sched.cluster.moves import move_cost
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.pool import TaskPool
from attribution_sched.cluster.simulator.job import Device, Job, SegmentLoad
from attribution_sched.cluster.wan import WanProcess, effective_latency
from attribution_sched.cluster.world import TaskKind, World

FloatArray = NDArray[np.float64]

LEAST_SHARE = 0.1
"""What a job gets of a link however crowded it is."""


class Prices:
    """Prices jobs at the present network and co-location.

    Args:
        world: The scheduling problem.
        cost: Scores plans.
        pool: Task instances; their latent demands set the price and are shown to nobody.
        network: The links.
    """

    def __init__(self, world: World, cost: CostModel, pool: TaskPool, network: WanProcess) -> None:
        self.world = world
        self.cost = cost
        self.pool = pool
        self.network = network
        self.usd_per_byte = world.cluster.wan.price_usd_per_gb / BYTES_PER_GB
        self._factors = pool.demands.factors
        self._strength = strengths()
        self._gain = np.array(load_constants("interference")["gain"], dtype=np.float64)
        inputs = np.array([kind.model.layers[0].input_elements for kind in world.kinds])
        self._pcie_s = inputs[pool.kinds] * pool.demands.ratio[:, 3] * 4.0 / PCIE_BYTES_PER_S
        self._between = ~np.eye(len(world.cluster), dtype=bool)
        self.bandwidth = np.zeros_like(self.usd_per_byte)
        self.read_network()

    def read_network(self) -> None:
        """Take over the bandwidth of the links as cuts leave it, bytes/s."""
        left = np.ones_like(self.bandwidth)
        for cut in self.world.incidents:
            if isinstance(cut, LinkCut) and cut.active(self.network.time_s):
                left[cut.source, cut.target] *= cut.factor
                if cut.both_ways:
                    left[cut.target, cut.source] *= cut.factor
        self.bandwidth = self.network.bandwidth_gbps * left * BYTES_PER_GBIT

    def flows(self, jobs: Iterable[Job], now_s: float) -> dict[int, FloatArray]:
        """Bytes per second that each job which is at work sends over the links, by berth."""
        sending = {}
        for job in jobs:
            deployed = job.plan_in_force
            if not job.paused(now_s) and len(deployed.devices) > 1 and deployed.step_s > 0.0:
                sending[job.berth] = deployed.traffic_bytes / deployed.step_s
        return sending

    def total(self, flows: dict[int, FloatArray], without: int | None = None) -> FloatArray:
        """Bytes per second on every link, leaving out the job in one berth."""
        load = np.zeros_like(self.bandwidth)
        for berth, flow in flows.items():
            if berth != without:
                load += flow
        return load

    def utilisation(self, load: FloatArray) -> FloatArray:
        """Busy share of every link between domains under a load in bytes/s."""
        return np.where(self._between, load / np.where(self._between, self.bandwidth, 1.0), 0.0)

    def price(self, job: Job, others: FloatArray) -> bool:
        """Price a job anew; True if its speed has changed.

        Args:
            job: A job that sits on devices.
            others: Bytes per second that other jobs send over the links, shape ``(K, K)``.
        """
        deployed = job.plan_in_force
        share = self.utilisation(others)
        wan = self.world.cluster.wan
        scored = self.cost.score(
            deployed.batch,
            job.kind_index,
            bandwidth_gbps=self.bandwidth * np.maximum(LEAST_SHARE, 1.0 - share) / BYTES_PER_GBIT,
            latency_s=effective_latency(wan.latency_s, share, wan.congestion),
            slowdown=np.array([[self._stretch(job, row) for row in range(len(deployed.devices))]]),
            factors=tuple(self._factors[job.instance]),
            breakdown=False,
        )
        samples = deployed.plan.samples
        norm = job.kind.batch_size / samples
        raw_step_s, before_s = float(scored.step_s[0]), deployed.step_s
        busy = np.minimum(1.0, scored.segment("busy_s")[0] / raw_step_s)
        shares = np.stack([scored.segment(f"{name}_share")[0] for name in ("host", "compute", "memory")], axis=1)
        pcie = self._pcie_s[job.instance] * samples / raw_step_s
        deployed.traffic_bytes = scored.traffic_bytes[0] * norm
        deployed.step_s = raw_step_s * norm
        deployed.step_bill_usd = float(scored.bill_usd[0]) * norm
        for row, segment in enumerate(deployed.segments):
            idle_w = self.world.cluster.domains[segment.domain].gpu.idle_w
            deployed.loads[row] = SegmentLoad(
                busy=float(busy[row]),
                memory_bytes=float(scored.segment("memory_bytes")[0, row]),
                dynamic_w=float((scored.segment("power_w")[0, row] - idle_w) * busy[row]),
                demands=np.minimum(1.0, self._gain * np.append(shares[row] * busy[row], pcie)),
            )
        return deployed.step_s != before_s

    def _stretch(self, job: Job, row: int) -> float:
        """Worst slow-down over the devices of a segment: its ranks wait for each other."""
        own, devices = job.plan_in_force.loads[row].demands, job.plan_in_force.devices[row]
        domain = job.plan_in_force.segments[row].domain
        company = {id(other): other for device in devices for other in device.jobs if other is not job}
        return max(
            (float(slowdown(own, other.plan_in_force.load_in(domain).demands, self._strength))
             for other in company.values()),
            default=1.0,
        )  # fmt: skip

    def share_batch(self, plan: Plan, kind_index: int) -> Plan:
        """Give every replica microbatches in proportion to its speed, its slowest segment's."""
        kind, gpus, speeds = self.world.kinds[kind_index], self.world.cluster.gpus, []
        for replica in plan.replicas:
            slowest = 0.0
            for s in replica.segments:
                gpu = gpus.index(self.world.cluster.domains[s.domain].gpu)
                times = self.cost.tables.times_s[kind_index, gpu, s.precision.index, TP_DEGREES.index(s.tp)]
                seconds = times[0, s.stop] - times[0, s.first] + times[1, s.stop] - times[1, s.first]
                slowest = max(slowest, float(seconds) / (s.dp * s.pp))
            speeds.append(1.0 / slowest)
        total = sum(speeds)
        return Plan(
            tuple(
                replace(replica, microbatches=max(1, round(kind.batch_size * (speed / total) / replica.microbatch)))
                for replica, speed in zip(plan.replicas, speeds, strict=True)
            )
        )

    def move(self, kind: TaskKind, old: Plan, new: Plan) -> tuple[float, float]:
        """Seconds and dollars of carrying a job's state to another plan, at the bandwidth of the moment."""
        return move_cost(kind, old, new, self.bandwidth, self.usd_per_byte)


def memory_used(device: Device) -> float:
    """Bytes that the jobs on a device need."""
    return sum(job.plan_in_force.load_in(device.domain).memory_bytes for job in device.jobs)
