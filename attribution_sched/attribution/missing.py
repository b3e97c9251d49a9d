"""Counters that cannot be read: the account of a task is its mean over EmSHAP's ``p(x_missing | x_seen)``.

    vector = E[ accounting(X) | x_seen ],       X_missing ~ EmSHAP

With all counters read this is the accounting itself. With some missing, as on every real machine, the fitted
distribution carries them: EmSHAP's joint distribution of the counters per second, the throughput and the mode (as
logarithms, zeros as zeros). The error of a part has what the draws leave open (the missing counters are not known, only
their distribution), widened by one factor so that the 95 % interval held the parts of tasks that were kept back.

A machine misses the same counters of every task. What a mixture needs for one pattern of them (gains, whiteners, the
noise of every component) is worked out once and kept, so that a task costs a few small products.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Self

import numpy as np

from attribution_sched import storage
from attribution_sched.attribution.conditionals.algebra import condition
from attribution_sched.attribution.conditionals.mixture import Components, MixtureConditional, allot
from attribution_sched.attribution.conditionals.points import Points, sobol_points
from attribution_sched.attribution.emshap import EmSHAP
from attribution_sched.attribution.energy_model import EnergyModel
from attribution_sched.errors import ModelFitError, problem
from attribution_sched.stats.interval import quantile
from attribution_sched.types import BoolArray, FloatArray, IntArray

PACE, MODE = "samples_per_s", "training"
"""Columns of the joint distribution beside the counters; the mode only where tasks of both are known."""

UNIT_SHARE = 0.01
"""What counts as one under the logarithm, of a counter's usual value."""

DRAWS, REPLICATES = 32, 1
"""Completed tasks for each question, in mirrored pairs: their own error is a hundredth of what they leave open."""

REACH = 2.0
"""Draws stay within so many times the largest reading ever seen: a logarithm's tail has no machine behind it."""

NEGLIGIBLE = 1e-3
"""A component whose weight given what was read is below this gets no draw."""

MOST_PATTERNS = 600
"""Patterns of missing columns that are kept; more than there are of nine."""

BACKGROUND = 256
"""Rows that are kept of those the distribution was fitted on."""

JUDGED, KEPT_BACK = 400, 5
"""Tasks that are kept back to widen the interval by; of few tasks, one in five."""

LEAST_RUNS = 63
"""Tasks that the distribution needs, those kept back among them."""

LEAST_WIDENING = 0.5
"""Where the tails of the draws are longer than those of tasks, the interval shrinks, down to half."""

NOTHING = 1e-9
"""Share of a task's joules below which a part is none."""


@dataclass(frozen=True, eq=False)
class Completed:
    """One task with its missing counters drawn.

    Attributes:
        counters: (m, d) counters per second; those read are the same in every row.
        samples_per_s: (m,) throughput.
        weights: (m,) adding up to one.
    """

    counters: FloatArray
    samples_per_s: FloatArray
    weights: FloatArray


