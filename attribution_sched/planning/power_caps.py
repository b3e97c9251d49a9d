"""Which power cap each segment of a plan gets: the one by which the plan is worth most.

A cap is chosen after all else of a plan: it changes how long the plan's own steps take and what they draw, no memory,
no traffic and nobody else's devices. The best of all combinations is taken (of a plan of many segments, from no caps
on, the best change of one segment or of all while it helps),

    R(caps) − w_eff · (waiting · devices + BUSY · devices in use) / all devices · T(caps) / T_base,

so a segment that waits for others is held back first, and where tasks queue for the devices hardly any is: in a busy
cluster a second that is lost is lost again by those that come. A device that two tasks share is slow for both, while
its joules are one device's. What a cap does to a task follows from what is believed of it: its demands where its model
is known, and of an opaque one the share of its time that a device works, as its counters tell
(:func:`~attribution_sched.cluster.counters.working_share`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.cost import CostModel, DomainArrays, PowerArrays, opaque_cap
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import CAP, DP, PP, TP, Plan, PlanBatch
from attribution_sched.cluster.reward import priced_terms, samples, total_of
from attribution_sched.cluster.world import Reward, task_working
from attribution_sched.kernels import kernel
from attribution_sched.types import FloatArray, IntArray, Task

NOMINAL = (1.0, 1.0, 1.0)
"""Demands of a nominal task."""

LEAST_GAIN = 1e-4
"""R below which no cap is changed."""

BUSY = 2.0
"""How often a second that a task loses is lost again where all devices are in use; of 0, 1, 2 and 4 the one with most
R on 16 days and 8 pairs of days of the shared site that nothing else was judged on."""

SINGLE, PAIR = 1.0, 2.0
"""Tasks that a cap slows down."""

MOST_COMBINED = 700
"""Combinations of caps that are all looked at: four segments of five levels."""

ROUNDS = 6
"""Changes of a plan's caps at most."""


class Judge(NamedTuple):
    """What caps of a task's plans are judged by.

    Attributes:
        cost: The cluster.
        kind: Row of the task in the cost model.
        batch_size: Samples of a step.
        reward: What is good.
        base_step_s: Step time of its baseline.
        base_cost_usd: Cost of a step of its baseline.
        bandwidth_gbps: Of the links, shape ``(K, K)``; the base by default.
        latency_s: The same.
        factors: What is believed of its compute, memory and host time, over a nominal task's.
        pressure: What holding a device costs others, as a share of the time it is held.
    """

    cost: CostModel
    kind: int
    batch_size: int
    reward: Reward
    base_step_s: float
    base_cost_usd: float
    bandwidth_gbps: FloatArray | None = None
    latency_s: FloatArray | None = None
    factors: tuple[float, float, float] = NOMINAL
    pressure: float = 0.0

    def worths(self, rows: IntArray, count: int) -> FloatArray:
        """R of plans that differ in their caps, devices that others wait for charged, shape ``(n,)``."""
        batch = PlanBatch(np.ascontiguousarray(rows), np.full(len(rows), count), np.zeros(len(rows), dtype=np.int64))
        priced = self.cost.score(
            batch, self.kind, bandwidth_gbps=self.bandwidth_gbps, latency_s=self.latency_s, breakdown=False,
            factors=self.factors,
        )  # fmt: skip
        norm = self.batch_size / samples(batch)
        terms = priced_terms(
            self.reward, self.base_step_s, self.base_cost_usd, norm * priced.step_s, priced.utilisation,
            norm * priced.bill_usd, norm * priced.energy_j, norm * priced.carbon_g,
        )  # fmt: skip
        devices = (rows[0, :count, DP] * rows[0, :count, TP] * rows[0, :count, PP]).sum()
        held = self.reward.w_eff * self.pressure * devices * norm * priced.step_s / self.base_step_s
        found: FloatArray = total_of(terms, (self.reward.w_eff, self.reward.w_util, self.reward.w_cost)) - held
        return found


def levels_of(view: Decision) -> int:
    """Cap levels of a decision's cluster beside the domains' own."""
    return len(view.cost.cluster.cap_levels)


def with_cap(plan: Plan, level: int) -> Plan:
    """The plan with one cap level on all its devices."""
    return with_levels(plan, [level] * len(plan.segments))


