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
from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.philly import PhillyWeek, history_s
from attribution_sched.types import FloatArray, IntArray

BLOCK_S = 21_600.0
"""Stretches of the past that come again are so long."""

SESSION_GAP_S = 180.0
"""Tasks of a tenant that came closer together belong to one session."""

ALIKE_ONE, ALIKE_WIDE = 0.6, 0.2
"""Correlation of how long a tenant's consecutive tasks take, on one device and on several: of the log before its test
weeks (0.83, 0.60, 0.57, 0.52 and 0.23, 0.02, 0.13, 0.33 in its four weeks, one task in three kept)."""

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
        normals, levels = rng.standard_normal(len(rows)), np.zeros(len(rows))
        last: dict[tuple[str, bool], float] = {}
        for i, row in enumerate(rows.tolist()):
            whose = self.tenants[row], bool(self.devices[row] > 1)
            alike = ALIKE_WIDE if whose[1] else ALIKE_ONE
            if whose in last:
                normals[i] = alike * last[whose] + math.sqrt(1.0 - alike**2) * normals[i]
            last[whose] = normals[i]
            levels[i] = level_of(normals[i])
        lasts = np.zeros(len(rows))
        for whose in last:
            own = np.array([(self.tenants[row], bool(self.devices[row] > 1)) == whose for row in rows.tolist()])
            lasts[own] = self.lengths(*whose).left_s(0.0, levels[own])
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


def level_of(normal: float) -> float:
    """The level in [0, 1) of a standard normal number."""
    return min(0.5 * (1.0 + math.erf(normal / math.sqrt(2.0))), 1.0 - 1e-9)
