"""Vectors of tasks by what was measured of them, so that each is worked out once."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from attribution_sched.attribution.attributor import TaskAttributor
from attribution_sched.attribution.vector import AttributionVector, measured
from attribution_sched.errors import SettingsError, problem
from attribution_sched.types import FloatArray, Task

MOST_VECTORS = 2048
"""Vectors that are kept by default."""


@dataclass(frozen=True)
class CacheUse:
    """How much a cache was worth.

    Attributes:
        hits: Vectors that were there.
        misses: Vectors that had to be worked out.
        kept: Vectors in it now.
        most: How many it holds at most.
    """

    hits: int
    misses: int
    kept: int
    most: int

    @property
    def hit_rate(self) -> float | None:
        """Share of questions that it could answer; None before the first."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None


class AttributionCache:
    """A measured task in, attribution vector out; the least recently used are forgotten first.

    Args:
        attributor: Who works them out, see :func:`~attribution_sched.attribution.attributor.as_attributor`.
        most: How many to keep.
    """

    def __init__(self, attributor: TaskAttributor, most: int = MOST_VECTORS) -> None:
        if most < 1:
            raise SettingsError(problem("most", most, "must be >= 1", f"Use {MOST_VECTORS}"))
        self.attributor = attributor
        self._most = most
        self._kept: OrderedDict[bytes, AttributionVector] = OrderedDict()
        self._hits = 0
        self._misses = 0
        self._spent_s = 0.0

    def spent_s(self) -> float:
        """Seconds spent since this was last asked: tasks are attributed when they come, not when decided on."""
        spent, self._spent_s = self._spent_s, 0.0
        return spent

    @property
    def use(self) -> CacheUse:
        """Hits and misses so far."""
        return CacheUse(self._hits, self._misses, len(self._kept), self._most)

    def __call__(self, task: Task | FloatArray) -> AttributionVector:
        """The vector of one task, or of bare counters ``(12,)``."""
        began = time.perf_counter()
        known = measured(task)
        unread = [name for name, way in known.provenance.items() if way == "unavailable"]
        about = f"{known.samples_per_s!r} {known.training} {known.measured_devices} {unread}"
        signature = np.ascontiguousarray(known.counters, dtype=np.float64).tobytes() + about.encode()
        found = self._kept.get(signature)
        if found is not None:
            self._hits += 1
            self._kept.move_to_end(signature)
        else:
            self._misses += 1
            self._kept[signature] = found = self.attributor.vector(known)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        self._spent_s += time.perf_counter() - began
        return found
