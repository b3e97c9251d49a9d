"""Exact conditional Shapley values for the test worlds: the yardstick of the attribution benchmarks.

Each world knows its conditionals in closed form (the curved one up to weights), so ``v(S) = E[f(X) | x_S]`` is a plain
integral. It is taken with scrambled Sobol points (two scramblings, each with its mirror image), for every coalition,
and the Shapley weights are exact. E[f] itself, which enters every value, is taken once with sixteen times the points:
under heavy tails its own noise was a multiple of the errors to be measured. Nothing here imports the estimators under
test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import comb
from typing import Protocol

import numpy as np
from scipy.special import expit, gammaincinv, ndtr, ndtri, stdtr, stdtrit
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


@dataclass
class StudentWorld:
    """Multivariate t: heavy tails in every direction at once; another ``seed`` is another scatter and tail.

    Args:
        margins: ``plain`` leaves the t margins, ``mixed`` keeps only their copula, under log-normal, Laplace and
            logistic margins in turn.
    """

    seed: int = 0
    margins: str = "plain"
    dimension: int = 7
    name: str = "student"
    cov: np.ndarray = field(init=False)
    dof: float = field(init=False)

    def __post_init__(self) -> None:
        """Draw the scatter matrix and the degrees of freedom."""
        rng = np.random.default_rng([9002, self.seed])
        self.dof = float(rng.uniform(3.0, 6.0))
        a = rng.standard_normal((self.dimension, 3))
        raw = a @ a.T + 0.5 * np.eye(self.dimension)
        scale = np.sqrt(np.diag(raw))
        self.cov = raw / np.outer(scale, scale)
        self.name = "student" if self.margins == "plain" else "student copula"

    def sample(self, n_rows: int, rng: np.random.Generator) -> np.ndarray:
        """Draw rows, (n_rows, d)."""
        z = rng.standard_normal((n_rows, self.dimension)) @ np.linalg.cholesky(self.cov).T
        return self._features(z / np.sqrt(rng.chisquare(self.dof, n_rows) / self.dof)[:, None])

    def conditional(self, row: np.ndarray, observed: np.ndarray, cube: Cube) -> tuple[np.ndarray, np.ndarray]:
        """Given x_S again a t, with |S| more degrees of freedom and a spread that follows the distance of x_S."""
        t = self._scores(row)
        centre, factor = _gaussian_parts(np.zeros(self.dimension), self.cov, t, observed)
        dof, square = self.dof + float(observed.sum()), 0.0
        if observed.any():
            square = float(t[observed] @ np.linalg.solve(self.cov[np.ix_(observed, observed)], t[observed]))
        chi = 2.0 * np.exp(cube.log_gammas(dof / 2))
        out = np.tile(t, (len(cube), 1))
        noise = cube.normals[:, : len(centre)] @ factor.T
        out[:, ~observed] = centre + noise * np.sqrt((self.dof + square) / chi)[:, None]
        out = self._features(out)
        out[:, observed] = row[observed]
        return out, np.full(len(out), 1.0 / len(out))

    def _features(self, t: np.ndarray) -> np.ndarray:
        if self.margins == "plain":
            return t / np.sqrt(self.dof / (self.dof - 2.0))
        upper = np.clip(stdtr(self.dof, -np.abs(t)), 1e-300, 0.5)
        signed = np.sign(t)
        out = np.empty_like(t)
        normal = -signed * ndtri(upper)
        out[..., 0::3] = (np.exp(0.5 * normal[..., 0::3]) - np.exp(0.125)) / 0.604
        out[..., 1::3] = -signed[..., 1::3] * np.log(2.0 * upper[..., 1::3]) / np.sqrt(2.0)
        out[..., 2::3] = -signed[..., 2::3] * (np.log(upper) - np.log1p(-upper))[..., 2::3] / 1.8138
        return out

    def _scores(self, row: np.ndarray) -> np.ndarray:
        if self.margins == "plain":
            return row * np.sqrt(self.dof / (self.dof - 2.0))
        upper = np.empty_like(row)
        normal = np.log(np.maximum(row[0::3] * 0.604 + np.exp(0.125), 1e-300)) / 0.5
        signed = np.sign(row)
        signed[0::3] = np.sign(normal)
        upper[0::3] = ndtr(-np.abs(normal))
        upper[1::3] = 0.5 * np.exp(-np.abs(row[1::3]) * np.sqrt(2.0))
        upper[2::3] = expit(-np.abs(row[2::3]) * 1.8138)
        return -signed * stdtrit(self.dof, upper)


@dataclass
class CurvedWorld:
    """Every second counter bends with the one before it: parabola, wave or kink; another ``seed``, other bends.

    ``x_even = z_even`` and ``x_odd = z_odd + bend(x_before)`` with Gaussian z. A hidden driver whose follower was seen
    has no closed form: it is drawn from its Gaussian and weighed by the density of what was seen.
    """

    seed: int = 0
    dimension: int = 7
    name: str = "curved"
    cov: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        """Draw the bends, their strengths and the covariance."""
        rng = np.random.default_rng([9003, self.seed])
        d = self.dimension
        a = rng.standard_normal((d, 2))
        raw = a @ a.T + 0.8 * np.eye(d)
        scale = np.sqrt(np.diag(raw))
        self.cov = raw / np.outer(scale, scale)
        noise = np.where(np.arange(d) % 2 == 1, rng.uniform(0.3, 0.6, d), 1.0)
        self.cov *= np.outer(noise, noise)
        self.bends = rng.integers(0, 3, d)
        self.strength = rng.uniform(0.6, 1.0, d) * rng.choice([-1.0, 1.0], d)
        self.driver = np.arange(d) % 2 == 0
        trial = self._features(rng.standard_normal((200_000, d)) @ np.linalg.cholesky(self.cov).T)
        self.centre, self.spread = trial.mean(0), trial.std(0)

    def _bend(self, j: int, driver: np.ndarray) -> np.ndarray:
        shapes = (lambda u: u**2 - 1.0, lambda u: 1.4 * np.sin(2.0 * u), lambda u: 1.6 * (np.abs(u) - 0.8))
        return self.strength[j] * shapes[self.bends[j]](driver)

    def _features(self, z: np.ndarray) -> np.ndarray:
        x = z.copy()
        for j in range(1, self.dimension, 2):
            x[..., j] += self._bend(j, z[..., j - 1])
        return x

    def sample(self, n_rows: int, rng: np.random.Generator) -> np.ndarray:
        """Draw rows, (n_rows, d)."""
        z = rng.standard_normal((n_rows, self.dimension)) @ np.linalg.cholesky(self.cov).T
        return (self._features(z) - self.centre) / self.spread

    def conditional(self, row: np.ndarray, observed: np.ndarray, cube: Cube) -> tuple[np.ndarray, np.ndarray]:
        """Complete the drivers, weigh them by the followers that were seen, then complete the followers."""
        x = row * self.spread + self.centre
        n = len(cube)
        even = np.flatnonzero(self.driver)
        odd = np.flatnonzero(~self.driver)
        z = np.tile(x, (n, 1))
        hidden_even = ~observed[even]
        if hidden_even.any():
            cov = self.cov[np.ix_(even, even)]
            centre, factor = _gaussian_parts(np.zeros(len(even)), cov, x[even], observed[even])
            z[:, even[hidden_even]] = centre + cube.normals[:, even[hidden_even]] @ factor.T
        for j in odd[observed[odd]]:
            z[:, j] = x[j] - self._bend(j, z[:, j - 1])
        cond = self.cov[np.ix_(odd, even)] @ np.linalg.inv(self.cov[np.ix_(even, even)])
        left = self.cov[np.ix_(odd, odd)] - cond @ self.cov[np.ix_(even, odd)]
        residual = z[:, odd] - z[:, even] @ cond.T
        o = observed[odd]
        log = np.zeros(n)
        if o.any():
            white = np.linalg.solve(np.linalg.cholesky(left[np.ix_(o, o)]), residual[:, o].T)
            log = -0.5 * np.square(white).sum(0)
        if (~o).any():
            gain = left[np.ix_(~o, o)] @ np.linalg.inv(left[np.ix_(o, o)]) if o.any() else np.zeros(((~o).sum(), 0))
            rest = np.linalg.cholesky(left[np.ix_(~o, ~o)] - gain @ left[np.ix_(o, ~o)])
            mean = z[:, even] @ cond[~o].T + residual[:, o] @ gain.T
            z[:, odd[~o]] = mean + cube.normals[:, odd[~o]] @ rest.T
        out = (self._features(z) - self.centre) / self.spread
        out[:, observed] = row[observed]
        weight = np.exp(log - log.max())
        return out, weight / weight.sum()


@dataclass
class KindsWorld:
    """Kinds of task: operators exactly 0 for some kinds, an integer batch counter, log-normal otherwise.

    Another ``seed`` is another set of kinds. Given its kind and batch a task's other counters are Gaussian in the
    logarithm, so every conditional is a weighted sum over kinds and batches.
    """

    seed: int = 0
    dimension: int = 7
    kinds: int = 4
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    name: str = "kinds"

    def __post_init__(self) -> None:
        """Draw the kinds, and the scale on which functions see the counters."""
        rng = np.random.default_rng([9004, self.seed])
        d, k, b = self.dimension, self.kinds, np.array(self.batches, float)
        self.batch = 3
        weights = rng.dirichlet(np.full(k, 6.0))
        zero = np.zeros((k, d), dtype=bool)
        zero[0, 6] = zero[1, 4] = zero[2, 4] = zero[2, 6] = True
        centre = rng.normal(0.0, 0.8, (k, d))
        slope = rng.uniform(0.0, 0.5, d)
        chance = rng.dirichlet(np.full(len(b), 2.0), k)
        self.parts = []
        for i in range(k):
            a = rng.standard_normal((d, 2))
            raw = a @ a.T + 0.4 * np.eye(d)
            scale = np.sqrt(np.diag(raw)) / rng.uniform(0.25, 0.5, d)
            cov = raw / np.outer(scale, scale)
            for level, share in zip(b, chance[i], strict=True):
                atoms = zero[i].copy()
                atoms[self.batch] = True
                values = np.where(zero[i], 0.0, np.nan)
                values[self.batch] = level
                self.parts.append((weights[i] * share, atoms, values, centre[i] + slope * np.log(level), cov))
        trial = self.sample(200_000, rng)
        self.centre, self.spread = trial.mean(0), trial.std(0)

    def sample(self, n_rows: int, rng: np.random.Generator) -> np.ndarray:
        """Draw rows, (n_rows, d), raw counters."""
        weight = np.array([p[0] for p in self.parts])
        which = rng.choice(len(weight), n_rows, p=weight / weight.sum())
        noise = rng.standard_normal((n_rows, self.dimension))
        out = np.empty(noise.shape)
        for i, (_, atoms, values, mean, cov) in enumerate(self.parts):
            rows = np.flatnonzero(which == i)
            out[rows] = np.where(atoms, values, np.exp(mean + noise[rows] @ np.linalg.cholesky(cov).T))
        return out

    def conditional(self, row: np.ndarray, observed: np.ndarray, cube: Cube) -> tuple[np.ndarray, np.ndarray]:
        """Complete ``row`` from every kind and batch that can have shown what was seen."""
        logs, pieces = [], []
        log_row = np.log(np.where(row > 0, row, 1.0))
        for weight, atoms, values, mean, cov in self.parts:
            fits = np.where(atoms, row == values, row > 0)
            fits[self.batch] = row[self.batch] == values[self.batch]
            if not fits[observed].all():
                continue
            o = observed & ~atoms
            log = np.log(weight)
            if o.any():
                lower = np.linalg.cholesky(cov[np.ix_(o, o)])
                white = np.linalg.solve(lower, log_row[o] - mean[o])
                log += -0.5 * white @ white - np.log(np.diag(lower)).sum() - 0.919 * o.sum()
            logs.append(log)
            pieces.append((atoms, values, mean, cov, o))
        chance = np.exp(np.array(logs) - max(logs))
        chance /= chance.sum()
        keep = np.flatnonzero(chance > 1e-5)
        chance = chance[keep] / chance[keep].sum()
        out = np.tile(row, (len(keep), len(cube), 1))
        for i, k in enumerate(keep):
            atoms, values, mean, cov, o = pieces[k]
            out[i][:, atoms & ~observed] = values[atoms & ~observed]
            u = ~atoms & ~observed
            if u.any():
                live = ~atoms
                centre, factor = _gaussian_parts(mean[live], cov[np.ix_(live, live)], log_row[live], o[live])
                out[i][:, u] = np.exp(centre + cube.normals[:, : len(centre)] @ factor.T)
        return out.reshape(-1, self.dimension), np.repeat(chance / len(cube), len(cube))


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


def _cube(d: int, log2_draws: int) -> Cube:
    """Two scramblings, each with its mirror image of the margins: odd moments of a scale mixture then vanish."""
    points = []
    for scramble in (11, 12):
        sobol = qmc.Sobol(d + 1, scramble=True, rng=np.random.default_rng(scramble)).random_base2(log2_draws)
        points += [sobol, np.column_stack([1.0 - sobol[:, :-1], sobol[:, -1]])]
    return Cube(np.clip(np.concatenate(points), 1e-12, 1 - 1e-12))


def true_values(world: World, functions: Sequence[Function], rows: np.ndarray, log2_draws: int = 12) -> np.ndarray:
    """Coalition values v(S), (functions, rows, 2^d), with ``4 * 2**log2_draws`` points for each of them."""
    d = world.dimension
    cube, many = _cube(d, log2_draws), _cube(d, log2_draws + 4)
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
            draws, weights = world.conditional(row, observed, cube if observed.any() else many)
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


def product_energy(x: np.ndarray) -> np.ndarray:
    """Products of two and three counters."""
    c, l3, m, p, v, g, a = np.moveaxis(x, -1, 0)
    return c + 0.8 * c * m + 0.6 * v * g - 0.5 * l3 * p + 0.4 * c * m * a + 0.5 * g * a * p + 0.7 * v


def step_energy(x: np.ndarray) -> np.ndarray:
    """Steps: thresholds of single counters and of pairs."""
    c, l3, m, p, v, g, a = np.moveaxis(x, -1, 0)
    steps = 2.0 * (c > 0.3) + 1.5 * (m > -0.2) * (l3 > 0.0) - 1.2 * (p > 0.5) + 1.0 * (v + g > 0.4)
    return steps + 0.8 * (a > 0.0) * (c > -0.5) + 0.5 * c


def boosted_energy(rows: np.ndarray, seed: int = 0) -> Function:
    """Gradient boosting fitted to noisy readings of the reference function on standardised ``rows``."""
    from sklearn.ensemble import GradientBoostingRegressor

    noise = np.random.default_rng([77, seed]).normal(0.0, 0.3, len(rows))
    model = GradientBoostingRegressor(n_estimators=60, max_depth=3, random_state=seed)
    model.fit(rows, seven_counter_energy(rows) + noise)
    return lambda x: np.asarray(model.predict(x))
