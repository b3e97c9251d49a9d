"""Attribution vectors of tasks, kept by what was measured of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.attribution.vector import AttributionVector, single
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.errors import SettingsError, problem

if TYPE_CHECKING:
    from attribution_sched.attribution.linear import LinearAttribution

FloatArray = NDArray[np.float64]

MOST = 2048
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
    """Counters in, attribution vector out; the least recently used are forgotten first.

    Args:
        attributor: In joules if it can say them (``LinearAttribution``); else any function from counters ``(n, 12)`` to
            shares ``(n, 7)`` in [-1, 1].
        most: How many to keep.
    """

    def __init__(self, attributor: Any, most: int = MOST) -> None:
        if most < 1:
            raise SettingsError(problem("most", most, "must be >= 1", f"Use {MOST}"))
        if not callable(attributor):
            rule = "must be a LinearAttribution or a function from counters (n, 12) to shares (n, 7)"
            raise SettingsError(problem("attributor", attributor, rule, "Leave it out to have one fitted"))
        self.attributor: LinearAttribution | Callable[[FloatArray], FloatArray] = attributor
        self._most = most
        self._kept: OrderedDict[bytes, AttributionVector] = OrderedDict()
        self._hits = 0
        self._misses = 0

    @property
    def use(self) -> CacheUse:
        """Hits and misses so far."""
        return CacheUse(self._hits, self._misses, len(self._kept), self._most)

    def __call__(self, counters: FloatArray) -> AttributionVector:
        """The vector of one task, by its counters, shape ``(12,)``."""
        signature = np.ascontiguousarray(counters, dtype=np.float64).tobytes()
        found = self._kept.get(signature)
        if found is not None:
            self._hits += 1
            self._kept.move_to_end(signature)
            return found
        self._misses += 1
        self._kept[signature] = found = attribute(self.attributor, counters)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return found


def attribute(attributor: Any, counters: FloatArray) -> AttributionVector:
    """Where the joules of one task go.

    An energy model that knows joules gives joules per sample above the typical task, which is the base. One that only
    gives shares has them in [-1, 1], without a base.

    Raises:
        SettingsError: If a function gives something else.
    """
    row = np.asarray(counters, dtype=np.float64)[None]
    if not hasattr(attributor, "joules"):
        given = attributor(row)
        try:
            shares = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            shares = np.empty(0)
        if shares.shape != (1, len(DEMAND_NAMES)) or not np.isfinite(shares).all():
            rule = f"must give one finite row of {len(DEMAND_NAMES)} shares for a row of counters"
            raise SettingsError(problem("attributor", given, rule, "Return an array of shape (n, 7) for (n, 12)"))
        return single(shares[0], DEMAND_NAMES, 0.0, units="share", method="attributor", provenance={"estimated": True})
    model: LinearAttribution = attributor
    base = float(np.exp(model.base)) if model.log_energy else model.base
    facts = {"estimated": True, "r_squared": model.r_squared, "tasks": model.rows, "coalitions": "all"}
    return single(model.joules(row)[0], model.names, base, units="J/sample", method="closed form", provenance=facts)
