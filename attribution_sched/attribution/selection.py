"""Choice between conditional models by held-out conditional likelihood.

Candidates are fitted on part of the rows and scored on the rest, under masks of every size. The simplest model that
is not clearly worse than the best one wins and is fitted again on all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attribution_sched.attribution.conditionals.base import BoolArray, Conditional, FloatArray
from attribution_sched.attribution.conditionals.catalogue import ATOM_KINDS, CLOSED_KINDS, make
from attribution_sched.attribution.conditionals.masking import uniform_size_masks
from attribution_sched.attribution.progress import Tick, silent

MASKS_PER_ROW = 4
TOLERANCE = {"neural-mlp": 2.0}
USUAL_TOLERANCE = 0.5
"""A simpler model wins while it is behind the best by less than this many standard errors. The autoregressive network
must win clearly: its queries walk through the hidden features one by one and cost several times more."""

NEGLIGIBLE_NATS = 1e-3

_TRIAL: dict[str, dict[str, Any]] = {"energy": {"members": 3}, "energy-mixture": {"members": 3}}
"""Cheaper settings while a candidate is only being judged."""


def _options(kind: str, origin: FloatArray | None) -> dict[str, Any]:
    return {"origin": origin} if kind in ATOM_KINDS else {}


@dataclass(frozen=True, eq=False)
class Scored:
    """One candidate and how it did on the held-out rows.

    Attributes:
        kind: Name of the model.
        log_likelihood: (rows * masks,) held-out conditional log densities.
        usable: False where a network dropped its energy and is its own proposal again, or weighs its draws too
            unevenly.
    """

    kind: str
    log_likelihood: FloatArray
    usable: bool = True

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


def score(kind: str, split: Split, rng: np.random.Generator, tick: Tick = silent) -> Scored:
    """Fit one candidate on the training part and score it on the rest."""
    model = make(kind, **_TRIAL.get(kind, {}))
    if hasattr(model, "tick"):
        model.tick = tick
    model.fit(split.train, rng)
    usable = bool(getattr(model, "kept", True)) and bool(getattr(model, "reliable", True))
    return Scored(kind, model.log_likelihood(split.test, split.masks), usable)


def search(
    x: FloatArray, held_out: float, rng: np.random.Generator, networks: Sequence[str], tick: Tick = silent
) -> list[Scored]:
    """Score the closed forms, then the networks that can still gain; simplest first.

    Args:
        x: (n, d) standardised rows.
        held_out: Share of rows to score on.
        rng: Source of the split, the masks and the starts.
        networks: Network kinds to try; beside ``energy`` also ``energy-mixture`` where a mixture beats the copula.
        tick: Progress callback.
    """
    split = split_rows(x, held_out, rng)
    scored = []
    for i, kind in enumerate(CLOSED_KINDS):
        tick("closed forms", i / len(CLOSED_KINDS))
        scored.append(score(kind, split, rng))
    closed = tuple(scored)
    for kind in networks:
        if kind == "energy" and energy_over(closed) == "energy-mixture":
            # Over a mixture the energy has less to learn, over a copula it learns more easily: try both.
            scored.append(score("energy-mixture", split, rng, tick))
        scored.append(score(kind, split, rng, tick))
    return [s for s in scored if s.usable]


def energy_over(scored: Sequence[Scored]) -> str:
    """Kind of the best energy model; where none was of use, the one over the better of copula and mixture."""
    mean = {s.kind: s.mean for s in scored}
    tried = [kind for kind in ("energy", "energy-mixture") if kind in mean]
    if tried:
        return max(tried, key=lambda kind: mean[kind])
    return "energy" if mean["copula"] >= mean["mixture"] else "energy-mixture"


def choose(scored: Sequence[Scored]) -> Scored:
    """Simplest candidate that is not clearly behind the best; candidates come simplest first."""
    best = max(scored, key=lambda s: s.mean)
    rivals = [s for s in scored if s is not best and _close(s, best, TOLERANCE.get(best.kind, USUAL_TOLERANCE))]
    if best.kind in TOLERANCE and rivals:
        # Beaten to a draw by cheaper models: the choice is now among those.
        return choose([s for s in scored if s.kind not in TOLERANCE])
    before = scored[: scored.index(best)]
    return next((s for s in before if s in rivals), best)


def _close(candidate: Scored, best: Scored, tolerance: float) -> bool:
    """Whether a candidate is behind the best by no more than the noise of their paired difference."""
    gap = (best.log_likelihood - candidate.log_likelihood).reshape(-1, MASKS_PER_ROW).mean(axis=1)
    error = float(gap.std(ddof=1) / np.sqrt(len(gap)))
    return bool(gap.mean() <= max(tolerance * error, NEGLIGIBLE_NATS))


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
