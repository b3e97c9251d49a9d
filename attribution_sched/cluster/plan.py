"""A plan: which domains run which layers of a task, and how.

A plan is one or more *replicas* of the model (data parallelism across domains). A replica is a chain of
*segments*: contiguous runs of layers, each on one domain (a pipeline cut across domains). Inside its domain
a segment is laid out as ``dp × tp × pp``. So cutting, replicating and mixing both are one record. The
layouts it may choose from are powers of two, alone or sharing devices (``layout_table``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.cluster.gpus import PRECISIONS, Precision
from attribution_sched.cluster.pipeline import Schedule
from attribution_sched.cluster.world import Cluster
from attribution_sched.errors import PlanError, problem
from attribution_sched.types import IntArray

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Segment:
    """A contiguous run of layers on one domain.

    Attributes:
        domain: Index of the domain.
        first: First layer (0-based).
        stop: One past the last layer.
        dp: Data-parallel ranks inside the domain.
        tp: Tensor-parallel ranks.
        pp: Pipeline stages inside the domain.
        precision: Numeric format of the segment.
        devices: Device indices inside the domain; empty lets the cluster choose.
        cap: Power cap of its devices, a level of the cluster's (:attr:`Cluster.cap_levels`); 0 is the domain's own.
    """

    domain: int
    first: int
    stop: int
    dp: int = 1
    tp: int = 1
    pp: int = 1
    precision: Precision = Precision.FP16
    devices: tuple[int, ...] = ()
    cap: int = 0

    @property
    def device_count(self) -> int:
        """Devices the layout occupies."""
        return self.dp * self.tp * self.pp


@dataclass(frozen=True)
class Replica:
    """One full copy of the model: segments that together cover every layer once, in order.

    Attributes:
        segments: The chain.
        microbatch: Samples of one pipeline microbatch (shared out over each segment's dp ranks).
        microbatches: Microbatches of this replica in one training step.
    """

    segments: tuple[Segment, ...]
    microbatch: int
    microbatches: int

    @property
    def samples(self) -> int:
        """Samples this replica processes per step."""
        return self.microbatch * self.microbatches


ANYBODY = -1
"""Share with whoever is there: devices in use first, in order."""


@dataclass(frozen=True)
class Plan:
    """A complete placement of one task.

    Attributes:
        replicas: Copies of the model; gradients are averaged across them over the WAN.
        schedule: Pipeline schedule.
        beside: Slot of the running task whose devices it shares, ``ANYBODY`` to share with whoever is there; None takes
            empty devices only.
    """

    replicas: tuple[Replica, ...]
    schedule: Schedule = Schedule.ONE_F_ONE_B
    beside: int | None = None

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments of all replicas, in order."""
        return tuple(segment for replica in self.replicas for segment in replica.segments)

    @property
    def domains(self) -> tuple[int, ...]:
        """Domains in use, in plan order."""
        return tuple(segment.domain for segment in self.segments)

    @property
    def cut_points(self) -> tuple[tuple[int, ...], ...]:
        """Per replica, the layers before which the pipeline is cut between domains."""
        return tuple(tuple(s.stop for s in replica.segments[:-1]) for replica in self.replicas)

    def uncapped(self) -> Plan:
        """The plan without caps: a running task keeps those it has, so they make no other plan of it."""
        if not any(segment.cap for segment in self.segments):
            return self
        bare = (replace(r, segments=tuple(replace(segment, cap=0) for segment in r.segments)) for r in self.replicas)
        return replace(self, replicas=tuple(bare))

    @property
    def samples(self) -> int:
        """Samples processed per step: the global batch."""
        return sum(replica.samples for replica in self.replicas)

    def check(self, n_layers: int, n_domains: int) -> None:
        """Raise ``PlanError`` unless the plan is well formed for a model and a cluster.

        Memory and free devices are the cost model's and the cluster's business.
        """
        # The rules are compiled over the columns below, so they can only be brought in here.
        from attribution_sched.cluster import validity

        if not self.replicas:
            raise PlanError(problem("replicas", (), "a plan needs at least one", "Add a Replica"))
        for r, replica in enumerate(self.replicas):
            if not replica.segments:
                fix = f"Let the last segment stop at {n_layers}"
                raise PlanError(problem(f"replicas[{r}] covers layers up to", 0, f"the model has {n_layers}", fix))
            if replica.microbatch < 1 or replica.microbatches < 1:
                given = (replica.microbatch, replica.microbatches)
                raise PlanError(
                    problem(f"replicas[{r}].microbatch(es)", given, "both must be >= 1", "Use positive integers")
                )
        code, at = validity.fault(validity.form_only(n_layers, n_domains), PlanBatch.of([self]))
        if code != validity.VALID:
            raise PlanError(self._complaint(code, at, n_layers, n_domains))
        for where, segment, _, _ in self._placed():
            listed, wanted = segment.devices, segment.device_count
            if listed and (len(set(listed)) != wanted or len(listed) != wanted or min(listed) < 0):
                rule, fix = f"the layout needs {wanted} different devices", "List exactly dp*tp*pp devices or none"
                raise PlanError(problem(f"{where}.devices", listed, rule, fix))

    def _placed(self) -> list[tuple[str, Segment, Replica, int]]:
        """Every segment with its place in words, its replica and the layer it has to begin with."""
        return [
            (f"replicas[{r}].segments[{s}]", segment, replica, replica.segments[s - 1].stop if s else 0)
            for r, replica in enumerate(self.replicas)
            for s, segment in enumerate(replica.segments)
        ]

    def _complaint(self, code: int, at: int, n_layers: int, n_domains: int) -> str:
        """Say what is wrong with a segment, given the code."""
        from attribution_sched.cluster import validity

        where, segment, replica, begin = self._placed()[at]
        layers = segment.stop - segment.first
        if code == validity.TWICE:
            fix = "Merge the segments, or raise pp or dp inside the domain"
            return problem("domain", segment.domain, "holds more than one segment of the plan", fix)
        if code == validity.STAGES:
            rule = f"the segment has {layers} layers"
            return problem(f"{where}.pp", segment.pp, rule, "Use at most one stage per layer")
        if code == validity.INDIVISIBLE:
            rule = f"must divide the microbatch of {replica.microbatch} samples"
            return problem(f"{where}.dp", segment.dp, rule, "Change dp or the microbatch")
        if code == validity.OUTSIDE:
            if not 0 <= segment.domain < n_domains:
                rule = f"the cluster has domains 0..{n_domains - 1}"
                return problem(f"{where}.domain", segment.domain, rule, "Pick one")
            if segment.cap < 0:
                return problem(f"{where}.cap", segment.cap, "must be >= 0", "Use 0 for the domain's own cap")
            name = next((name for name in ("dp", "pp") if getattr(segment, name) < 1), "tp")
            rule = "must be one of 1, 2, 4, 8" if name == "tp" else "must be >= 1"
            return problem(f"{where}.{name}", getattr(segment, name), rule, "Use 1 or more")
        if segment.first == begin and segment.first < segment.stop < n_layers:
            rule, fix = f"the model has {n_layers}", f"Let the last segment stop at {n_layers}"
            return problem(f"{where} covers layers up to", segment.stop, rule, fix)
        rule = f"must start at layer {begin}, hold at least one layer and stop by {n_layers}"
        return problem(f"{where} layers", (segment.first, segment.stop), rule, "Move the cut inside the model")


SEGMENT_FIELDS = (
    "domain", "first", "stop", "dp", "tp", "pp", "precision", "replica", "microbatch", "microbatches", "cap",
)  # fmt: skip
"""Columns of the segment axis of a ``PlanBatch``."""

DOMAIN, FIRST, STOP, DP, TP, PP, PRECISION, REPLICA, MICROBATCH, MICROBATCHES, CAP = range(len(SEGMENT_FIELDS))


@dataclass(frozen=True)
class PlanBatch:
    """Many plans as arrays, the form the cost model scores.

    Attributes:
        segments: Shape ``(n_plans, P, 11)``, columns as in ``SEGMENT_FIELDS``; P is the most segments any
            plan has.
        counts: Segments in use per plan, shape ``(n_plans,)``.
        schedules: ``Schedule`` per plan, shape ``(n_plans,)``.
    """

    segments: IntArray
    counts: IntArray
    schedules: IntArray

    def __len__(self) -> int:
        return int(self.counts.shape[0])

    @classmethod
    def of(cls, plans: Iterable[Plan], width: int | None = None) -> PlanBatch:
        """Pack plans into arrays, at least ``width`` segments wide."""
        listed = list(plans)
        rows = [
            [
                (s.domain, s.first, s.stop, s.dp, s.tp, s.pp, s.precision.index, r,
                 replica.microbatch, replica.microbatches, s.cap)
                for r, replica in enumerate(plan.replicas)
                for s in replica.segments
            ]
            for plan in listed
        ]  # fmt: skip
        counts = np.array([len(row) for row in rows], dtype=np.int64)
        wide = max([width or 1, *counts.tolist()])
        segments = np.zeros((len(rows), wide, len(SEGMENT_FIELDS)), dtype=np.int64)
        for p, row in enumerate(rows):
            segments[p, : len(row)] = row
        return cls(segments, counts, np.array([int(plan.schedule) for plan in listed], dtype=np.int64))

    def check(self, n_layers: int, n_domains: int, n_caps: int = 1) -> None:
        """Raise ``PlanError`` if a row points outside the model, the cluster or the cost tables.

        The compiled kernel follows these indices without looking, so they must be sound. What only makes a plan
        unwise, such as a layout larger than its domain, is for :meth:`Plan.check` and the cost model.
        """
        width = self.segments.shape[1]
        if self.segments.shape[2] != len(SEGMENT_FIELDS):
            rule = f"must have {len(SEGMENT_FIELDS)} columns: {', '.join(SEGMENT_FIELDS)}"
            raise PlanError(problem("segments.shape", self.segments.shape, rule, "Make the batch with PlanBatch.of"))
        if ((self.counts < 1) | (self.counts > width)).any():
            raise PlanError(problem("counts", self.counts.tolist(), f"must lie in 1..{width}", "Count the rows in use"))
        from attribution_sched.cluster.validity import outside

        p, s, column = outside(self, n_layers, n_domains, n_caps)
        if p >= 0:
            name, value = SEGMENT_FIELDS[column], int(self.segments[p, s, column])
            rule = {
                DOMAIN: f"must lie in 0..{n_domains - 1}",
                STOP: f"a segment must hold layers within 0..{n_layers}",
                TP: "must be one of 1, 2, 4, 8",
                PP: "must lie in 1..layers of the segment",
                PRECISION: "is not on the precision axis",
                REPLICA: "must count up from 0, in order",
                CAP: f"must lie in 0..{n_caps - 1}, the cluster's cap levels",
            }.get(column, "must be >= 1")
            raise PlanError(problem(f"plan {p}, segment {s}: {name}", value, rule, "Mend the row"))

    def plan(self, index: int) -> Plan:
        """Unpack one plan (without device indices, which arrays do not carry)."""
        rows = self.segments[index, : self.counts[index]]
        replicas = []
        for r in range(int(rows[:, REPLICA].max()) + 1):
            own = rows[rows[:, REPLICA] == r]
            segments = []
            for row in own:
                domain, first, stop, dp, tp, pp = (int(value) for value in row[:PRECISION])
                precision = PRECISIONS[int(row[PRECISION])]
                segments.append(Segment(domain, first, stop, dp, tp, pp, precision, cap=int(row[CAP])))
            replicas.append(Replica(tuple(segments), int(own[0, MICROBATCH]), int(own[0, MICROBATCHES])))
        return Plan(tuple(replicas), Schedule(int(self.schedules[index])))


MAX_PP = 8
"""Most pipeline stages inside a domain."""


@lru_cache(maxsize=256)
def layouts_within(devices: int, node: int) -> tuple[tuple[int, int, int], ...]:
    """All (dp, tp, pp) in powers of two that use at most ``devices``, with at most ``node`` tensor ranks."""
    powers = [2**i for i in range(devices.bit_length())]
    return tuple(
        (dp, tp, pp)
        for tp in TP_DEGREES
        for pp in powers
        for dp in powers
        if dp * tp * pp <= devices and tp <= node and pp <= MAX_PP
    )


def layout_table(cluster: Cluster, sharing: bool) -> IntArray:
    """List every layout that fits the largest domain, shape ``(n_layouts, 4)``: dp, tp, pp, share.

    Args:
        cluster: The cluster.
        sharing: Whether devices may hold two tasks; adds a sharing twin of every layout.
    """
    largest = max(domain.devices for domain in cluster.domains)
    node = max(domain.node_devices for domain in cluster.domains)
    rows = [(*layout, share) for share in range(2 if sharing else 1) for layout in layouts_within(largest, node)]
    return np.array(rows, dtype=np.int64)