def capped(
    view: Decision, plan: Plan, task: Task, *, factors: tuple[float, float, float] = NOMINAL, pressure: float = 0.0,
    working: float | None = None,
) -> Plan:  # fmt: skip
    """A plan with the caps by which it is worth most; as it is where the cluster has no cap levels.

    Args:
        view: The decision.
        plan: The plan; caps it has are not looked at.
        task: Whose plan it is.
        factors: What is believed of its compute, memory and host time, over a nominal task's.
        pressure: What holding a device costs others, as a share of the time it is held.
        working: Share of its time that a device works, for an opaque task beside another, whose time counts too; its
            own by default.
    """
    kind, reward, cost = task.kind_index, view.reward, view.cost
    if levels_of(view) == 0:
        return plan
    in_use = 1.0 - float(np.sum(view.free_devices)) / cost.cluster.devices
    pressure += BUSY * in_use / sum(segment.device_count for segment in plan.segments)
    if view.kinds[kind].opaque:
        share = task_working(view.kinds, task) if working is None else working
        first = plan.segments[0]
        slowed = SINGLE if working is None else PAIR
        charge = reward.w_eff * (slowed + pressure * first.device_count)
        law = cost.domains, cost.power_law, first.domain, first.precision.index
        return with_cap(plan, opaque_level(*law, share, charge, reward.w_cost))
    judge = Judge(
        cost, kind, view.kinds[kind].batch_size, reward, float(view.base_step_s[kind]), float(view.base_cost_usd[kind]),
        view.bandwidth_gbps, view.latency_s, factors, pressure,
    )  # fmt: skip
    return with_levels(plan, best_levels(judge, plan))


@kernel
def opaque_level(
    domains: DomainArrays, power_law: PowerArrays, domain: int, precision: int, working: float, charge: float,
    w_cost: float,
) -> int:  # fmt: skip
    """Cap level by which an opaque task is worth most: ``w_cost · joules saved − charge · time lost``, as shares.

    Alone on the devices it asked for it takes its baseline's time and energy, so shares of these are units of R.
    """
    best = LEAST_GAIN
    found = 0
    for level in range(1, domains.caps_w.shape[1]):
        stretch, _, left_j = opaque_cap(domains, power_law, domain, precision, level, working)
        gain = w_cost * (1.0 - left_j) - charge * (stretch - 1.0)
        if gain > best:
            best, found = gain, level
    return found


def best_levels(judge: Judge, plan: Plan) -> list[int]:
    """Cap level of every segment of a plan of a known model: the best of all combinations, or of changes if many."""
    batch, levels = PlanBatch.of([plan]), judge.cost.domains.caps_w.shape[1] - 1
    count = int(batch.counts[0])
    rows, best = batch.segments.copy(), -np.inf
    rows[:, :, CAP] = 0
    if (levels + 1) ** count <= MOST_COMBINED:
        # Two segments that wait for each other are worth holding back together, and neither alone.
        every = np.array(list(product(range(levels + 1), repeat=count)))
        tried = np.repeat(rows, len(every), axis=0)
        tried[:, :count, CAP] = every
        worths = judge.worths(tried, count)
        at = int(worths.argmax())
        chosen: list[int] = every[at if worths[at] > worths[0] + LEAST_GAIN else 0].tolist()
        return chosen
    for turn in range(ROUNDS + 1):
        tried = _changes(rows[0], count, levels) if turn else rows
        worths = judge.worths(tried, count)
        at = int(worths.argmax())
        if not worths[at] > best + LEAST_GAIN:
            break
        best, rows = float(worths[at]), tried[at : at + 1]
    found: list[int] = rows[0, :count, CAP].tolist()
    return found


def _changes(rows: IntArray, count: int, levels: int) -> IntArray:
    """The rows with the cap of one segment, or of all, at another level."""
    every = [(p, level) for p in range(count) for level in range(levels + 1) if rows[p, CAP] != level]
    tried = np.repeat(rows[None], len(every) + (levels if count > 1 else 0), axis=0)
    for n, (p, level) in enumerate(every):
        tried[n, p, CAP] = level
    for level in range(1, levels + 1) if count > 1 else ():
        tried[len(every) + level - 1, :count, CAP] = level
    return tried


def with_levels(plan: Plan, levels: Sequence[int]) -> Plan:
    """The plan with a cap level for each of its segments."""
    left = iter(levels)
    return replace(
        plan,
        replicas=tuple(
            replace(replica, segments=tuple(replace(segment, cap=next(left)) for segment in replica.segments))
            for replica in plan.replicas
        ),
    )
