"""Counters to joules or watts: the best of several regressors, chosen on unseen blocks of time.

    model = EnergyModel(names=("cpu_cycles", "cpu_instructions", "cache_miss"), unit="W").fit(x, watts, times)
    model.predict(x), model.interval(x), model.report

Candidates are ``"boosting"``, ``"network"``, their ``"blend"``, any scikit-learn regressor and any function
of rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from attribution_sched.attribution.energy_boosting import BoostingPredictor, TreeEnsemble
from attribution_sched.attribution.energy_candidates import (
    BUILT_IN,
    Candidate,
    CandidateScore,
    Predictor,
    Score,
    blocked_folds,
    check_candidates,
    run_trials,
    shuffled_folds,
)
from attribution_sched.attribution.energy_features import CounterFeatures
from attribution_sched.attribution.energy_interval import ConformalBands, block_coverage
from attribution_sched.attribution.energy_network import NetworkPredictor
from attribution_sched.errors import CheckpointError, ModelFitError, nearest, problem
from attribution_sched.storage import Arrays, read, rebuilding, write
from attribution_sched.types import FloatArray

MIN_ROWS = 50
NEGATIVE_RULES = {
    "clip": "energy is never negative: predictions below 0 are raised to 0",
    "refuse": "energy is never negative: a prediction below 0 is an error",
}


@dataclass(frozen=True)
class EnergyReport:
    """How an energy model came about and how good it is.

    Attributes:
        chosen: Name of the candidate with the least blocked error.
        scores: Every candidate's errors.
        unit: Unit of target and errors.
        n_rows: Rows fitted on.
        folds: Blocks of time.
        coverage: Coverage asked of the intervals.
        block_coverage: Coverage reached in each block by intervals calibrated on the others.
        negative_rule: What happens to a negative prediction.
        negative_predictions: How many out-of-block predictions of the chosen model were negative.
        seed: Seed of shuffles and starting weights.
    """

    chosen: str
    scores: tuple[CandidateScore, ...]
    unit: str
    n_rows: int
    folds: int
    coverage: float
    block_coverage: tuple[float, ...]
    negative_rule: str
    negative_predictions: int
    seed: int

    @property
    def best(self) -> CandidateScore:
        """The chosen candidate's errors."""
        return next(s for s in self.scores if s.name == self.chosen)


