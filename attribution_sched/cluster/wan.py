"""The wide-area network between domains: bandwidth that wanders and fails, latency that rises with load, a price.

``B_ij(t) = B_ij^base · (1 + ε_ij(t))`` with ``ε = clip(x, ±bound)`` and ``x`` a latent Ornstein–Uhlenbeck
process of reversion rate θ and stationary spread s. Over any step Δ it is advanced by its exact law::

    x' = x·e^(−θΔ) + s·sqrt(1 − e^(−2θΔ)) · (sqrt(ρ)·n_common + sqrt(1−ρ)·n_ij)

so mean, variance and autocorrelation of ``x`` do not depend on how time is cut into steps, and ε stays in
its bounds. Because every link shares θ, correlating the innovations by ρ is the same law as adding a
common process to each link's own, without a second state to carry.

The diagonal holds the links inside a domain; they do not fluctuate.

Links may fail as well. Each pair of domains is up or down, both ways together, for exponential times of mean ``1/λ``
and ``1/μ``; while it is down a detour leaves a share of what it would carry. Over any step Δ this chain too is advanced
by its exact law, from a stream of its own and with one draw per pair whatever state it is in::

    P(down after Δ) = π + (down now − π)·e^(−(λ+μ)Δ),   π = λ/(λ+μ)

Recorded bandwidth can be replayed from a CSV file in place of the process. The file is in long form, one
observation per line: ``time_s, src, dst, gbps``. Between two observations of a link its last value holds. A
link that was not observed, or not yet, keeps its base bandwidth.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypedDict, Unpack

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import ArrayLike, NDArray

from attribution_sched.cluster.streams import StreamState, normal, seed_stream, uniform
from attribution_sched.errors import NetworkError, TraceError, nearest, problem
from attribution_sched.kernels import kernel
from attribution_sched.types import FloatArray, IntArray

TRACE_COLUMNS = ("time_s", "src", "dst", "gbps")


@dataclass(frozen=True, eq=False)
class BandwidthTrace:
    """Bandwidth of every link over time, held constant between two rows.

    Attributes:
        names: The K domains, in the order of the two link axes.
        times_s: Start of each row, shape ``(T,)``, strictly increasing from 0.
        gbps: Shape ``(T, K, K)``, source then destination; NaN where the link keeps its base bandwidth.
        at_end: ``hold`` the last row for ever, or ``wrap`` to the first. A wrapped trace gives its last
            row the length of the row before it.
        source: Where the figures come from.
    """

    names: tuple[str, ...]
    times_s: FloatArray
    gbps: FloatArray
    at_end: Literal["hold", "wrap"] = "hold"
    source: str = "given as arrays"

    def __post_init__(self) -> None:
        """Check shapes and figures and make the arrays read-only."""
        times = np.array(self.times_s, dtype=np.float64)
        gbps = np.array(self.gbps, dtype=np.float64)
        k = len(self.names)
        if times.ndim != 1 or times.size == 0 or gbps.shape != (times.size, k, k):
            rule = f"must have shape (T, {k}, {k}) with T = {times.size} >= 1 row times"
            raise TraceError(problem("gbps.shape", gbps.shape, rule, "Give one matrix per row time"))
        if times[0] != 0.0 or not np.all(np.isfinite(times)) or not np.all(np.diff(times) > 0):
            rule = "must start at 0 and increase strictly"
            raise TraceError(problem("times_s", times.tolist()[:5], rule, "Sort the rows, subtract the first time"))
        recorded = gbps[~np.isnan(gbps)]
        if not np.all(np.isfinite(recorded) & (recorded > 0)):
            bad = float(recorded[~(np.isfinite(recorded) & (recorded > 0))][0])
            raise TraceError(problem("gbps", bad, "must be finite and > 0, or NaN for the base", "Mend the row"))
        if not np.all(np.isnan(gbps[:, np.arange(k), np.arange(k)])):
            rule = "must be NaN on the diagonal: links inside a domain do not fluctuate"
            raise TraceError(problem("gbps", "diagonal", rule, "Leave them out"))
        if self.at_end not in ("hold", "wrap"):
            raise TraceError(problem("at_end", self.at_end, "must be 'hold' or 'wrap'", "Choose one of them"))
        for name, array in (("times_s", times), ("gbps", gbps)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "names", tuple(self.names))

    @classmethod
    def from_csv(
        cls, path: str | Path, names: Sequence[str], *, at_end: Literal["hold", "wrap"] = "hold"
    ) -> BandwidthTrace:
        """Read a trace; its first time becomes time 0.

        Args:
            path: CSV file with the columns ``time_s, src, dst, gbps`` (others are ignored).
            names: The domains of the cluster. A row that names another one is an error.
            at_end: What follows the last row.

        Raises:
            TraceError: If the file cannot be read or a row is wrong; the message names file and line.
        """
        index = {name: i for i, name in enumerate(names)}
        last: dict[tuple[int, int], float] = {}
        rows: list[tuple[float, int, int, float]] = []
        for line, row in read_trace_rows(path, TRACE_COLUMNS):
            time_s = number(path, line, "time_s", row["time_s"])
            link = (
                _domain(path, line, "src", row["src"], index),
                _domain(path, line, "dst", row["dst"], index),
            )
            if link[0] == link[1]:
                rule = "must differ from src: links inside a domain do not fluctuate"
                raise row_error(path, line, "dst", row["dst"], rule, "Remove the line")
            if time_s < 0.0:
                raise row_error(path, line, "time_s", row["time_s"], "must be >= 0", "Count from the first row")
            gbps = number(path, line, "gbps", row["gbps"])
            if gbps <= 0:
                fix = "Write an outage as a very small bandwidth, for example 0.001"
                raise row_error(path, line, "gbps", row["gbps"], "must be > 0", fix)
            if time_s <= last.get(link, -math.inf):
                rule = f"must be later than {last[link]}, the time before it on this link"
                raise row_error(path, line, "time_s", row["time_s"], rule, "Sort the file by time_s, drop repeats")
            last[link] = time_s
            rows.append((time_s, *link, gbps))
        times, which = np.unique([r[0] for r in rows], return_inverse=True)
        grid = np.full((times.size, len(names), len(names)), np.nan)
        _, src, dst, values = zip(*rows, strict=True)
        grid[which, src, dst] = values
        return cls(tuple(names), times - times[0], _hold_last(grid), at_end, source=str(path))

    @property
    def period_s(self) -> float:
        """Seconds after which the trace repeats; 0 where it holds its end instead."""
        if self.at_end == "hold" or self.times_s.size < 2:
            return 0.0
        return float(2 * self.times_s[-1] - self.times_s[-2])

    def at(self, time_s: ArrayLike) -> FloatArray:
        """Look up the bandwidth in Gb/s; a time array of shape S gives shape ``S + (K, K)``, NaN = base."""
        wanted = np.asarray(time_s, dtype=np.float64)
        rows: IntArray = trace_rows(self.times_s, wanted.ravel(), self.period_s)
        return self.gbps[rows.reshape(wanted.shape)]

    def multiplier(self, base_gbps: FloatArray) -> FloatArray:
        """Express every row as a multiple of the base bandwidth, shape ``(T, K, K)``; 1 where unrecorded."""
        return np.where(np.isnan(self.gbps), 1.0, self.gbps / np.where(base_gbps > 0, base_gbps, 1.0))


@kernel
def trace_row(times_s: FloatArray, time_s: float, period_s: float) -> int:
    """Return the row that holds at ``time_s``; a period of 0 holds the last row for ever."""
    if period_s > 0.0:
        time_s = time_s % period_s
    low, high = 0, times_s.size
    while low < high:
        middle = (low + high) // 2
        if times_s[middle] <= time_s:
            low = middle + 1
        else:
            high = middle
    return max(low - 1, 0)


@kernel(allocates=True)
def trace_rows(times_s: FloatArray, wanted_s: FloatArray, period_s: float) -> IntArray:
    """Return the rows that hold at each of ``wanted_s``."""
    rows = np.empty(wanted_s.size, np.int64)
    for i in range(wanted_s.size):
        rows[i] = trace_row(times_s, wanted_s[i], period_s)
    return rows


def _hold_last(grid: FloatArray) -> FloatArray:
    """Carry the last recorded value of each link forward over the rows that do not mention it."""
    rows = np.arange(grid.shape[0])[:, None, None]
    newest = np.maximum.accumulate(np.where(np.isnan(grid), 0, rows), axis=0)
    return np.take_along_axis(grid, newest, axis=0)


def _domain(path: str | Path, line: int, column: str, name: str, index: dict[str, int]) -> int:
    if name not in index:
        raise row_error(path, line, column, name, "must be a domain of the cluster", nearest(name, index))
    return index[name]


def row_error(path: str | Path, line: int, column: str, value: object, rule: str, fix: str) -> TraceError:
    """Build the error of one cell of a trace file."""
    return TraceError(problem(f"{path}, line {line}, {column}", value, rule, fix))


def number(path: str | Path, line: int, column: str, text: str) -> float:
    """Parse a finite number or raise a ``TraceError`` that names the cell."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise row_error(path, line, column, text, "must be a finite number", "Mend or remove the line")
    return value


