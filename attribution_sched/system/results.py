"""What the user gets of a decision and of a run: frozen records, units in the names, how each number was got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.plan import Plan
from attribution_sched.system.result_text import as_html, as_text, summary_text
from attribution_sched.types import Quantities, RewardTerms

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.cluster.plan import Plan
    from attribution_sched.explain.explanation import Explanation

ATTRIBUTED: tuple[str, ...] = DEMAND_NAMES
"""Counters that joules are attributed to."""

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
