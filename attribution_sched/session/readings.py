"""Counters that came with a task: each bounded, and each with how it was got."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.errors import CounterError, nearest, problem
from attribution_sched.journal.records import PROVENANCES
from attribution_sched.limits import check_counter

FloatArray = NDArray[np.float64]

ATTRIBUTED: tuple[str, ...] = COUNTER_NAMES[:7]
"""Counters that joules are attributed to."""

MEASURED, SIMULATED, UNAVAILABLE = "measured", "simulated", "unavailable"


def checked(counters: Any, provenance: Any) -> tuple[dict[str, float], dict[str, str]]:
    """The readings that came with a task, and how each of the twelve counters was got.

    A reading is measured unless its provenance says otherwise. A counter that is said to be unavailable has no reading
    (or None); the simulation stands in for it. One that is not named at all is simulated.

    Args:
        counters: Counter → reading.
        provenance: Counter → measured, estimated, simulated or unavailable.

    Returns:
        Readings by counter, and the provenance of every counter.

    Raises:
        CounterError: If a counter does not exist, or its reading is no number, negative, or more than any machine
            shows; if its provenance is not one of the four words or contradicts its reading.
    """
    for field, given in (("counters", counters), ("provenance", provenance)):
        if not isinstance(given, Mapping):
            fix = "Leave it out to have counters simulated"
            raise CounterError(problem(field, given, f"must be a mapping from counter to {_VALUES[field]}", fix))
        for name in given:
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
    return readings, how


_VALUES = {"counters": "reading", "provenance": "how it was got"}


def number(name: str, value: Any) -> float:
    """A reading as a number.

    Raises:
        CounterError: If it is none, not finite or negative.
    """
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    try:
        found = float(value) if real else math.nan
    except OverflowError:
        found = math.inf
    if not math.isfinite(found) or found < 0:
        fix = "Repair the reading, or leave all counters out to have them simulated"
        raise CounterError(problem(f"counters[{name!r}]", value, "must be a finite number >= 0", fix))
    return found


def readings_of(given: Any, usual: FloatArray, unavailable: Collection[str] = ()) -> FloatArray:
    """Counters as an array, shape ``(12,)``; those nobody measured beyond the seven are taken as usual.

    Args:
        given: Counter → reading.
        usual: What the simulation shows for such a task, shape ``(12,)``.
        unavailable: Counters that could not be read, for which the simulation stands in.

    Raises:
        CounterError: If one is unknown, missing, not finite or negative.
    """
    if not isinstance(given, Mapping):
        fix = "Leave counters out to have them simulated"
        raise CounterError(problem("counters", given, "must be a mapping from counter to reading", fix))
    found = usual.copy()
    for name, value in given.items():
        if name not in COUNTER_NAMES:
            raise CounterError(problem("counter", name, "does not exist", nearest(name, COUNTER_NAMES)))
        found[COUNTER_NAMES.index(name)] = number(name, value)
    missing = [name for name in ATTRIBUTED if name not in given and name not in unavailable]
    if missing:
        rule = f"all seven attributed counters are needed, {', '.join(missing)} is missing"
        fix = "Measure it, call it unavailable in provenance, or leave all counters out"
        raise CounterError(problem("counters", sorted(given), rule, fix))
    return found


def in_a_word(how: Mapping[str, str]) -> str:
    """How the counters that joules are attributed to were got, in a word, or how many in which way."""
    words = [how[name] for name in ATTRIBUTED]
    counts = [(word, words.count(word)) for word in PROVENANCES if word in words]
    return counts[0][0] if len(counts) == 1 else ", ".join(f"{number} {word}" for word, number in counts)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | np.floating) and math.isnan(value)
