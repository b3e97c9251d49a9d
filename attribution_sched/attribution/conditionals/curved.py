"""Curved dependence: counters that bend with others, by splines, and a closed form for what is left.

In an order of the features, ``u_j = x_j - g_j(x_before)`` with natural cubic splines and products chosen by the
Bayesian information criterion beside lines of the u before. The map has unit Jacobian, so ``p(x) = p_u(u(x))``, and
p_u, a mixture, keeps what is linear. Conditionals of p have no
closed form, so draws come from a mixture q fitted to a large sample of p, and are weighed by p/q.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from attribution_sched.attribution.conditionals.base import Draws, State, pick
from attribution_sched.attribution.conditionals.mixture import Components, _fit_em
from attribution_sched.attribution.conditionals.points import Points, sobol_points
from attribution_sched.attribution.conditionals.student import grow
from attribution_sched.errors import ModelFitError, problem
from attribution_sched.types import BoolArray, FloatArray

KNOTS = (8, 16)
"""Knots of a wide and of a fine spline, between the outermost quantiles below: a wave or a kink takes the fine one."""

OUTERMOST = (0.02, 0.003)
SAMPLE = 12_000
"""Rows of p that q is fitted to."""

LEAST_EFFECTIVE_SHARE = 0.15
PARTITION_DRAWS = 256
JUDGING_DRAWS = 4096


@dataclass(frozen=True)
class Bend:
    """How one feature follows those before it.

    Attributes:
        feature: Its column.
        bent: Columns it follows along a spline; d more for a fine one.
        products: Pairs of columns whose product it follows.
        slopes: Coefficients of the splines and products.
    """

    feature: int
    bent: tuple[int, ...]
    products: tuple[tuple[int, int], ...]
    slopes: FloatArray


class CurvedConditional:
    """Spline bends in a chosen order, a mixture of what is left, importance-weighted draws.

    Args:
        components: Numbers of components tried for what is left.
        proposal: Components of the mixture that draws come from.
    """

    kind = "curved"

    def __init__(self, components: tuple[int, ...] = (1, 2, 3, 4, 6), proposal: int = 32) -> None:
        self.components = components
        self.proposal = proposal
        self.knots: list[FloatArray] = []
        self.bends: list[Bend] = []
        self.order: list[int] = []
        self.rest = Components(np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0, 0)))
        self.parts = self.rest
        self.effective_share = 1.0

    @property
    def kept(self) -> bool:
        """Whether any bend earned its place; if not, a plain mixture says the same."""
        return any(b.bent or b.products for b in self.bends)

    @property
    def reliable(self) -> bool:
        """Whether the weighted draws still are worth a fair share of equal ones."""
        return self.effective_share > LEAST_EFFECTIVE_SHARE

    def fit(self, x: FloatArray, rng: np.random.Generator) -> CurvedConditional:
        """Choose the order and the bends, then fit what is left and the proposal."""
        self.knots = [
            np.quantile(x, np.linspace(edge, 1.0 - edge, count), axis=0).T.copy()
            for count, edge in zip(KNOTS, OUTERMOST, strict=True)
        ]
        tied = np.flatnonzero(np.any([knots[:, -1] <= knots[:, -2] for knots in self.knots], axis=0))
        if len(tied):
            # A spline has no slope between equal knots.
            rule = "takes its largest value too often for a curve"
            fix = "Use model='auto' or 'strata', which know of atoms"
            raise ModelFitError(problem("counter", int(tied[0]), rule, fix))
        order = self._order(x)
        u = x.copy()
        self.bends = []
        for i, j in enumerate(order):
            bend = self._bend(x, u, order[:i], j)
            if bend.bent or bend.products:
                self.bends.append(bend)
                u[:, j] -= self._basis(x, bend.bent, bend.products) @ bend.slopes
        self.order = order
        return self._finish(x, rng, None)

    def refit(self, x: FloatArray, rng: np.random.Generator) -> CurvedConditional:
        """The same bends and numbers of components for other rows; only their coefficients are new."""
        twin = CurvedConditional((len(self.rest.weights),), self.proposal)
        twin.knots = self.knots
        twin.order = self.order
        u = x.copy()
        for b in self.bends:
            before = self.order[: self.order.index(b.feature)]
            basis = twin._basis(x, b.bent, b.products)
            slopes = _solve(np.column_stack([np.ones(len(x)), u[:, before], basis]), x[:, b.feature])
            twin.bends.append(Bend(b.feature, b.bent, b.products, slopes[1 + len(before) :]))
            u[:, b.feature] -= basis @ twin.bends[-1].slopes
        return twin._finish(x, rng, self.parts)

    def _finish(self, x: FloatArray, rng: np.random.Generator, start: Components | None) -> CurvedConditional:
        u = self._straighten(x)
        n = len(x)
        residuals = grow(u, np.zeros((n, 0)), np.zeros(n, dtype=np.intp), 1, self.components, rng, tails=True)
        dof = np.full(len(residuals.weights), residuals.dof)
        self.rest = Components(residuals.weights, residuals.slopes[:, 0], residuals.scatters, dof)
        sample = self._sample(SAMPLE if start is None else SAMPLE // 3, rng)
        # The rows themselves too: where p is too narrow, q still covers what happened.
        model = _fit_em(np.concatenate([sample, x]), self.proposal, rng, 1, start, rounds=60 if start is None else 4)
        self.parts = Components(model.weights_, model.means_, model.covariances_)
        points = sobol_points(JUDGING_DRAWS, x.shape[1], 1, np.random.default_rng(0))
        score_draws = self.parts.draws(x[:1], np.zeros((1, x.shape[1]), dtype=bool), points)
        log = self._log_ratio(score_draws.rows.reshape(-1, x.shape[1]))
        weight = np.exp(log - log.max())
        if score_draws.weights is not None:
            weight = weight * score_draws.weights.reshape(-1)
        self.effective_share = float(weight.sum() ** 2 / np.square(weight).sum() / len(weight))
        return self

    def log_joint(self, x: FloatArray) -> FloatArray:
        """Log density of whole rows (n, d)."""
        return self.rest.log_joint(self._straighten(x))

    def log_likelihood(self, x: FloatArray, observed: BoolArray) -> FloatArray:
        """Log density of the hidden features given the observed ones, (n,)."""
        points = sobol_points(PARTITION_DRAWS, x.shape[1], 1, np.random.default_rng(0))
        out = self.parts.log_likelihood(x, observed) + self._log_ratio(x)
        patterns, which = np.unique(observed, axis=0, return_inverse=True)
        for p in range(len(patterns)):
            rows = np.flatnonzero(which.ravel() == p)
            draws = self.parts.draws(x[rows], patterns[p : p + 1], points)
            log = self._log_ratio(draws.rows.reshape(-1, x.shape[1])).reshape(draws.rows.shape[:-1])
            top = log.max(axis=-1, keepdims=True)
            out[rows] -= (np.log(draws.mean(np.exp(log - top))) + top[..., 0])[:, 0, 0]
        return np.asarray(out)

    def draws(self, x: FloatArray, masks: BoolArray, points: Points) -> Draws:
        """Draws of the proposal, weighed by p/q and normalised within each replicate."""
        rows = np.empty((len(x), len(masks), points.replicates, points.n_draws, x.shape[1]))
        weights = np.empty(rows.shape[:-1])
        for i in range(len(x)):
            score_draws = self.parts.draws(x[i : i + 1], masks, points)
            log = self._log_ratio(score_draws.rows.reshape(-1, x.shape[1])).reshape(weights.shape[1:])
            weight = np.exp(log - log.max(axis=-1, keepdims=True))
            if score_draws.weights is not None:
                weight *= score_draws.weights[0]
            weights[i] = weight / weight.sum(axis=-1, keepdims=True)
            rows[i] = score_draws.rows[0]
        return Draws(rows, weights)

    def state(self) -> tuple[dict[str, Any], State]:
        """Settings and arrays that restore the model."""
        bends = [[b.feature, list(b.bent), [list(p) for p in b.products]] for b in self.bends]
        settings = {
            "components": list(self.components),
            "proposal": self.proposal,
            "bends": bends,
            "order": self.order,
            "effective_share": self.effective_share,
        }
        arrays: State = {f"knots{i}": knots for i, knots in enumerate(self.knots)}
        for name, parts in (("rest", self.rest), ("parts", self.parts)):
            arrays |= {f"{name}.{key}": value for key, value in parts.arrays().items()}
        return settings, arrays | {f"slopes{i}": b.slopes for i, b in enumerate(self.bends)}

    @classmethod
    def restore(cls, settings: dict[str, Any], arrays: State) -> CurvedConditional:
        """Build the fitted model back."""
        model = cls(tuple(settings["components"]), int(settings["proposal"]))
        model.knots = [arrays[f"knots{i}"] for i in range(len(KNOTS))]
        model.order = list(settings["order"])
        model.effective_share = float(settings["effective_share"])
        model.bends = [
            Bend(int(j), tuple(bent), tuple((int(a), int(b)) for a, b in prod), arrays[f"slopes{i}"])
            for i, (j, bent, prod) in enumerate(settings["bends"])
        ]
        model.rest, model.parts = (Components.of(pick(arrays, f"{name}.")) for name in ("rest", "parts"))
        return model

    def _log_ratio(self, x: FloatArray) -> FloatArray:
        """Log p - log q of whole rows (n, d)."""
        return self.log_joint(x) - self.parts.log_joint(x)

    def _straighten(self, x: FloatArray) -> FloatArray:
        """What is left of rows (n, d) when every feature's bend is taken off."""
        u = x.copy()
        for b in self.bends:
            u[:, b.feature] -= self._basis(x, b.bent, b.products) @ b.slopes
        return u

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Rows of p: what is left is drawn at once, then every feature is bent, in order."""
        k = rng.choice(len(self.rest.weights), n, p=self.rest.weights)
        z = rng.standard_normal((n, self.rest.means.shape[1]))
        z = np.einsum("nij,nj->ni", np.linalg.cholesky(self.rest.covariances)[k], z)
        dof = self.rest.dof[k]
        heavy = np.isfinite(dof)
        z[heavy] *= np.sqrt(dof[heavy] / rng.chisquare(np.where(heavy, dof, 1.0)[heavy]))[:, None]
        x = self.rest.means[k] + z
        for b in self.bends:
            x[:, b.feature] += self._basis(x, b.bent, b.products) @ b.slopes
        return np.asarray(x)

    def _order(self, x: FloatArray) -> list[int]:
        """Drivers before followers: features in the order that lets the most be gained by bending, greedily."""
        d = x.shape[1]
        gain = np.zeros((d, d))
        for i in range(d):
            straight = np.column_stack([np.ones(len(x)), x[:, i]])
            bent = np.column_stack([straight, self._basis(x, (i,), ())])
            plain = _left(straight, x)
            gain[i] = 0.5 * np.log(plain / np.minimum(_left(bent, x), plain))
        gain = np.where(gain * len(x) > 2.0 * np.log(len(x)), gain, 0.0)
        np.fill_diagonal(gain, 0.0)
        order = list(np.argsort(-(gain.sum(1) - gain.sum(0)), kind="stable"))
        return _improve([int(j) for j in order], gain)

    def _bend(self, x: FloatArray, u: FloatArray, before: list[int], j: int) -> Bend:
        """Beside lines of all u before, splines and products while the information criterion falls."""
        bent: tuple[int, ...] = ()
        products: tuple[tuple[int, int], ...] = ()
        n = len(x)
        lines = np.column_stack([np.ones(n), u[:, before]])

        def bic(bent: tuple[int, ...], products: tuple[tuple[int, int], ...]) -> float:
            design = np.column_stack([lines, self._basis(x, bent, products)])
            return float(n * np.log(_left(design, x[:, j : j + 1])[0]) + design.shape[1] * np.log(n))

        best = bic(bent, products)
        while True:
            d = x.shape[1]
            parents = {i % d for i in bent}
            options = [((*bent, i + d * fine), products) for i in before if i not in parents for fine in range(2)]
            options += [(bent, (*products, pair)) for pair in combinations(before, 2) if pair not in products]
            scores = [bic(*option) for option in options]
            if not scores or min(scores) >= best - 2.0:
                break
            best = min(scores)
            bent, products = options[int(np.argmin(scores))]
        slopes = _solve(np.column_stack([lines, self._basis(x, bent, products)]), x[:, j])
        return Bend(j, bent, products, slopes[lines.shape[1] :])

    def _basis(self, x: FloatArray, bent: tuple[int, ...], products: tuple[tuple[int, int], ...]) -> FloatArray:
        """Columns of the splines, each with its line, and of the products."""
        d = x.shape[1]
        columns = [c for i in bent for c in (x[:, i % d], *_natural(x[:, i % d], self.knots[i // d][i % d]))]
        # Products are bounded at three deviations, or a tail draw would be bent out of all proportion.
        columns += [np.clip(x[:, a], -3, 3) * np.clip(x[:, b], -3, 3) for a, b in products]
        return np.column_stack(columns) if columns else np.zeros((len(x), 0))


def _natural(v: FloatArray, knots: FloatArray) -> list[FloatArray]:
    """Natural cubic spline basis without its line: linear beyond the outer knots."""
    scale = (knots[-1] - knots[0]) ** 2
    beyond = np.maximum(v - knots[-1], 0.0)
    last = beyond * beyond * beyond

    def cubic(k: int) -> FloatArray:
        above = np.maximum(v - knots[k], 0.0)
        return np.asarray((above * above * above - last) / (knots[-1] - knots[k]))

    end = cubic(len(knots) - 2)
    return [np.asarray((cubic(k) - end) / scale) for k in range(len(knots) - 2)]


def _solve(design: FloatArray, y: FloatArray) -> FloatArray:
    gram = design.T @ design
    return np.asarray(np.linalg.solve(gram + 1e-6 * np.diag(np.diag(gram) + 1e-9), design.T @ y))


def _left(design: FloatArray, y: FloatArray) -> FloatArray:
    """Mean squared residual of each column of y (n, m) on the design."""
    return np.asarray(np.square(y - design @ _solve(design, y)).mean(axis=0))


def _improve(order: list[int], gain: FloatArray) -> list[int]:
    """Move single features while the total gain of those before others grows."""

    def total(o: list[int]) -> float:
        return float(sum(gain[a, b] for i, a in enumerate(o) for b in o[i + 1 :]))

    best = total(order)
    improved = True
    while improved:
        improved = False
        for j in list(order):
            rest = [k for k in order if k != j]
            for place in range(len(order)):
                trial = [*rest[:place], j, *rest[place:]]
                if total(trial) > best + 1e-9:
                    order, best, improved = trial, total(trial), True
    return order
