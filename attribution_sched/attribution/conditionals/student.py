"""Mixtures of multivariate t: heavy tails in closed form, with the tails' weight chosen by likelihood.

One expectation maximisation serves here and in the strata: rows Y, and numbers T that the means may follow,

    y | component k, T  ~  t_nu(A_k + T B_k, S_k),        level of the discrete columns | k  ~  categorical,

so that integer counters are exact levels while the other counters still move with them along a line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtr, stdtrit

from attribution_sched.attribution.conditionals.base import Draws, State, pick
from attribution_sched.attribution.conditionals.margins import Margins, fit_margins, student_margins
from attribution_sched.attribution.conditionals.mixture import Components
from attribution_sched.attribution.conditionals.points import Points
from attribution_sched.types import BoolArray, FloatArray

DOF_GRID = np.array([2.2, 2.6, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 11.0, 16.0, 30.0, np.inf])
_ROUNDS = 200
_SETTLED = 1e-5


@dataclass
class Fitted:
    """Parameters of one mixture fitted by :func:`fit_mixture`.

    Attributes:
        weights: (k,).
        levels: (k, n_levels) chance of each level of the discrete columns.
        slopes: (k, 1 + q, c): the mean of Y is ``[1, T] @ slopes``.
        scatters: (k, c, c).
        dof: Degrees of freedom, common to all components; infinite for Gaussians.
        log_likelihood: Of the rows.
        parameters: How many numbers were fitted.
    """

    weights: FloatArray
    levels: FloatArray
    slopes: FloatArray
    scatters: FloatArray
    dof: float
    log_likelihood: float
    parameters: int

    def bic(self, n: int) -> float:
        """Bayesian information criterion."""
        return -2.0 * self.log_likelihood + self.parameters * float(np.log(n))


def fit_mixture(
    y: FloatArray,
    t: FloatArray,
    level: NDArray[np.intp],
    n_levels: int,
    k: int,
    rng: np.random.Generator,
    *,
    tails: bool,
    start: Fitted | None = None,
    prior: tuple[FloatArray, FloatArray] | None = None,
    level_prior: FloatArray | None = None,
) -> Fitted:
    """Expectation maximisation of ``k`` components.

    Args:
        y: (n, c) rows.
        t: (n, q) numbers the means may follow.
        level: (n,) index of the row's level.
        n_levels: Number of levels.
        k: Number of components.
        rng: Source of the start.
        tails: Also choose the degrees of freedom; else Gaussians.
        start: Parameters to start from instead of clusters.
        prior: Slopes (1 + q, c) and scatter (c, c) that small groups are drawn toward, worth a few rows.
        level_prior: (n_levels,) rows that every component's levels start with; default next to none.
    """
    n, c = y.shape
    design = np.column_stack([np.ones(n), t])
    q = design.shape[1]
    times = np.ones(n)
    start_levels = np.full(n_levels, 0.02) if level_prior is None else level_prior
    if start is not None:
        share = _responsibilities(y, design, level, start)[0]
        dof = start.dof
    else:
        share, dof = _clusters(np.column_stack([y, t]), k, rng), 8.0 if tails else np.inf
    worth = c + 2.0
    slopes0 = np.zeros((q, c)) if prior is None else prior[0]
    scatter0 = np.diag(y.var(axis=0) + 1e-9) if prior is None else prior[1]
    floor = 1e-6 * np.diag(y.var(axis=0) + 1e-9)
    ridge = np.diag([0.0 if prior is None else 0.5] + [1e-6 if prior is None else 3.0] * (q - 1))
    spread_t = np.maximum(np.square(design).mean(axis=0), 1e-9)
    heavy = np.ones((n, k))
    last = -np.inf
    fitted = None
    for _ in range(_ROUNDS):
        weight = share * times[:, None]
        mass = weight.sum(axis=0) + 1e-9
        slopes, scatters = np.empty((k, q, c)), np.empty((k, c, c))
        levels = np.tile(start_levels, (k, 1))
        for i in range(k):
            w = weight[:, i] * heavy[:, i]
            gram = design.T @ (design * w[:, None]) + ridge * spread_t
            slopes[i] = np.linalg.solve(
                gram + 1e-9 * np.eye(q), design.T @ (y * w[:, None]) + ridge * spread_t @ slopes0
            )
            off = y - design @ slopes[i]
            pulled = worth if prior is not None else 0.0
            scatters[i] = (off.T @ (off * w[:, None]) + pulled * scatter0) / (mass[i] + pulled) + floor
            levels[i] += np.bincount(level, weight[:, i], n_levels)
        fitted = Fitted(mass / mass.sum(), levels / levels.sum(axis=1, keepdims=True), slopes, scatters, dof, 0.0, 0)
        share, square, total = _responsibilities(y, design, level, fitted)
        if tails:
            fitted.dof = dof = _best_dof(square, fitted, share, times, c)
            share, square, total = _responsibilities(y, design, level, fitted)
            heavy = (dof + c) / (dof + square) if np.isfinite(dof) else np.ones((n, k))
        score = float(times @ total)
        if score - last < _SETTLED * n:
            break
        last = score
    if fitted is None:
        raise RuntimeError("no round of expectation maximisation was run")
    fitted.log_likelihood = float(times @ total)
    fitted.parameters = k * (q * c + c * (c + 1) // 2 + n_levels - 1) + k - 1 + int(np.isfinite(fitted.dof))
    return fitted


def _responsibilities(
    y: FloatArray, design: FloatArray, level: NDArray[np.intp], fitted: Fitted
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Posterior of the components (n, k), squared distances (n, k) and log densities of the rows (n,)."""
    n, c = y.shape
    k = len(fitted.weights)
    square, scale = np.empty((n, k)), np.empty(k)
    for i in range(k):
        lower = np.linalg.cholesky(fitted.scatters[i])
        white = np.linalg.solve(lower, (y - design @ fitted.slopes[i]).T)
        square[:, i] = np.square(white).sum(0)
        scale[i] = -np.log(np.diag(lower)).sum()
    logs = np.log(fitted.weights) + np.log(fitted.levels[:, level]).T + scale + _log_t(square, c, fitted.dof)
    total = np.logaddexp.reduce(logs, axis=1)
    return np.exp(logs - total[:, None]), square, total


