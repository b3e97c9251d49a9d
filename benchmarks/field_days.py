"""Whole days of many clusters side by side, with what an episode sums up beside its reward.

A :class:`~attribution_sched.scheduler.hi_ppo.cluster_batch.ClusterBatch` plays 64 days in seconds but only tells their
returns. Here its engine is listened to, so that energy, work, traffic bill and utilisation of every day are known too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import Attributor
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.reward import total_of
from attribution_sched.cluster.world import World
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.arena.stats import PairedBootstrap
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.decode import Actor

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Told = Callable[[ClusterBatch], None]

KWH = 3.6e6
HOUR_S = 3600.0


@dataclass(frozen=True)
class Days:
    """One episode of every cluster; arrays have one entry per day.

    Attributes:
        terms: R_eff, R_util and R_cost, shape ``(n, 3)``.
        weights: What they count for in the return.
        work_h: Hours the baseline would have been at work for the steps that were done and kept.
        meter_kwh: What all devices drew, idle ones too.
        task_kwh: The part of it that tasks answer for.
        bill_usd: Cross-domain traffic.
        utilisation: Busy device time over all device time.
        waiting_share: Share of the day in which some task waited.
        waiting_use: Utilisation in that time; NaN if nobody ever waited.
        steps: Steps done, those that were lost included.
        lost: Steps lost with a domain.
        dropped: Tasks turned away.
    """

    terms: Array
    weights: Array
    work_h: Array
    meter_kwh: Array
    task_kwh: Array
    bill_usd: Array
    utilisation: Array
    waiting_share: Array
    waiting_use: Array
    steps: Array
    lost: Array
    dropped: Array

    @property
    def returns(self) -> Array:
        """Return of every day."""
        return np.asarray(total_of(self.terms, self.weights))

    @property
    def task_kwh_per_h(self) -> float:
        """Energy of tasks per baseline hour of work, all days together."""
        return float(self.task_kwh.sum() / self.work_h.sum())

    @property
    def meter_kwh_per_h(self) -> float:
        """Energy of all devices per baseline hour of work, all days together."""
        return float(self.meter_kwh.sum() / self.work_h.sum())


class _Listener:
    """Stands between a field and its engine."""

    def __init__(self, field: ClusterBatch) -> None:
        self.engine = field.engine
        self._step, self._reset = field.engine.step, field.engine.reset
        n = field.clusters
        self.finished: Bools = np.zeros(n, dtype=np.bool_)
        self.terms, self.work_s, self.waited_s, self.waited_busy_s = np.zeros((n, 3)), *np.zeros((3, n))
        self.totals: dict[str, Array] = {name: np.zeros(n) for name in field.engine.totals()}
        field.engine.step = self.step  # type: ignore[method-assign]
        field.engine.reset = self.reset  # type: ignore[method-assign]

    def step(
        self, actions: NDArray[np.int64], devices: NDArray[np.int64] | None = None, active: Bools | None = None
    ) -> tuple[Array, Array]:
        """As the engine's, and add up."""
        state = self.engine.state
        slots, left = state.slots.copy(), state.tasks[:, :, st.LEFT].copy()
        begun, busy = state.clock[:, st.NOW].copy(), state.totals[:, st.BUSY_DEVICE_S].copy()
        rewards, terms = self._step(actions, devices, active)
        counts = ~self.finished if active is None else active & ~self.finished
        now = state.slots
        stays = (now[:, :, st.STATUS] != st.FREE) & (now[:, :, st.SERIAL] == slots[:, :, st.SERIAL])
        done = left - np.where(stays, state.tasks[:, :, st.LEFT], 0.0)
        done = np.where(slots[:, :, st.STATUS] == st.FREE, 0.0, done)
        base_s = self.engine.arrays.kinds[self.engine.pool.kinds[slots[:, :, st.POOL]], st.K_BASE_STEP]
        queued = (now[:, :, st.STATUS] == st.QUEUED) & (state.tasks[:, :, st.ARRIVAL] <= begun[:, None])
        waited = counts & queued.any(axis=1)
        self.terms[counts] += terms[counts]
        self.work_s[counts] += (done * base_s).sum(axis=1)[counts]
        self.waited_s[waited] += (state.clock[:, st.NOW] - begun)[waited]
        self.waited_busy_s[waited] += (state.totals[:, st.BUSY_DEVICE_S] - busy)[waited]
        return rewards, terms

    def reset(self, chosen: Bools | None = None) -> None:
        """As the engine's; what ends here for the first time is kept."""
        first = ~self.finished if chosen is None else chosen & ~self.finished
        for name, values in self.engine.totals().items():
            self.totals[name][first] = values[first]
        self.finished |= first
        self._reset(chosen)


def play_days(
    world: World,
    chooser: Actor,
    episodes: int,
    first_seed: int,
    attributor: Attributor | None = None,
    told: Told | None = None,
    paces: Array | None = None,
) -> Days:
    """Play the first episode of every cluster.

    Args:
        world: Where.
        chooser: Who decides.
        episodes: How many days; day i has the seed ``first_seed + i``.
        first_seed: Seed of the first.
        attributor: As ``ClusterBatch`` takes it.
        told: Called before every decision, for example to change the reward weights that the policy is told; days are
            always judged by those of the world.
        paces: What attributions say of the time tasks take, as ``ClusterBatch`` takes it.
    """
    field = ClusterBatch(world, episodes, first_seed, attributor, paces=paces)
    weights = field.engine.weights[0].copy()
    heard = _Listener(field)
    with one_thread():
        while not heard.finished.all():
            if told is not None:
                told(field)
            field.step(chooser)
    sums, device_s = heard.totals, world.cluster.devices * world.horizon_s
    return Days(
        terms=heard.terms,
        weights=weights,
        work_h=heard.work_s / HOUR_S,
        meter_kwh=sums["meter_j"] / KWH,
        task_kwh=sums["task_j"] / KWH,
        bill_usd=sums["bill_usd"],
        utilisation=sums["busy_device_s"] / device_s,
        waiting_share=heard.waited_s / world.horizon_s,
        waiting_use=np.divide(
            heard.waited_busy_s, heard.waited_s * world.cluster.devices, out=np.full(episodes, np.nan),
            where=heard.waited_s > 0.0,
        ),
        steps=sums["steps_done"],
        lost=sums["lost_steps"],
        dropped=sums["dropped"],
    )  # fmt: skip


def interval(values: Array, digits: int = 2, sign: str = "+") -> str:
    """Mean with its 95 % bootstrap interval over the first axis."""
    draws = PairedBootstrap(len(values), 0)
    found = draws.estimate(draws.means(values))
    return f"{found.value:{sign}.{digits}f} [{found.low:{sign}.{digits}f}, {found.high:{sign}.{digits}f}]"
