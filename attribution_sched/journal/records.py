"""What a journal keeps: frozen records with units in their names.

Values of mappings, plans, attributions and actions are plain JSON: numbers, words, lists and mappings whose keys are
words. Arrays are accepted and come back as lists; tuples too. Numbers are written so that they read back exactly. A
number that is not known is None; NaN and infinity are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PROVENANCES: tuple[str, ...] = ("measured", "estimated", "simulated", "unavailable")
"""How the numbers of an outcome were got."""


@dataclass(frozen=True)
class JournalHeader:
    """What a run needs to be repeated.

    Attributes:
        preset: Name of the preset.
        policy: Name of the policy the run began with.
        settings: All settings.
        seeds: Name of a random stream → its seed.
        package_version: Of the package that wrote the journal.
        created_at: UTC, ISO 8601; empty lets the journal set it.
    """

    preset: str
    policy: str
    settings: Mapping[str, Any]
    seeds: Mapping[str, int]
    package_version: str
    created_at: str = ""


@dataclass(frozen=True)
class TaskRecord:
    """A task as it was submitted.

    Attributes:
        id: Unique in the journal.
        kind: Name of its kind.
        steps: Steps to do.
        submitted_s: Cluster time of its arrival.
        counters: Name of a counter → its reading.
        meta: Anything else.
    """

    id: str
    kind: str
    steps: int
    submitted_s: float
    counters: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DecisionRecord:
    """One decision, with all that a simulated cluster needs to take it again.

    Attributes:
        task_id: The task decided on; it must be in the journal. None if there was none.
        cluster_time_s: When, on the cluster's clock.
        policy: Who decided.
        action: What the cluster was told, to the digit: same seed and same actions give the same cluster.
        plan: The plan in words and numbers; None waits, or keeps the plan in force.
        source: Where the decision came from, for example ``policy`` or ``fallback``.
        slot: Place of the chosen task in the queue; None if the policy did not choose.
        attribution: Where the task's joules go.
        view_digest: Fingerprint of what the policy saw.
        latencies_s: Part of the decision → seconds it took.
        weights: w_eff, w_util and w_cost in force.
        provenance: How the decision's inputs were got.
        id: Unique; empty lets the journal name it by its number.
        sequence: Number of decisions before it, set by the journal. A number given must be the next.
        recorded_at: UTC, ISO 8601, set by the journal; not compared.
    """

    task_id: str | None
    cluster_time_s: float
    policy: str
    action: Any
    plan: Mapping[str, Any] | None = None
    source: str = "policy"
    slot: int | None = None
    attribution: Mapping[str, Any] | None = None
    view_digest: str = ""
    latencies_s: Mapping[str, float] = field(default_factory=dict)
    weights: tuple[float, float, float] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    sequence: int | None = None
    recorded_at: str = field(default="", compare=False)


@dataclass(frozen=True)
class OutcomeRecord:
    """What a decision came to; written once.

    Attributes:
        decision_id: The decision.
        r_eff: Reward term R_eff, before weighting.
        r_util: Reward term R_util.
        r_cost: Reward term R_cost.
        reward: Weighted sum.
        step_s: Time of one step under the plan.
        bill_usd: What one step's traffic costs.
        energy_j: Energy of one step.
        code: What the cluster made of the action; negative is a refusal.
        provenance: One of :data:`PROVENANCES`.
        details: Anything else.
    """

    decision_id: str
    r_eff: float | None
    r_util: float | None
    r_cost: float | None
    reward: float | None
    step_s: float | None
    bill_usd: float | None
    energy_j: float | None
    code: int
    provenance: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExplanationRecord:
    """An explanation of a decision; one for each target.

    Attributes:
        decision_id: The decision.
        target: What is explained.
        explanation: The explanation as its ``to_dict()`` gives it.
    """

    decision_id: str
    target: str
    explanation: Mapping[str, Any]


@dataclass(frozen=True)
class FeedbackRecord:
    """Something that feedback changed, or took back.

    Attributes:
        changed: What was changed.
        before: Its value before.
        after: Its value since.
        reason: Why, in words.
        undoes: Number of the change that this one takes back.
        number: Number of changes before it, set by the journal.
        after_decisions: Decisions in the journal when it was made, set by the journal.
        rolled_back: Whether a later change took it back; found when it is read.
        recorded_at: UTC, ISO 8601, set by the journal; not compared.
        reason_zh: The reason in Chinese.
    """

    changed: str
    before: Any
    after: Any
    reason: str
    undoes: int | None = None
    number: int | None = None
    after_decisions: int | None = None
    rolled_back: bool = False
    recorded_at: str = field(default="", compare=False)
    reason_zh: str = ""


@dataclass(frozen=True)
class EventRecord:
    """Anything else worth keeping: a start, a resumption, a refusal.

    Attributes:
        kind: What happened, in one word.
        details: More of it.
        cluster_time_s: When, on the cluster's clock; None outside it.
        number: Number of events before it, set by the journal.
        recorded_at: UTC, ISO 8601, set by the journal; not compared.
    """

    kind: str
    details: Mapping[str, Any] = field(default_factory=dict)
    cluster_time_s: float | None = None
    number: int | None = None
    recorded_at: str = field(default="", compare=False)
