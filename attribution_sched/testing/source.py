"""What a source of counters must keep: nothing is missing in silence, and what counts up never counts down."""

from __future__ import annotations

import math

from attribution_sched.attribution.sources.reading import Reading, Source
from attribution_sched.testing.contract import asked, require

READS = 3
"""Readings of a check."""


def check_source(source: Source, reads: int = READS) -> None:
    """Read a source a few times and hold its readings to the contract.

    What a :class:`Reading` is held to when it is made (units, provenance, a reason for what is missing) needs no check
    here. The counters are the same each time, and cumulative ones do not fall.

    Args:
        source: The source.
        reads: How often it is read.

    Raises:
        ContractError: Field, value, rule and fix of the first thing it does not keep.
    """
    last: dict[str, float] = {}
    names: tuple[str, ...] | None = None
    for _ in range(reads):
        with asked("source.read"):
            reading = source.read()
        fix = "Make it with ReadingBuilder, which holds it to units, provenance and reasons"
        require(isinstance(reading, Reading), "source.read", type(reading).__name__, "must give a Reading", fix)
        here = tuple(sorted(reading.values))
        names = here if names is None else names
        fix = "Give NaN with a reason for a counter that is not there now"
        require(here == names, "source.read", here, "must have the same counters each time", fix)
        for name in sorted(reading.cumulative):
            value, before = reading.values[name], last.get(name, -math.inf)
            risen = math.isnan(value) or value >= before
            require(
                risen, f"source.read().values[{name!r}]", value, f"counts up, and was {before} before", "Add up wraps"
            )
            last[name] = before if math.isnan(value) else value
