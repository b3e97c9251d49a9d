"""What a journal keeps: frozen records with units in their names.

Values of mappings, plans, attributions and actions are plain JSON: numbers, words, lists and mappings whose keys are
words. Arrays are accepted and come back as lists; tuples too. Numbers are written so that they read back exactly. A
number that is not known is None; NaN and infinity are refused.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PathName = str | os.PathLike[str]


def now() -> str:
    """UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


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
        journal_id: Twelve characters that tell this journal from all others, also in a real cluster's list of jobs;
            empty lets the journal draw them. Like a clock's, they differ from run to run and are not compared.
    """

    preset: str
    policy: str
    settings: Mapping[str, Any]
    seeds: Mapping[str, int]
    package_version: str
    created_at: str = ""
    journal_id: str = field(default="", compare=False)


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
    """An explanation of a decision. A later one of the same target is added; the newest counts, the others stay.

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


@dataclass(frozen=True)
class WaitRecord:
    """What one event left waiting: a single record, however long the queue is.

    Attributes:
        cluster_time_s: When, on the cluster's clock.
        count: Tasks left waiting.
        reasons: Reason → tasks it holds back.
        slots: Places of the tasks in the queue, where they are worth keeping.
        after_decisions: Decisions in the journal before it, set by the journal.
    """

    cluster_time_s: float
    count: int
    reasons: Mapping[str, int] = field(default_factory=dict)
    slots: tuple[int, ...] | None = None
    after_decisions: int | None = None


@dataclass(frozen=True)
class HandleRecord:
    """What an executor knows a launched decision by.

    Attributes:
        key: ``<journal id>-<decision id>[-attempt]``, see :meth:`~attribution_sched.journal.journal.Reader.key`.
        executor: Name of the executor.
        handle: What it gave back, for example a job id. Of several under one key the newest counts.
        recorded_at: UTC, ISO 8601, set by the journal; not compared.
    """

    key: str
    executor: str
    handle: Any
    recorded_at: str = field(default="", compare=False)


@dataclass(frozen=True)
class IntentRecord:
    """Something that is to take effect besides a decision: a task handed in, a step of feedback, a training.

    Attributes:
        kind: What, in one word.
        details: All that is needed to do it, also by another process.
        number: Number of intents before it, set by the journal.
        after_decisions: Decisions in the journal when it was recorded, set by the journal.
        effect: What it came to; None while it is open.
        recorded_at: UTC, ISO 8601, set by the journal; not compared.
    """

    kind: str
    details: Mapping[str, Any]
    number: int
    after_decisions: int
    effect: Mapping[str, Any] | None = None
    recorded_at: str = field(default="", compare=False)


@dataclass(frozen=True, eq=False)
class SnapshotRecord:
    """The state after so many decisions, to go on from without living through them again.

    Attributes:
        sequence: Decisions it includes.
        arrays: Name → array, to the bit.
        facts: What is not an array.
        number: Number of snapshots before it.
        position: Its place in the chain of rows.
        skipped: Newer snapshots that were passed over because they are damaged, by name.
    """

    sequence: int
    arrays: Mapping[str, Any]
    facts: Mapping[str, Any]
    number: int
    position: int
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class ArchiveRecord:
    """An old part of the journal that was moved to a file of its own.

    Attributes:
        path: Where it went.
        first: Position of its first row.
        stop: Position one past its last row.
        before: Decisions numbered below this are archived, here or in an earlier archive.
        last_hash: Hash of its last row, hexadecimal; what is left goes on from it.
        recorded_at: UTC, ISO 8601; not compared.
    """

    path: str
    first: int
    stop: int
    before: int
    last_hash: str
    recorded_at: str = field(default="", compare=False)


@dataclass(frozen=True)
class Verified:
    """What a check of the chain came to.

    Attributes:
        first: Position of the first row that was checked.
        rows: Rows that were checked, one after the other.
        head: Hash of the last row, hexadecimal. Kept elsewhere, it shows later that nothing before it was changed.
        archived: Rows before the first that are in archives.
    """

    first: int
    rows: int
    head: str
    archived: int = 0