def _log_t(square: FloatArray, c: int, dof: float) -> FloatArray:
    if not np.isfinite(dof):
        return np.asarray(-0.5 * square - 0.5 * c * np.log(2 * np.pi))
    front = gammaln((dof + c) / 2) - gammaln(dof / 2) - 0.5 * c * np.log(dof * np.pi)
    return np.asarray(front - 0.5 * (dof + c) * np.log1p(square / dof))


def _best_dof(square: FloatArray, fitted: Fitted, share: FloatArray, times: FloatArray, c: int) -> float:
    """The degrees of freedom on the grid that explain the distances best."""
    score = [float((times[:, None] * share * _log_t(square, c, float(nu))).sum()) for nu in DOF_GRID]
    return float(DOF_GRID[int(np.argmax(score))])


def _clusters(x: FloatArray, k: int, rng: np.random.Generator) -> FloatArray:
    """Hard memberships (n, k) of k-means clusters, the start of expectation maximisation."""
    if k == 1:
        return np.ones((len(x), 1))
    from sklearn.cluster import KMeans

    z = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-12)
    label = KMeans(k, n_init=1, random_state=int(rng.integers(2**31))).fit_predict(z)
    # A little of everything everywhere, so that no component starts without rows.
    return np.asarray(0.95 * np.eye(k)[label] + 0.05 / k)


def grow(
    y: FloatArray,
    t: FloatArray,
    level: NDArray[np.intp],
    n_levels: int,
    sizes: tuple[int, ...],
    rng: np.random.Generator,
    *,
    tails: bool,
    restarts: int = 2,
    prior: tuple[FloatArray, FloatArray] | None = None,
    level_prior: FloatArray | None = None,
) -> Fitted:
    """The number of components, out of ``sizes``, with the best information criterion."""
    best: Fitted | None = None
    worse = 0
    for k in sizes:
        if k > 1 and len(y) < 3 * k * (y.shape[1] + 1):
            break
        tried = [
            fit_mixture(y, t, level, n_levels, k, rng, tails=tails, prior=prior, level_prior=level_prior)
            for _ in range(restarts if k > 1 else 1)
        ]
        best_fit = max(tried, key=lambda f: f.log_likelihood)
        if best is None or best_fit.bic(len(y)) < best.bic(len(y)):
            best, worse = best_fit, 0
        else:
            worse += 1
            if worse == 2:
                break
    if best is None:
        raise RuntimeError("no number of components was tried")
    return best


class StudentConditional:
    """Mixture of multivariate t with a common number of degrees of freedom.

    Args:
        components: Candidate numbers of components.
    """

    kind = "student"

    def __init__(self, components: tuple[int, ...] = (1, 2, 3, 4, 6)) -> None:
        self.components = components
        self.parts = Components(np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0, 0)))

    def fit(self, x: FloatArray, rng: np.random.Generator) -> StudentConditional:
        """Fit every candidate number of components and keep the best."""
        none, zero = np.zeros((len(x), 0)), np.zeros(len(x), dtype=np.intp)
        return self._take(grow(x, none, zero, 1, self.components, rng, tails=True))

    def refit(self, x: FloatArray, rng: np.random.Generator) -> StudentConditional:
        """The same model of other rows, started at this one's components."""
        none, zero = np.zeros((len(x), 0)), np.zeros(len(x), dtype=np.intp)
        twin = StudentConditional(self.components)
        start = Fitted(
            self.parts.weights,
            np.ones((len(self.parts.weights), 1)),
            self.parts.means[:, None, :],
            self.parts.covariances,
            float(self.parts.dof[0]),
            0.0,
            0,
        )
        return twin._take(fit_mixture(x, none, zero, 1, len(start.weights), rng, tails=True, start=start))

    def _take(self, found: Fitted) -> StudentConditional:
        dof = np.full(len(found.weights), found.dof)
        self.parts = Components(found.weights, found.slopes[:, 0], found.scatters, dof)
        return self

    def log_likelihood(self, x: FloatArray, observed: BoolArray) -> FloatArray:
        """Log density of the hidden features given the observed ones, (n,)."""
        return self.parts.log_likelihood(x, observed)

    def draws(self, x: FloatArray, masks: BoolArray, points: Points) -> Draws:
        """Draw the hidden features of every row under every mask jointly."""
        return self.parts.draws(x, masks, points)

    def state(self) -> tuple[dict[str, Any], State]:
        """Settings and arrays that restore the model."""
        return {"components": list(self.components)}, self.parts.arrays()

    @classmethod
    def restore(cls, settings: dict[str, Any], arrays: State) -> StudentConditional:
        """Build the fitted model back."""
        model = cls(tuple(settings["components"]))
        model.parts = Components.of(arrays)
        return model


