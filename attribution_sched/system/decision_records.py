"""A decision as the journal keeps it, before and after it takes effect, and as the user gets it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.engine.state import CODES
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.live import PolicyAnswer, SimulatedCluster, expected_late
from attribution_sched.cluster.pipeline import Schedule
from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment
from attribution_sched.cluster.reward import price, samples, worth
from attribution_sched.cluster.world import Reward
from attribution_sched.explain.wording import describe_plan
from attribution_sched.journal import PROVENANCES, DecisionRecord, OutcomeRecord, TaskRecord
from attribution_sched.scheduler.policy import Policy
from attribution_sched.system.results import ATTRIBUTED, DecisionInfo, OutcomeInfo, SchedulingResult, TaskInfo
from attribution_sched.types import IntArray, Outcome, Quantities, RewardTerms, Task
from attribution_sched.words.say import Phrase

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.cluster.plan import Plan
    from attribution_sched.explain.explanation import Explanation


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
                        **({"cap": segment.cap} if segment.cap else {}),
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
                        part["pp"], Precision(part["precision"]), cap=part.get("cap", 0),
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


def digest(view: Decision) -> str:
    """Short fingerprint of what there was to see."""
    hashed = hashlib.blake2b(digest_size=8)
    hashed.update(repr((view.kind_index, view.slot, view.time_s, view.steps_left, view.replanning)).encode())
    hashed.update(repr([(task.slot, task.steps_left, task.waited_s) for task in view.queue]).encode())
    for array in (view.counters, view.free_devices, view.bandwidth_gbps, view.latency_s):
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


def decision_of(
    plan: Plan | None, domains: Sequence[str], policy: str, source: str, *, replanning: bool
) -> DecisionInfo:
    """A plan as the part of a result that tells it."""
    segments = () if plan is None else plan.segments
    return DecisionInfo(
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


@dataclass(frozen=True, eq=False)
class TakenDecision:
    """A decision that has taken effect.

    Attributes:
        record: As it stands in the journal.
        asked: What the policy was asked and said.
        task: Whose task.
        attribution: Where its joules go.
        effect: What it came to.
        reward: What that is worth.
        latencies_s: Part → seconds.
    """

    record: DecisionRecord
    asked: PolicyAnswer
    task: Task
    attribution: AttributionVector
    effect: Outcome
    reward: RewardTerms
    latencies_s: Mapping[str, float]


def task_record(cluster: SimulatedCluster, view: Decision) -> TaskRecord:
    """A task of the simulation for the journal; it is the same at every decision on it."""
    task = cluster.residents[view.slot]
    readings = dict(zip(COUNTER_NAMES, task.counters.tolist(), strict=True))
    meta = {"kind_index": task.kind_index, "tenant": task.tenant, "training": task.training}
    return TaskRecord(task.id, task.model, int(task.steps), task.arrived_s, readings, meta)


def decision_record(
    cluster: SimulatedCluster,
    policy: Policy,
    asked: PolicyAnswer,
    action: IntArray,
    vector: AttributionVector,
    attribution_s: float,
) -> DecisionRecord:
    """What the journal keeps before the decision takes effect; the vector is the one that the policy was given."""
    view, reward = asked.view, asked.view.reward
    domains = [domain.name for domain in cluster.world.cluster.domains]
    task = cluster.residents[view.slot]
    return DecisionRecord(
        task_id=task.id,
        cluster_time_s=view.time_s,
        policy=policy.name,
        action=action,
        plan=plan_record(asked.plan, domains, replanning=view.replanning),
        source=source_of(policy, asked),
        slot=None if view.replanning else view.slot,
        attribution=vector.as_dict(),
        view_digest=digest(view),
        latencies_s={"attribution": attribution_s, "decision": asked.seconds},
        weights=(reward.w_eff, reward.w_util, reward.w_cost),
        provenance=provenance(task, vector),
    )


def source_of(policy: Policy, asked: PolicyAnswer) -> str:
    """Where a decision came from: as the policy says, if it does, with the reason of a fallback."""
    if asked.instead:
        return asked.instead
    last: Any = getattr(policy, "last", None)
    source = getattr(last, "source", None)
    if isinstance(source, str):
        reason = getattr(last, "reason", "")
        return f"{source} ({reason})" if reason else source
    if asked.plan is None:
        return "keeps" if asked.view.replanning else "waits"
    return "policy"


def provenance(task: Task, vector: AttributionVector) -> dict[str, str]:
    """How the numbers of a result were got."""
    return {
        "counters": in_a_word(task.provenance),
        "attribution": f"estimated ({vector.units}{f', {vector.method}' if vector.missing else ''})",
        "outcome": "simulated",
        "reward": "simulated",
        "latencies": "measured",
    }


def outcome_record(decision: str, effect: Outcome, view: Decision, reward: float) -> OutcomeRecord:
    """What a decision came to, for the journal."""
    details = {
        "steps": view.steps_left,
        "base_step_s": float(view.base_step_s[view.kind_index]),
        "move_s": effect.move_s,
        "move_usd": effect.move_usd,
        "busy_share": effect.busy_share,
        "paid_since": list(effect.paid),
    }
    if effect.observed.carbon_g:
        details["carbon_g"] = effect.observed.carbon_g
    return OutcomeRecord(
        decision, *effect.terms, reward, effect.step_s, effect.bill_usd, effect.energy_j, effect.code, "simulated",
        details,
    )  # fmt: skip


def in_a_word(how: Mapping[str, str]) -> str:
    """How the counters that joules are attributed to were got, in a word, or how many in which way."""
    words = [how[name] for name in ATTRIBUTED]
    counts = [(word, words.count(word)) for word in PROVENANCES if word in words]
    return counts[0][0] if len(counts) == 1 else ", ".join(f"{number} {word}" for word, number in counts)


def prediction(view: Decision, plan: Plan | None) -> Quantities | None:
    """What is expected of a plan when it is decided: a nominal task of its kind, alone, at the network of now.

    Args:
        view: The decision.
        plan: What was decided; nothing is expected of a task that waits or stays as it is.
    """
    if plan is None:
        return None
    batch, kind = PlanBatch.of([plan]), view.kind_index
    priced = price(view, batch)
    expected = worth(view, batch, priced, kind)
    # A plan may work through its batch in several of its own steps; a step is the kind's.
    steps = view.kind.batch_size / float(samples(batch)[0])
    return Quantities(
        start_s=view.time_s + (view.restart_s if view.replanning else 0.0),
        step_s=steps * float(priced.step_s[0]),
        traffic_bytes=steps * float(priced.traffic_bytes[0].sum()),
        energy_j=steps * float(priced.energy_j[0]),
        bill_usd=steps * float(priced.bill_usd[0]),
        carbon_g=steps * float(priced.carbon_g[0]),
        r_eff=float(expected.r_eff[0]),
        r_util=float(expected.r_util[0]),
        r_cost=float(expected.r_cost[0]),
        provenance="estimated",
    )


def reward_of(effect: Outcome, reward: Reward) -> RewardTerms:
    """What a decision is worth by itself."""
    return RewardTerms(*effect.terms, reward.w_eff, reward.w_util, reward.w_cost)


def result_of(
    taken: TakenDecision, domains: tuple[str, ...], between: int, explanation: Explanation | None, explanation_s: float
) -> SchedulingResult:
    """What the user gets."""
    view, effect, task = taken.asked.view, taken.effect, taken.task
    waited = next((each.waited_s for each in view.queue if each.slot == view.slot), 0.0)
    latencies = dict(taken.latencies_s) | ({"explanation": explanation_s} if explanation is not None else {})
    return SchedulingResult(
        id=taken.record.id,
        cluster_time_s=view.time_s,
        replanning=view.replanning,
        task=TaskInfo(
            task.id, task.model, task.training, task.batch_size, view.steps_left, waited, task.arrived_s,
            task.priority, task.tenant, task.submitted, task.deadline_s, task.devices,
        ),
        decision=decision_of(
            taken.asked.plan, domains, taken.record.policy, taken.record.source, replanning=view.replanning
        ),
        attribution=taken.attribution,
        outcome=OutcomeInfo(
            says=CODES[effect.code],
            code=effect.code,
            step_s=effect.step_s,
            baseline_step_s=float(view.base_step_s[view.kind_index]),
            bill_usd_per_step=effect.bill_usd,
            energy_j_per_step=effect.energy_j,
            utilisation=taken.reward.r_util,
            cluster_busy_share=effect.busy_share,
            move_s=effect.move_s,
            move_usd=effect.move_usd,
            predicted=effect.predicted,
        ),
        reward=taken.reward,
        latencies_s=latencies,
        provenance=taken.record.provenance,
        between=between,
        explanation=explanation,
        breaches=breaches_of(taken),
    )  # fmt: skip


def breaches_of(taken: TakenDecision) -> tuple[str, ...]:
    """What tasks asked for and did not get by a decision, in words."""
    view = taken.asked.view
    refused = (Phrase("breach.refused", why=taken.asked.refused),) if taken.asked.refused else ()
    return refused + taken.asked.breaches + expected_late(taken.task, view.steps_left, view.time_s, taken.effect)
