"""One pass over the journal: counts, plans put in force, attributions of the placed tasks, times, a fingerprint."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attribution_sched.journal import DecisionRecord, Journal, OutcomeRecord, TaskRecord
from attribution_sched.report.data import Moment

MOST_MOMENTS = 2000
"""Plans put in force that are kept, the newest."""

MOST_TIMES = 10_000
"""Decisions whose times are kept, the newest."""


@dataclass
class Passed:
    """What one pass over a journal found.

    Attributes:
        counts: Decisions by what they came to: placed, moved, kept, waited, refused, pending.
        moments: Plans put in force, the newest.
        in_force: How many there were in all.
        outcomes: Their outcomes, in the same order.
        cross_domain: How many used more than one domain.
        attributions: Task id → its attribution when it was placed last.
        counters: Task id → how its counters were got.
        tasks: Task id → its record, of those placed.
        times_s: Times of decisions, the newest.
        fingerprint: Of all decisions.
        last_code: What the last decision came to; None if there is none.
        sequences: Decision id → its number, of the moments.
    """

    counts: Counter[str] = field(default_factory=Counter)
    moments: deque[Moment] = field(default_factory=lambda: deque(maxlen=MOST_MOMENTS))
    in_force: int = 0
    outcomes: deque[OutcomeRecord] = field(default_factory=lambda: deque(maxlen=MOST_MOMENTS))
    cross_domain: int = 0
    attributions: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    counters: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, TaskRecord] = field(default_factory=dict)
    times_s: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_TIMES))
    fingerprint: str = ""
    last_code: int | None = None
    sequences: dict[str, int] = field(default_factory=dict)


def passed(journal: Journal) -> Passed:
    """Read a journal once, page by page."""
    journaled, digest = Passed(), hashlib.blake2b(digest_size=6)
    kinds = {task.id: task for task in journal.tasks()}
    for decision, outcome in journal.entries():
        code = None if outcome is None else outcome.code
        digest.update(repr((decision.task_id, decision.cluster_time_s, decision.action, code)).encode())
        journaled.counts[_sort(decision, outcome)] += 1
        journaled.last_code = code
        if "decision" in decision.latencies_s:
            journaled.times_s.append(decision.latencies_s["decision"])
        if outcome is None or outcome.code <= 0 or decision.plan is None:
            continue
        moment = _moment(decision, outcome, kinds)
        journaled.in_force += 1
        journaled.cross_domain += len(moment.domains) > 1
        journaled.moments.append(moment)
        journaled.outcomes.append(outcome)
        journaled.sequences[decision.id] = decision.sequence or 0
        task = decision.task_id or ""
        if outcome.code == 1 and decision.attribution is not None:
            journaled.attributions[task] = decision.attribution
            journaled.counters[task] = str(decision.provenance.get("counters", "simulated"))
            journaled.tasks[task] = kinds[task]
    journaled.fingerprint = digest.hexdigest() if journaled.counts else ""
    return journaled


def _sort(decision: DecisionRecord, outcome: OutcomeRecord | None) -> str:
    if outcome is None:
        return "pending"
    if outcome.code < 0:
        return "refused"
    if outcome.code == 0:
        return "kept" if decision.slot is None else "waited"
    return "placed" if outcome.code == 1 else "moved"


def _moment(decision: DecisionRecord, outcome: OutcomeRecord, kinds: Mapping[str, TaskRecord]) -> Moment:
    plan: Mapping[str, Any] = decision.plan or {}
    segments = [segment for replica in plan["replicas"] for segment in replica["segments"]]
    devices = sum(segment["dp"] * segment["tp"] * segment["pp"] for segment in segments)
    task = decision.task_id or ""
    # Journals of older versions did not keep the steps that were left; a placement begins with all of them.
    steps = outcome.details.get("steps")
    if steps is None and outcome.code == 1:
        steps = float(kinds[task].steps)
    step_s = outcome.step_s or 0.0
    return Moment(
        decision=decision.id,
        task=task,
        kind=kinds[task].kind,
        time_s=decision.cluster_time_s,
        moved=outcome.code == 2,
        words=plan["words"],
        plan=plan,
        source=decision.source,
        devices=devices,
        domains=tuple(dict.fromkeys(segment["domain"] for segment in segments)),
        steps=steps,
        step_s=step_s,
        base_step_s=outcome.details.get("base_step_s"),
        bill_usd=outcome.bill_usd or 0.0,
        energy_j=outcome.energy_j or 0.0,
        terms=(outcome.r_eff or 0.0, outcome.r_util or 0.0, outcome.r_cost or 0.0),
        weights=decision.weights or (1.0, 1.0, 1.0),
        reward=outcome.reward or 0.0,
        device_hours=None if steps is None else devices * step_s * steps / 3600.0,
        busy_share=outcome.details.get("busy_share"),
    )


# ------ Which decisions matter most: those that commit most device-hours
#
# A decision that places or moves a task occupies so many devices for as long as the remaining steps take:
# devices × step time × steps left. Decisions to wait or to stay commit nothing and are not ranked.


def consequential(moments: Sequence[Moment], most: int) -> list[Moment]:
    """So many decisions, the largest first; of each kind of task one, and further ones only when kinds run out."""
    ranked = sorted(
        (moment for moment in moments if moment.device_hours is not None),
        key=lambda moment: -(moment.device_hours or 0.0),
    )
    turn: dict[str, int] = {}
    rounds: list[tuple[int, int, Moment]] = []
    for rank, moment in enumerate(ranked):
        rounds.append((turn.get(moment.kind, 0), rank, moment))
        turn[moment.kind] = turn.get(moment.kind, 0) + 1
    chosen = sorted(rounds, key=lambda entry: entry[:2])[:most]
    return [moment for _, _, moment in sorted(chosen, key=lambda entry: entry[1])]


def spread(moments: Sequence[Moment], most: int) -> list[Moment]:
    """So many of them at equal distances."""
    count = min(most, len(moments))
    return [moments[(2 * i + 1) * len(moments) // (2 * count)] for i in range(count)]
