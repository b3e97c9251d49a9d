"""Links between domains in settings, and how they move and fail."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from attribution_sched.config.fields import FilePath, Gbps, NonNegative, Record, Seconds, between
from attribution_sched.limits import Rationale

Matrix = tuple[tuple[NonNegative, ...], ...]
"""Source domain, then destination domain; the diagonal is the link inside a domain."""


class RegionLinks(Record):
    """Measured figures between cloud regions; every domain must bear the name of one.

    Attributes:
        kind: ``regions``.
        intra_gbps: Bandwidth between machines of one region, Gb/s.
        intra_latency_s: Latency between machines of one region.
    """

    kind: Literal["regions"] = "regions"
    intra_gbps: Gbps = 100.0
    intra_latency_s: Seconds = 1e-4


class UniformLinks(Record):
    """All links alike.

    Attributes:
        kind: ``uniform``.
        gbps: Bandwidth, Gb/s.
        latency_s: One-way latency.
        usd_per_gb: Price of a gigabyte.
        intra_gbps: Bandwidth between machines of one domain, Gb/s.
        intra_latency_s: Latency between machines of one domain.
    """

    kind: Literal["uniform"]
    gbps: Gbps
    latency_s: Seconds
    usd_per_gb: NonNegative = 0.0
    intra_gbps: Gbps = 100.0
    intra_latency_s: Seconds = 1e-4


class MatrixLinks(Record):
    """Every link by itself.

    Attributes:
        kind: ``matrix``.
        bandwidth_gbps: Bandwidth of every ordered pair.
        latency_s: One-way latency of every ordered pair.
        price_usd_per_gb: Price of every ordered pair.
    """

    kind: Literal["matrix"]
    bandwidth_gbps: Matrix
    latency_s: Matrix
    price_usd_per_gb: Matrix


FailureHours = Annotated[float, between(0.0, 1e6, "(]"), Rationale("a century has 876,600 hours")]


class FailureSettings(Record):
    """How links between domains fail, see :class:`attribution_sched.cluster.wan.LinkFailures`.

    Attributes:
        mean_up_h: Mean hours from a repair of a pair's link to its next failure.
        mean_down_h: Mean hours that a failure lasts.
        left: Share of its bandwidth that a link carries while it is down, by a detour.
    """

    mean_up_h: FailureHours
    mean_down_h: FailureHours
    left: Annotated[float, between(0.0, 1.0, "()")] = 0.02


class MotionSettings(Record):
    """How bandwidth and latency move, see :class:`attribution_sched.cluster.wan.Wan`.

    Attributes:
        reversion_per_s: Rate at which a link forgets where it was.
        spread: Standard deviation of the process behind a link's bandwidth; 0 for a still network.
        bound: Largest relative deviation from the base bandwidth.
        correlation: Correlation between the links.
        congestion: How strongly load raises latency.
        failures: How links fail and are repaired; links that hold when left out.
    """

    reversion_per_s: Annotated[float, between(0.0, 1e6, "(]"), Rationale("no link forgets within a microsecond")] = (
        1.0 / 1800.0
    )
    spread: Annotated[float, between(0.0, 100.0), Rationale("bound cuts it off far below")] = 0.12
    bound: Annotated[float, between(0.0, 1.0, "()")] = 0.3
    correlation: Annotated[float, between(0.0, 1.0, "[)")] = 0.0
    congestion: NonNegative = 0.1
    failures: FailureSettings | None = None


class NetworkSettings(Record):
    """The network: its links, how they move, and optionally a recording that replaces the movement.

    Attributes:
        links: Base figures of the links.
        motion: The random process.
        trace: CSV file of recorded bandwidth (``time_s, src, dst, gbps``); a relative path starts at the
            file that names it.
        trace_at_end: ``hold`` the last figures of the recording, or ``wrap`` around to its first.
        duplex_efficiency: What is left of a link's direction while the other is busy, as ``profile links`` measures it.
            A pipeline trains with both busy, so links between domains are priced with so much of their bandwidth; all
            of it by default.
        kwh_per_gb: Energy of the network for a gigabyte sent between domains, see
            :data:`attribution_sched.cluster.wan.DEFAULT_KWH_PER_GB`; accounted in grams, in no reward.
    """

    links: Annotated[RegionLinks | UniformLinks | MatrixLinks, Field(discriminator="kind")] = RegionLinks()
    motion: MotionSettings = MotionSettings()
    trace: FilePath | None = None
    trace_at_end: Literal["hold", "wrap"] = "hold"
    duplex_efficiency: Annotated[float, between(0.0, 1.0, "(]")] | None = None
    kwh_per_gb: Annotated[float, between(0.0, 100.0)] | None = None
