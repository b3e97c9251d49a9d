"""Records as rows of the tables, and back."""

from __future__ import annotations

import functools
from typing import Any

from attribution_sched.errors import JournalError, nearest, problem
from attribution_sched.journal import schema
from attribution_sched.journal.records import (
    PROVENANCES,
    DecisionRecord,
    EventRecord,
    ExplanationRecord,
    FeedbackRecord,
    JournalHeader,
    OutcomeRecord,
    TaskRecord,
)
from attribution_sched.journal.values import dump, dump_mapping, load, needed, number, text, whole

Row = tuple[Any, ...]

TERMS: tuple[str, ...] = ("r_eff", "r_util", "r_cost", "reward", "step_s", "bill_usd", "energy_j")


@functools.cache
def insert(table: str) -> str:
    """The statement that adds a row."""
    names = schema.columns(table)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


@functools.cache
def select(table: str, alias: str = "") -> str:
    """The columns of a table, in order, for a query."""
    prefix = f"{alias}." if alias else ""
    return ", ".join(prefix + name for name in schema.columns(table))


def header_row(header: JournalHeader) -> Row:
    """A header without its key."""
    for name, seed in header.seeds.items():
        # Entropy of a seed sequence has 128 bits; JSON holds them.
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise JournalError(problem(f"header.seeds.{name}", seed, "must be a whole number", "Give an integer"))
    return (
        text("header.preset", header.preset),
        text("header.policy", header.policy),
        dump_mapping("header.settings", header.settings),
        dump_mapping("header.seeds", header.seeds),
        text("header.package_version", header.package_version),
        text("header.created_at", header.created_at),
    )


def read_header(row: Row) -> JournalHeader:
    """The inverse of :func:`header_row`, the key included."""
    _, preset, policy, settings, seeds, package_version, created_at = row
    return JournalHeader(
        preset, policy, load("header.settings", settings), load("header.seeds", seeds), package_version, created_at
    )


def task_row(task: TaskRecord) -> Row:
    """A task without its number."""
    return (
        text("task.id", task.id),
        text("task.kind", task.kind),
        whole("task.steps", task.steps),
        needed("task.submitted_s", task.submitted_s),
        dump_mapping("task.counters", task.counters),
        dump_mapping("task.meta", task.meta),
    )


def read_task(row: Row) -> TaskRecord:
    """The inverse of :func:`task_row`, the number included."""
    _, name, kind, steps, submitted_s, counters, meta = row
    return TaskRecord(name, kind, steps, submitted_s, load("task.counters", counters), load("task.meta", meta))


def decision_row(decision: DecisionRecord, sequence: int, name: str, recorded_at: str) -> Row:
    """A decision under its number."""
    weights = None if decision.weights is None else [needed("decision.weights", each) for each in decision.weights]
    if weights is not None and len(weights) != 3:
        rule = "must be w_eff, w_util and w_cost"
        raise JournalError(problem("decision.weights", decision.weights, rule, "Give three numbers, or None"))
    for part, seconds in decision.latencies_s.items():
        needed(f"decision.latencies_s.{part}", seconds)
    return (
        sequence,
        text("decision.id", name),
        None if decision.task_id is None else text("decision.task_id", decision.task_id),
        needed("decision.cluster_time_s", decision.cluster_time_s),
        text("decision.policy", decision.policy),
        text("decision.source", decision.source),
        None if decision.plan is None else dump_mapping("decision.plan", decision.plan),
        None if decision.attribution is None else dump_mapping("decision.attribution", decision.attribution),
        dump("decision.action", decision.action),
        text("decision.view_digest", decision.view_digest, empty=True),
        dump_mapping("decision.latencies_s", decision.latencies_s),
        *(weights or (None, None, None)),
        dump_mapping("decision.provenance", decision.provenance),
        recorded_at,
        None if decision.slot is None else whole("decision.slot", decision.slot),
    )


def read_decision(row: Row) -> DecisionRecord:
    """The inverse of :func:`decision_row`."""
    at = dict(zip(schema.columns("decisions"), row, strict=True))
    weights = (at["w_eff"], at["w_util"], at["w_cost"])
    return DecisionRecord(
        task_id=at["task_id"],
        cluster_time_s=at["cluster_time_s"],
        policy=at["policy"],
        action=load("decision.action", at["action"]),
        plan=load("decision.plan", at["plan"]),
        source=at["source"],
        slot=at["slot"],
        attribution=load("decision.attribution", at["attribution"]),
        view_digest=at["view_digest"],
        latencies_s=load("decision.latencies_s", at["latencies_s"]),
        weights=None if None in weights else weights,
        provenance=load("decision.provenance", at["provenance"]),
        id=at["id"],
        sequence=at["sequence"],
        recorded_at=at["recorded_at"],
    )


def outcome_row(outcome: OutcomeRecord) -> Row:
    """An outcome without its decision's number."""
    if outcome.provenance not in PROVENANCES:
        hint = nearest(str(outcome.provenance), PROVENANCES)
        raise JournalError(problem("outcome.provenance", outcome.provenance, "is not known", hint))
    return (
        *(number(f"outcome.{name}", getattr(outcome, name)) for name in TERMS),
        whole("outcome.code", outcome.code, least=-(2**63)),
        outcome.provenance,
        dump_mapping("outcome.details", outcome.details),
    )


def read_outcome(decision_id: str, row: Row) -> OutcomeRecord:
    """The inverse of :func:`outcome_row`, the decision's number included."""
    known = dict(zip(schema.columns("outcomes")[1:], row[1:], strict=True))
    known["details"] = load("outcome.details", known["details"])
    return OutcomeRecord(decision_id, **known)


def explanation_row(record: ExplanationRecord) -> Row:
    """An explanation without its decision's number."""
    return text("explanation.target", record.target), dump_mapping("explanation", record.explanation)


def read_explanation(decision_id: str, row: Row) -> ExplanationRecord:
    """The inverse of :func:`explanation_row`, the decision's number included."""
    return ExplanationRecord(decision_id, row[1], load("explanation", row[2]))


def feedback_row(change: FeedbackRecord, number_: int, decisions: int, recorded_at: str) -> Row:
    """A change under its number."""
    return (
        number_,
        text("feedback.changed", change.changed),
        dump("feedback.before", change.before),
        dump("feedback.after", change.after),
        text("feedback.reason", change.reason),
        decisions,
        recorded_at,
        None if change.undoes is None else whole("feedback.undoes", change.undoes),
        change.reason_zh if change.reason_zh == "" else text("feedback.reason_zh", change.reason_zh),
    )


def read_feedback(row: Row) -> FeedbackRecord:
    """The inverse of :func:`feedback_row`, with a last column that says whether it was taken back."""
    number_, changed, before, after, reason, decisions, recorded_at, undoes, reason_zh, rolled_back = row
    return FeedbackRecord(
        changed, load("feedback.before", before), load("feedback.after", after), reason,
        undoes, number_, decisions, bool(rolled_back), recorded_at, reason_zh,
    )  # fmt: skip


def event_row(event: EventRecord, number_: int, recorded_at: str) -> Row:
    """An event under its number."""
    return (
        number_,
        text("event.kind", event.kind),
        dump_mapping("event.details", event.details),
        number("event.cluster_time_s", event.cluster_time_s),
        recorded_at,
    )


def read_event(row: Row) -> EventRecord:
    """The inverse of :func:`event_row`."""
    number_, kind, details, cluster_time_s, recorded_at = row
    return EventRecord(kind, load("event.details", details), cluster_time_s, number_, recorded_at)
