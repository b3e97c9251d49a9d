"""Plans and views as the journal and results tell them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attribution_sched.cluster.decision import DecisionView
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.pipeline import Schedule
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.explain.wording import describe_plan
from attribution_sched.session.results import Decision


def plan_record(plan: Plan | None, domains: Sequence[str], *, replanning: bool) -> dict[str, Any] | None:
    """A plan as names and numbers, with its description in words; None for none."""
    if plan is None:
        return None
    beside = {} if plan.beside is None else {"beside": plan.beside}
    return {
        "words": describe_plan(plan, domains, replanning=replanning),
        "schedule": plan.schedule.name.lower(),
        **beside,
        "replicas": [
            {
                "microbatch": replica.microbatch,
                "microbatches": replica.microbatches,
                "segments": [
                    {
                        "domain": domains[segment.domain],
                        "first": segment.first,
                        "stop": segment.stop,
                        "dp": segment.dp,
                        "tp": segment.tp,
                        "pp": segment.pp,
                        "precision": segment.precision.value,
                    }
                    for segment in replica.segments
                ],
            }
            for replica in plan.replicas
        ],
    }


def plan_of(record: Mapping[str, Any] | None, domains: Sequence[str]) -> Plan | None:
    """The inverse of :func:`plan_record`."""
    if record is None:
        return None
    return Plan(
        tuple(
            Replica(
                tuple(
                    Segment(
                        list(domains).index(part["domain"]), part["first"], part["stop"], part["dp"], part["tp"],
                        part["pp"], Precision(part["precision"]),
                    )
                    for part in replica["segments"]
                ),
                replica["microbatch"],
                replica["microbatches"],
            )
            for replica in record["replicas"]
        ),
        Schedule[record["schedule"].upper()],
        record.get("beside"),
    )  # fmt: skip


def digest(view: DecisionView) -> str:
    """Short fingerprint of what there was to see."""
    found = hashlib.blake2b(digest_size=8)
    found.update(repr((view.kind_index, view.slot, view.time_s, view.steps_left, view.replanning)).encode())
    found.update(repr([(task.slot, task.steps_left, task.waited_s) for task in view.queue]).encode())
    for array in (view.counters, view.free_devices, view.bandwidth_gbps, view.latency_s):
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def decision_of(plan: Plan | None, domains: Sequence[str], policy: str, source: str, *, replanning: bool) -> Decision:
    """A plan as the part of a result that tells it."""
    segments = () if plan is None else plan.segments
    return Decision(
        words=describe_plan(plan, domains, replanning=replanning),
        plan=plan,
        record=plan_record(plan, domains, replanning=replanning),
        domains=tuple(domains[segment.domain] for segment in segments),
        layouts=tuple((segment.dp, segment.tp, segment.pp) for segment in segments),
        precisions=tuple(segment.precision.value for segment in segments),
        devices=sum(segment.device_count for segment in segments),
        cut_points=() if plan is None else plan.cut_points,
        microbatches=() if plan is None else tuple(replica.microbatch for replica in plan.replicas),
        policy=policy,
        source=source,
    )
