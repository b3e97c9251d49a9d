"""What an energy model may be made of, and the trial each candidate goes through before one is chosen."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from attribution_sched.attribution.energy_boosting import BoostingPredictor
from attribution_sched.attribution.energy_network import NetworkPredictor
from attribution_sched.errors import ModelFitError, nearest, problem
from attribution_sched.types import FloatArray

# ------ How well a regressor does on time it has not seen: contiguous blocks, beside the flattering shuffle
#
# Neighbouring seconds of a recording are near copies. A shuffled split therefore tests a model on rows whose
# twins it was trained on; whole blocks of time do not. Both are reported, the blocked one decides.

Folds = tuple[NDArray[np.int64], ...]
Fit = Callable[[FloatArray, FloatArray], Callable[[FloatArray], FloatArray]]


@dataclass(frozen=True)
class Score:
    """Error of predictions made out of fold.

    Attributes:
        mae: Mean absolute error in the target's unit.
        r2: Share of the target's variance explained, over all rows together.
    """

    mae: float
    r2: float


def score(y: FloatArray, predicted: FloatArray) -> Score:
    """Score predictions ``(n,)`` against targets ``(n,)``."""
    total = float(np.square(y - y.mean()).sum())
    residual_ss = float(np.square(y - predicted).sum())
    return Score(float(np.abs(y - predicted).mean()), 1.0 - residual_ss / total if total > 0 else float("nan"))


def blocked_folds(n: int, folds: int) -> Folds:
    """Contiguous blocks of rows in time order."""
    return tuple(np.array_split(np.arange(n), folds))


def shuffled_folds(n: int, folds: int, seed: int) -> Folds:
    """Random folds, for comparison only."""
    return tuple(np.array_split(np.random.default_rng(seed).permutation(n), folds))


def out_of_fold(fit: Fit, x: FloatArray, y: FloatArray, folds: Sequence[NDArray[np.int64]]) -> FloatArray:
    """Predict each fold by a model fitted on the others.

    Args:
        fit: Takes rows and targets, returns a function of rows.
        x: Rows, ``(n, d)``.
        y: Targets, ``(n,)``.
        folds: Row numbers of each fold; together they cover every row once.
    """
    out = np.full(len(y), np.nan)
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(y)), fold)
        out[fold] = fit(x[rest], y[rest])(x[fold])
    return out


# ------ What an energy model may be made of, and the trial each candidate goes through before one is chosen

BUILT_IN = ("boosting", "network", "blend")


@runtime_checkable
class Regressor(Protocol):
    """What scikit-learn calls a regressor."""

    def fit(self, x: Any, y: Any) -> Any:
        """Fit on rows ``(n, d)`` and targets ``(n,)``."""
        ...

    def predict(self, x: Any) -> Any:
        """Predict rows ``(n, d)``."""
        ...


class Predictor(Protocol):
    """A fitted function of counters."""

    def predict(self, x: FloatArray) -> FloatArray:
        """Predict counters ``(n, d)``."""
        ...


Candidate = str | Regressor | Callable[[FloatArray], Any]
Maker = Callable[[FloatArray, FloatArray], Predictor]


@dataclass(frozen=True, eq=False)
class BlendPredictor:
    """A weighted mean of trees and network; the weight is the best one out of block."""

    boosting: BoostingPredictor
    network: NetworkPredictor
    weight: float

    def predict(self, x: FloatArray) -> FloatArray:
        """Predict counters ``(n, d)``."""
        return self.weight * self.boosting.predict(x) + (1.0 - self.weight) * self.network.predict(x)


@dataclass(frozen=True, eq=False)
class UserPredictor:
    """A user's own function or fitted regressor."""

    function: Callable[[FloatArray], Any]

    def predict(self, x: FloatArray) -> FloatArray:
        """Predict counters ``(n, d)``."""
        out = np.asarray(self.function(x), dtype=np.float64)
        if out.shape != (len(x),) or not np.isfinite(out).all():
            rule = f"a model must give {len(x)} finite numbers for {len(x)} rows"
            raise ModelFitError(problem("prediction", out.shape, rule, "Mend or drop the user's model"))
        return out


