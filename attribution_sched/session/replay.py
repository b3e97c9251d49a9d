"""A cluster built again from its journal: seed, tasks handed in and actions give the same cluster to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict

import numpy as np

from attribution_sched.cluster.decision import DecisionView
from attribution_sched.errors import JournalError, problem
from attribution_sched.journal import DecisionRecord, Journal, OutcomeRecord, TaskRecord
from attribution_sched.session.asking import Asked, weighted, with_weights
from attribution_sched.session.cluster import SimulatedCluster
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
    stop: int | None = None,
    before: Before | None = None,
    after: After | None = None,
) -> int:
    """Let everything a journal holds happen again.

    Args:
        cluster: A fresh cluster of the journal's world and seed.
        journal: What happened.
        seed: Of the system.
        stop: Number of the decision to stop at, with its task up but the decision not taken; all by default.
        before: Told before each decision.
        after: Told after each.

    Returns:
        Tasks that were handed in.

    Raises:
        JournalError: If the cluster does not do the same again, so that the journal belongs to other code.
    """
    domains = [domain.name for domain in cluster.world.cluster.domains]
    handed_in = _handed_in(journal)
    task = next(handed_in, None)
    count = 0
    for decision, outcome in journal.entries(0, None if stop is None else stop + 1):
        number = decision.sequence or 0
        while task is not None and task.meta["after_decisions"] <= number:
            _hand_in(cluster, task, seed)
            count, task = count + 1, next(handed_in, None)
        _reach(cluster, decision)
        if before is not None:
            before(cluster, decision)
        view = cluster.pending()
        if decision.slot is not None and not view.replanning and decision.slot != view.slot:
            cluster.choose(decision.slot)
            view = cluster.pending()
        there = cluster.residents[view.slot].id
        if there != decision.task_id:
            raise _differs(decision, "task", there, decision.task_id)
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
        if outcome is not None:
            _compare(decision, effect, view, outcome)
        if after is not None:
            after(decision, Asked(view, plan_of(decision.plan, domains), 0.0, idle), effect, outcome)
    while task is not None:
        _hand_in(cluster, task, seed)
        count, task = count + 1, next(handed_in, None)
    return count


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


def _handed_in(journal: Journal) -> Iterator[TaskRecord]:
    """Tasks that were handed in, in order; those of the simulation come by themselves."""
    return (task for task in journal.tasks() if "after_decisions" in task.meta)


def _hand_in(cluster: SimulatedCluster, task: TaskRecord, seed: int) -> None:
    cluster.advance(task.submitted_s)
    if cluster.now_s != task.submitted_s:
        raise _apart(f"task {task.id}", "cluster_time_s", cluster.now_s, task.submitted_s)
    if not cluster.hand_in(from_record(cluster.world, task, seed), task.id):
        raise _apart(f"task {task.id}", "queue", "full", "free")


def _reach(cluster: SimulatedCluster, decision: DecisionRecord) -> None:
    pending = cluster.advance()
    if not pending or cluster.now_s != decision.cluster_time_s:
        raise _differs(decision, "cluster_time_s", cluster.now_s, decision.cluster_time_s)


def _compare(decision: DecisionRecord, effect: Outcome, view: DecisionView, outcome: OutcomeRecord) -> None:
    found = asdict(outcome_record(decision.id, effect, view, outcome.reward or 0.0))
    for name, known in asdict(outcome).items():
        if name != "reward" and found[name] != known:
            raise _differs(decision, name, found[name], known)


def _differs(decision: DecisionRecord, name: str, found: object, known: object) -> JournalError:
    return _apart(f"decision {decision.id}", name, found, known)


def _apart(what: str, name: str, found: object, known: object) -> JournalError:
    rule = f"{what} does not come out as recorded ({name} is {found!r}, was {known!r})"
    fix = "Resume with the package version and machine type that wrote it; its records can still be read and exported"
    return JournalError(problem("journal", what, rule, fix))