class EnergyModel:
    """Predicts energy from counters, says how sure it is, and saves itself without pickle."""

    def __init__(
        self,
        candidates: Sequence[Candidate] = BUILT_IN,
        *,
        names: Sequence[str] | None = None,
        unit: str = "W",
        folds: int = 5,
        coverage: float = 0.9,
        negative: Literal["clip", "refuse"] = "clip",
        seed: int = 0,
    ) -> None:
        """Choose what may be tried.

        Args:
            candidates: Built-in names, regressors with fit and predict, or functions of rows ``(n, d)``.
            names: Counter names; ``x0, x1, ...`` by default. Cycles, instructions and misses are recognised.
            unit: Unit of the target, ``J`` or ``W``.
            folds: Number of contiguous blocks.
            coverage: Share of fresh rows that `interval` must hold.
            negative: What to do with a negative prediction, see `NEGATIVE_RULES`.
            seed: Seed of shuffles and starting weights.
        """
        check_candidates(candidates)
        _require(0.5 <= coverage < 1, "coverage", coverage, "must lie in [0.5, 1)", "Use 0.9")
        _require(folds >= 2, "folds", folds, "must be at least 2", "Use 5")
        _require(negative in NEGATIVE_RULES, "negative", negative, "is unknown", nearest(negative, NEGATIVE_RULES))
        self._candidates, self._folds, self._coverage, self._seed = tuple(candidates), folds, coverage, seed
        self.unit, self._negative = unit, negative
        self.names: tuple[str, ...] | None = None if names is None else tuple(names)
        self._predictor: Predictor | None = None
        self._bands: ConformalBands | None = None
        self._report: EnergyReport | None = None

    @property
    def report(self) -> EnergyReport:
        """How the model came about; there after `fit` or `load`."""
        if self._report is None:
            raise ModelFitError(problem("report", None, "the model is not fitted", "Call fit first"))
        return self._report

    def fit(self, x: ArrayLike, y: ArrayLike, timestamps: ArrayLike | None = None) -> EnergyModel:
        """Try every candidate on unseen blocks, keep the best, fit it on all rows, calibrate its intervals.

        Args:
            x: Counters, ``(n, d)``, at least `MIN_ROWS` rows.
            y: Measured energy or power, ``(n,)``, never negative.
            timestamps: Time of each row, ``(n,)``; without it the rows are taken to be in time order.
        """
        rows, target = self._check_training(np.asarray(x, dtype=float), np.asarray(y, dtype=float))
        if timestamps is not None:
            times = np.asarray(timestamps, dtype=float)
            good = times.shape == target.shape and bool(np.isfinite(times).all())
            _require(good, "timestamps", times.shape, f"must be {len(target)} finite times", "Give one per row")
            order = np.argsort(times, kind="stable")
            rows, target = rows[order], target[order]
        names = self.names or tuple(f"x{j}" for j in range(rows.shape[1]))
        self.names = names
        blocks = blocked_folds(len(target), self._folds)
        mixed = shuffled_folds(len(target), self._folds, self._seed)
        trials = run_trials(self._candidates, rows, target, names, blocks, mixed, self._seed)
        chosen = min(trials, key=lambda name: trials[name].scored.blocked.mae)
        best = trials[chosen]
        self._predictor = best.refit()
        self._bands = ConformalBands.fit(best.blocked, target, self._coverage, blocks=blocks)
        self._report = EnergyReport(
            chosen=chosen,
            scores=tuple(t.scored for t in trials.values()),
            unit=self.unit,
            n_rows=len(target),
            folds=self._folds,
            coverage=self._coverage,
            block_coverage=block_coverage(best.blocked, target, blocks, self._coverage),
            negative_rule=self._negative,
            negative_predictions=int((best.blocked < 0).sum()),
            seed=self._seed,
        )
        return self

    def predict(self, x: ArrayLike) -> FloatArray:
        """Energy of each row ``(n, d)``, shape ``(n,)``; finite and never negative."""
        if self._predictor is None or self.names is None:
            raise ModelFitError(problem("predict", None, "the model is not fitted", "Call fit first"))
        rows = np.asarray(x, dtype=np.float64)
        d = len(self.names)
        _require(
            rows.ndim == 2 and rows.shape[1] == d,
            "x",
            rows.shape,
            f"must be (n, {d}): the model knows the counters {', '.join(self.names)}",
            "Pass exactly these columns",
        )
        _require(bool(np.isfinite(rows).all()), "x", "NaN or infinite", "counters must be finite", "Drop such rows")
        out = self._predictor.predict(rows)
        _require(bool(np.isfinite(out).all()), "prediction", "non-finite", "must be finite", "Fix the user's model")
        if self._negative == "refuse" and (out < 0).any():
            bad = int(np.argmin(out))
            rule = f"row {bad}: {NEGATIVE_RULES['refuse']}"
            raise ModelFitError(problem("prediction", float(out[bad]), rule, "Use negative='clip' or other rows"))
        return np.maximum(out, 0.0)

    __call__ = predict

    def interval(self, x: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper end per row, each ``(n,)``; the lower end is never below 0."""
        middle = self.predict(x)
        if self._bands is None:
            raise ModelFitError(problem("interval", None, "the model is not fitted", "Call fit first"))
        half = self._bands.half_width(middle)
        return np.maximum(middle - half, 0.0), middle + half

    def save(self, path: Path | str) -> None:
        """Write the fitted model as one safetensors file."""
        save_energy_model(self, Path(path))

    @staticmethod
    def load(path: Path | str) -> EnergyModel:
        """Read a model written by `save`."""
        return load_energy_model(Path(path))

    def _check_training(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        _require(x.ndim == 2 and x.shape[1] >= 1, "x", x.shape, "must be (n, d)", "Stack the counters as columns")
        _require(y.shape == (len(x),), "y", y.shape, f"must be ({len(x)},)", "Give one target per row")
        _require(len(x) >= MIN_ROWS, "rows", len(x), f"at least {MIN_ROWS} are needed", "Record for longer")
        for field, array in (("x", x), ("y", y)):
            bad = np.argwhere(~np.isfinite(array))
            where = bad[0].tolist() if len(bad) else []
            _require(not where, field, f"NaN or infinite at {where}", "must be finite", "Drop or mend that row")
        low = int(np.argmin(y))
        _require(bool(y[low] >= 0), "y", float(y[low]), f"energy is never negative (row {low})", "Mend the meter")
        names_fit = self.names is None or len(self.names) == x.shape[1]
        _require(names_fit, "names", self.names, f"must name {x.shape[1]} columns", "Give one name per column")
        return x, y


def _require(holds: bool, field: str, value: object, rule: str, fix: str) -> None:
    if not holds:
        raise ModelFitError(problem(field, value, rule, fix))


# ------ Energy models on disk, in the one file format of :mod:`attribution_sched.storage`
#
# Loading checks the checksum first, then every shape, then rebuilds the predictor; the same rows give the same bits
# as before saving.

_KIND = "energy model"
_FEATURE_ARRAYS = ("floor", "scale", "mean", "spread", "low", "high")


def _part(predictor: BoostingPredictor | NetworkPredictor) -> Arrays:
    kind = "boosting" if isinstance(predictor, BoostingPredictor) else "network"
    inner = predictor.trees if isinstance(predictor, BoostingPredictor) else predictor
    arrays = {f"{kind}.{name}": array for name, array in inner.arrays().items()}
    arrays |= {f"{kind}.features.{name}": getattr(predictor.features, name) for name in _FEATURE_ARRAYS}
    arrays[f"{kind}.features.pairs"] = np.array(predictor.features.pairs, dtype=np.int64).reshape(-1, 2)
    return arrays


def save_energy_model(model: EnergyModel, path: Path) -> None:
    """Write a fitted model.

    Args:
        model: A fitted model whose chosen candidate is built in.
        path: File to write, usually ``*.safetensors``.
    """
    from attribution_sched.attribution.energy_candidates import BlendPredictor

    report, predictor, bands = model.report, model._predictor, model._bands
    extra: dict[str, Any] = {}
    if isinstance(predictor, BlendPredictor):
        arrays, extra["weight"] = _part(predictor.boosting) | _part(predictor.network), predictor.weight
    elif isinstance(predictor, BoostingPredictor | NetworkPredictor):
        arrays = _part(predictor)
    else:
        raise ModelFitError(
            problem(
                "save",
                report.chosen,
                "a user's own model cannot be stored without running its code on loading",
                "Save it by its own means and wrap it again as a candidate",
            )
        )
    if bands is not None:
        arrays |= {"bands.edges": bands.edges, "bands.half_widths": bands.half_widths}
    write(path, _KIND, {"names": model.names, **extra, "report": dataclasses.asdict(report)}, arrays)


def load_energy_model(path: Path) -> EnergyModel:
    """Read a model.

    Raises:
        CheckpointError: The file is missing, truncated, tampered with or of another version.
    """
    from attribution_sched.attribution.energy_candidates import BlendPredictor

    meta, arrays = read(path, _KIND)
    with rebuilding(path, "energy model"):
        report = _report(meta["report"])
        names = tuple(str(n) for n in meta["names"])
        parts = {k: _rebuild(k, arrays, len(names)) for k in ("boosting", "network") if f"{k}.features.mean" in arrays}
        model = EnergyModel(
            names=names,
            unit=report.unit,
            folds=report.folds,
            coverage=report.coverage,
            negative="clip" if report.negative_rule == "clip" else "refuse",
            seed=report.seed,
        )
        if report.chosen == "blend":
            model._predictor = BlendPredictor(parts["boosting"], parts["network"], float(meta["weight"]))
        else:
            model._predictor = parts[report.chosen]
        model._bands = ConformalBands(arrays["bands.edges"], arrays["bands.half_widths"])
        model._report = report
    return model


def _rebuild(kind: str, arrays: Arrays, n_counters: int) -> Any:
    state = {n.removeprefix(f"{kind}."): a for n, a in arrays.items() if n.startswith(f"{kind}.")}
    pairs = tuple((int(a), int(b)) for a, b in state["features.pairs"])
    features = CounterFeatures(pairs, *(state[f"features.{name}"] for name in _FEATURE_ARRAYS))
    wide = 2 * (n_counters + len(pairs))
    sizes = [len(features.floor), len(features.scale), len(features.mean), len(features.spread)]
    if sizes != [n_counters, n_counters, wide, wide] or any(not 0 <= j < n_counters for p in pairs for j in p):
        raise CheckpointError(problem(f"{kind}.features", sizes, "do not fit the counters", "Save the model again"))
    if kind == "network":
        return NetworkPredictor.from_arrays(features, state)
    trees = {f.name: state[f.name] for f in dataclasses.fields(TreeEnsemble)}
    return BoostingPredictor(features, TreeEnsemble.from_arrays(trees, n_counters + len(pairs)))


def _report(data: dict[str, Any]) -> EnergyReport:
    from attribution_sched.attribution.energy_candidates import CandidateScore

    scores = tuple(CandidateScore(s["name"], Score(**s["blocked"]), Score(**s["shuffled"])) for s in data.pop("scores"))
    return EnergyReport(**{**data, "scores": scores, "block_coverage": tuple(data["block_coverage"])})
