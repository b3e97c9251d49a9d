"""One decision as it is taken: what the journal keeps of it before, and what the user gets after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.engine.state import CODES
from attribution_sched.cluster.world import Reward
from attribution_sched.journal import DecisionRecord, TaskRecord
from attribution_sched.scheduler.policy import Policy
from attribution_sched.session.asking import Asked
from attribution_sched.session.cluster import SimulatedCluster
from attribution_sched.session.readings import in_a_word
from attribution_sched.session.results import Outcome as ResultOutcome
from attribution_sched.session.results import SchedulingResult, TaskInfo
from attribution_sched.session.wording import decision_of, digest, plan_record
from attribution_sched.types import IntArray, Outcome, RewardTerms, Task

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.cluster.decision import Decision
    from attribution_sched.explain.explanation import Explanation


@dataclass(frozen=True, eq=False)
class Taken:
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
    asked: Asked
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
    asked: Asked,
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


def source_of(policy: Policy, asked: Asked) -> str:
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
        "attribution": f"estimated ({vector.units})",
        "outcome": "simulated",
        "reward": "simulated",
        "latencies": "measured",
    }


def reward_of(effect: Outcome, reward: Reward) -> RewardTerms:
    """What a decision is worth by itself."""
    return RewardTerms(*effect.terms, reward.w_eff, reward.w_util, reward.w_cost)


def result_of(
    taken: Taken, domains: tuple[str, ...], between: int, explanation: Explanation | None, explanation_s: float
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
            task.priority, task.tenant, task.submitted,
        ),
        decision=decision_of(
            taken.asked.plan, domains, taken.record.policy, taken.record.source, replanning=view.replanning
        ),
        attribution=taken.attribution,
        outcome=ResultOutcome(
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
        ),
        reward=taken.reward,
        latencies_s=latencies,
        provenance=taken.record.provenance,
        between=between,
        explanation=explanation,
    )  # fmt: skip
