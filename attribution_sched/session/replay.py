"""A cluster built again from its journal: seed, tasks handed in and actions give the same cluster to the last bit."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from attribution_sched import __version__
from attribution_sched.cluster.decision import DecisionView
from attribution_sched.config import load_settings
from attribution_sched.errors import JournalError, problem
from attribution_sched.journal import DecisionRecord, Journal, OutcomeRecord, TaskRecord
from attribution_sched.scheduler.registry import POLICIES, make_policy
from attribution_sched.session.asking import Asked, weighted, with_weights
from attribution_sched.session.cluster import SimulatedCluster
from attribution_sched.session.operations import Operation, happen, recorded
from attribution_sched.session.submission import from_record
from attribution_sched.session.wording import plan_of
from attribution_sched.types import Outcome

Before = Callable[[SimulatedCluster, DecisionRecord], None]
"""Called with a decision pending, before its task is chosen."""

After = Callable[[DecisionRecord, Asked, Outcome, OutcomeRecord | None], None]
"""Called when it has taken effect again, with its outcome in the journal."""


def replay(
    cluster: SimulatedCluster,
    journal: Journal,
    seed: int,
    *,
    start: Mapping[str, Any] | None = None,
    stop: int | None = None,
    otherwise: list[str] | None = None,
    before: Before | None = None,
    after: After | None = None,
) -> int:
    """Let everything a journal holds happen again.

    Args:
        cluster: A fresh cluster of the journal's world and seed.
        journal: What happened.
        seed: Of the system.
        start: What :func:`~attribution_sched.session.state.restore_snapshot` said of the cluster; a fresh one by
            default.
        stop: Number of the decision to stop at, with its task up but the decision not taken; all by default.
        otherwise: Takes the ids of decisions that this release prices otherwise than they were recorded; without it
            such a decision is an error.
        before: Told before each decision.
        after: Told after each.

    Returns:
        Tasks that were handed in.

    Raises:
        JournalError: If the cluster does not do the same again, so that the journal belongs to other code.
    """
    domains = [domain.name for domain in cluster.world.cluster.domains]
    interventions = _interventions(journal, start or {})
    coming = next(interventions, None)
    count, first = 0, 0 if start is None else int(start["sequence"])
    for decision, outcome in journal.entries(first, None if stop is None else stop + 1):
        number = decision.sequence or 0
        while coming is not None and _moment(coming)[0] <= number:
            count += _intervene(journal, cluster, coming, seed)
            coming = next(interventions, None)
        _reach(journal, cluster, decision)
        if before is not None:
            before(cluster, decision)
        view = cluster.pending()
        if decision.slot is not None and not view.replanning and decision.slot != view.slot:
            cluster.choose(decision.slot)
            view = cluster.pending()
        there = cluster.residents[view.slot].id
        if there != decision.task_id:
            raise _differs(journal, decision, "task", there, decision.task_id)
        if stop is not None and number == stop:
            return count
        idle = cluster.running == 0
        view = weighted(view, with_weights(view.reward, decision.weights))
        slot, paid, action = view.slot, cluster.paid, np.array(decision.action, dtype=np.int64)
        if outcome is None:
            # Nobody knows whether it was carried out before the end came; its key tells whoever launches things.
            effect = cluster.carry_out(action, journal.key(decision.id))
        else:
            cluster.apply(action)
            effect = cluster.effect(slot, paid)
        apart = None if outcome is None else _apart_in(decision, effect, view, outcome)
        if apart is not None:
            if otherwise is None:
                raise _differs(journal, decision, *apart)
            otherwise.append(decision.id)
        if after is not None:
            after(decision, Asked(view, plan_of(decision.plan, domains), 0.0, idle), effect, outcome)
    while coming is not None:
        count += _intervene(journal, cluster, coming, seed)
        coming = next(interventions, None)
    return count


def live_through(journal: Journal) -> list[str] | None:
    """Let all of a system's journal happen again in a cluster of its own; nothing is changed.

    Returns:
        Ids of the decisions that this release prices otherwise; None if it cannot be lived through, because no system
        wrote it or its beginning is archived.

    Raises:
        JournalError: If it does not come out as recorded.
    """
    header = journal.header
    if "world" not in header.settings or "cluster" not in header.seeds or journal.first():
        return None
    seed, arrivals = int(header.seeds["cluster"]), header.settings.get("queue") == "preset"
    cluster = SimulatedCluster(load_settings(header.settings["world"]).build_world(), seed, arrivals=arrivals)
    if header.policy in POLICIES:
        cluster.compared = bool(getattr(make_policy(header.policy), "compares_window", False))
    otherwise: list[str] = []
    replay(cluster, journal, seed, otherwise=otherwise)
    return otherwise


def outcome_record(decision: str, effect: Outcome, view: DecisionView, reward: float) -> OutcomeRecord:
    """What a decision came to, for the journal."""
    details = {
        "steps": view.steps_left,
        "base_step_s": float(view.base_step_s[view.kind_index]),
        "move_s": effect.move_s,
        "move_usd": effect.move_usd,
        "busy_share": effect.busy_share,
        "paid_since": list(effect.paid),
    }
    return OutcomeRecord(
        decision, *effect.terms, reward, effect.step_s, effect.bill_usd, effect.energy_j, effect.code, "simulated",
        details,
    )  # fmt: skip


def _handed_in(journal: Journal, start: int) -> Iterator[TaskRecord]:
    """Tasks that were handed in, in order; those of the simulation come by themselves."""
    return (task for task in journal.tasks(start) if "after_decisions" in task.meta)


def _interventions(journal: Journal, start: Mapping[str, Any]) -> Iterator[TaskRecord | Operation]:
    """What people did, in the order in which they did it: tasks handed in, and operations on them and on devices.

    Args:
        journal: What happened.
        start: What a snapshot says, which holds what was done before it.
    """
    operations = recorded(journal, start["operated"][0] if "operated" in start else 0)
    return heapq.merge(operations, _handed_in(journal, int(start.get("tasks", 0))), key=_moment)


def _moment(each: TaskRecord | Operation) -> tuple[int, int, int]:
    """By decisions, then by tasks that had come: an operation comes before the task that came next."""
    if isinstance(each, Operation):
        return each.after_decisions, each.came, 0
    return int(each.meta["after_decisions"]), int(each.meta["number"]), 1


def _intervene(journal: Journal, cluster: SimulatedCluster, what: TaskRecord | Operation, seed: int) -> int:
    """Let it happen again; return how many tasks were handed in by it."""
    if isinstance(what, TaskRecord):
        _hand_in(journal, cluster, what, seed)
        return 1
    # A decision that was pending then is pending now: it may be what the operation is about.
    cluster.advance(math.inf if what.deciding else what.cluster_time_s)
    if cluster.now_s != what.cluster_time_s:
        raise _apart(journal, f"{what.kind} {what.name}", "cluster_time_s", cluster.now_s, what.cluster_time_s)
    happen(cluster, what, live=not what.done)
    return 0


def _hand_in(journal: Journal, cluster: SimulatedCluster, task: TaskRecord, seed: int) -> None:
    cluster.advance(task.submitted_s)
    if cluster.now_s != task.submitted_s:
        raise _apart(journal, f"task {task.id}", "cluster_time_s", cluster.now_s, task.submitted_s)
    if not cluster.hand_in(from_record(cluster.world, task, seed), task.id):
        raise _apart(journal, f"task {task.id}", "queue", "full", "free")


def _reach(journal: Journal, cluster: SimulatedCluster, decision: DecisionRecord) -> None:
    pending = cluster.advance()
    if not pending or cluster.now_s != decision.cluster_time_s:
        raise _differs(journal, decision, "cluster_time_s", cluster.now_s, decision.cluster_time_s)


def _apart_in(
    decision: DecisionRecord, effect: Outcome, view: DecisionView, outcome: OutcomeRecord
) -> tuple[str, object, object] | None:
    """What comes out otherwise: its name, what it is now, what it was; None if nothing does."""
    found = asdict(outcome_record(decision.id, effect, view, outcome.reward or 0.0))
    known = asdict(outcome)
    return next(
        ((name, found[name], known[name]) for name in known if name != "reward" and found[name] != known[name]), None
    )


def _differs(journal: Journal, decision: DecisionRecord, name: str, found: object, known: object) -> JournalError:
    return _apart(journal, f"decision {decision.id}", name, found, known)


def _apart(journal: Journal, what: str, name: str, found: object, known: object) -> JournalError:
    wrote = journal.header.package_version
    if wrote != __version__:
        why = f"it was written by release {wrote}, this is {__version__}"
        fix = f"Resume it once with release {wrote} and close it, which leaves a snapshot to go on from"
    else:
        why = "by this very release: its settings or weights, a library or the processor are others than they were"
        fix = "Resume it where it was written"
    rule = f"{what} does not come out as recorded ({name} is {found!r}, was {known!r}); {why}"
    return JournalError(problem("journal", what, rule, f"{fix}; its records can still be read and exported"))
