"""The wide-area network between domains: bandwidth that wanders, latency that rises with load, a price.

``B_ij(t) = B_ij^base · (1 + ε_ij(t))`` with ``ε = clip(x, ±bound)`` and ``x`` a latent Ornstein–Uhlenbeck
process of reversion rate θ and stationary spread s. Over any step Δ it is advanced by its exact law::

    x' = x·e^(−θΔ) + s·sqrt(1 − e^(−2θΔ)) · (sqrt(ρ)·n_common + sqrt(1−ρ)·n_ij)

so mean, variance and autocorrelation of ``x`` do not depend on how time is cut into steps, and ε stays in
its bounds. Because every link shares θ, correlating the innovations by ρ is the same law as adding a
common process to each link's own, without a second state to carry.

The diagonal holds the links inside a domain; they do not fluctuate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TypedDict, Unpack

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import ArrayLike, NDArray

from attribution_sched.cluster.bandwidth_trace import BandwidthTrace, trace_row
from attribution_sched.cluster.streams import StreamState, normal, seed_stream
from attribution_sched.errors import NetworkError, problem
from attribution_sched.kernels import kernel

FloatArray = NDArray[np.float64]

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


class WanMotion(TypedDict, total=False):
    """The fields of :class:`Wan` that say how a network moves."""

    reversion_per_s: float
    spread: float
    bound: float
    correlation: float
    congestion: float
    trace: BandwidthTrace | None


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
        if self.trace is not None and self.trace.names != names:
            rule = f"must name the domains of the network, {names}"
            raise NetworkError(problem("trace.names", self.trace.names, rule, "Read the trace with these names"))
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


class WanProcess:
    """A network in motion: one cluster's links, stepped by the kernels above.

    Args:
        wan: The network.
        seed: Seed of the cluster's random stream; the first state is a stationary draw.
    """

    def __init__(self, wan: Wan, seed: int | SeedSequence) -> None:
        self.wan = wan
        self.time_s = 0.0
        k = len(wan.names)
        self._state = seed_stream(seed)
        self._latent = np.zeros((k, k))
        self._multiplier = None if wan.trace is None else wan.trace.multiplier(wan.bandwidth_gbps)
        ou_stationary(self._latent, wan.spread, wan.correlation, self._state)

    def step(self, dt_s: float) -> None:
        """Let ``dt_s`` seconds pass, in one exact step."""
        if not (math.isfinite(dt_s) and dt_s >= 0):
            raise NetworkError(problem("dt_s", dt_s, "must be finite and >= 0", "Give the seconds that pass"))
        wan = self.wan
        decay, noise_scale = ou_coefficients(wan.reversion_per_s, wan.spread, dt_s)
        ou_advance(self._latent, decay, noise_scale, wan.correlation, self._state)
        self.time_s += dt_s

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
        """Bandwidth of every link now, shape ``(K, K)``."""
        return self.wan.bandwidth_gbps * (1.0 + self.epsilon)

    def latency_s(self, utilisation: ArrayLike = 0.0) -> FloatArray:
        """One-way latency of every link under the given load in [0, 1], a number or shape ``(K, K)``."""
        load = np.broadcast_to(np.asarray(utilisation, dtype=np.float64), self._latent.shape)
        if not np.all(np.isfinite(load)) or np.any(load < 0):
            fix = "Give the busy share of each link"
            raise NetworkError(problem("utilisation", utilisation, "must be finite and >= 0", fix))
        loaded: FloatArray = effective_latency(self.wan.latency_s, load, self.wan.congestion)
        return loaded