class StudentCopulaConditional:
    """One t copula behind smooth margins: heavy joint tails whatever the shape of each counter."""

    kind = "copula-student"

    def __init__(self) -> None:
        self.margins = Margins(np.zeros((0, 2)))
        self.parts = Components(np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0, 0)))

    def fit(self, x: FloatArray, rng: np.random.Generator) -> StudentCopulaConditional:
        """Fit the margins, then the degrees of freedom and the scatter of the t scores."""
        normal = fit_margins(x)
        scores = normal.to_scores(x)
        lower = np.clip(ndtr(-np.abs(scores)), 1e-300, 0.5)
        none, zero = np.zeros((len(x), 0)), np.zeros(len(x), dtype=np.intp)
        best, best_fit, correlation = -np.inf, None, np.asarray(np.corrcoef(scores.T))
        for dof in DOF_GRID[2:-1]:
            y = -np.sign(scores) * stdtrit(dof, lower)
            start = Fitted(
                np.ones(1), np.ones((1, 1)), np.zeros((1, 1, x.shape[1])), correlation[None], float(dof), 0, 0
            )
            fitted = _fixed_tail(y, none, zero, start)
            score = fitted.log_likelihood - float(_log_t(np.square(y), 1, float(dof)).sum())
            if score > best:
                best, best_fit = score, fitted
        if best_fit is None:
            raise RuntimeError("no degrees of freedom were tried")
        self.margins = student_margins(normal, best_fit.dof)
        self.parts = Components(best_fit.weights, best_fit.slopes[:, 0], best_fit.scatters, np.full(1, best_fit.dof))
        return self

    def refit(self, x: FloatArray, rng: np.random.Generator) -> StudentCopulaConditional:
        """The same model of other rows."""
        return StudentCopulaConditional().fit(x, rng)

    def log_likelihood(self, x: FloatArray, observed: BoolArray) -> FloatArray:
        """Log density of the hidden features given the observed ones, (n,)."""
        slope = np.where(observed, 0.0, self.margins.log_slope(x)).sum(-1)
        return np.asarray(self.parts.log_likelihood(self.margins.to_scores(x), observed) + slope)

    def draws(self, x: FloatArray, masks: BoolArray, points: Points) -> Draws:
        """Draw t scores and map them back."""
        score_draws = self.parts.draws(self.margins.to_scores(x), masks, points)
        return Draws(self.margins.to_features(score_draws.rows), score_draws.weights)

    def state(self) -> tuple[dict[str, Any], State]:
        """Settings and arrays that restore the model."""
        named = {f"parts.{key}": value for key, value in self.parts.arrays().items()}
        return {"reach": self.margins.reach}, {"table": self.margins.table, **named}

    @classmethod
    def restore(cls, settings: dict[str, Any], arrays: State) -> StudentCopulaConditional:
        """Build the fitted model back."""
        model = cls()
        model.margins = Margins(arrays["table"], float(settings["reach"]), True)
        model.parts = Components.of(pick(arrays, "parts."))
        return model


def _fixed_tail(y: FloatArray, t: FloatArray, level: NDArray[np.intp], start: Fitted) -> Fitted:
    """One t at given degrees of freedom: location and scatter by a few rounds of re-weighting."""
    c, dof = y.shape[1], start.dof
    mean, scatter = np.zeros(c), start.scatters[0]
    for _ in range(30):
        white = np.linalg.solve(np.linalg.cholesky(scatter), (y - mean).T)
        heavy = (dof + c) / (dof + np.square(white).sum(0))
        mean = heavy @ y / heavy.sum()
        off = y - mean
        new = off.T @ (off * heavy[:, None]) / len(y)
        settled = np.abs(new - scatter).max() < 1e-4
        scatter = new
        if settled:
            break
    mixture = Fitted(np.ones(1), np.ones((1, 1)), mean[None, None], scatter[None], dof, 0.0, 0)
    mixture.log_likelihood = float(_responsibilities(y, np.ones((len(y), 1)), level, mixture)[2].sum())
    return mixture
