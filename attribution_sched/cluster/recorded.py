"""Futures of a recorded log: what came comes again, and tasks take as long as their tenants' tasks have taken.

What a recording holds further on is nobody's to know. Arrivals are its own past, drawn anew in stretches of some hours
(the circular block bootstrap of Politis and Romano 1992), so that bursts stay bursts. How long a task takes is drawn
from what its tenant's tasks took, those that ended since the run began included, and tasks that one tenant hands in one
after the other take about as long as each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.philly import PhillyWeek, history_s
from attribution_sched.types import FloatArray, IntArray

BLOCK_S = 21_600.0
"""Stretches of the past that come again are so long."""

SESSION_GAP_S = 180.0
"""Tasks of a tenant that came closer together belong to one session."""

ALIKE_ONE, ALIKE_WIDE = 0.65, 0.45
"""Correlation of how long tasks of one session take, on one device and on several: within sessions of the log before
its test weeks, 0.77, 0.66, 0.45, 0.64 and 0.36, 0.62, 0.29, 0.60 in its four weeks."""

PRIOR_TASKS = 8.0
"""What a tenant's history from before counts for, in tasks that ended since."""


class Lengths:
    """How long tasks of a tenant take: its history from before, those that ended since, those that still run.

    The product-limit estimate (Kaplan and Meier 1958): a task that runs counts for as long as it has run, so that the
    short ones, which end first, do not make all look short.

    Args:
        tenant: Whose.
        wide: On several devices, or on one: the first take far longer.
        ended_s: Seconds alone of the tasks that ended.
        running_s: Seconds that those which still run have done.
    """

    def __init__(self, tenant: str, wide: bool, ended_s: Sequence[float] = (), running_s: Sequence[float] = ()) -> None:
        prior = history_s(tenant, wide)
        times = np.concatenate([prior, ended_s, running_s])
        weights = np.concatenate([np.full(len(prior), PRIOR_TASKS / len(prior)), np.ones(len(times) - len(prior))])
        ends = np.arange(len(times)) < len(prior) + len(ended_s)
        # At the same age those that end count before those that go on.
        order = np.lexsort((~ends, times))
        at_risk = np.cumsum(weights[order][::-1])[::-1]
        survival = np.cumprod(1.0 - weights[order] * ends[order] / at_risk)
        kept = ends[order]
        self.times_s, self.survival = times[order][kept], survival[kept]

    def left_s(self, done_s: float, levels: FloatArray) -> FloatArray:
        """What is left of a task that has done so much, at levels in [0, 1) of those that take longer."""
        past = int(np.searchsorted(self.times_s, done_s, side="right"))
        beyond = self.survival[past - 1] if past else 1.0
        if past == len(self.times_s) or beyond <= 0.0:
            # Older than anything known: a tenth of what it has done already, and a minute at least.
            return np.full(len(levels), max(60.0, 0.1 * done_s))
        at = np.searchsorted(-self.survival, -beyond * (1.0 - levels))
        return np.maximum(1.0, self.times_s[np.minimum(at, len(self.times_s) - 1)] - done_s)


@cache
def lengths_before(tenant: str, wide: bool) -> Lengths:
    """How long a tenant's tasks take by its history from before alone."""
    return Lengths(tenant, wide)


@cache
def _requests(arrivals: PhillyWeek) -> tuple[tuple[str, ...], IntArray]:
    """Tenants and devices of a week's tasks in order of arrival."""
    drawn = arrivals.draw()
    return drawn.tenants, drawn.devices


class Coming(NamedTuple):
    """Tasks that come in one future, shape ``(n,)`` each.

    Attributes:
        times_s: When.
        tenants: Whose.
        devices: Asked for.
        lasts_s: How long each takes alone.
    """

    times_s: FloatArray
    tenants: tuple[str, ...]
    devices: IntArray
    lasts_s: FloatArray


class Recorded:
    """What may come after a moment of a recorded log.

    Args:
        arrivals: The log; only what lies before the moment is looked at.
        past_s: When its tasks came so far.
        lasted: Tenant and whether on several devices → seconds of its tasks that ended last.
        running: Tenant, whether on several devices and seconds done of every task that runs.
    """

    def __init__(
        self,
        arrivals: PhillyWeek,
        past_s: FloatArray,
        lasted: Mapping[tuple[str, bool], Sequence[float]],
        running: Sequence[tuple[str, bool, float]],
    ) -> None:
        self.past_s = past_s
        self.tenants, self.devices = _requests(arrivals)
        self._lasted, self._running = lasted, running
        self._lengths: dict[tuple[str, bool], Lengths] = {}
        known = list(zip(self.tenants[: len(past_s)], (self.devices[: len(past_s)] > 1).tolist(), strict=True))
        self._groups = list(dict.fromkeys(known))
        codes = {whose: code for code, whose in enumerate(self._groups)}
        self._whose = np.array([codes[whose] for whose in known], dtype=np.int64)

    def lengths(self, tenant: str, wide: bool) -> Lengths:
        """How long a tenant's tasks take."""
        if (tenant, wide) not in self._lengths:
            done = [done_s for who, large, done_s in self._running if (who, large) == (tenant, wide) and done_s > 0.0]
            self._lengths[tenant, wide] = Lengths(tenant, wide, self._lasted.get((tenant, wide), ()), done)
        return self._lengths[tenant, wide]

    def coming(self, now_s: float, until_s: float, most: int, rng: np.random.Generator) -> Coming:
        """The tasks of one future, at most so many."""
        times, rows = self._again(now_s, until_s, rng)
        times, rows = times[:most], rows[:most]
        normals, lasts, whose = rng.standard_normal(len(rows)), np.zeros(len(rows)), self._whose[rows]
        for code in np.unique(whose).tolist():
            own, (tenant, wide) = np.flatnonzero(whose == code), self._groups[code]
            levels = levels_of(_alike(normals[own], ALIKE_WIDE if wide else ALIKE_ONE))
            lasts[own] = self.lengths(tenant, wide).left_s(0.0, levels)
        return Coming(times, tuple(self.tenants[row] for row in rows.tolist()), self.devices[rows], lasts)

    def _again(self, now_s: float, until_s: float, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
        """When tasks come, and which of the past ones each is again; the end of the past is followed by its begin."""
        if len(self.past_s) == 0 or now_s <= 0.0:
            return np.zeros(0), np.zeros(0, dtype=np.int64)
        length, at_s, times, rows = min(BLOCK_S, now_s), now_s, [], []
        while at_s < until_s:
            since = (self.past_s - now_s * rng.random()) % now_s
            order = np.argsort(since, kind="stable")
            order = order[since[order] < length]
            times.append(at_s + since[order])
            rows.append(order)
            at_s += length
        found = np.concatenate(times)
        return found[found < until_s], np.concatenate(rows)[found < until_s]


def _alike(normals: FloatArray, correlation: float) -> FloatArray:
    """Standard normal numbers each of which is correlated with the one before it, from independent ones."""
    found = math.sqrt(1.0 - correlation**2) * normals
    found[:1] = normals[:1]
    return np.array(list(accumulate(found.tolist(), lambda before, own: own + correlation * before)))


def levels_of(normals: FloatArray) -> FloatArray:
    """The levels in [0, 1) of standard normal numbers."""
    from scipy.special import ndtr  # heavy, and only for recorded logs

    return np.asarray(np.minimum(ndtr(normals), 1.0 - 1e-9))
