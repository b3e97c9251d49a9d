"""Local search around a plan, everything priced in batches: change one thing at a time while that helps.

The network decides who goes where and with how many devices, which a snapshot cannot judge; the search settles what a
snapshot can: where exactly to cut, which layout of the same devices, which of two equal domains, which microbatch.
With ``widen`` it may also take other numbers of devices, for a decision that stands alone.

:func:`descend` is the search itself, whatever plans are judged by; :class:`LocalSearch` judges them by the reward of a
decision. Which changes there are is :mod:`attribution_sched.planning.neighbours`' business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import DecisionView
from attribution_sched.cluster.domains import within_budgets
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.plan import DP, MICROBATCHES, PP, TP, PlanBatch
from attribution_sched.cluster.reward import worth
from attribution_sched.cluster.validity import VALID, Limits, limits_of, validity
from attribution_sched.planning.candidates import microbatch_counts
from attribution_sched.planning.memory_feasibility import PlannerTables
from attribution_sched.planning.neighbours import Neighbourhood, Neighbours

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

ROUNDS = 12
"""Most rounds of small changes."""

NOMINAL = (1.0, 1.0, 1.0)
"""Factors of a nominal task."""

LEAST_GAIN = 1e-12
"""A plan is better than another by more than this, else by rounding."""


class Candidate(NamedTuple):
    """A plan under search.

    Attributes:
        rows: Its rows, shape ``(P, 10)``.
        used: How many of them are in use.
        reward: What it is worth.
    """

    rows: IntArray
    used: int
    reward: float


Worth = Callable[[IntArray, IntArray], FloatArray]
"""What plans are worth, larger is better, −∞ where they do not fit; from rows ``(n, P, 10)`` and counts ``(n,)``."""


def best_neighbour(candidate: Candidate, neighbours: Neighbours, limits: Limits, worth: Worth) -> Candidate:
    """The best valid plan one change away if it is better, else the plan itself."""
    rows, counts = neighbours(candidate.rows, candidate.used)
    valid = validity(limits, rows, counts) == VALID
    rows, counts = rows[valid], counts[valid]
    if len(rows) == 0:
        return candidate
    reward = worth(rows, counts)
    at = int(np.argmax(reward))
    if not reward[at] > candidate.reward + LEAST_GAIN:
        return candidate
    return Candidate(rows[at], int(counts[at]), float(reward[at]))


def descend(
    candidate: Candidate,
    neighbours: Neighbours,
    limits: Limits,
    worth: Worth,
    rounds: int = ROUNDS,
    expired: Callable[[], bool] | None = None,
) -> Candidate:
    """Take the best change again and again while that helps and no time has ``expired``."""
    for _ in range(rounds):
        if expired is not None and expired():
            break
        better = best_neighbour(candidate, neighbours, limits, worth)
        if better is candidate:
            break
        candidate = better
    return candidate


class LocalSearch:
    """Improves plans of one decision.

    Args:
        view: The decision; its reward is what counts.
        tables: The cluster.
        kind: Kind of task to place; the pending one by default.
        widen: Whether segments may change their number of devices.
        queue_pressure: What holding a device costs others, as a share of the time it is held.
        factors: What is believed of this very task's compute, memory and host time, over a nominal task's.
    """

    def __init__(
        self,
        view: DecisionView,
        tables: PlannerTables,
        kind: int | None = None,
        *,
        widen: bool = False,
        queue_pressure: float = 0.0,
        factors: tuple[float, float, float] = NOMINAL,
    ) -> None:
        self.factors = factors
        self.view, self.tables, self.widen, self.queue_pressure = view, tables, widen, queue_pressure
        self.kind = view.kind_index if kind is None else kind
        free_devices = within_budgets(view.cost.cluster, np.asarray(view.free_devices, dtype=np.int64))
        formats = tables.formats[self.kind][tables.domain_class]
        self.neighbourhood = Neighbourhood(
            free_devices, tables.layouts, tables.micro[self.kind], [precision.index for precision in PRECISIONS]
        )
        self.limits = limits_of(view.cost, self.kind, free_devices, formats=formats)
        self.priced = 0

    @property
    def free_devices(self) -> IntArray:
        """Devices that may be used, shape ``(K,)``."""
        return self.neighbourhood.free_devices

    def look_only_at(self, domains: BoolArray) -> None:
        """Leave other domains than these out of the search."""
        free_devices = np.where(domains, self.free_devices, 0)
        self.neighbourhood.free_devices = free_devices
        self.limits = self.limits._replace(devices=free_devices)

    def worth(self, rows: IntArray, counts: IntArray) -> FloatArray:
        """Worth of plans, −∞ where they do not fit; microbatches are shared out as the cluster does."""
        batch = PlanBatch(rows, counts, np.zeros(len(rows), dtype=np.int64))
        batch_size = self.view.kinds[self.kind].batch_size
        rows[:, :, MICROBATCHES] = microbatch_counts(self.view.cost, self.kind, batch_size, batch)
        self.priced += len(rows)
        view = self.view
        costs = view.cost.score(
            batch, self.kind, bandwidth_gbps=view.bandwidth_gbps, latency_s=view.latency_s, breakdown=False,
            factors=self.factors,
        )  # fmt: skip
        priced = worth(view, batch, costs, self.kind)
        if self.queue_pressure == 0.0:
            return priced.reward
        used = np.arange(rows.shape[1]) < counts[:, None]
        devices = (rows[:, :, DP] * rows[:, :, TP] * rows[:, :, PP] * used).sum(axis=1)
        # A plan that does not fit takes forever and is worth −∞ already.
        time = np.where(np.isfinite(priced.step_s), priced.step_s, 0.0) / self.view.base_step_s[self.kind]
        charged: FloatArray = priced.reward - self.view.reward.w_eff * self.queue_pressure * devices * time
        return charged

    def improve(
        self,
        rows: IntArray,
        count: int,
        reward: float,
        rounds: int = ROUNDS,
        expired: Callable[[], bool] | None = None,
    ) -> Candidate:
        """Change one thing at a time while that helps and no time has ``expired``."""
        near = self.neighbourhood.everything if self.widen else self.neighbourhood.one_change
        return descend(Candidate(rows, count, reward), near, self.limits, self.worth, rounds, expired)
