"""Model error of conditional values: refits, members of an ensemble and rivals, as variances."""

from __future__ import annotations

import numpy as np
import pytest

from attribution_sched.attribution.conditionals.gaussian import GaussianConditional
from attribution_sched.attribution.uncertainty import FOLD, REFIT, REPEAT, RIVAL, Uncertainty

CELLS = (200, 7)


def beside(*entries):
    """Models that answer what is given, each with a role and a weight."""
    models = tuple(GaussianConditional() for _ in entries)
    answers = {id(model): np.asarray(answer) for model, (answer, _, _) in zip(models, entries, strict=True)}
    made = Uncertainty(models, tuple(role for _, role, _ in entries), tuple(weight for _, _, weight in entries))
    return made, lambda model, _: answers[id(model)]


def ensemble(rng, folds, data, chance, repeat=True):
    """Members of a delete-a-group jackknife of an estimate with that error, and their own noise by their starts."""
    parts = rng.normal(size=(folds, *CELLS)) * data * np.sqrt(folds)
    whole = parts.mean(axis=0)
    left = [(parts.sum(axis=0) - part) / (folds - 1) for part in parts]
    members = [(m + chance * rng.normal(size=CELLS), FOLD, (folds - 1) / folds) for m in left]
    again = [(left[0] + chance * rng.normal(size=CELLS), REPEAT, 0.0)] if repeat else []
    return whole, [*members, *again]


def test_a_jackknife_gives_the_error_of_the_whole():
    whole, members = ensemble(np.random.default_rng(0), 6, 0.3, 0.0)
    made, solve = beside(*members)
    error, _ = made.total(np.zeros(CELLS), 3, whole, solve)
    assert np.sqrt(np.square(error).mean()) == pytest.approx(0.3, rel=0.05)


def test_what_members_differ_by_from_chance_is_taken_off():
    rng = np.random.default_rng(1)
    whole, members = ensemble(rng, 6, 0.3, 0.2)
    made, solve = beside(*members)
    error, _ = made.total(np.zeros(CELLS), 3, whole, solve)
    assert np.sqrt(np.square(error).mean()) == pytest.approx(0.3, rel=0.15)
    made, solve = beside(*[m for m in members if m[1] == FOLD])
    error, _ = made.total(np.zeros(CELLS), 3, whole, solve)
    assert np.sqrt(np.square(error).mean()) > 0.45, "without the repeat, starts count as rows"


def test_refits_count_by_their_mean_square_and_rivals_by_their_chance():
    phi = np.zeros(CELLS)
    made, solve = beside((phi + 1.0, REFIT, 0.5), (phi - 1.0, REFIT, 0.5), (phi + 2.0, RIVAL, 0.25))
    error, _ = made.total(np.full(CELLS, 0.25), 3, phi, solve)
    np.testing.assert_allclose(np.square(error), 0.25 + 1.0 + 0.25 * 4.0)


def test_distilling_is_counted_once():
    made, solve = beside(*[(np.full(CELLS, 0.5), FOLD, 5 / 6)] * 6)
    error, _ = made.total(np.zeros(CELLS), 3, np.zeros(CELLS), solve)
    np.testing.assert_allclose(error, 0.5)
