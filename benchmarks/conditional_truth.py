"""Exact conditional Shapley values for the three test worlds: the yardstick of the attribution benchmarks.

Each world knows its conditionals in closed form, so ``v(S) = E[f(X) | x_S]`` is a plain integral. It is
taken with scrambled Sobol points (two scramblings, each with its mirror image), for every coalition, and
the Shapley weights are exact. Nothing here imports the estimators under test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import comb
from typing import Protocol

import numpy as np
from scipy.special import gammaincinv, ndtri
from scipy.stats import qmc

NAMES = ("cpu_cycles", "l3_misses", "memory_bandwidth", "pcie", "convolution", "fully_connected", "attention")
Function = Callable[[np.ndarray], np.ndarray]


class Cube:
    """Sobol points, and what the worlds make of them, computed once.

    Args:
        uniforms: (n, d + 1) points in the open unit cube.
    """

    def __init__(self, uniforms: np.ndarray) -> None:
        self.uniforms = uniforms
        self.normals = ndtri(uniforms[:, :-1])
        self.log_exponentials = np.log(-np.log(uniforms[:, :-1]))
        self._log_gammas: dict[float, np.ndarray] = {}

    def __len__(self) -> int:
        """Number of points."""
        return len(self.uniforms)

    def log_gammas(self, shape: float) -> np.ndarray:
        """Log of gamma quantiles at the last coordinate, (n,)."""
        if shape not in self._log_gammas:
            self._log_gammas[shape] = np.log(gammaincinv(shape, self.uniforms[:, -1]))
        return self._log_gammas[shape]


class World(Protocol):
    """A joint distribution of the counters whose every conditional is known."""

    name: str
    dimension: int

    def sample(self, n_rows: int, rng: np.random.Generator) -> np.ndarray:
        """Draw rows, (n_rows, d)."""

    def conditional(self, row: np.ndarray, observed: np.ndarray, cube: Cube) -> tuple[np.ndarray, np.ndarray]:
        """Turn points into completed rows (m, d) and their weights (m,), which sum to one."""


def _gaussian_parts(mean: np.ndarray, cov: np.ndarray, row: np.ndarray, o: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and Cholesky factor of the hidden features given the observed ones."""
    u = ~o
    if not o.any():
        return mean, np.linalg.cholesky(cov)
    gain = np.linalg.solve(cov[np.ix_(o, o)], cov[np.ix_(o, u)]).T
    centre = mean[u] + gain @ (row[o] - mean[o])
    spread = cov[np.ix_(u, u)] - gain @ cov[np.ix_(o, u)]
    return centre, np.linalg.cholesky(spread)


@dataclass
class GaussianWorld:
    """Zero-mean Gaussian with covariance ``rho ** |i - j|``."""

    rho: float = 0.7
    dimension: int = 7
    name: str = "gaussian"
    cov: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        """Build the covariance."""
        index = np.arange(self.dimension)
        self.cov = self.rho ** np.abs(index[:, None] - index)

    def sample(self, n_rows: int, rng: np.random.Generator) -> np.ndarray:
        """Draw rows, (n_rows, d)."""
        return rng.standard_normal((n_rows, self.dimension)) @ np.linalg.cholesky(self.cov).T

    def conditional(self, row: np.ndarray, observed: np.ndarray, cube: Cube) -> tuple[np.ndarray, np.ndarray]:
        """Complete ``row`` where it is not observed."""
        centre, factor = _gaussian_parts(np.zeros(self.dimension), self.cov, row, observed)
        out = np.tile(row, (len(cube), 1))
        out[:, ~observed] = centre + cube.normals[:, : len(centre)] @ factor.T
        return out, np.full(len(out), 1.0 / len(out))