@dataclass(frozen=True, eq=False)
class _Pattern:
    """What a mixture of Gaussians needs of one pattern of missing columns, for k components, o seen and u missing.

    Attributes:
        seen: (o,) columns.
        missing: (u,) columns.
        means: (k, o) of what is seen.
        whiteners: (k, o, o) whose product with what is seen, less its mean, has unit covariance.
        log_weights: (k,) logarithm of weight and scale.
        centres: (k, u) of what is missing.
        gains: (k, u, o) by which it follows what is seen.
        noise: (k, draws / 2, u) mirrored noise of each component.
    """

    seen: IntArray
    missing: IntArray
    means: FloatArray
    whiteners: FloatArray
    log_weights: FloatArray
    centres: FloatArray
    gains: FloatArray
    noise: FloatArray

    @classmethod
    def of(cls, parts: Components, mask: BoolArray, points: Points) -> Self:
        conditioning = condition(parts.covariances, mask[None])
        o, u = np.flatnonzero(mask), np.flatnonzero(~mask)
        factor = conditioning.factor[:, 0][:, u][:, :, u]
        normals = points.normals[0, : points.n_draws // 2][:, u]
        return cls(
            o, u, parts.means[:, o], conditioning.whitener[:, 0][:, o][:, :, o],
            np.log(parts.weights) + conditioning.log_scale[:, 0],
            parts.means[:, u], conditioning.gain[:, 0][:, u][:, :, o], normals @ np.swapaxes(factor, -1, -2),
        )  # fmt: skip

    def draws(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Missing columns ``(draws, u)`` of one row (d,) and their weights ``(draws,)``."""
        off = z[self.seen] - self.means
        logs = self.log_weights - 0.5 * np.square((self.whiteners @ off[:, :, None])[:, :, 0]).sum(axis=1)
        weight = np.exp(logs - logs.max())
        weight[weight < NEGLIGIBLE * weight.sum()] = 0.0
        weight /= weight.sum()
        live = np.flatnonzero(weight)
        half = self.noise.shape[1]
        if len(live) == 1:
            centre = self.centres[live[0]] + self.gains[live[0]] @ off[live[0]]
            noise = self.noise[live[0]]
            return np.concatenate([centre + noise, centre - noise]), np.full(2 * half, 0.5 / half)
        share = allot(weight[live], half)
        owner = np.repeat(live, share)
        centre = (self.centres + (self.gains @ off[:, :, None])[:, :, 0])[owner]
        noise = self.noise[owner, np.arange(half)]
        each = np.repeat(weight[live] / (2.0 * np.maximum(share, 1)), share)
        return np.concatenate([centre + noise, centre - noise]), np.concatenate([each, each])


@dataclass(frozen=True, eq=False)
class MissingCounters:
    """EmSHAP's joint distribution of counters, throughput and mode, asked for what was not read.

    Attributes:
        explainer: Fitted over the logarithms of counters and throughput, and the mode.
        unit: (d,) counters that count as one under the logarithm.
        most: (d + 1,) largest counters and throughput that a draw may have.
        widening: Factor on the spread of the draws.
        error: Of kept-back tasks with two to four counters missing: mean of Σ|part − its estimate| over Σ part.
    """

    explainer: EmSHAP
    unit: FloatArray
    most: FloatArray
    widening: float = 1.0
    error: float = 0.0
    _points: dict[str, Points] = field(default_factory=dict, repr=False)
    _patterns: dict[bytes, _Pattern] = field(default_factory=dict, repr=False)

    @classmethod
    def fit(
        cls,
        counters: FloatArray,
        samples_per_s: FloatArray,
        training: BoolArray,
        energy: EnergyModel,
        *,
        family: str = "mixture",
        seed: int = 0,
    ) -> Self:
        """Learn the joint distribution on tasks that were read in full, and its interval on some kept back.

        Args:
            counters: (n, d) counters per second.
            samples_per_s: (n,) throughput.
            training: (n,) mode.
            energy: Whose account is to be carried.
            family: Conditional model, as :class:`~attribution_sched.attribution.emshap.EmSHAP` names it.
            seed: Of everything random.
        """
        positive = counters > 0
        usual = np.where(positive, counters, 0.0).sum(0) / np.maximum(positive.sum(0), 1)
        unit = UNIT_SHARE * np.where(usual > 0, usual, 1.0)
        most = REACH * np.append(counters.max(axis=0), samples_per_s.max())
        columns, names = _columns(counters, samples_per_s, training, unit, energy.names)
        # A counter that never moved has no distribution: it is what it always was.
        moved = columns.std(axis=0) > 1e-9 * np.maximum(np.abs(columns).max(axis=0), 1.0)
        if not moved.all():
            rule = "was the same in every task, so nothing can be said where it is missing"
            fixed = [name for name, moves in zip(names, moved, strict=True) if not moves]
            if any(name in (PACE, MODE) for name in fixed):
                raise ModelFitError(problem("column", fixed[0], rule, "Record tasks that differ in it"))
            noise = np.random.default_rng([seed, 5]).standard_normal(columns.shape)
            columns = np.where(moved, columns, columns + 1e-6 * noise)
        judged = np.arange(len(columns)) % max(KEPT_BACK, len(columns) // JUDGED) == 0
        explainer = EmSHAP(family, bootstrap=0, seed=seed).fit(columns[~judged], names, "J/sample")
        # Only the mean of a prediction is taken over them: a few hundred do, and keep the file small.
        explainer.background_ = explainer.background_[:BACKGROUND]
        missing = cls(explainer, unit, most)
        widening, error = missing._judge(counters[judged], samples_per_s[judged], training[judged], energy, seed)
        return cls(explainer, unit, most, widening, error)

    @property
    def has_mode(self) -> bool:
        """Whether the mode is one of the columns."""
        return MODE in self.explainer.names_

    def complete(self, counters: FloatArray, samples_per_s: float, training: bool) -> Completed:
        """Draw what is missing of one task.

        Args:
            counters: (d,) counters per second, NaN where missing.
            samples_per_s: Throughput; NaN if nobody measured it.
            training: Its mode.
        """
        d = len(counters)
        row = np.empty((1, len(self.explainer.names_)))
        np.log1p(counters / self.unit, out=row[0, :d])
        row[0, d] = np.log(samples_per_s)
        if self.has_mode:
            row[0, d + 1] = training
        mask = np.isfinite(row)
        scale = self.explainer.scale_
        z = scale.standardise(np.where(mask, row, scale.mean))
        model = self.explainer.model_
        if isinstance(model, MixtureConditional) and mask.any():
            pattern = self._pattern(model.parts, mask[0])
            samples, weights = pattern.draws(z[0])
            rows = np.empty((len(samples), row.shape[1]))
            rows[:, pattern.missing] = samples
        else:
            draws = model.draws(z, mask, self._net(row.shape[1]))
            rows = draws.rows.reshape(-1, row.shape[1]).copy()
            weights = np.full(len(rows), 1.0 / len(rows))
            if draws.weights is not None:
                weights = np.maximum(draws.weights.reshape(-1), 0.0)
                weights = weights / weights.sum()
        rates, pace = np.empty((len(rows), d)), np.full(len(rows), samples_per_s)
        rates[:] = counters
        unread = np.flatnonzero(~mask[0, :d])
        back = rows[:, unread] * scale.spread[unread] + scale.mean[unread]
        rates[:, unread] = np.minimum(np.expm1(np.maximum(back, 0.0)) * self.unit[unread], self.most[unread])
        if not mask[0, d]:
            pace = np.minimum(np.exp(rows[:, d] * scale.spread[d] + scale.mean[d]), self.most[d])
        return Completed(rates, pace, weights)

    def _pattern(self, parts: Components, mask: BoolArray) -> _Pattern:
        key = mask.tobytes()
        if key not in self._patterns:
            if len(self._patterns) >= MOST_PATTERNS:
                self._patterns.clear()
            self._patterns[key] = _Pattern.of(parts, mask, self._net(len(mask)))
        return self._patterns[key]

    def account(
        self, energy: EnergyModel, counters: FloatArray, samples_per_s: float, training: bool
    ) -> tuple[FloatArray, float, FloatArray, Completed]:
        """Mean account of a task some of whose counters were not read.

        Returns:
            Parts (d,), idle joules, standard errors of the parts (d,), and the completed tasks behind them.
        """
        mean, idle, opened, model, completed = self._mean(energy, counters, samples_per_s, training)
        return mean, idle, np.sqrt(self.widening**2 * opened + model), completed

    def _mean(
        self, energy: EnergyModel, counters: FloatArray, samples_per_s: float, training: bool
    ) -> tuple[FloatArray, float, FloatArray, FloatArray, Completed]:
        """Mean parts, idle joules, variance that the draws leave open (their own error in it), model's, the draws."""
        completed = self.complete(counters, samples_per_s, training)
        x, weights = completed.counters / completed.samples_per_s[:, None], completed.weights
        # A throughput that was measured is the same in every draw: prices are worked out once.
        pace = np.array([samples_per_s]) if np.isfinite(samples_per_s) else completed.samples_per_s
        mean, idle, opened, model = energy.expected(x, weights, pace, training)
        sampling = float(np.square(weights).sum())
        return mean, idle, np.maximum(opened, 0.0) * (1.0 + sampling), model, completed

    def save(self, path: str | Path) -> None:
        """Write EmSHAP's file, and what belongs to it in a JSON file beside it."""
        self.explainer.save(path)

    def as_dict(self) -> dict[str, Any]:
        """What EmSHAP's own file does not have, ready for JSON."""
        # The net too: making it loads a library for half a second, which the first task would wait for.
        net = self._net(len(self.explainer.names_)).uniforms[0, : DRAWS // 2]
        return {
            "unit": self.unit.tolist(), "most": self.most.tolist(), "widening": self.widening, "error": self.error,
            "net": net.tolist(),
        }  # fmt: skip

    @classmethod
    def load(cls, path: str | Path, told: dict[str, Any]) -> Self:
        """Read what :meth:`save` and :meth:`as_dict` wrote."""
        with storage.rebuilding(path, "joint distribution of the counters"):
            unit, most = np.array(told["unit"], dtype=np.float64), np.array(told["most"], dtype=np.float64)
            missing = cls(EmSHAP.load(path), unit, most, float(told["widening"]), float(told["error"]))
            if "net" in told:
                net = np.array(told["net"], dtype=np.float64)
                if (
                    net.shape != (DRAWS // 2, len(missing.explainer.names_) + 1)
                    or not ((net > 0.0) & (net < 1.0)).all()
                ):
                    raise ValueError(f"a net of {net.shape} instead of {DRAWS // 2} points inside the unit cube")
                missing._points["net"] = Points(np.concatenate([net, 1.0 - net])[None])
            return missing

    def _net(self, d: int) -> Points:
        if "net" not in self._points:
            rng = np.random.default_rng([self.explainer.seed, 7])
            self._points["net"] = sobol_points(DRAWS, d, REPLICATES, rng)
        return self._points["net"]

    def _judge(
        self, counters: FloatArray, samples_per_s: FloatArray, training: BoolArray, energy: EnergyModel, seed: int
    ) -> tuple[float, float]:
        """Widening that makes ±1.96 errors hold 95 % of kept-back parts, and the mean error of the account."""
        rng = np.random.default_rng([seed, 6])
        truth = energy.parts(counters / samples_per_s[:, None], samples_per_s, training)
        off, ratio, d = [], [], counters.shape[1]
        for row in range(len(counters)):
            partial = counters[row].copy()
            partial[rng.permutation(d)[: rng.integers(2, 5)]] = np.nan
            # Only what the draws leave open is judged here: both sides have the same energy model.
            mean, _, opened, _, _ = self._mean(energy, partial, float(samples_per_s[row]), bool(training[row]))
            away = np.abs(mean - truth[row])
            off.append(away.sum() / truth[row].sum())
            unread = np.isnan(partial)
            ratio += list(away[unread] / np.maximum(np.sqrt(opened[unread]), NOTHING * truth[row].sum()))
        return max(LEAST_WIDENING, float(np.quantile(ratio, 0.95)) / quantile(inf, 0.975)), float(np.mean(off))


def _columns(
    counters: FloatArray,
    samples_per_s: FloatArray,
    training: BoolArray,
    unit: FloatArray,
    names: tuple[str, ...],
) -> tuple[FloatArray, tuple[str, ...]]:
    """Columns of the joint distribution, ``(n, d + 1)`` or ``(n, d + 2)``, and their names."""
    columns = [np.log1p(counters / unit), np.log(samples_per_s)[:, None]]
    both = len(np.unique(training)) == 2
    if both:
        columns.append(training.astype(np.float64)[:, None])
    return np.hstack(columns), (*names, PACE, *((MODE,) if both else ()))
