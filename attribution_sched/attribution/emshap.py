"""EmSHAP: conditional Shapley values of an energy prediction over correlated counters.

``v(S) = E[f(X) | x_S]`` under a learnt joint distribution of the counters, and
``phi_j = sum_S |S|! (d-|S|-1)! / d! [v(S + j) - v(S)]``. The base is E[f(X)] under the same distribution (with heavy
tails the mean over the training rows is several times farther from the truth, and its error would be in every
contribution) and the full coalition is f(x) itself, so base and contributions add up to the prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from attribution_sched import storage
from attribution_sched.attribution.checks import as_rows, check_training, match_rows, predictor
from attribution_sched.attribution.conditionals.atoms import find_atoms
from attribution_sched.attribution.conditionals.base import Conditional
from attribution_sched.attribution.conditionals.catalogue import KINDS, restore
from attribution_sched.attribution.conditionals.points import Points, sobol_points
from attribution_sched.attribution.progress import Tick, progress_bar
from attribution_sched.attribution.selection import EXACT_LIMIT, choose, energy_over, fit_chosen, rivals, search
from attribution_sched.attribution.uncertainty import Uncertainty
from attribution_sched.attribution.vector import AttributionVector
from attribution_sched.errors import ModelFitError, nearest, problem
from attribution_sched.shapley.exact import all_coalitions, shapley_matrix
from attribution_sched.shapley.regression import kernel_plan, kernel_values, least_pairs
from attribution_sched.types import BoolArray, FloatArray

# ------ Coalition values: ``v(S) = E[f(X) | x_S]``, averaged over joint conditional draws in bounded blocks

Predict = Callable[[FloatArray], FloatArray]

BLOCK_ROWS = 2**17
"""Completed rows handed to the energy model at a time; keeps the working set near the cache."""


@dataclass(frozen=True)
class Scale:
    """Affine map between raw counters and the standardised rows the models see.

    Attributes:
        mean: (d,) training means.
        spread: (d,) training standard deviations.
    """

    mean: FloatArray
    spread: FloatArray

    def standardise(self, x: FloatArray) -> FloatArray:
        """Raw counters to standardised ones."""
        return np.asarray((x - self.mean) / self.spread)

    def restore(self, z: FloatArray) -> FloatArray:
        """Standardised counters to raw ones, in place."""
        z *= self.spread
        z += self.mean
        return z


def exact_scale(rows: FloatArray) -> Scale:
    """Standardise rows (n, d); columns with atoms by a power of two alone, which keeps atoms bit for bit."""
    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    exact = np.array([len(c.atoms) > 0 or c.grid is not None for c in find_atoms(rows)])
    return Scale(np.where(exact, 0.0, mean), np.where(exact, 2.0 ** np.round(np.log2(spread)), spread))


def coalition_values(
    model: Conditional, scale: Scale, predict: Predict, x: FloatArray, masks: BoolArray, points: Points
) -> FloatArray:
    """Value of every coalition for every row and replicate, (n_rows, n_masks, replicates).

    Args:
        model: Fitted conditional model of the standardised counters.
        scale: Standardisation of the counters.
        predict: Energy model on raw rows.
        x: (n_rows, d) raw rows.
        masks: (n_masks, d), True where observed.
        points: Quasi-random points, the same for every row, so that no row depends on its batch.
    """
    each = points.replicates * points.n_draws
    out = np.empty((len(x), len(masks), points.replicates))
    z = scale.standardise(x)
    mask_step = max(1, min(len(masks), BLOCK_ROWS // each))
    row_step = max(1, BLOCK_ROWS // (each * mask_step))
    for m in range(0, len(masks), mask_step):
        chosen = masks[m : m + mask_step]
        for r in range(0, len(x), row_step):
            draws = model.draws(z[r : r + row_step], chosen, points)
            rows = scale.restore(draws.rows)
            # Standardising and back costs the last bits; the observed counters are the row's own.
            visible = x[r : r + row_step, None, None, None, :]
            np.copyto(rows, visible, where=chosen[None, :, None, None, :])
            answer = predict(rows.reshape(-1, x.shape[1]))
            out[r : r + row_step, m : m + mask_step] = draws.mean(answer.reshape(rows.shape[:-1]))
    return out


# ------ EmSHAP: conditional Shapley values of an energy prediction over correlated counters

IntArray = NDArray[np.intp]

ROWS_THEMSELVES = ("marginal", "empirical", "regression")
"""Models whose E[f(X)] is the mean over the training rows."""

BASE_DRAWS = 4096
"""Points that the base is taken over, once for all rows."""

REFIT_DRAWS, REFIT_REPLICATES = 64, 4
"""Draws, and regressions where coalitions are sampled, by which refits are compared."""

UNEVEN_DRAWS = dict.fromkeys(("energy", "energy-mixture", "curved", "strata-student"), 256)
UNEVEN_DRAWS |= dict.fromkeys(("student", "copula-student"), 512)
"""Long tails, uneven weights: the same error takes twice the draws and more."""

PROPOSALS = ("auto", "closed", "mlp", "gru")


class EmSHAP:
    """Conditional Shapley attribution with a learnt distribution of the counters.

    Args:
        model: ``auto`` fits several families and keeps the best by held-out conditional likelihood. Or one of them:
            ``gaussian``, ``mixture``, ``copula``, ``copula-mixture`` (closed forms), ``neural`` (autoregressive
            network), ``energy`` (energy network over a proposal), and the rivals ``marginal`` and ``empirical``.
        proposal: Under the energy or in the neural model: ``closed`` (a copula or a mixture, the default of
            ``energy``), ``mlp`` (the default of ``neural``), or ``gru``, the paper's network;
            ``EmSHAP(proposal="gru")`` is the paper's method, an energy over a GRU proposal.
        n_draws: Conditional draws for each coalition in one replicate, even; default 128 for the closed forms
            (more above 16 features, with tails and with weights), 64 for the paper's networks.
        replicates: Independent scramblings, whose spread gives the sampling error.
        bootstrap: Refits of the chosen model on resampled rows, whose spread gives the model's error; 0 leaves the
            intervals with the sampling error alone.
        n_coalitions: Coalitions sampled when there are more than 12 features.
        held_out: Share of rows that ``auto`` judges its candidates on.
        nonnegative: Refuse predictions below zero, as for an energy.
        progress: Show a progress bar while fitting.
        seed: Seed of everything random; the same seed gives the same result.

    Attributes:
        model_: The fitted conditional model.
        names_: Column names.
        units_: Unit of the predictions.
        scores_: Held-out conditional log likelihood of each candidate (``auto`` only), atoms by probability.
        squared_errors_: Held-out squared error of ``E[f | x_S]`` of each candidate, in variances of f (``auto`` only).
        uncertainty_: The models whose spread is the model's error.
    """

    def __init__(
        self,
        model: str = "auto",
        *,
        proposal: str = "auto",
        n_draws: int | None = None,
        replicates: int = 4,
        bootstrap: int = 8,
        n_coalitions: int = 4096,
        held_out: float = 0.2,
        nonnegative: bool = False,
        progress: bool = False,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.proposal = proposal
        self.n_draws = n_draws
        self.replicates = replicates
        self.bootstrap = bootstrap
        self.n_coalitions = n_coalitions
        self.held_out = held_out
        self.nonnegative = nonnegative
        self.progress = progress
        self.seed = seed

    def fit(self, X: Any, names: Any = None, units: str = "J", *, f: Any = None) -> Self:
        """Learn the joint distribution of the counters.

        Args:
            X: (n, d) rows of counters, at least 50, finite, no constant or repeated column.
            names: Column names; a data frame brings its own.
            units: Unit of the predictions to be explained.
            f: The energy model that will be explained, where it is known already: ``auto`` then breaks ties by the
                held-out squared error of ``E[f | x_S]``; else by that of a panel of simple functions.
        """
        self._check_settings()
        rows, self.names_ = as_rows(X, names)
        check_training(rows, self.names_)
        self.units_ = units
        self.background_ = rows
        self.scale_ = exact_scale(rows)
        z = self.scale_.standardise(rows)
        rng = np.random.default_rng(self.seed)
        self.scores_: dict[str, float] = {}
        self.squared_errors_: dict[str, float] = {}
        with progress_bar(self.progress) as tick:
            kind, rivals = self._kind(z, rng, tick, f)
            self.model_ = fit_chosen(kind, z, rng, tick, self._origin())
            self.uncertainty_ = Uncertainty.of(self.model_, z, self.bootstrap, rivals, rng)
        return self

    def attribute(self, f: Any, X: Any, *, seed: int | None = None) -> AttributionVector:
        """Attribute the predictions of ``f`` at rows ``X`` to the counters.

        Args:
            f: Function of rows (n, d), or an object with ``predict``.
            X: One row (d,) or rows (n, d), or a data frame with the fitted columns.
            seed: Another seed of the quasi-random points, to see the sampling error; default the estimator's.

        Returns:
            Contributions with standard errors; one vector (d,) for a single row.
        """
        self._check_fitted()
        rows, alone = match_rows(X, self.names_)
        predict = predictor(f, self.names_, self.nonnegative)
        outcomes = predict(self.background_)
        full = predict(rows)
        seed = self.seed if seed is None else seed
        exact = len(self.names_) <= EXACT_LIMIT
        base = self._base(self.model_, predict, float(outcomes.mean()))
        phi, error, degrees = self._shapley(predict, rows, outcomes, base, full, seed)
        pick = 0 if alone else slice(None)
        provenance = {
            "coalitions": "exact" if exact else "sampled",
            "n_coalitions": 2 ** len(self.names_) if exact else self.n_coalitions,
            "draws": self._draw_count() * (self.replicates if exact else 1),
            "replicates": self.replicates,
            "bootstrap": len(self.uncertainty_.models),
            "error": "sampling and model" if self.uncertainty_.models else "sampling",
            "degrees_of_freedom": degrees,
            "seed": seed,
            "model": self.model_.kind,
            "chosen_by": (
                "held-out conditional likelihood, ties by squared error of E[f | x_S]"
                if self.model == "auto" and self.scores_
                else "user"
            ),
        }
        return AttributionVector(
            phi[pick],
            self.names_,
            base,
            full[pick],
            error[pick],
            self.units_,
            f"emshap({self.model_.kind})",
            provenance,
        )

    def values(self, f: Any, X: Any, masks: BoolArray, *, seed: int | None = None) -> FloatArray:
        """Coalition values ``E[f | x_S]`` for masks (n_masks, d), averaged over replicates: (n_rows, n_masks)."""
        self._check_fitted()
        rows, _ = match_rows(X, self.names_)
        predict = predictor(f, self.names_, self.nonnegative)
        points = self._points(np.random.default_rng([self.seed if seed is None else seed, 1]))
        return np.asarray(coalition_values(self.model_, self.scale_, predict, rows, masks, points).mean(-1))

    def sample(self, n_rows: int, *, seed: int | None = None) -> FloatArray:
        """Rows of counters drawn from the fitted joint distribution, (n_rows, d), in raw units."""
        self._check_fitted()
        d = len(self.names_)
        rng = np.random.default_rng([self.seed if seed is None else seed, 2])
        points = sobol_points(n_rows + n_rows % 2, d, 1, rng)
        draws = self.model_.draws(np.zeros((1, d)), np.zeros((1, d), dtype=bool), points)
        rows = self.scale_.restore(draws.rows[0, 0, 0].copy())
        if draws.weights is not None:
            weight = draws.weights[0, 0, 0]
            rows = rows[rng.choice(len(rows), len(rows), p=weight / weight.sum())]
        return np.asarray(rows[:n_rows])

    def conditional_draws(self, X: Any, n_draws: int = 64, *, seed: int | None = None) -> FloatArray:
        """Rows completed from ``p(x_missing | x_seen)``; what could not be read is NaN.

        Every row may miss other counters; a row that misses none comes back ``n_draws`` times, one that misses all is
        drawn from the joint distribution. What was read is kept bit for bit. A row's draws do not depend on the
        rows beside it, and rows that miss the same counters share their quasi-random points, so differences between
        them are not noise.

        Args:
            X: One row (d,), rows (n, d), or a data frame with the fitted columns.
            n_draws: Draws of equal weight for each row; a power of two is best.
            seed: Another seed of the points; default the estimator's.

        Returns:
            (n_rows, n_draws, d) in raw units; (n_draws, d) for a single row.
        """
        rows, alone = self._incomplete(X)
        self._check_draws(n_draws)
        out = np.repeat(rows[:, None, :], n_draws, axis=1)
        for which, draws, weights in self._completed(rows, n_draws, seed):
            if weights is not None:
                # Systematic resampling: every draw is repeated in proportion to its weight, up to one.
                place = (np.arange(n_draws) + 0.5) / n_draws
                top = np.cumsum(np.maximum(weights, 0.0), axis=-1)
                pick = np.stack([np.searchsorted(t / t[-1], place) for t in top])
                draws = np.take_along_axis(draws, np.minimum(pick, draws.shape[1] - 1)[..., None], axis=1)
            out[which] = draws[:, :n_draws]
        return np.asarray(out[0] if alone else out)

    def conditional_mean(self, f: Any, X: Any, n_draws: int = 256, *, seed: int | None = None) -> FloatArray:
        """``E[f(X) | x_seen]`` for rows with missing counters (NaN), f of one number or of several a row.

        It weighs the draws where the model does, so it is a little more exact than a mean over
        :meth:`conditional_draws`.

        Args:
            f: Function of complete rows (m, d) that returns (m,) or (m, k); say an accounting of joules.
            X: One row (d,), rows (n, d), or a data frame with the fitted columns.
            n_draws: Draws for each row.
            seed: Another seed of the points; default the estimator's.

        Returns:
            (n_rows,) or (n_rows, k); without the first axis for a single row.
        """
        rows, alone = self._incomplete(X)
        self._check_draws(n_draws)
        out: FloatArray | None = None
        for which, draws, weights in self._completed(rows, n_draws, seed):
            answer = np.asarray(f(draws.reshape(-1, draws.shape[-1])), dtype=np.float64)
            if len(answer) != draws.shape[0] * draws.shape[1] or not np.isfinite(answer).all():
                rule = f"one finite answer for each of {draws.shape[0] * draws.shape[1]} rows is expected"
                raise ModelFitError(problem("f(X)", answer.shape, rule, "Check f on rows inside the training range."))
            answer = answer.reshape(*draws.shape[:2], *answer.shape[1:])
            equal = np.full(draws.shape[:2], 1.0 / draws.shape[1])
            mean = np.einsum("nk,nk...->n...", equal if weights is None else weights, answer)
            out = np.empty((len(rows), *mean.shape[1:])) if out is None else out
            out[which] = mean
        result: FloatArray = np.empty(0) if out is None else out
        return np.asarray(result[0] if alone else result)

    def _incomplete(self, x: Any) -> tuple[FloatArray, bool]:
        self._check_fitted()
        return match_rows(x, self.names_, missing=True)

    def _check_draws(self, n_draws: int) -> None:
        if n_draws < 1:
            raise ModelFitError(problem("n_draws", n_draws, "must be at least 1", "Use 64."))

    def _completed(
        self, rows: FloatArray, n_draws: int, seed: int | None
    ) -> Iterator[tuple[IntArray, FloatArray, FloatArray | None]]:
        """For every pattern of missing counters: its rows, their draws (rows, draws, d) and weights (rows, draws)."""
        observed = ~np.isnan(rows)
        rng = np.random.default_rng([self.seed if seed is None else seed, 4])
        points = sobol_points(n_draws + n_draws % 2, rows.shape[1], 1, rng)
        z = self.scale_.standardise(np.where(observed, rows, self.scale_.mean))
        patterns, pattern = np.unique(observed, axis=0, return_inverse=True)
        step = max(1, BLOCK_ROWS // points.n_draws)
        for p, mask in enumerate(patterns):
            members = np.flatnonzero(pattern.ravel() == p)
            for start in range(0, len(members), step):
                which = members[start : start + step]
                if mask.all():
                    yield which, rows[which, None, :].copy(), None
                    continue
                completions = self.model_.draws(z[which], mask[None], points)
                full = self.scale_.restore(np.array(completions.rows[:, 0, 0]))
                np.copyto(full, rows[which, None, :], where=mask)
                weights = None if completions.weights is None else np.asarray(completions.weights[:, 0, 0])
                if weights is None:
                    full = full[:, :n_draws]
                yield which, full, weights

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one safetensors file with a checksum; no pickle."""
        self._check_fitted()
        settings, arrays = self.model_.state()
        header = {
            "parameters": self.get_params(),
            "names": list(self.names_),
            "units": self.units_,
            "scores": self.scores_,
            "kind": self.model_.kind,
            "settings": settings,
            "squared_errors": self.squared_errors_,
            "uncertainty": self.uncertainty_.header(),
        }
        extra_arrays = {"background": self.background_, "mean": self.scale_.mean, "spread": self.scale_.spread}
        storage.write(
            path,
            "emshap",
            header,
            {**{f"model.{k}": v for k, v in arrays.items()}, **self.uncertainty_.arrays(), **extra_arrays},
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator back; a truncated, tampered or foreign file raises ``CheckpointError``."""
        header, arrays = storage.read(path, "emshap")
        with storage.rebuilding(path, "EmSHAP estimator"):
            self = cls(**header["parameters"])
            self.names_, self.units_ = tuple(header["names"]), str(header["units"])
            self.scores_ = dict(header["scores"])
            self.background_ = arrays["background"]
            self.scale_ = Scale(arrays["mean"], arrays["spread"])
            shapes = [self.background_.shape[1:], self.scale_.mean.shape, self.scale_.spread.shape]
            if shapes != [(len(self.names_),)] * 3:
                raise ValueError(f"arrays of {shapes} for {len(self.names_)} counters")
            inner = {k[len("model.") :]: v for k, v in arrays.items() if k.startswith("model.")}
            self.model_ = restore(header["kind"], header["settings"], inner)
            self.squared_errors_ = dict(header.get("squared_errors", {}))
            self.uncertainty_ = Uncertainty.restore(header.get("uncertainty", []), arrays)
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Constructor settings, as scikit-learn expects them."""
        keys = (
            "model",
            "proposal",
            "n_draws",
            "replicates",
            "bootstrap",
            "n_coalitions",
            "held_out",
            "nonnegative",
            "progress",
            "seed",
        )
        return {key: getattr(self, key) for key in keys}

    def set_params(self, **changes: Any) -> Self:
        """Change constructor settings; takes effect at the next fit or query."""
        for key, value in changes.items():
            if key not in self.get_params():
                raise ModelFitError(problem("parameter", key, "is unknown", f"Valid: {sorted(self.get_params())}."))
            setattr(self, key, value)
        return self

    def _base(self, model: Conditional, predict: Predict, mean: float) -> float:
        """E[f(X)] under a model; models that are the training rows themselves give the mean over these."""
        if model.kind in ROWS_THEMSELVES:
            return mean
        d = len(self.names_)
        points = sobol_points(BASE_DRAWS, d, 1, np.random.default_rng(5))
        anything = self.scale_.mean[None]
        nothing_seen = np.zeros((1, d), dtype=bool)
        return float(coalition_values(model, self.scale_, predict, anything, nothing_seen, points)[0, 0, 0])

    def _shapley(
        self, predict: Predict, rows: FloatArray, outcomes: FloatArray, base: float, full: FloatArray, seed: int
    ) -> tuple[FloatArray, FloatArray, float]:
        """Values (n, d), their errors, sampling's and the model's, and the degrees of freedom behind these."""
        d, exact = len(self.names_), len(self.names_) <= EXACT_LIMIT
        points = self._points(np.random.default_rng([seed, 1]))

        def solved(model: Conditional, drawn: Points, base: float, pairs: int) -> FloatArray:
            """Values (n, replicates, d): each replicate has a scrambling of its own, and sampled coalitions."""
            replicates = drawn.replicates
            if exact:
                masks = all_coalitions(d)
                values = np.empty((len(rows), replicates, len(masks)))
                values[:, :, 0], values[:, :, -1] = base, full[:, None]
                inner = coalition_values(model, self.scale_, predict, rows, masks[1:-1], drawn)
                values[:, :, 1:-1] = inner.transpose(0, 2, 1)
                return np.asarray(values @ shapley_matrix(d))
            plan = kernel_plan(d, replicates, replicates, pairs, seed)
            values = np.full((len(rows), len(plan.background)), base)
            inside = plan.coalitions.any(axis=1)
            for g in range(replicates):
                own, one = inside & (plan.background == g), Points(drawn.uniforms[g : g + 1])
                each = coalition_values(model, self.scale_, predict, rows, plan.coalitions[own], one)
                values[:, own] = each[:, :, 0]
            means, _ = kernel_values(plan, values[:, :, None], full[:, None])
            return np.asarray(means.values[..., 0])

        each = solved(self.model_, points, base, self.n_coalitions // (2 * self.replicates))
        # The same points and as few coalitions for every refit: what differs is then the model alone.
        fewer = self._fewer(Points(points.uniforms[: 1 if exact else REFIT_REPLICATES]))

        def refitted(model: Conditional, base: float) -> FloatArray:
            return np.asarray(solved(model, fewer, base, least_pairs(d)).mean(axis=1))

        phi = each.mean(axis=1)
        error, degrees = self.uncertainty_.total(
            each.var(axis=1, ddof=1) / self.replicates,
            self.replicates - 1,
            refitted(self.model_, base) if self.uncertainty_.models else phi,
            lambda model, i: refitted(model, self._base(model, predict, self.uncertainty_.base(i, outcomes))),
        )
        return phi, error, degrees

    def _fewer(self, points: Points) -> Points:
        """The first of the points, mirrored again; all of them where draws weigh too unevenly for few to do."""
        half = (points.n_draws if self.model_.kind == "curved" else min(points.n_draws, REFIT_DRAWS)) // 2
        first = points.uniforms[:, :half]
        return Points(np.concatenate([first, 1.0 - first], axis=1))

    def _origin(self) -> FloatArray:
        """Where raw zero lies among the standardised counters; NaN for those that go below it."""
        zero = -self.scale_.mean / self.scale_.spread
        return np.where(self.background_.min(axis=0) >= 0, zero, np.nan)

    def _points(self, rng: np.random.Generator) -> Points:
        return sobol_points(self._draw_count(), len(self.names_), self.replicates, rng)

    def _draw_count(self) -> int:
        if self.n_draws is not None:
            return self.n_draws
        if self.model_.kind in UNEVEN_DRAWS:
            return UNEVEN_DRAWS[self.model_.kind]
        if self.model_.kind.startswith(("energy", "neural")):
            return 64
        # Eight points a feature, in powers of two: enough for exact second moments (see Points.normals).
        return int(max(128, 2 ** np.ceil(np.log2(8 * len(self.names_)))))

    def _kind(
        self, z: FloatArray, rng: np.random.Generator, tick: Tick, f: Any
    ) -> tuple[str, list[tuple[Conditional, float]]]:
        """Name of the conditional model to fit, after a search where the settings leave it open, and its rivals."""
        model = "energy" if self.model == "auto" and self.proposal == "gru" else self.model
        if model in ("neural", "energy") and self.proposal in ("mlp", "gru"):
            return f"{model}-{self.proposal}", []
        if model == "neural":
            return "neural-mlp", []
        if model not in ("auto", "energy"):
            return model, []
        functions = None
        if f is not None:
            predict = predictor(f, self.names_, self.nonnegative)
            functions = [lambda rows: predict(self.scale_.restore(np.array(rows)))]
        scored = search(z, self.held_out, rng, tick, origin=self._origin(), functions=functions, atoms=model == "auto")
        self.scores_ = {s.kind: s.mean for s in scored if s.comparable}
        self.squared_errors_ = {s.kind: s.squared_error for s in scored}
        chosen = choose(scored)
        if model == "energy":
            return energy_over(scored), []
        return chosen.kind, rivals(scored, chosen, rng) if self.bootstrap else []

    def _check_settings(self) -> None:
        models = {"auto", "neural", *KINDS}
        if self.model not in models:
            raise ModelFitError(problem("model", self.model, "is not a conditional model", nearest(self.model, models)))
        if self.proposal not in PROPOSALS:
            raise ModelFitError(problem("proposal", self.proposal, "is unknown", nearest(self.proposal, PROPOSALS)))
        if self.proposal != "auto" and self.model not in ("auto", "neural", "energy"):
            rule = f"model {self.model!r} has no proposal network"
            raise ModelFitError(problem("proposal", self.proposal, rule, "Leave it out, or use model='energy'."))
        if self.model == "neural" and self.proposal == "closed":
            rule = "the neural model is a network"
            raise ModelFitError(problem("proposal", self.proposal, rule, "Use 'mlp' or 'gru', or model='energy'."))
        if self.n_draws is not None and (self.n_draws < 2 or self.n_draws % 2):
            raise ModelFitError(
                problem("n_draws", self.n_draws, "must be even and at least 2", "Draws come in mirrored pairs.")
            )
        if self.replicates < 2:
            raise ModelFitError(
                problem("replicates", self.replicates, "must be at least 2", "Errors are measured between replicates.")
            )
        if self.bootstrap < 0 or self.bootstrap == 1:
            rule = "must be 0 (sampling error only) or at least 2"
            raise ModelFitError(problem("bootstrap", self.bootstrap, rule, "Use 8."))
        if not 0 < self.held_out < 0.9:
            raise ModelFitError(problem("held_out", self.held_out, "must lie between 0 and 0.9", "Use 0.2."))

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise ModelFitError(
                problem("EmSHAP", "unfitted", "has no distribution of the counters yet", "Call fit(X) first.")
            )