@dataclass
class MixtureWorld:
    """Three full-covariance components, the whole standardised; another ``seed`` is another mixture."""

    seed: int = 0
    dimension: int = 7
    weights: tuple[float, ...] = (0.40, 0.35, 0.25)
    name: str = "mixture"
    means: np.ndarray = field(init=False)
    covs: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        """Draw the components and standardise the mixture exactly."""
        rng = np.random.default_rng([9001, self.seed])
        k, d = len(self.weights), self.dimension
        means = 1.3 * rng.standard_normal((k, d))
        covs = np.empty((k, d, d))
        for i in range(k):
            a = rng.standard_normal((d, 2))
            raw = a @ a.T + 0.3 * np.eye(d)
            scale = np.sqrt(np.diag(raw))
            covs[i] = 0.45 * raw / np.outer(scale, scale)
        w = np.array(self.weights)
        centre = w @ means
        spread = np.sqrt(w @ (means**2 + covs[:, np.arange(d), np.arange(d)]) - centre**2)
        self.means = (means - centre) / spread
        self.covs = covs / np.outer(spread, spread)

    def sample(self, n_rows: int, rng: np.random.Generator) -> np.ndarray:
        """Draw rows, (n_rows, d)."""
        which = rng.choice(len(self.weights), n_rows, p=np.array(self.weights))
        factors = np.linalg.cholesky(self.covs)
        noise = rng.standard_normal((n_rows, self.dimension))
        return self.means[which] + np.einsum("nij,nj->ni", factors[which], noise)

    def conditional(self, row: np.ndarray, observed: np.ndarray, cube: Cube) -> tuple[np.ndarray, np.ndarray]:
        """Complete ``row`` from every component; the weights carry the posterior of the component."""
        logs, pieces = [], []
        for weight, mean, cov in zip(self.weights, self.means, self.covs, strict=True):
            centre, factor = _gaussian_parts(mean, cov, row, observed)
            part = np.tile(row, (len(cube), 1))
            part[:, ~observed] = centre + cube.normals[:, : len(centre)] @ factor.T
            pieces.append(part)
            log = np.log(weight)
            if observed.any():
                lower = np.linalg.cholesky(cov[np.ix_(observed, observed)])
                white = np.linalg.solve(lower, row[observed] - mean[observed])
                log += -0.5 * white @ white - np.log(np.diag(lower)).sum()
            logs.append(log)
        posterior = np.exp(np.array(logs) - max(logs))
        posterior /= posterior.sum()
        return np.concatenate(pieces), np.repeat(posterior / len(cube), len(cube))


@dataclass
class BurrWorld:
    """Multivariate Burr XII through a shared gamma frailty; features are standardised ``log x``."""

    kappa: float = 2.0
    rates: tuple[float, ...] = (1, 3, 5, 1, 3, 5, 1)
    shapes: tuple[float, ...] = (2, 4, 6, 2, 4, 6, 2)
    name: str = "burr"
    dimension: int = field(init=False)
    centre: np.ndarray = field(init=False)
    spread: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        """Standardise with the exact moments: log E has variance pi^2/6, log G the trigamma of kappa."""
        from scipy.special import digamma, polygamma

        self.dimension = len(self.rates)
        r, b = np.array(self.rates, float), np.array(self.shapes, float)
        self.centre = (-np.euler_gamma - digamma(self.kappa) - np.log(r)) / b
        self.spread = np.sqrt(np.pi**2 / 6 + float(polygamma(1, self.kappa))) / b

    def sample(self, n_rows: int, rng: np.random.Generator) -> np.ndarray:
        """Draw rows, (n_rows, d)."""
        frailty = rng.gamma(self.kappa, size=n_rows)
        return self._features(np.log(rng.exponential(size=(n_rows, self.dimension))), np.log(frailty))

    def _features(self, log_exponential: np.ndarray, log_frailty: np.ndarray) -> np.ndarray:
        r, b = np.array(self.rates, float), np.array(self.shapes, float)
        log_x = (log_exponential - log_frailty[:, None] - np.log(r)) / b
        return (log_x - self.centre) / self.spread

    def conditional(self, row: np.ndarray, observed: np.ndarray, cube: Cube) -> tuple[np.ndarray, np.ndarray]:
        """Given x_S the frailty is Gamma(kappa + |S|, 1 + sum r x^b); the hidden features are independent given it."""
        r, b = np.array(self.rates, float), np.array(self.shapes, float)
        log_x = row * self.spread + self.centre
        rate = 1.0 + (r * np.exp(b * log_x))[observed].sum()
        log_frailty = cube.log_gammas(self.kappa + float(observed.sum())) - np.log(rate)
        out = self._features(cube.log_exponentials, log_frailty)
        out[:, observed] = row[observed]
        return out, np.full(len(out), 1.0 / len(out))


def subsets(d: int) -> np.ndarray:
    """Every coalition as a row of booleans, (2^d, d); bit j of the row number says whether j is in."""
    return ((np.arange(2**d)[:, None] >> np.arange(d)) & 1).astype(bool)


