"""Traffic between domains, as the cluster had it after a decision; or, if no plan crossed, what a split would send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.live_cluster import SimulatedCluster
from attribution_sched.real_cluster import Twin, is_real
from attribution_sched.report.collect.consequence import consequential
from attribution_sched.report.collect.passing import Passed
from attribution_sched.report.data import Moment, Traffic
from attribution_sched.results import plan_record
from attribution_sched.resume import replay
from attribution_sched.scheduler.splits import StaticUniform
from attribution_sched.types import FloatArray

if TYPE_CHECKING:
    from attribution_sched.report.source import Source


SHOWN = 3
"""Decisions whose traffic is shown."""


def traffic(system: Source, journaled: Passed) -> tuple[Traffic, ...]:
    """Traffic of the decisions across domains that commit most; of a split instead if there are none."""
    moments = list(journaled.moments)
    if len(system.domains) < 2 or not moments:
        return ()
    crossing = [moment for moment in moments if len(moment.domains) > 1]
    chosen = consequential(crossing, SHOWN)
    if chosen:
        return tuple(_taken(system, moment, journaled.sequences[moment.decision]) for moment in chosen)
    return _avoided(system, consequential(moments, SHOWN), journaled)


def _at(system: Source, number: int) -> SimulatedCluster:
    """The cluster as it was at a decision, which is pending."""
    queue = system.journal.header.settings.get("queue", "preset")
    made = Twin if is_real(system.journal.header) else SimulatedCluster
    cluster = made(system.world, system.seed, arrivals=queue == "preset")
    replay(cluster, system.journal, system.seed, stop=number)
    return cluster


def _taken(system: Source, moment: Moment, number: int) -> Traffic:
    cluster = _at(system, number)
    slot = cluster.pending().slot
    cluster.carry_out(np.array(system.journal.decision(moment.decision).action, dtype=np.int64))
    sent = cluster.engine.state.traffic[0, slot]
    return _told(moment, moment.words, moment.plan, sent, moment.bill_usd, True, "simulated")


def _avoided(system: Source, moments: Sequence[Moment], journaled: Passed) -> tuple[Traffic, ...]:
    """The static uniform split of the most consequential task that can be split."""
    for moment in moments:
        view = _at(system, journaled.sequences[moment.decision]).pending()
        plan = None if view.replanning else StaticUniform().decide(view)
        if plan is None or len(plan.segments) < 2:
            continue
        bandwidth, latency = view.bandwidth_gbps, view.latency_s
        cost = view.cost.score([plan], view.kind_index, bandwidth_gbps=bandwidth, latency_s=latency)
        record = plan_record(plan, system.domains, replanning=False) or {}
        bill = float(cost.bill_usd[0])
        return (_told(moment, record["words"], record, cost.traffic_bytes[0], bill, False, "estimated"),)
    return ()


def _told(
    moment: Moment, words: str, plan: Mapping[str, Any], sent: FloatArray, bill_usd: float, taken: bool, provenance: str
) -> Traffic:
    rows = tuple(tuple(float(cell) for cell in row) for row in sent)
    return Traffic(
        moment.decision, moment.task, moment.kind, words, plan, rows, bill_usd, moment.device_hours, taken, provenance
    )
