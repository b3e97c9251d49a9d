"""Choice between conditional models by held-out conditional likelihood, and by the error of what they are asked for.

Candidates are fitted on part of the rows and scored on the rest, under masks of every size. Likelihoods are compared
only between models that mean the same by them: where counters have atoms, those that give atoms probabilities. Models
that are not clearly behind the best are compared by the held-out squared error of E[f | x_S], for the f at hand or a
panel of simple functions, and the simplest wins a draw. A model without a comparable likelihood (the
empirical kernel, a regression, a density at atoms) must win by that error clearly. One whose draws weigh unevenly must
win by both: the error is measured with few such draws, so what unevenness costs is in it. The winner is then fitted on
all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from attribution_sched.attribution.conditionals.atoms import has_atoms
from attribution_sched.attribution.conditionals.base import Conditional, uniform_size_masks
from attribution_sched.attribution.conditionals.catalogue import ATOM_KINDS, CLOSED_KINDS, make
from attribution_sched.attribution.conditionals.points import sobol_points
from attribution_sched.attribution.progress import Tick, silent
from attribution_sched.stats.interval import standard_error
from attribution_sched.types import BoolArray, FloatArray

MASKS_PER_ROW = 4
TOLERANCE = 0.5
"""A simpler model wins while it is behind the best by less than this many standard errors."""

NEGLIGIBLE_NATS = 1e-3
EXACT_LIMIT = 12
"""Largest number of features for which all coalitions are valued."""

CLEARLY = 3.0
PANEL_DRAWS = 64
RESAMPLES, MOST_RIVALS, LEAST_CHANCE = 1000, 2, 0.02
"""Resamples of the held-out rows that give rivals their chances; how many count, and from which chance on."""

DENSITIES = ("gaussian", "mixture", "copula-mixture", "empirical", "regression")
"""Candidates beside the strata where counters have atoms; judged by squared error."""

Function = Callable[[FloatArray], FloatArray]

_TRIAL: dict[str, dict[str, Any]] = {k: {"members": 3, "repeat": False} for k in ("energy", "energy-mixture")}
"""Cheaper settings while a candidate is only being judged."""


def _options(kind: str, origin: FloatArray | None) -> dict[str, Any]:
    return {"origin": origin} if kind in ATOM_KINDS else {}


@dataclass(frozen=True, eq=False)
class Scored:
    """One candidate and how it did on the held-out rows.

    Attributes:
        kind: Name of the model.
        log_likelihood: (rows * masks,) held-out conditional log densities.
        usable: False where a network dropped its energy and is its own proposal again.
        even: False where its draws weigh very unevenly, as far as a share that hangs on the few largest weights tells.
        squares: (rows * masks,) held-out squared errors of ``E[f | x_S]`` in variances of f, mean over the functions;
            empty where nobody measured them.
        comparable: Whether its likelihood may be compared with the others'.
        model: The candidate as fitted on the training part.
    """

    kind: str
    log_likelihood: FloatArray
    usable: bool = True
    even: bool = True
    squares: FloatArray = field(default_factory=lambda: np.zeros(0))
    comparable: bool = True
    model: Conditional | None = None

    @property
    def squared_error(self) -> float:
        """Mean held-out squared error of ``E[f | x_S]``, in variances of f."""
        return float(self.squares.mean()) if len(self.squares) else float("nan")

    @property
    def mean(self) -> float:
        """Mean held-out conditional log likelihood, in nats."""
        return float(self.log_likelihood.mean())


@dataclass(frozen=True)
class Split:
    """Rows to fit on, rows to score on, and the masks of the latter."""

    train: FloatArray
    test: FloatArray
    masks: BoolArray


def split_rows(x: FloatArray, held_out: float, rng: np.random.Generator) -> Split:
    """Hold ``held_out`` of the rows back and give each of them several masks."""
    order = rng.permutation(len(x))
    cut = min(max(round(len(x) * held_out), 10), 2000)
    test = np.repeat(x[order[:cut]], MASKS_PER_ROW, axis=0)
    return Split(x[order[cut:]], test, uniform_size_masks(len(test), x.shape[1], rng))


def score(
    kind: str,
    split: Split,
    rng: np.random.Generator,
    tick: Tick = silent,
    *,
    origin: FloatArray | None = None,
    functions: Sequence[Function] = (),
    comparable: bool = True,
) -> Scored:
    """Fit one candidate on the training part and score it on the rest."""
    model = make(kind, **_TRIAL.get(kind, {}), **_options(kind, origin))
    if hasattr(model, "tick"):
        model.tick = tick
    model.fit(split.train, rng)
    usable, even = bool(getattr(model, "kept", True)), bool(getattr(model, "reliable", True))
    log = model.log_likelihood(split.test, split.masks) if comparable else np.full(len(split.test), -np.inf)
    return Scored(kind, log, usable, even, squared_errors(model, split, functions), comparable, model)


def panel(train: FloatArray, rng: np.random.Generator) -> list[Function]:
    """Simple functions of standardised rows: lines, steps, bounded squares and products of pairs."""
    centre, spread, d = train.mean(axis=0), train.std(axis=0), train.shape[1]

    def bounded(x: FloatArray, j: int) -> FloatArray:
        return np.asarray(np.clip((x[:, j] - centre[j]) / spread[j], -4.0, 4.0))

    def line(j: int, x: FloatArray) -> FloatArray:
        return bounded(x, j)

    def square(j: int, x: FloatArray) -> FloatArray:
        return np.square(bounded(x, j))

    def step(j: int, x: FloatArray) -> FloatArray:
        return (bounded(x, j) > 0.3).astype(np.float64)

    def product(i: int, j: int, x: FloatArray) -> FloatArray:
        return bounded(x, i) * bounded(x, j)

    out: list[Function] = [partial(shape, j) for j in range(d) for shape in (line, square, step)]
    pairs = [rng.choice(d, 2, replace=False) for _ in range(d)]
    return out + [partial(product, int(i), int(j)) for i, j in pairs]


def squared_errors(model: Conditional, split: Split, functions: Sequence[Function]) -> FloatArray:
    """Squared distance of f to ``E[f | x_S]`` for every held-out row and mask, mean over functions, in variances."""
    if not functions:
        return np.zeros(0)
    points = sobol_points(PANEL_DRAWS, split.test.shape[1], 1, np.random.default_rng(1))
    patterns, which = np.unique(split.masks, axis=0, return_inverse=True)
    truth = np.stack([f(split.test) for f in functions])
    guess = np.empty(truth.shape)
    for p in range(len(patterns)):
        rows = np.flatnonzero(which.ravel() == p)
        draws = model.draws(split.test[rows], patterns[p : p + 1], points)
        completed = np.array(draws.rows)
        np.copyto(completed, split.test[rows, None, None, None, :], where=patterns[p])
        flat = completed.reshape(-1, split.test.shape[1])
        for k, f in enumerate(functions):
            guess[k, rows] = draws.mean(f(flat).reshape(draws.rows.shape[:-1]))[:, 0, 0]
    size = np.maximum(truth.var(axis=1, keepdims=True), 1e-12)
    return np.asarray((np.square(truth - guess) / size).mean(axis=0))


def search(
    x: FloatArray,
    held_out: float,
    rng: np.random.Generator,
    tick: Tick = silent,
    *,
    origin: FloatArray | None = None,
    functions: Sequence[Function] | None = None,
    atoms: bool = True,
) -> list[Scored]:
    """Score the closed forms, then the energy networks over them; simplest first.

    Args:
        x: (n, d) standardised rows.
        held_out: Share of rows to score on.
        rng: Source of the split, the masks and the starts.
        tick: Progress callback.
        origin: (d,) where raw zero lies, NaN for columns that go below it.
        functions: What ``E[f | x_S]`` is judged by; default the :func:`panel`.
        atoms: Look for atoms, and judge by models that know them where there are any.
    """
    split = split_rows(x, held_out, rng)
    test_functions = panel(split.train, rng) if functions is None else functions
    scored = []
    if atoms and has_atoms(x):
        # Densities are unbounded at atoms: the others compete by their squared error alone.
        for kind in (*ATOM_KINDS, *DENSITIES):
            tick("strata", 0.5)
            atomic = kind in ATOM_KINDS
            scored.append(score(kind, split, rng, origin=origin, functions=test_functions, comparable=atomic))
        return scored
    closed_kinds: tuple[str, ...] = CLOSED_KINDS
    if origin is not None and np.isfinite(origin).any():
        closed_kinds = (*closed_kinds, *ATOM_KINDS)
    if x.shape[1] <= EXACT_LIMIT:
        closed_kinds = (*closed_kinds, "curved")
    for i, kind in enumerate(closed_kinds):
        tick("closed forms", i / len(closed_kinds))
        scored.append(score(kind, split, rng, origin=origin, functions=test_functions))
    others = ("empirical", "regression")
    scored += [score(kind, split, rng, functions=test_functions, comparable=False) for kind in others]
    # Over a mixture the energy has less to learn, over a copula it learns more easily: both, where a mixture is better.
    kinds = ("energy-mixture", "energy") if energy_over(scored) == "energy-mixture" else ("energy",)
    scored += [score(kind, split, rng, tick, functions=test_functions) for kind in kinds]
    return [s for s in scored if s.usable]


def energy_over(scored: Sequence[Scored]) -> str:
    """Kind of the best energy model; where none was of use, the one over the better of copula and mixture."""
    mean = {s.kind: s.mean for s in scored if s.even}
    tried = [kind for kind in ("energy", "energy-mixture") if kind in mean]
    if tried:
        return max(tried, key=lambda kind: mean[kind])
    return "energy" if mean["copula"] >= mean["mixture"] else "energy-mixture"


def choose(scored: Sequence[Scored]) -> Scored:
    """Best by likelihood, then by squared error among those not clearly behind, then the simplest."""
    ranked = [s for s in scored if s.comparable and s.even]
    best = max(ranked, key=lambda s: s.mean)
    near = [s for s in ranked if s is best or _close(s, best)]
    # Candidates come simplest first; one that is better by its squared error beyond the noise takes the place.
    chosen = near[0]
    for s in near[1:]:
        if _better(s, chosen, 1.0):
            chosen = s
    for s in scored:
        ahead = s.comparable and not s.even and s.mean > chosen.mean and not _close(chosen, s)
        if ahead and _better(s, chosen, 1.0):
            chosen = s
    for s in scored:
        if not s.comparable and _better(s, chosen, CLEARLY):
            chosen = s
    return chosen


def rivals(scored: Sequence[Scored], chosen: Scored, rng: np.random.Generator) -> list[tuple[Conditional, float]]:
    """Other models as fitted on the training part, each with the chance that it is the better one.

    The chance is the share of resamples of the held-out rows in which it has the best likelihood of all: if it is the
    truth with chance p, the chosen model's values are off by its difference with chance p.
    """
    if not chosen.comparable:
        return []
    others = [s for s in scored if s is not chosen and s.comparable and s.even and s.model is not None]
    if not others:
        return []
    rows = np.stack([s.log_likelihood.reshape(-1, MASKS_PER_ROW).mean(axis=1) for s in (chosen, *others)])
    counts = rng.multinomial(rows.shape[1], np.full(rows.shape[1], 1.0 / rows.shape[1]), RESAMPLES)
    # A model that is level with the chosen one (a mixture of one component, say) does not beat it.
    mean = (rows - rows[0]) @ counts.T / rows.shape[1] - NEGLIGIBLE_NATS * (np.arange(len(rows)) > 0)[:, None]
    wins = np.bincount(mean.argmax(axis=0), minlength=len(rows))[1:] / RESAMPLES
    order = np.argsort(-wins, kind="stable")[:MOST_RIVALS]
    return [(m, float(wins[i])) for i in order if (m := others[i].model) is not None and wins[i] > LEAST_CHANCE]


def _better(candidate: Scored, rival: Scored, errors: float) -> bool:
    """Whether a candidate's squared error is below a rival's by more than ``errors`` standard errors of the pair."""
    if not len(candidate.squares) or not len(rival.squares):
        return False
    gap = (rival.squares - candidate.squares).reshape(-1, MASKS_PER_ROW).mean(axis=1)
    return bool(gap.mean() > errors * standard_error(gap))


def _close(candidate: Scored, best: Scored) -> bool:
    """Whether a candidate is behind the best by no more than the noise of their paired difference."""
    gap = (best.log_likelihood - candidate.log_likelihood).reshape(-1, MASKS_PER_ROW).mean(axis=1)
    error = float(standard_error(gap))
    return bool(gap.mean() <= max(TOLERANCE * error, NEGLIGIBLE_NATS))


def fit_chosen(
    kind: str, x: FloatArray, rng: np.random.Generator, tick: Tick = silent, origin: FloatArray | None = None
) -> Conditional:
    """Fit one model on all rows."""
    model = make(kind, **_options(kind, origin))
    if hasattr(model, "tick"):
        model.tick = tick
    fitted = model.fit(x, rng)
    if hasattr(fitted, "tick"):
        fitted.tick = silent
    return fitted