@dataclass(frozen=True)
class CandidateScore:
    """One candidate's errors on rows it was not fitted on.

    Attributes:
        name: Candidate.
        blocked: Error over contiguous blocks of time: the honest one, by which the choice is made.
        shuffled: Error over random rows, whose neighbours in time were trained on: flattering.
    """

    name: str
    blocked: Score
    shuffled: Score


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate's result.

    Attributes:
        scored: Its errors.
        blocked: Its out-of-block prediction of every row, ``(n,)``.
        refit: Fits it on all rows.
    """

    scored: CandidateScore
    blocked: FloatArray
    refit: Callable[[], Predictor]


def check_candidates(candidates: Sequence[Any]) -> None:
    """Refuse an empty list, an unknown name, or an object that cannot predict."""
    if not candidates:
        raise ModelFitError(problem("candidates", candidates, "must name at least one", "Use the default"))
    for one in candidates:
        if isinstance(one, str) and one not in BUILT_IN:
            raise ModelFitError(problem("candidates", one, "is unknown", nearest(one, BUILT_IN)))
        if not isinstance(one, str | Regressor) and not callable(one):
            rule = "must be a name, a regressor or a function"
            raise ModelFitError(problem("candidates", one, rule, "Give it fit and predict"))


def run_trials(
    candidates: Sequence[Candidate],
    x: FloatArray,
    y: FloatArray,
    names: tuple[str, ...],
    blocks: Folds,
    shuffled: Folds,
    seed: int,
) -> dict[str, Trial]:
    """Score every candidate on blocks of time and on shuffled rows.

    Args:
        candidates: What to try.
        x: Counters in time order, ``(n, d)``.
        y: Targets, ``(n,)``.
        names: Counter names.
        blocks: Contiguous folds.
        shuffled: Random folds.
        seed: Seed of starting weights.
    """
    wanted = {c for c in candidates if isinstance(c, str)}
    makers: dict[str, Maker] = {}
    if wanted & {"boosting", "blend"}:
        makers["boosting"] = partial(BoostingPredictor.fit, names=names, seed=seed)
    if wanted & {"network", "blend"}:
        makers["network"] = partial(NetworkPredictor.fit, names=names, seed=seed)
    for candidate in candidates:
        if not isinstance(candidate, str):
            makers[_title(candidate, makers)] = partial(_fit_user, candidate)
    out = {
        name: [out_of_fold(partial(_fit_predict, make), x, y, folds) for folds in (blocks, shuffled)]
        for name, make in makers.items()
    }
    trials = {
        name: Trial(
            CandidateScore(name, score(y, out[name][0]), score(y, out[name][1])),
            out[name][0],
            partial(make, x, y),
        )
        for name, make in makers.items()
        if name in wanted or name not in BUILT_IN
    }
    if "blend" in wanted:
        trials["blend"] = _blend_trial(x, y, out, makers)
    return trials


def _fit_predict(make: Maker, x: FloatArray, y: FloatArray) -> Callable[[FloatArray], FloatArray]:
    return make(x, y).predict


def _blend_trial(x: FloatArray, y: FloatArray, out: dict[str, list[FloatArray]], makers: dict[str, Maker]) -> Trial:
    def mix(weight: float, split: int) -> FloatArray:
        return weight * out["boosting"][split] + (1.0 - weight) * out["network"][split]

    def refit() -> Predictor:
        boosting, network = makers["boosting"](x, y), makers["network"](x, y)
        return BlendPredictor(boosting, network, weight)  # type: ignore[arg-type]

    weight = float(min(np.linspace(0.0, 1.0, 21), key=lambda w: score(y, mix(w, 0)).mae))
    scored = CandidateScore("blend", score(y, mix(weight, 0)), score(y, mix(weight, 1)))
    return Trial(scored, mix(weight, 0), refit)


def _fit_user(candidate: Any, x: FloatArray, y: FloatArray) -> UserPredictor:
    """Fit a fresh copy of a regressor; a plain function is taken as already fitted."""
    if not isinstance(candidate, Regressor):
        return UserPredictor(candidate)
    fresh = copy.deepcopy(candidate)
    fresh.fit(x, y)
    return UserPredictor(fresh.predict)


def _title(candidate: Any, taken: dict[str, Maker]) -> str:
    title = getattr(candidate, "__name__", type(candidate).__name__)
    name, count = title, 2
    while name in taken or name in BUILT_IN:
        name, count = f"{title} {count}", count + 1
    return name
