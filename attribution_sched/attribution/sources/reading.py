"""What every counter source returns: named values with units, and how each number was got."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from attribution_sched.errors import CounterError, problem


class Provenance(StrEnum):
    """How a number was got."""

    MEASURED = "measured"
    ESTIMATED = "estimated"
    SIMULATED = "simulated"
    UNAVAILABLE = "unavailable"


# From most to least trusted: a number computed from two others is only as good as the worse one.
_TRUST = (Provenance.MEASURED, Provenance.ESTIMATED, Provenance.SIMULATED, Provenance.UNAVAILABLE)


@dataclass(frozen=True)
class Reading:
    """One look at a set of counters.

    An unavailable counter is NaN and carries a reason; every other value is finite. There is no third case,
    so a zero in a reading always means that zero was seen.

    Attributes:
        values: Counter name to value.
        units: Counter name to unit, for example ``J``, ``cycles``, ``bytes/s``.
        provenance: Counter name to how the value was got.
        notes: Counter name to a sentence; required where the value is unavailable, allowed elsewhere.
        timestamp_s: Unix time of the reading.
        cumulative: Names whose value is a running total since the source was opened; the rest are levels.
    """

    values: Mapping[str, float]
    units: Mapping[str, str]
    provenance: Mapping[str, Provenance]
    notes: Mapping[str, str] = field(default_factory=dict)
    timestamp_s: float = 0.0
    cumulative: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        names = set(self.values)
        for title, keys in (("units", self.units), ("provenance", self.provenance)):
            if set(keys) != names:
                odd = sorted(names.symmetric_difference(keys))
                raise CounterError(
                    problem(title, odd, "must name exactly the counters of values", "Add or drop these names")
                )
        stray = (set(self.notes) | self.cumulative) - names
        if stray:
            raise CounterError(problem("notes/cumulative", sorted(stray), "names no counter", "Drop these names"))
        for name, value in self.values.items():
            self._check(name, float(value))
        object.__setattr__(self, "values", MappingProxyType({k: float(v) for k, v in self.values.items()}))
        object.__setattr__(self, "units", MappingProxyType(dict(self.units)))
        object.__setattr__(self, "provenance", MappingProxyType({k: Provenance(v) for k, v in self.provenance.items()}))
        object.__setattr__(self, "notes", MappingProxyType(dict(self.notes)))

    def _check(self, name: str, value: float) -> None:
        missing = Provenance(self.provenance[name]) is Provenance.UNAVAILABLE
        if missing and not math.isnan(value):
            raise CounterError(problem(name, value, "an unavailable counter is NaN", "Set it to NaN"))
        if missing and not self.notes.get(name):
            raise CounterError(problem(name, value, "an unavailable counter needs a reason", "Add notes[name]"))
        if not missing and not math.isfinite(value):
            raise CounterError(
                problem(name, value, "an available counter is finite", "Mark it unavailable and say why")
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Counter names in reading order."""
        return tuple(self.values)

    @property
    def available(self) -> tuple[str, ...]:
        """Names that have a number."""
        return tuple(n for n in self.values if self.provenance[n] is not Provenance.UNAVAILABLE)


@runtime_checkable
class Source(Protocol):
    """Anything that can be read for counters."""

    def read(self) -> Reading:
        """Read every counter of this source once."""
        ...


class ReadingBuilder:
    """Collects counters one by one and freezes them into a `Reading`."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        self._units: dict[str, str] = {}
        self._provenance: dict[str, Provenance] = {}
        self._notes: dict[str, str] = {}
        self._cumulative: set[str] = set()

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        provenance: Provenance = Provenance.MEASURED,
        note: str = "",
        cumulative: bool = False,
    ) -> None:
        """Add one counter that has a number."""
        self._values[name], self._units[name], self._provenance[name] = float(value), unit, provenance
        if note:
            self._notes[name] = note
        if cumulative:
            self._cumulative.add(name)

    def missing(self, name: str, unit: str, reason: str, cumulative: bool = False) -> None:
        """Add one counter that has none, and why."""
        self.add(name, math.nan, unit, Provenance.UNAVAILABLE, reason, cumulative)

    def build(self, timestamp_s: float) -> Reading:
        """Freeze what was collected."""
        return Reading(
            self._values,
            self._units,
            self._provenance,
            self._notes,
            timestamp_s,
            frozenset(self._cumulative),
        )


def worst(provenances: Iterable[Provenance]) -> Provenance:
    """The least trusted of several provenances (measured when there is none)."""
    return max(provenances, key=_TRUST.index, default=Provenance.MEASURED)


def difference(before: Reading, after: Reading) -> Reading:
    """What happened between two readings of one source: totals are subtracted, levels taken from ``after``.

    Args:
        before: Earlier reading.
        after: Later reading of the same source.
    """
    if after.timestamp_s < before.timestamp_s:
        raise CounterError(
            problem(
                "after.timestamp_s",
                after.timestamp_s,
                f"lies before the first reading ({before.timestamp_s})",
                "Swap the readings",
            )
        )
    if set(before.names) != set(after.names):
        odd = sorted(set(before.names).symmetric_difference(after.names))
        raise CounterError(problem("readings", odd, "must hold the same counters", "Read one source twice"))
    out = ReadingBuilder()
    for name in after.names:
        running = name in after.cumulative
        value = after.values[name] - before.values[name] if running else after.values[name]
        pair = (before, after) if running else (after,)
        label = worst(r.provenance[name] for r in pair)
        note = next((r.notes[name] for r in reversed(pair) if name in r.notes), "")
        if label is not Provenance.UNAVAILABLE and running and value < 0:
            raise CounterError(
                problem(name, value, "a running total cannot fall", "Read one source twice, oldest first")
            )
        out.add(name, value, after.units[name], label, note)
    return out.build(after.timestamp_s)
