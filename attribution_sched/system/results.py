"""What a decision comes to: as the journal keeps it before and after it takes effect, and as the user gets it.

Frozen records, units in the names, and how each number was got; shown as text and as HTML.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.attribution.vector import ACCOUNTING, QUESTIONS
from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.engine.state import CODES
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.live import PolicyAnswer, SimulatedCluster, expected_late
from attribution_sched.cluster.pipeline import Schedule
from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment
from attribution_sched.cluster.reward import price, samples, worth
from attribution_sched.cluster.world import Reward
from attribution_sched.explain.digits import number
from attribution_sched.explain.wording import describe_plan
from attribution_sched.journal import PROVENANCES, DecisionRecord, OutcomeRecord, TaskRecord
from attribution_sched.scheduler.episode import Completions
from attribution_sched.scheduler.policy import Policy
from attribution_sched.types import IntArray, Outcome, Quantities, RewardTerms, Task
from attribution_sched.words.say import Phrase

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.cluster.plan import Plan
    from attribution_sched.explain.explanation import Explanation


ATTRIBUTED: tuple[str, ...] = COUNTER_NAMES[:7]
"""Counters that joules are attributed to."""

# --- Records ---

PARTS: tuple[str, ...] = ("attribution", "decision", "journal", "effect", "explanation")
"""What a call spends its time on, in order."""


@dataclass(frozen=True)
class TaskInfo:
    """The task that was decided on.

    Attributes:
        id: Its name.
        kind: Name of its model.
        training: False for inference.
        batch_size: Samples per step.
        steps_left: Work left, in steps.
        waited_s: Time in the queue.
        arrived_s: When it came, on the cluster's clock.
        priority: Larger is more urgent.
        tenant: Who asked for it.
        submitted: Whether it was handed in; else the simulation sent it.
        deadline_s: When it must have finished, on the cluster's clock; None for no deadline of its own.
        devices: Devices it may use at most; None leaves that to the scheduler.
    """

    id: str
    kind: str
    training: bool
    batch_size: int
    steps_left: float
    waited_s: float
    arrived_s: float
    priority: int
    tenant: str
    submitted: bool
    deadline_s: float | None = None
    devices: int | None = None


@dataclass(frozen=True)
class DecisionInfo:
    """What was decided.

    Attributes:
        words: The plan in words.
        plan: The plan; None lets the task wait (or stay).
        record: The plan as plain numbers and names; None with the plan.
        domains: Names of the domains it uses, in order.
        layouts: dp, tp and pp in each of them.
        precisions: Numeric format in each of them.
        devices: Devices it occupies in all.
        cut_points: Per replica, the layers before which the pipeline is cut between domains.
        microbatches: Samples of a microbatch, per replica.
        policy: Who decided.
        source: How: ``policy``, ``policy+search``, ``search``, ``waits`` or a fallback's name.
    """

    words: str
    plan: Plan | None
    record: Mapping[str, Any] | None
    domains: tuple[str, ...]
    layouts: tuple[tuple[int, int, int], ...]
    precisions: tuple[str, ...]
    devices: int
    cut_points: tuple[tuple[int, ...], ...]
    microbatches: tuple[int, ...]
    policy: str
    source: str


@dataclass(frozen=True)
class OutcomeInfo:
    """What the decision came to on the cluster.

    Attributes:
        says: In words: placed, moved, deferred, or why it was refused.
        code: The same as a number; negative is a refusal.
        step_s: Time of one step.
        baseline_step_s: Time of one step on the baseline, the static uniform split.
        bill_usd_per_step: Bill of the traffic between domains, per step.
        energy_j_per_step: What its devices draw in one step, in joules.
        utilisation: Mean over its domains of compute time over step time.
        cluster_busy_share: Devices of the cluster that hold a task.
        move_s: Pause for moving or restarting it.
        move_usd: Bill of moving it.
        predicted: The same step as it was expected when the decision was taken: of a nominal task of its kind, at the
            network of that moment, alone on its devices. None if nothing was to run.
    """

    says: str
    code: int
    step_s: float
    baseline_step_s: float
    bill_usd_per_step: float
    energy_j_per_step: float
    utilisation: float
    cluster_busy_share: float
    move_s: float
    move_usd: float
    predicted: Quantities | None = None


@dataclass(frozen=True, eq=False)
class SchedulingResult:
    """One decision, from the task's counters to what it came to.

    Attributes:
        id: Identifier in the journal.
        cluster_time_s: When, on the cluster's clock.
        replanning: Whether the task was running already.
        task: The task.
        decision: Where and how it runs.
        attribution: Where its joules go, seven parts.
        outcome: What it came to.
        reward: What that is worth.
        latencies_s: Part of the call → seconds; see :data:`PARTS`.
        provenance: Which numbers are measured, estimated or simulated.
        between: Other decisions (tasks moved, kept or left waiting) since the result before this one.
        explanation: Why, if it was asked for.
        breaches: What tasks asked for and did not get: a more urgent one passed over, a deadline that will be missed, a
            plan refused because it used more devices than allowed; ``each.say("zh")`` tells it in Chinese.
        note: What else is to be said, for example that nothing could be placed, and why.
    """

    id: str
    cluster_time_s: float
    replanning: bool
    task: TaskInfo
    decision: DecisionInfo
    attribution: AttributionVector
    outcome: OutcomeInfo
    reward: RewardTerms
    latencies_s: Mapping[str, float]
    provenance: Mapping[str, str]
    between: int = 0
    explanation: Explanation | None = None
    breaches: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        for name in ("latencies_s", "provenance"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def placed(self) -> bool:
        """Whether the task was placed."""
        return self.outcome.code == 1

    def reasoning(self, lang: str = "en") -> str:
        """The explanation as a paragraph; empty if none was asked for."""
        if self.explanation is None:
            return ""
        from attribution_sched.explain.reasoning import reasoning

        return reasoning(self.explanation, lang)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, words and lists, ready for JSON."""
        decision = {f.name: getattr(self.decision, f.name) for f in fields(DecisionInfo) if f.name != "plan"}
        return {
            "id": self.id,
            "cluster_time_s": self.cluster_time_s,
            "replanning": self.replanning,
            "task": asdict(self.task),
            "decision": decision,
            "attribution": self.attribution.as_dict(),
            "outcome": asdict(self.outcome),
            "reward": {**asdict(self.reward), "total": self.reward.total},
            "latencies_s": dict(self.latencies_s),
            "provenance": dict(self.provenance),
            "between": self.between,
            "breaches": list(self.breaches),
            "note": self.note,
            "explanation": None if self.explanation is None else self.explanation.to_dict(),
        }

    def __str__(self) -> str:

        return as_text(self)

    def _repr_html_(self) -> str:

        return as_html(self)


