"""A plan: which domains run which layers of a task, and how.

A plan is one or more *replicas* of the model (data parallelism across domains). A replica is a chain of
*segments*: contiguous runs of layers, each on one domain (a pipeline cut across domains). Inside its domain
a segment is laid out as ``dp × tp × pp``. So cutting, replicating and mixing both are one record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.pipeline import Schedule
from attribution_sched.cluster.precision import PRECISIONS, Precision
from attribution_sched.errors import PlanError, problem

IntArray = NDArray[np.int64]


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
    """

    domain: int
    first: int
    stop: int
    dp: int = 1
    tp: int = 1
    pp: int = 1
    precision: Precision = Precision.FP16
    devices: tuple[int, ...] = ()

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


@dataclass(frozen=True)
class Plan:
    """A complete placement of one task.

    Attributes:
        replicas: Copies of the model; gradients are averaged across them over the WAN.
        schedule: Pipeline schedule.
    """

    replicas: tuple[Replica, ...]
    schedule: Schedule = Schedule.ONE_F_ONE_B

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

    @property
    def samples(self) -> int:
        """Samples processed per step: the global batch."""
        return sum(replica.samples for replica in self.replicas)

    def check(self, n_layers: int, n_domains: int) -> None:
        """Raise ``PlanError`` unless the plan is well formed for a model and a cluster.

        Memory and free devices are the cost model's and the cluster's business.
        """
        if not self.replicas:
            raise PlanError(problem("replicas", (), "a plan needs at least one", "Add a Replica"))
        for r, replica in enumerate(self.replicas):
            where = f"replicas[{r}]"
            if replica.microbatch < 1 or replica.microbatches < 1:
                given = (replica.microbatch, replica.microbatches)
                raise PlanError(problem(f"{where}.microbatch(es)", given, "both must be >= 1", "Use positive integers"))
            at = 0
            for s, segment in enumerate(replica.segments):
                _check_segment(segment, f"{where}.segments[{s}]", at, n_layers, n_domains, replica.microbatch)
                at = segment.stop
            if at != n_layers:
                fix = f"Let the last segment stop at {n_layers}"
                raise PlanError(problem(f"{where} covers layers up to", at, f"the model has {n_layers}", fix))
        used = self.domains
        for domain in used:
            if used.count(domain) > 1:
                raise PlanError(
                    problem("domain", domain, "holds more than one segment of the plan",
                            "Merge the segments, or raise pp or dp inside the domain")
                )  # fmt: skip


def _check_segment(segment: Segment, where: str, at: int, n_layers: int, n_domains: int, microbatch: int) -> None:
    if not 0 <= segment.domain < n_domains:
        raise PlanError(
            problem(f"{where}.domain", segment.domain, f"the cluster has domains 0..{n_domains - 1}", "Pick one")
        )
    if segment.first != at or segment.stop <= segment.first or segment.stop > n_layers:
        raise PlanError(
            problem(f"{where} layers", (segment.first, segment.stop),
                    f"must start at layer {at}, hold at least one layer and stop by {n_layers}",
                    "Move the cut inside the model")
        )  # fmt: skip
    for field in ("dp", "tp", "pp"):
        if getattr(segment, field) < 1:
            raise PlanError(problem(f"{where}.{field}", getattr(segment, field), "must be >= 1", "Use 1 or more"))
    if segment.pp > segment.stop - segment.first:
        raise PlanError(
            problem(f"{where}.pp", segment.pp, f"the segment has {segment.stop - segment.first} layers",
                    "Use at most one stage per layer")
        )  # fmt: skip
    if microbatch % segment.dp:
        raise PlanError(
            problem(f"{where}.dp", segment.dp, f"must divide the microbatch of {microbatch} samples",
                    "Change dp or the microbatch")
        )  # fmt: skip
    listed = segment.devices
    if listed and (len(set(listed)) != segment.device_count or len(listed) != segment.device_count or min(listed) < 0):
        raise PlanError(
            problem(f"{where}.devices", listed, f"the layout needs {segment.device_count} different devices",
                    "List exactly dp*tp*pp devices or none")
        )  # fmt: skip


SEGMENT_FIELDS = ("domain", "first", "stop", "dp", "tp", "pp", "precision", "replica", "microbatch", "microbatches")
"""Columns of the segment axis of a ``PlanBatch``."""

DOMAIN, FIRST, STOP, DP, TP, PP, PRECISION, REPLICA, MICROBATCH, MICROBATCHES = range(len(SEGMENT_FIELDS))


@dataclass(frozen=True)
class PlanBatch:
    """Many plans as arrays, the form the cost model scores.

    Attributes:
        segments: Shape ``(n_plans, P, 10)``, columns as in ``SEGMENT_FIELDS``; P is the most segments any
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
                 replica.microbatch, replica.microbatches)
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

    def check(self, n_layers: int, n_domains: int, tp_degrees: tuple[int, ...]) -> None:
        """Raise ``PlanError`` if a row points outside the model, the cluster or the cost tables.

        The compiled kernel follows these indices without looking, so they must be sound. What only makes a plan
        unwise, such as a layout larger than its domain, is for :meth:`Plan.check` and the cost model.
        """
        width = self.segments.shape[1]
        if ((self.counts < 1) | (self.counts > width)).any():
            raise PlanError(problem("counts", self.counts.tolist(), f"must lie in 1..{width}", "Count the rows in use"))
        used = np.arange(width) < self.counts[:, None]
        row = np.moveaxis(self.segments, -1, 0)
        following = np.diff(row[REPLICA], axis=1, prepend=0)
        following[:, 0] *= 2  # the first replica must be 0, not 1
        rules = (
            ("domain", (row[DOMAIN] < 0) | (row[DOMAIN] >= n_domains), f"must lie in 0..{n_domains - 1}"),
            ("stop", (row[FIRST] < 0) | (row[STOP] <= row[FIRST]) | (row[STOP] > n_layers),
             f"a segment must hold layers within 0..{n_layers}"),
            ("dp", row[DP] < 1, "must be >= 1"),
            ("tp", ~np.isin(row[TP], tp_degrees), f"must be one of {tp_degrees}"),
            ("pp", (row[PP] < 1) | (row[PP] > row[STOP] - row[FIRST]), "must lie in 1..layers of the segment"),
            ("precision", (row[PRECISION] < 0) | (row[PRECISION] >= len(PRECISIONS)), "is not on the precision axis"),
            ("microbatch", row[MICROBATCH] < 1, "must be >= 1"),
            ("microbatches", row[MICROBATCHES] < 1, "must be >= 1"),
            ("replica", (following < 0) | (following > 1), "must count up from 0, in order"),
        )  # fmt: skip
        for name, wrong, rule in rules:
            if (wrong & used).any():
                p, s = (int(i) for i in np.argwhere(wrong & used)[0])
                value = int(self.segments[p, s, SEGMENT_FIELDS.index(name)])
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
                segments.append(Segment(domain, first, stop, dp, tp, pp, PRECISIONS[int(row[PRECISION])]))
            replicas.append(Replica(tuple(segments), int(own[0, MICROBATCH]), int(own[0, MICROBATCHES])))
        return Plan(tuple(replicas), Schedule(int(self.schedules[index])))