def shapley_from_values(values: np.ndarray, d: int) -> np.ndarray:
    """Shapley values by the definition, feature by feature over all marginal contributions: (..., 2^d) to (..., d)."""
    codes = np.arange(2**d)
    size = np.bitwise_count(codes)
    weight = np.array([1.0 / (d * comb(d - 1, s)) for s in range(d)])
    phi = np.empty((*values.shape[:-1], d))
    for j in range(d):
        without = codes[(codes >> j) & 1 == 0]
        gain = values[..., without | (1 << j)] - values[..., without]
        phi[..., j] = gain @ weight[size[without]]
    return phi


def true_values(world: World, functions: Sequence[Function], rows: np.ndarray, log2_draws: int = 12) -> np.ndarray:
    """Coalition values v(S), (functions, rows, 2^d), with ``4 * 2**log2_draws`` points for each of them."""
    d = world.dimension
    points = []
    for scramble in (11, 12):
        sobol = qmc.Sobol(d + 1, scramble=True, rng=np.random.default_rng(scramble)).random_base2(log2_draws)
        points += [sobol, 1.0 - sobol]
    cube = Cube(np.clip(np.concatenate(points), 1e-12, 1 - 1e-12))
    masks = subsets(d)
    out = np.empty((len(functions), len(rows), len(masks)))
    for s, observed in enumerate(masks):
        if observed.all():
            for k, f in enumerate(functions):
                out[k, :, s] = f(rows)
            continue
        for i, row in enumerate(rows):
            if not observed.any() and i:
                out[:, i, s] = out[:, 0, s]
                continue
            draws, weights = world.conditional(row, observed, cube)
            for k, f in enumerate(functions):
                out[k, i, s] = weights @ f(draws)
    return out


def true_shapley(world: World, function: Function, rows: np.ndarray, log2_draws: int = 12) -> np.ndarray:
    """Exact conditional Shapley values, (rows, d)."""
    return shapley_from_values(true_values(world, [function], rows, log2_draws)[0], world.dimension)


def quadratic_gaussian_values(cov: np.ndarray, linear: np.ndarray, form: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Closed-form v(S) of ``linear @ x + x' form x`` under N(0, cov), for all 2^d coalitions, (rows, 2^d).

    E[x' Q x | x_S] is the form at the conditional mean plus the trace of Q with the conditional covariance.
    Coalitions are built one feature at a time (a pivot of the covariance), so no system is ever solved.
    """
    d = rows.shape[1]
    out = np.empty((len(rows), 2**d))

    def walk(position: int, code: int, mean: np.ndarray, left: np.ndarray) -> None:
        out[:, code] = mean @ linear + ((mean @ form) * mean).sum(1) + np.sum(form * left)
        for j in range(position, d):
            gain = left[:, j] / left[j, j]
            walk(j + 1, code | (1 << j), mean + np.outer(rows[:, j] - mean[:, j], gain), left - np.outer(gain, left[j]))

    walk(0, 0, np.zeros(rows.shape), cov.copy())
    return out


def seven_counter_energy(x: np.ndarray) -> np.ndarray:
    """The reference energy function of the seven standardised counters."""
    c, l3, m, p, v, g, a = np.moveaxis(x, -1, 0)
    return (
        1.5 * c
        + 0.8 * c * v
        + 0.6 * l3**2
        - 0.7 * l3 * m
        + 1.2 * np.sin(1.5 * p)
        + np.logaddexp(0.0, 2 * g)
        + 0.5 * m * a
        + 0.8 * np.tanh(g * a)
    )


def saturating_energy(x: np.ndarray) -> np.ndarray:
    """A second function of another shape: roof-line maxima, a three-way product."""
    c, l3, m, p, v, g, a = np.moveaxis(x, -1, 0)
    roof = np.maximum(c + 0.5 * v, 1.2 * m)
    return 2 * roof + np.exp(0.3 * (g - p)) + 0.4 * v * g * a + np.abs(l3) + 0.3 * p * c


def quadratic_energy(x: np.ndarray) -> np.ndarray:
    """A third function: squares and neighbour products with alternating signs."""
    signs = np.where(np.arange(x.shape[-1]) % 2 == 0, 1.0, -1.0)
    return (0.5 * signs * x**2 + 0.7 * x).sum(-1) + (x[..., :-1] * x[..., 1:]).sum(-1) * 0.6
