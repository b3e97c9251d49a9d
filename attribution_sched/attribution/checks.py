"""Checks of what a user hands in: rows, column names and predictions. One clear error each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attribution_sched.errors import ModelFitError, nearest, problem
from attribution_sched.types import FloatArray

Predictor = Callable[[FloatArray], Any] | Any

MINIMUM_ROWS = 50


def as_rows(x: Any, names: Sequence[str] | None) -> tuple[FloatArray, tuple[str, ...]]:
    """Turn an array, a data frame or a single row into (n, d) floats and d names.

    Args:
        x: Rows; a data frame brings its own names.
        names: Names of the columns, or None to take the frame's, else ``x0 … x{d-1}``.
    """
    column_names = [str(c) for c in x.columns] if hasattr(x, "columns") else None
    try:
        array = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        rule = "every counter must be a number"
        raise ModelFitError(problem("X", type(x).__name__, rule, "Encode or drop the other columns.")) from error
    if array.ndim != 2 or array.shape[1] == 0:
        rule = "rows must be a table (n, d) with at least one column"
        raise ModelFitError(problem("X", array.shape, rule, "Pass one row for each observation."))
    chosen = tuple(names) if names is not None else tuple(column_names or (f"x{j}" for j in range(array.shape[1])))
    if len(chosen) != array.shape[1]:
        rule = f"there are {array.shape[1]} columns"
        raise ModelFitError(problem("names", chosen, rule, "Give one name for each column."))
    if len(set(chosen)) != len(chosen):
        raise ModelFitError(problem("names", chosen, "must differ from each other", "Rename the repeated counter."))
    check_finite(array, chosen)
    return array, chosen


def check_finite(x: FloatArray, names: Sequence[str]) -> None:
    """Refuse NaN and infinite counters, naming the first."""
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        rule = "counters must be finite numbers"
        fix = f"{len(bad)} such value(s) in X; drop or repair those rows."
        raise ModelFitError(problem(f"X[{row}, {names[column]!r}]", float(x[row, column]), rule, fix))


def check_training(x: FloatArray, names: Sequence[str]) -> None:
    """Refuse training rows no joint distribution can be learnt from: too few, constant or repeated columns."""
    if len(x) < MINIMUM_ROWS:
        rule = f"at least {MINIMUM_ROWS} rows are needed to learn how the counters move together"
        raise ModelFitError(problem("X rows", len(x), rule, "Record more before fitting."))
    if x.shape[1] < 2:
        rule = "at least two counters are needed"
        raise ModelFitError(
            problem("X columns", x.shape[1], rule, "One counter takes the whole prediction by definition.")
        )
    spread, reach = x.std(axis=0), np.abs(x).max(axis=0)
    for constant in np.flatnonzero(spread <= 1e-12 * np.maximum(reach, 1e-300)):
        j = int(constant)
        rule = "a constant column carries no information"
        raise ModelFitError(problem(f"X[:, {names[j]!r}]", float(x[0, j]), rule, f"Drop {names[j]!r}."))
    z = (x - x.mean(axis=0)) / spread
    correlation = np.abs(z.T @ z) / len(x)
    twins = np.argwhere(np.triu(correlation, 1) > 1 - 1e-10)
    if len(twins):
        i, j = (int(k) for k in twins[0])
        rule = f"is a copy of {names[i]!r} up to scale, so their shares cannot be told apart"
        raise ModelFitError(problem("column", names[j], rule, f"Drop one of the two ({names[i]!r}, {names[j]!r})."))
    size, direction = np.linalg.eigh(z.T @ z / len(x))
    if size[0] < 1e-10:
        involved = tuple(names[int(k)] for k in np.flatnonzero(np.abs(direction[:, 0]) > 0.05))
        rule = "these columns are a linear combination of each other"
        raise ModelFitError(problem("X columns", involved, rule, "Drop the one that is a total of the others."))


def match_rows(x: Any, names: tuple[str, ...], *, missing: bool = False) -> tuple[FloatArray, bool]:
    """Bring query rows into the fitted column order; say whether a single row (d,) was given.

    Args:
        x: One row (d,), rows (n, d), or a data frame with the fitted columns.
        names: The fitted columns.
        missing: Let NaN through: it stands for a counter that could not be read.
    """
    if hasattr(x, "columns"):
        columns = [str(c) for c in x.columns]
        for column in columns:
            if column not in names:
                rule = "is a column the model never saw"
                raise ModelFitError(problem("column", column, rule, nearest(column, names)))
        for name in names:
            if name not in columns:
                raise ModelFitError(problem("column", name, "was fitted but is missing", f"Columns given: {columns}."))
        x = x[[x.columns[columns.index(name)] for name in names]]
    array = np.asarray(x, dtype=np.float64)
    alone = array.ndim == 1
    array = np.atleast_2d(array)
    if array.ndim != 2 or array.shape[1] != len(names) or len(array) == 0:
        rule = f"the model was fitted on {len(names)} columns {names} and never saw others"
        raise ModelFitError(problem("X", array.shape, rule, "Pass exactly those columns, in that order."))
    check_finite(np.where(np.isnan(array), 0.0, array) if missing else array, names)
    return array, alone


def predictor(f: Predictor, names: tuple[str, ...], nonnegative: bool) -> Callable[[FloatArray], FloatArray]:
    """Wrap a callable or an object with ``predict`` so that its answers are checked.

    Args:
        f: Function of rows (n, d), or an object with ``predict``.
        names: Column names, for estimators that were fitted on a data frame.
        nonnegative: Refuse predictions below zero (an energy cannot be negative).
    """
    call = f.predict if hasattr(f, "predict") else f
    if not callable(call):
        rule = "must be a function of rows (n, d) or have a predict method"
        raise ModelFitError(problem("f", type(f).__name__, rule, "Pass the energy model itself."))
    framed = hasattr(f, "feature_names_in_")

    def predict(rows: FloatArray) -> FloatArray:
        inputs: Any = rows
        if framed:
            import pandas as pd

            inputs = pd.DataFrame(rows, columns=list(names))
        answer = np.asarray(call(inputs), dtype=np.float64)
        if answer.shape not in ((len(rows),), (len(rows), 1)):
            rule = f"one number for each of {len(rows)} rows is expected"
            raise ModelFitError(problem("f(X) shape", answer.shape, rule, "Explain one output at a time."))
        answer = answer.reshape(len(rows))
        if not np.isfinite(answer).all():
            worst = answer[~np.isfinite(answer)][0]
            rule = "the energy model must return finite numbers"
            raise ModelFitError(problem("f(X)", float(worst), rule, "Check it on rows inside the training range."))
        if nonnegative and (answer < 0).any():
            rule = "an energy cannot be negative"
            fix = "Repair the energy model, or fit with nonnegative=False for a signed quantity."
            raise ModelFitError(problem("f(X)", float(answer.min()), rule, fix))
        return answer

    return predict