@dataclass(frozen=True)
class RunSummary:
    """What a run of many decisions came to; all but ``wall_s`` counted on the cluster since the run began.

    Attributes:
        decisions: Decisions taken, re-planning and waiting included.
        placed: Tasks placed.
        moved: Running tasks moved.
        refused: Plans the cluster refused.
        completed: Tasks that finished.
        turned_away: Tasks that found the queue full.
        waiting: Tasks in the queue at the end.
        running: Tasks at work at the end.
        cluster_h: Hours that passed on the cluster's clock.
        energy_kwh: What the meters of all devices read.
        traffic_usd: Bill of the traffic between domains, moves included.
        carbon_kg: CO2-equivalent of the tasks' energy: accounted grams, by the location-based average intensity.
        mean_reward: Mean over placements of the decision's own R.
        mean_r_eff: Mean of their R_eff.
        mean_r_util: Mean of their R_util.
        mean_r_cost: Mean of their R_cost.
        wall_s: Seconds it took.
        decision_p50_s: Median time of a decision.
        decision_p99_s: Time that one decision in a hundred exceeds.
        missed: Tasks that finished after their deadline, their own or their kind's.
        breaches: Decisions that passed over what a task asked for, see :attr:`SchedulingResult.breaches`.
        set_aside: Tasks set aside because the policy failed on them.
        stopped: Why it ended: ``count``, ``empty``, ``hours``, ``nothing to decide`` or ``nothing placed``.
        completions_h: Hours from arrival to finish of the tasks that finished, see
            :class:`~attribution_sched.scheduler.episode.Completions`.
        waiting_h: Hours in the queue, all tasks together.
        gpu_h: Device-hours that computed.
        electricity_usd: What the meters' energy cost at the preset's prices by the hour, idle devices included.
        idle_carbon_kg: The same carbon of devices that held no task; not in ``carbon_kg``.
        network_carbon_kg: That of the network's energy for what went from domain to domain; in neither of them.
    """

    decisions: int
    placed: int
    moved: int
    refused: int
    completed: int
    turned_away: int
    waiting: int
    running: int
    cluster_h: float
    energy_kwh: float
    traffic_usd: float
    carbon_kg: float
    mean_reward: float | None
    mean_r_eff: float | None
    mean_r_util: float | None
    mean_r_cost: float | None
    wall_s: float
    decision_p50_s: float | None
    decision_p99_s: float | None
    missed: int = 0
    breaches: int = 0
    set_aside: int = 0
    stopped: str = field(default="count")
    completions_h: tuple[float, ...] = field(default=(), repr=False)
    waiting_h: float = 0.0
    gpu_h: float = 0.0
    electricity_usd: float = 0.0
    idle_carbon_kg: float = 0.0
    network_carbon_kg: float = 0.0

    @property
    def carbon_known(self) -> bool:
        """Whether the preset gives any grid an intensity: energy without any carbon says that it gives none."""
        return self.carbon_kg + self.idle_carbon_kg > 0.0 or not self.energy_kwh

    @property
    def mean_completion_h(self) -> float | None:
        """Mean hours from arrival to finish; None if nothing finished."""
        return float(np.mean(self.completions_h)) if self.completions_h else None

    @property
    def p95_completion_h(self) -> float | None:
        """Their 95th percentile."""
        return float(np.quantile(self.completions_h, 0.95)) if self.completions_h else None

    @property
    def mean_queue_h(self) -> float | None:
        """Hours in the queue over tasks placed; None if none was."""
        return self.waiting_h / self.placed if self.placed else None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: mean and percentile stand for the tasks one by one."""
        told = {name: value for name, value in asdict(self).items() if name != "completions_h"}
        means = ("mean_completion_h", "p95_completion_h", "mean_queue_h")
        return told | {name: getattr(self, name) for name in means}

    def __str__(self) -> str:

        return summary_text(self)


# --- Text and HTML ---

BAR = 24
"""Characters of the longest bar in text."""

COLOURS = ("#c2410c", "#1d4ed8")
"""Joules that a counter adds, and that it takes away (conditional and marginal values only)."""


def as_text(result: SchedulingResult) -> str:
    """A result as a few lines."""
    task, outcome = result.task, result.outcome
    lines = [
        f"{result.id}  {task.kind} ({task.id}) at {_clock(result.cluster_time_s)}, waited {_clock(task.waited_s)}",
        f"  plan     {result.decision.words}  [{result.decision.policy}: {result.decision.source}]",
        f"  outcome  {outcome.says}; {_outcome(result)}",
        f"  reward   {_reward(result)}",
        *(f"  breach   {each}" for each in result.breaches),
        *([f"  note     {result.note}"] if result.note else []),
        *([f"  asked    {_asked(result)}"] if _asked(result) else []),
        f"  joules   {_base(result)}",
    ]
    vector = result.attribution
    largest = max(float(abs(vector.values).max()), 1e-300)
    for name in vector.ranking():
        value = float(vector[name])
        bar = ("+" if value >= 0 else "-") * round(BAR * abs(value) / largest)
        lines.append(f"           {name:<17} {_part(vector, name)}  {bar}".rstrip())
    lines.append("  time     " + ", ".join(f"{part} {1e3 * s:.1f} ms" for part, s in result.latencies_s.items()))
    lines.append("  numbers  " + ", ".join(f"{name} {how}" for name, how in result.provenance.items()))
    if result.explanation is not None:
        lines.append(f"  why      {result.reasoning()}")
    return "\n".join(lines)


def as_html(result: SchedulingResult) -> str:
    """A result for a notebook: no script, no address."""
    rows = (
        ("Plan", escape(result.decision.words)),
        ("Decided by", escape(f"{result.decision.policy} ({result.decision.source})")),
        ("Outcome", escape(f"{result.outcome.says}; {_outcome(result)}")),
        ("Reward", escape(_reward(result))),
        *(("Breach", escape(each)) for each in result.breaches),
        *([("Note", escape(result.note))] if result.note else []),
        *([("Asked for", escape(_asked(result)))] if _asked(result) else []),
        ("Energy", escape(_base(result)) + _bars(result)),
        ("Time", escape(", ".join(f"{part} {1e3 * s:.1f} ms" for part, s in result.latencies_s.items()))),
        ("Numbers", escape(", ".join(f"{name}: {how}" for name, how in result.provenance.items()))),
    )
    head = escape(f"{result.id}: {result.task.kind} ({result.task.id}) at {_clock(result.cluster_time_s)}")
    cells = "".join(
        f'<tr><th style="text-align:left;vertical-align:top">{name}</th><td style="text-align:left">{value}</td></tr>'
        for name, value in rows
    )
    why = "" if result.explanation is None else result.explanation._repr_html_()
    return f"<div><b>{head}</b><table>{cells}</table>{why}</div>"


def summary_text(summary: RunSummary) -> str:
    """A run as a few lines."""
    lines = [
        f"{summary.decisions} decisions in {summary.wall_s:.1f} s, {_clock(3600 * summary.cluster_h)} on the cluster "
        f"({summary.stopped})",
        f"  placed {summary.placed}, moved {summary.moved}, refused {summary.refused}, completed {summary.completed}, "
        f"turned away {summary.turned_away}; {summary.running} running, {summary.waiting} waiting",
        f"  {summary.energy_kwh:,.2f} kWh, {summary.traffic_usd:,.2f} USD of traffic, "
        f"{summary.electricity_usd:,.2f} USD of electricity",
        f"  {summary.carbon_kg:,.2f} kg CO2e of tasks, {summary.idle_carbon_kg:,.2f} of idle devices, "
        f"{summary.network_carbon_kg:,.2f} of the network (accounted, location-based average)"
        if summary.carbon_known
        else "  carbon intensity not given",
        f"  {summary.gpu_h:,.1f} device-hours of computing, {_clock(3600 * summary.waiting_h)} in the queue",
    ]
    if summary.mean_completion_h is not None and summary.p95_completion_h is not None:
        lines.append(
            f"  from arrival to finish: mean {_clock(3600 * summary.mean_completion_h)}, 95th percentile "
            f"{_clock(3600 * summary.p95_completion_h)}"
        )
    if summary.missed or summary.breaches or summary.set_aside:
        lines.append(
            f"  {summary.missed} finished after their deadline, {summary.breaches} decisions passed over a wish, "
            f"{summary.set_aside} tasks set aside"
        )
    if summary.mean_reward is not None:
        lines.append(
            f"  mean of placements: R {summary.mean_reward:+.3f}, R_eff {summary.mean_r_eff:+.3f}, "
            f"R_util {summary.mean_r_util:+.3f}, R_cost {summary.mean_r_cost:+.3f}"
        )
    if summary.decision_p50_s is not None and summary.decision_p99_s is not None:
        p50, p99 = 1e3 * summary.decision_p50_s, 1e3 * summary.decision_p99_s
        lines.append(f"  decision: median {p50:.1f} ms, 99 of 100 below {p99:.1f} ms")
    return "\n".join(lines)


def _asked(result: SchedulingResult) -> str:
    """What the task asked for; empty if it left all of it to its kind and to the scheduler."""
    task = result.task
    wishes = [f"tenant {task.tenant}"] if task.tenant != "default" else []
    wishes += [f"priority {task.priority}"] if task.priority else []
    wishes += [] if task.deadline_s is None else [f"deadline at {_clock(task.deadline_s)}"]
    wishes += [] if task.devices is None else [f"at most {task.devices} devices"]
    return ", ".join(wishes)


def _outcome(result: SchedulingResult) -> str:
    outcome = result.outcome
    if outcome.step_s == 0.0:
        return f"{outcome.cluster_busy_share:.0%} of devices busy"
    return (
        f"step {outcome.step_s:.4g} s (baseline {outcome.baseline_step_s:.4g} s), "
        f"{outcome.bill_usd_per_step:.4g} USD and {outcome.energy_j_per_step:,.4g} J per step, "
        f"utilisation {outcome.utilisation:.0%}, {outcome.cluster_busy_share:.0%} of devices busy{_expected(outcome)}"
    )


def _expected(outcome: OutcomeInfo) -> str:
    """What a nominal task of its kind was to take, after what came of it: attributions and pace are no part of it."""
    expected = outcome.predicted
    if expected is None or expected.step_s is None or expected.energy_j is None:
        return ""
    return f"; nominal for its kind {expected.step_s:.4g} s and {expected.energy_j:,.4g} J"


def _reward(result: SchedulingResult) -> str:
    r = result.reward
    return (
        f"R {r.total:+.3f} = {r.w_eff:g}·R_eff {r.r_eff:+.3f} + {r.w_util:g}·R_util {r.r_util:+.3f} "
        f"− {r.w_cost:g}·R_cost {r.r_cost:+.3f}"
    )


def _base(result: SchedulingResult) -> str:
    vector = result.attribution
    whole = float(vector.prediction)
    if vector.units == "share":
        return "shares of the seven counters, without unit"
    if vector.question != ACCOUNTING:
        return f"{whole:.4g} {vector.units} expected, {vector.base:.4g} of the mean task; {QUESTIONS[vector.question]}"
    carried = f"; EmSHAP carries {', '.join(vector.missing)}" if vector.missing else ""
    idle = f"idle {vector.base:.3g} ({vector.base / whole:.0%})"
    pace = f"at {vector.samples_per_s:.4g} samples/s"
    return f"{whole:.4g} {vector.units} {pace}, {idle}, parts with 95 % intervals{carried}"


def _part(vector: AttributionVector, name: str) -> str:
    """One part: joules with their interval and the share of this task in an account; a signed number otherwise."""
    value, at = float(vector[name]), vector.names.index(name)
    if vector.question != ACCOUNTING:
        return f"{value:>+12.4g}"
    reach = float(vector.interval(0.95)[1][at]) - value
    share = value / float(vector.metered) if float(vector.metered) > 0.0 else 0.0
    return f"{number(value, 4):>10} ± {number(reach, 2):<9} {share:>5.1%}"


def _bars(result: SchedulingResult) -> str:
    vector = result.attribution
    largest = max(float(abs(vector.values).max()), 1e-300)
    rows = []
    for name in vector.ranking():
        value = float(vector[name])
        width, colour = 120 * abs(value) / largest, COLOURS[value < 0]
        bar = f'<div style="width:{width:.0f}px;height:10px;background:{colour}"></div>'
        rows.append(f"<tr><td>{escape(name)}</td><td>{_part(vector, name)}</td><td>{bar}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _clock(seconds: float) -> str:
    """Seconds as days, hours, minutes and seconds, the two largest of them."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {int(seconds % 60)} s"


# --- Plans as names and numbers ---


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


# --- From a decision to its records ---


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


# --- A run ---

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
