"""Counters that come with a task: checked, and with how each of them was got."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.errors import CounterError, nearest, problem
from attribution_sched.journal.records import PROVENANCES
from attribution_sched.limits import check_counter
from attribution_sched.system.results import ATTRIBUTED
from attribution_sched.types import FloatArray

MEASURED, SIMULATED, UNAVAILABLE = "measured", "simulated", "unavailable"


def checked(counters: Any, provenance: Any) -> tuple[dict[str, float], dict[str, str]]:
    """The readings that came with a task, and how each of the twelve counters was got.

    A reading is measured unless its provenance says otherwise. A counter that is said to be unavailable has no reading
    (or None). Of a task some of whose counters were read, the others of the seven are unavailable: EmSHAP carries them.
    A task of which nothing was read is simulated.

    Args:
        counters: Counter → reading.
        provenance: Counter → measured, estimated, simulated or unavailable.

    Returns:
        Readings by counter, and the provenance of every counter.

    Raises:
        CounterError: If a counter does not exist, or its reading is no number, negative, or more than any machine
            shows; if its provenance is not one of the four words or contradicts its reading.
    """
    for where, mapping in (("counters", counters), ("provenance", provenance)):
        if not isinstance(mapping, Mapping):
            fix = "Leave it out to have counters simulated"
            raise CounterError(problem(where, mapping, f"must be a mapping from counter to {_VALUES[where]}", fix))
        for name in mapping:
            if name not in COUNTER_NAMES:
                raise CounterError(problem("counter", name, "does not exist", nearest(name, COUNTER_NAMES)))
    for name, word in provenance.items():
        if not isinstance(word, str) or word not in PROVENANCES:
            rule = f"must be one of {', '.join(PROVENANCES)}"
            raise CounterError(problem(f"provenance[{name!r}]", word, rule, nearest(word, PROVENANCES)))
    how = dict.fromkeys(COUNTER_NAMES, SIMULATED)
    readings: dict[str, float] = {}
    for name, value in counters.items():
        if provenance.get(name, MEASURED) == UNAVAILABLE and (value is None or _is_nan(value)):
            continue
        readings[name] = number(name, value)
        check_counter(name, readings[name])
        how[name] = MEASURED
    for name, word in provenance.items():
        if (word == UNAVAILABLE) == (name in readings):
            rule = "the counter has a reading" if name in readings else "the counter has no reading"
            fix = "Leave the reading out" if name in readings else "Give its reading, or call it unavailable"
            raise CounterError(problem(f"provenance[{name!r}]", word, rule, fix))
        how[name] = str(word)
    if readings:
        how |= {name: UNAVAILABLE for name in ATTRIBUTED if name not in readings}
    return readings, how


_VALUES = {"counters": "reading", "provenance": "how it was got"}


def number(name: str, value: Any) -> float:
    """A reading as a number.

    Raises:
        CounterError: If it is none, not finite or negative.
    """
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    try:
        float_value = float(value) if real else math.nan
    except OverflowError:
        float_value = math.inf
    if not math.isfinite(float_value) or float_value < 0:
        fix = "Repair the reading, or leave all counters out to have them simulated"
        raise CounterError(problem(f"counters[{name!r}]", value, "must be a finite number >= 0", fix))
    return float_value


def readings_of(readings: Any, usual: FloatArray) -> FloatArray:
    """Counters as an array, shape ``(12,)``; those nobody measured are as usual, and their provenance says so.

    Args:
        readings: Counter → reading.
        usual: What the simulation shows for such a task, shape ``(12,)``.

    Raises:
        CounterError: If one is unknown, not finite or negative.
    """
    if not isinstance(readings, Mapping):
        fix = "Leave counters out to have them simulated"
        raise CounterError(problem("counters", readings, "must be a mapping from counter to reading", fix))
    values = usual.copy()
    for name, value in readings.items():
        if name not in COUNTER_NAMES:
            raise CounterError(problem("counter", name, "does not exist", nearest(name, COUNTER_NAMES)))
        values[COUNTER_NAMES.index(name)] = number(name, value)
    return values


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | np.floating) and math.isnan(value)
