"""The whole state of a field as named arrays and back: clusters, link forecasts, returns of the episodes under way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.errors import CheckpointError, problem
from attribution_sched.scheduler.hi_ppo.field import Field
from attribution_sched.scheduler.ppo.run_state import restore_engine, state_to_tensors
from attribution_sched.storage import Arrays

ENGINE, FORECAST, RUNNING = "engine.", "forecast.", "running"


def field_arrays(field: Field) -> Arrays:
    """Copies of everything that changes while a field runs, except the list of returns."""
    arrays = {ENGINE + name: array for name, array in state_to_tensors(field.engine).items()}
    return {**arrays, **_forecast(field), RUNNING: field._running.copy()}


def restore_field(field: Field, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Bring a field to a stored state; nothing changes if it does not fit.

    Raises:
        CheckpointError: If an array is missing, surplus or of another form, or the world is another one.
    """
    own = _forecast(field) | {RUNNING: field._running}
    engine = {name.removeprefix(ENGINE): array for name, array in arrays.items() if name.startswith(ENGINE)}
    given = {name: array for name, array in arrays.items() if not name.startswith(ENGINE)}
    odd = sorted(set(own) ^ set(given))
    if odd:
        raise CheckpointError(problem("field state", odd[0], "is missing or not known", "Use an untouched copy"))
    for name, array in own.items():
        if given[name].shape != array.shape or given[name].dtype != array.dtype:
            rule = f"must be {array.shape} of {array.dtype}"
            form = (given[name].shape, str(given[name].dtype))
            raise CheckpointError(problem(f"field {name}", form, rule, "Build the field it was saved with"))
    restore_engine(field.engine, engine)
    field._running[...] = given[RUNNING]
    if field.forecast is not None:
        fields = type(field.forecast._state)._fields
        field.forecast._state = field.forecast._state._replace(
            **{name: np.array(given[FORECAST + name]) for name in fields}
        )


def keep_clusters(field: Field, rows: NDArray[np.bool_], arrays: Arrays) -> None:
    """Overwrite the stored state of some clusters by what it is now."""
    for name, array in field_arrays(field).items():
        # The mark of the world is the only array that does not have the clusters on its first axis.
        if name != f"{ENGINE}world":
            arrays[name][rows] = array[rows]


def _forecast(field: Field) -> Arrays:
    if field.forecast is None:
        return {}
    return {FORECAST + name: np.array(array) for name, array in field.forecast._state._asdict().items()}
