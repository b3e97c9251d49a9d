"""What a run counts while it goes."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.live import SimulatedCluster
from attribution_sched.scheduler.episode import Completions
from attribution_sched.system.decision_records import TakenDecision, breaches_of
from attribution_sched.system.results import RunSummary

if TYPE_CHECKING:
    pass

TIMED = 10_000
"""Decisions whose times are kept for the quantiles, the last ones."""


class Tally:
    """Counts from its making on.

    Args:
        cluster: What is counted.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._began = time.perf_counter()
        self._before = dict(cluster.totals()) | {"now_s": cluster.now_s}
        self._terms = np.zeros(4)
        self._times_s: deque[float] = deque(maxlen=TIMED)
        self._completions = Completions()
        self._completions.begin(cluster.engine)
        self.decisions = 0
        self.placed = 0
        self.without_placement = 0
        self._breaches = 0
        self._aside = cluster.set_aside

    def add(self, taken: TakenDecision) -> None:
        """Count a decision."""
        self.decisions += 1
        self.without_placement += not taken.asked.view.replanning
        self._times_s.append(taken.asked.seconds)
        self._breaches += bool(breaches_of(taken))
        self._look()
        if taken.effect.code == 1:
            self.placed += 1
            self.without_placement = 0
            self._terms += (*taken.effect.terms, taken.reward.total)

    def _look(self) -> None:
        """See who finished since the last decision, and what is in force now."""
        self._completions.end(self._cluster.engine)
        self._completions.begin(self._cluster.engine)

    def summary(self, stopped: str) -> RunSummary:
        """What it came to."""
        self._look()
        now = dict(self._cluster.totals()) | {"now_s": self._cluster.now_s}
        passed = {name: now[name] - self._before[name] for name in now}
        means = [float(mean) for mean in self._terms / self.placed] if self.placed else [None] * 4
        timed = np.quantile(self._times_s, [0.5, 0.99]).tolist() if self._times_s else [None, None]
        return RunSummary(
            decisions=self.decisions,
            placed=self.placed,
            moved=int(passed["migrations"]),
            refused=int(passed["rejected"]),
            completed=int(passed["completed"]),
            turned_away=int(passed["dropped"]),
            waiting=self._cluster.waiting,
            running=self._cluster.running,
            cluster_h=passed["now_s"] / 3600.0,
            energy_kwh=passed["meter_j"] / 3.6e6,
            traffic_usd=passed["bill_usd"],
            carbon_kg=passed["carbon_g"] / 1e3,
            mean_r_eff=means[0],
            mean_r_util=means[1],
            mean_r_cost=means[2],
            mean_reward=means[3],
            wall_s=time.perf_counter() - self._began,
            decision_p50_s=timed[0],
            decision_p99_s=timed[1],
            missed=int(passed["missed"]),
            breaches=self._breaches,
            set_aside=self._cluster.set_aside - self._aside,
            stopped=stopped,
            completions_h=tuple(each / 3600.0 for each in self._completions.seconds),
            waiting_h=passed["wait_s"] / 3600.0,
            gpu_h=passed["busy_device_s"] / 3600.0,
            electricity_usd=passed["electricity_usd"],
            idle_carbon_kg=passed["idle_g"] / 1e3,
            network_carbon_kg=passed["wan_g"] / 1e3,
        )
