"""What was used, by whom, where and when: the record every bill is written from.

Time is cut into T intervals in which nothing changes: K domains, N tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attribution_sched.errors import JournalError, problem
from attribution_sched.types import FloatArray, IntArray

CONSERVED = 1e-9
"""Relative gap between the meter and what is booked above which a usage is refused."""


@dataclass(frozen=True)
class TaskUse:
    """One task of a period.

    Attributes:
        id: Its name.
        tenant: Who asked for it.
        model: What it trains or runs.
        submitted_s: When it came, on the cluster's clock.
        started_s: When it first ran; None if it never did.
        finished_s: When it was done; None if it was not.
        requested: Devices that were asked for; None if that was left to the scheduler.
        egress_usd: What its traffic between domains cost, moves included.
        operators: Kind of operator → its share of the joules above idle power, and half of the 95 % interval of that
            share; the shares add up to 1. None if nobody attributed the task.
    """

    id: str
    tenant: str
    model: str
    submitted_s: float
    started_s: float | None = None
    finished_s: float | None = None
    requested: int | None = None
    egress_usd: float = 0.0
    operators: Mapping[str, tuple[float, float]] | None = None


@dataclass(frozen=True, eq=False)
class Usage:
    """A period of a cluster, with every joule, gram and dollar of its meters booked once.

    A row of the ``span`` arrays is one task on one domain in one interval.

    Attributes:
        domains: Names of the K domains.
        devices: How many devices each has, shape ``(K,)``.
        edges_s: Interval t lasts from ``edges_s[t]`` to ``edges_s[t + 1]``, shape ``(T + 1,)``.
        tasks: The N tasks.
        span_interval: Row's interval, shape ``(n,)``.
        span_task: Row's task, shape ``(n,)``.
        span_domain: Row's domain, shape ``(n,)``.
        span_devices: Devices held; one that two tasks share counts half for each, shape ``(n,)``.
        span_busy_s: Device-seconds of computing in the row, shape ``(n,)``.
        span_dynamic_j: Joules above the idle power of the devices, shape ``(n,)``.
        span_static_j: Joules of the idle power of the devices held, shape ``(n,)``.
        idle_j: Joules of devices that hold no task, shape ``(T, K)``.
        carbon_g_per_j: Accounted intensity of the grid of each domain, location-based average, shape ``(T, K)``.
        electricity_usd_per_j: Price of electricity, shape ``(T, K)``.
        meter_j: What the meters of all devices read.
        meter_egress_usd: What the network's bill reads.
        provenance: How the numbers were got: measured, estimated, simulated.
        metered: What the meters count: ``energy``, or ``CPU time`` where no device has a meter. Then everything that
            is named in joules is CPU-seconds, and has neither a price nor carbon.
        repeated: Domain and hours of every recorded signal that ends inside the period and begins again.
        slowed: Task, the task on its devices that slowed it, and how many hours of its run that cost.
    """

    domains: tuple[str, ...]
    devices: IntArray
    edges_s: FloatArray
    tasks: tuple[TaskUse, ...]
    span_interval: IntArray
    span_task: IntArray
    span_domain: IntArray
    span_devices: FloatArray
    span_busy_s: FloatArray
    span_dynamic_j: FloatArray
    span_static_j: FloatArray
    idle_j: FloatArray
    carbon_g_per_j: FloatArray
    electricity_usd_per_j: FloatArray
    meter_j: float
    meter_egress_usd: float
    provenance: str = "simulated"
    metered: str = "energy"
    repeated: tuple[tuple[str, float], ...] = ()
    slowed: tuple[tuple[int, int, float], ...] = ()

    @classmethod
    def of_spans(cls, spans: Sequence[Sequence[float]], **others: Any) -> Usage:
        """A usage by its rows, each the values of the ``span`` fields in their order.

        Args:
            spans: The rows.
            others: All other fields.
        """
        at, task, domain, devices, busy_s, dynamic_j, static_j = np.array(spans, dtype=np.float64).reshape(-1, 7).T
        return cls(
            span_interval=at.astype(np.int64), span_task=task.astype(np.int64), span_domain=domain.astype(np.int64),
            span_devices=devices, span_busy_s=busy_s, span_dynamic_j=dynamic_j, span_static_j=static_j, **others,
        )  # fmt: skip

    def __post_init__(self) -> None:
        """Refuse a record whose parts do not add up to its meters.

        Raises:
            JournalError: If they do not.
        """
        booked_j = float(self.span_dynamic_j.sum() + self.span_static_j.sum() + self.idle_j.sum())
        self._conserves("meter_j", booked_j, self.meter_j)
        booked_usd = sum(task.egress_usd for task in self.tasks)
        self._conserves("meter_egress_usd", booked_usd, self.meter_egress_usd)

    @property
    def no_carbon(self) -> tuple[str, ...]:
        """Domains of whose grid no carbon intensity is known."""
        if self.metered != "energy" or not len(self.carbon_g_per_j):
            return ()
        return tuple(name for name, each in zip(self.domains, self.carbon_g_per_j.T, strict=True) if not each.any())

    @staticmethod
    def _conserves(name: str, booked: float, meter: float) -> None:
        if abs(booked - meter) > CONSERVED * max(1.0, abs(meter)):
            rule = f"must be what is booked on tasks and idle devices, {booked:.9g}"
            raise JournalError(problem(name, meter, rule, "Read the usage of a journal anew, do not edit it"))

    @property
    def hours(self) -> float:
        """Length of the period."""
        return float(self.edges_s[-1] - self.edges_s[0]) / 3600.0

    @property
    def lengths_s(self) -> FloatArray:
        """Of the intervals, shape ``(T,)``."""
        return np.diff(self.edges_s)

    def per_joule(self, what: str) -> FloatArray:
        """Of ``energy``, ``CPU time``, ``electricity`` (USD) or ``carbon`` (g), what a joule is, shape ``(T, K)``."""
        by_part = {"electricity": self.electricity_usd_per_j, "carbon": self.carbon_g_per_j}
        return by_part[what] if what in by_part else np.ones_like(self.idle_j)

    def groups(self, by: str) -> tuple[tuple[str, ...], IntArray]:
        """Who is billed.

        Args:
            by: ``tenant``, ``task`` or ``model``.

        Returns:
            Names in order, and the group of each task, shape ``(N,)``.
        """
        keys = [{"tenant": task.tenant, "task": task.id, "model": task.model}[by] for task in self.tasks]
        names = tuple(sorted(set(keys)))
        at = {name: place for place, name in enumerate(names)}
        return names, np.array([at[key] for key in keys], dtype=np.int64)

    def held(self, groups: IntArray, count: int) -> FloatArray:
        """Devices that each group holds, shape ``(count, K, T)``."""
        shape = (count, len(self.domains), len(self.lengths_s))
        devices = np.zeros(shape)
        np.add.at(devices, (groups[self.span_task], self.span_domain, self.span_interval), self.span_devices)
        return devices

    def total(self, values: FloatArray, groups: IntArray, count: int) -> FloatArray:
        """Sum of something over the spans of each group in each domain, shape ``(count, K)``.

        Args:
            values: One number for each span, shape ``(n,)``.
            groups: Group of each task, shape ``(N,)``.
            count: Number of groups.
        """
        summed = np.zeros((count, len(self.domains)))
        np.add.at(summed, (groups[self.span_task], self.span_domain), values)
        return summed