def read_trace_rows(path: str | Path, required: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield ``(line number, row)`` of a CSV file that has the required columns and at least one row."""
    empty = True
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            header = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = header
            for column in required:
                if column not in header:
                    rule = f"must name the column {column!r}; it needs {', '.join(required)}"
                    raise row_error(path, 1, "header", ",".join(header), rule, "Add the column")
            for row in reader:
                if None in row or None in row.values():
                    rule = f"must have {len(header)} fields like the header"
                    raise row_error(path, reader.line_num, "row", list(row.values()), rule, "Mend the line")
                empty = False
                yield reader.line_num, {key: value.strip() for key, value in row.items()}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(problem("trace file", str(path), f"cannot be read ({error})", "Give a UTF-8 CSV")) from error
    if empty:
        raise row_error(path, 1, "rows", 0, "must have at least one row below the header", "Record some data")


MAX_UTILISATION = 0.95
"""Load at which the latency of a link stops rising: a queue at full load has no finite mean."""

DEFAULT_REVERSION_PER_S = 1.0 / 1800.0
"""Assumed: half an hour to forget. No public measurement that we know of identifies this rate."""

DEFAULT_SPREAD = 0.12
"""Assumed stationary standard deviation of the latent, which then spends 98.8 % of its time within ±30 %.

Two campaigns between cloud regions, ten months apart, imply 0.06 (pairs that moved by less than 30 %) to
0.09 (quartiles of all pairs) with a heavy upper tail, so this leans to the restless side."""

DEFAULT_CONGESTION = 0.1
"""Assumed: latency rises by 90 % at 90 % load, near the 95th percentile (77 %) of (max − min)/average in
short runs of pings between cloud regions."""


DEFAULT_KWH_PER_GB = 0.0053
"""Energy of the network for a gigabyte: 0.06 kWh in 2015, halved about every two years since 2000 (Aslan, Mayers,
Koomey and France, Journal of Industrial Ecology 22, 2018), carried on to 2022 (assumed). Core and fixed access
together, so more than a backbone alone. An average: links draw nearly as much when idle, so it is accounted and never
steers."""

MOST_FAILURE_H = 1e6
"""Longest mean time between failures, or of one: a century has 876,600 hours."""


@dataclass(frozen=True)
class LinkFailures:
    """How links between domains fail and are repaired, every pair by itself.

    Attributes:
        mean_up_h: Mean hours from a repair to the next failure.
        mean_down_h: Mean hours that a failure lasts.
        left: Share of its bandwidth that a link carries while it is down, by a detour.
    """

    mean_up_h: float
    mean_down_h: float
    left: float = 0.02

    def __post_init__(self) -> None:
        """Check every figure."""
        for name in ("mean_up_h", "mean_down_h"):
            hours = getattr(self, name)
            if not 0 < hours <= MOST_FAILURE_H:
                rule = f"must be > 0 and <= {MOST_FAILURE_H:g} hours"
                raise NetworkError(problem(f"failures.{name}", hours, rule, "Leave failures out for links that hold"))
        if not 0 < self.left < 1:
            fix = "Write a link without a detour as a small number such as 0.001"
            raise NetworkError(problem("failures.left", self.left, "must lie strictly between 0 and 1", fix))

    @property
    def down_share(self) -> float:
        """Share of the time that a link is down in the long run."""
        return self.mean_down_h / (self.mean_up_h + self.mean_down_h)

    def kept(self, dt_s: float) -> float:
        """What is left after ``dt_s`` of knowing whether a link is up."""
        return math.exp(-self._forgotten(dt_s))

    def down_after(self, dt_s: float) -> tuple[float, float]:
        """Chance to be down ``dt_s`` later, of a link that is up now and of one that is down now."""
        share, forgotten = self.down_share, -math.expm1(-self._forgotten(dt_s))
        return share * forgotten, share + (1.0 - share) * self.kept(dt_s)

    def _forgotten(self, dt_s: float) -> float:
        return dt_s / 3600.0 * (1.0 / self.mean_up_h + 1.0 / self.mean_down_h)


class WanMotion(TypedDict, total=False):
    """The fields of :class:`Wan` that say how a network moves."""

    reversion_per_s: float
    spread: float
    bound: float
    correlation: float
    congestion: float
    trace: BandwidthTrace | None
    failures: LinkFailures | None


@dataclass(frozen=True, eq=False)
class Wan:
    """The links of a cluster; every matrix has axes ``(source, destination)`` and may be asymmetric.

    Attributes:
        names: The K domains.
        bandwidth_gbps: Base bandwidth, shape ``(K, K)``, Gb/s; the diagonal is the link inside a domain.
        latency_s: One-way latency without load, shape ``(K, K)``.
        price_usd_per_gb: Price of sending a gigabyte, shape ``(K, K)``.
        reversion_per_s: Rate θ at which a link forgets, 1/s.
        spread: Stationary standard deviation of the latent process; 0 for a network that stands still.
        bound: Largest relative deviation from the base bandwidth.
        correlation: Correlation ρ between the latents of any two links.
        congestion: How strongly load raises latency, see :func:`effective_latency`.
        trace: Recorded bandwidth that replaces the process. Its figures are used as recorded, unbounded.
        kwh_per_gb: Energy of the network for a gigabyte sent from domain to domain; accounted, in no reward.
        failures: How links fail; None for links that hold.
        provenance: ``(source, destination)`` → how the figures of a link were got; empty if not known.
    """

    names: tuple[str, ...]
    bandwidth_gbps: FloatArray
    latency_s: FloatArray
    price_usd_per_gb: FloatArray
    reversion_per_s: float = DEFAULT_REVERSION_PER_S
    spread: float = DEFAULT_SPREAD
    bound: float = 0.3
    correlation: float = 0.0
    congestion: float = DEFAULT_CONGESTION
    trace: BandwidthTrace | None = None
    kwh_per_gb: float = DEFAULT_KWH_PER_GB
    failures: LinkFailures | None = None
    provenance: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check every figure and make the arrays read-only."""
        names = tuple(self.names)
        if not names or len(set(names)) != len(names):
            rule = "must be at least one name, each once"
            raise NetworkError(problem("names", names, rule, "Give every domain its own name"))
        object.__setattr__(self, "names", names)
        for name in ("bandwidth_gbps", "latency_s", "price_usd_per_gb"):
            matrix = _matrix(name, getattr(self, name), names, positive=name == "bandwidth_gbps")
            object.__setattr__(self, name, matrix)
        _check("reversion_per_s", self.reversion_per_s, self.reversion_per_s > 0, "must be > 0")
        _check("spread", self.spread, self.spread >= 0, "must be >= 0")
        _check("bound", self.bound, 0 < self.bound < 1, "must lie strictly between 0 and 1")
        _check("correlation", self.correlation, 0 <= self.correlation < 1, "must lie in [0, 1)")
        _check("congestion", self.congestion, self.congestion >= 0, "must be >= 0")
        _check("kwh_per_gb", self.kwh_per_gb, self.kwh_per_gb >= 0, "must be >= 0")
        if self.trace is not None and self.trace.names != names:
            rule = f"must name the domains of the network, {names}"
            raise NetworkError(problem("trace.names", self.trace.names, rule, "Read the trace with these names"))
        law: object = self.failures
        if law is not None and not isinstance(law, LinkFailures):
            rule = "must be a LinkFailures, or None for links that hold"
            raise NetworkError(problem("failures", law, rule, "Use LinkFailures(mean_up_h=…, mean_down_h=…)"))
        if self.trace is not None and self.failures is not None:
            rule = "cannot go with recorded bandwidth, which has its own"
            raise NetworkError(problem("failures", self.failures, rule, "Leave out the trace or the failures"))
        object.__setattr__(self, "provenance", MappingProxyType(dict(self.provenance)))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle through the constructor, which restores the read-only arrays and mapping."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return _rebuild, (values | {"provenance": dict(self.provenance)},)

    @classmethod
    def uniform(
        cls, names: Sequence[str], *, gbps: float, latency_s: float, usd_per_gb: float,
        intra_gbps: float = 100.0, intra_latency_s: float = 1e-4, **motion: Unpack[WanMotion],
    ) -> Wan:  # fmt: skip
        """Build a network whose links are all alike; ``motion`` sets spread, bound and the rest."""
        inside = np.eye(len(names), dtype=bool)
        return cls(
            tuple(names),
            bandwidth_gbps=np.where(inside, intra_gbps, gbps),
            latency_s=np.where(inside, intra_latency_s, latency_s),
            price_usd_per_gb=np.where(inside, 0.0, usd_per_gb),
            **motion,
        )

    @property
    def epsilon_variance(self) -> float:
        """Stationary variance of the emitted ε: that of a Gaussian clipped at ±bound (its mean is 0)."""
        if self.spread == 0:
            return 0.0
        a = self.bound / self.spread
        inside = math.erf(a / math.sqrt(2.0))
        density = math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
        return self.spread**2 * (inside - 2.0 * a * density) + self.bound**2 * (1.0 - inside)


def _rebuild(values: dict[str, object]) -> Wan:
    return Wan(**values)  # type: ignore[arg-type]


def _check(name: str, value: float, holds: bool, rule: str) -> None:
    if not (holds and math.isfinite(value)):
        raise NetworkError(problem(name, value, f"{rule} and finite", "Mend the network settings"))


def _matrix(name: str, value: ArrayLike, names: tuple[str, ...], *, positive: bool) -> FloatArray:
    """Return a read-only copy, or name the first link whose figure is wrong."""
    matrix = np.array(value, dtype=np.float64)
    k = len(names)
    if matrix.shape != (k, k):
        fix = "Give one row and one column per domain"
        raise NetworkError(problem(f"{name}.shape", matrix.shape, f"must be ({k}, {k})", fix))
    wrong = ~np.isfinite(matrix) | (matrix < 0)
    if positive:
        wrong |= (matrix == 0) & ~np.eye(k, dtype=bool)
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        rule = "must be a finite number " + ("> 0" if positive and i != j else ">= 0")
        fix = "Give the figure of this link, or leave one of the domains out"
        raise NetworkError(problem(f"{name}[{names[i]} → {names[j]}]", float(matrix[i, j]), rule, fix))
    matrix.setflags(write=False)
    return matrix


@kernel
def ou_coefficients(reversion_per_s: float, spread: float, dt_s: float) -> tuple[float, float]:
    """Return ``(decay, noise_scale)`` of an exact step of ``dt_s``."""
    return math.exp(-reversion_per_s * dt_s), spread * math.sqrt(-math.expm1(-2.0 * reversion_per_s * dt_s))


@kernel
def ou_advance(latent: FloatArray, decay: float, noise_scale: float, rho: float, state: StreamState) -> None:
    """Advance the latents of one cluster in place.

    Args:
        latent: Shape ``(K, K)``; the diagonal is left alone.
        decay: Factor on the old value; 0 draws from the stationary law.
        noise_scale: Standard deviation of the innovation.
        rho: Correlation between links.
        state: The cluster's random stream. A call draws ``1 + K·(K−1)`` normals whatever ``rho`` is.
    """
    own = noise_scale * math.sqrt(1.0 - rho)
    common = noise_scale * math.sqrt(rho) * normal(state)
    for i in range(latent.shape[0]):
        for j in range(latent.shape[1]):
            if i != j:
                latent[i, j] = latent[i, j] * decay + common + own * normal(state)


@kernel
def ou_stationary(latent: FloatArray, spread: float, rho: float, state: StreamState) -> None:
    """Draw the latents of one cluster from their stationary law; the diagonal becomes 0."""
    latent[:, :] = 0.0
    ou_advance(latent, 0.0, spread, rho, state)


@kernel
def fail_links(down: FloatArray, from_up: float, from_down: float, state: StreamState) -> None:
    """Advance which links of one cluster are down, in place; both ways of a pair fail together.

    Args:
        down: 1 for a link that is down, else 0, shape ``(K, K)``; the diagonal is left alone.
        from_up: Chance of a link that is up to be down after the step.
        from_down: Chance of one that is down to be so still; the same as ``from_up`` draws from the stationary law.
        state: The random stream of failures. A call draws one number per pair, whatever happens to the others.
    """
    for i in range(down.shape[0]):
        for j in range(i):
            chance = from_down if down[i, j] > 0.0 else from_up
            down[i, j] = 1.0 if uniform(state) < chance else 0.0
            down[j, i] = down[i, j]


@kernel
def emit_epsilon(latent: FloatArray, bound: float, epsilon: FloatArray) -> None:
    """Write ``clip(latent, ±bound)`` into ``epsilon``, shape ``(K, K)``; 0 on the diagonal."""
    for i in range(latent.shape[0]):
        for j in range(latent.shape[1]):
            epsilon[i, j] = min(max(latent[i, j], -bound), bound) if i != j else 0.0


@kernel(allocates=True)
def effective_latency(base_s: FloatArray, utilisation: FloatArray, congestion: float) -> FloatArray:
    """Return ``base · (1 + congestion · u/(1−u))``: the waiting of an M/M/1 queue on top of propagation.

    Takes numbers or arrays. The load ``u`` is clipped to ``[0, 0.95]``, where the latency stops rising.
    """
    u = np.minimum(np.maximum(utilisation, 0.0), MAX_UTILISATION)
    loaded: FloatArray = base_s * (1.0 + congestion * u / (1.0 - u))
    return loaded


FAILURE_STREAM = 3
"""Place of the stream of link failures among the children of an episode's seed: after those of the network, of the
tasks, and of the devices that the event simulator wears out."""


class WanProcess:
    """A network in motion: one cluster's links, stepped by the kernels above.

    Args:
        wan: The network.
        seed: Seed of the cluster's random stream; the first state is a stationary draw.
        failure_seed: Seed of the stream that failures are drawn from; by default a child of ``seed``.
    """

    def __init__(self, wan: Wan, seed: int | SeedSequence, failure_seed: int | SeedSequence | None = None) -> None:
        self.wan = wan
        self.time_s = 0.0
        k = len(wan.names)
        self._state = seed_stream(seed)
        self._latent = np.zeros((k, k))
        self._multiplier = None if wan.trace is None else wan.trace.multiplier(wan.bandwidth_gbps)
        ou_stationary(self._latent, wan.spread, wan.correlation, self._state)
        self._down = np.zeros((k, k))
        if wan.failures is not None:
            root = SeedSequence(seed) if not isinstance(seed, SeedSequence) else seed
            own = SeedSequence(entropy=root.entropy, spawn_key=(*root.spawn_key, FAILURE_STREAM))
            self._failing = seed_stream(own if failure_seed is None else failure_seed)
            fail_links(self._down, wan.failures.down_share, wan.failures.down_share, self._failing)

    def step(self, dt_s: float) -> None:
        """Let ``dt_s`` seconds pass, in one exact step."""
        if not (math.isfinite(dt_s) and dt_s >= 0):
            raise NetworkError(problem("dt_s", dt_s, "must be finite and >= 0", "Give the seconds that pass"))
        wan = self.wan
        decay, noise_scale = ou_coefficients(wan.reversion_per_s, wan.spread, dt_s)
        ou_advance(self._latent, decay, noise_scale, wan.correlation, self._state)
        if wan.failures is not None:
            fail_links(self._down, *wan.failures.down_after(dt_s), self._failing)
        self.time_s += dt_s

    @property
    def down(self) -> NDArray[np.bool_]:
        """Which links are down now, shape ``(K, K)``, symmetric."""
        return np.asarray(self._down > 0.0)

    @property
    def latent(self) -> FloatArray:
        """The unbounded process x, shape ``(K, K)``."""
        return self._latent.copy()

    @property
    def epsilon(self) -> FloatArray:
        """Relative deviation of every link from its base bandwidth, shape ``(K, K)``."""
        trace = self.wan.trace
        if trace is not None and self._multiplier is not None:
            row: int = trace_row(trace.times_s, self.time_s, trace.period_s)
            return np.asarray(self._multiplier[row] - 1.0)
        epsilon = np.empty_like(self._latent)
        emit_epsilon(self._latent, self.wan.bound, epsilon)
        return epsilon

    @property
    def bandwidth_gbps(self) -> FloatArray:
        """Bandwidth of every link now, shape ``(K, K)``; a link that is down carries what its detour does."""
        carried: FloatArray = self.wan.bandwidth_gbps * (1.0 + self.epsilon)
        failures = self.wan.failures
        return carried if failures is None else np.where(self.down, carried * failures.left, carried)

    def latency_s(self, utilisation: ArrayLike = 0.0) -> FloatArray:
        """One-way latency of every link under the given load in [0, 1], a number or shape ``(K, K)``."""
        load = np.broadcast_to(np.asarray(utilisation, dtype=np.float64), self._latent.shape)
        if not np.all(np.isfinite(load)) or np.any(load < 0):
            fix = "Give the busy share of each link"
            raise NetworkError(problem("utilisation", utilisation, "must be finite and >= 0", fix))
        loaded: FloatArray = effective_latency(self.wan.latency_s, load, self.wan.congestion)
        return loaded
