"""A journal lived through again: seed, tasks handed in and actions give the same cluster, to the last bit."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from attribution_sched import __version__
from attribution_sched.attribution.vector import AttributionVector
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.live import (
    PolicyAnswer,
    SimulatedCluster,
    weighted,
    with_weights,
)
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.errors import JournalError, ModelFitError, problem
from attribution_sched.journal import DecisionRecord, Journal, OutcomeRecord, TaskRecord
from attribution_sched.scheduler.registry import POLICIES, make_policy
from attribution_sched.system.admission import from_record
from attribution_sched.system.decision_records import outcome_record, plan_of
from attribution_sched.system.operations import Operation, happen, recorded
from attribution_sched.types import Outcome, Task

Before = Callable[[SimulatedCluster, DecisionRecord], None]
"""Called with a decision pending, before its task is chosen."""

Seen = Callable[[DecisionRecord, SimulatedCluster], None]
"""Called with a decision put up; its view is there for whoever asks for it."""

After = Callable[[DecisionRecord, PolicyAnswer, Outcome, OutcomeRecord | None], None]
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
    seen: Seen | None = None,
    records: Iterable[DecisionRecord] | None = None,
) -> int:
    """Let everything a journal holds happen again.

    Args:
        cluster: A fresh cluster of the journal's world and seed.
        journal: What happened.
        seed: Of the system.
        start: What :func:`~attribution_sched.system.snapshots.restore_snapshot` said of the cluster; a fresh one by
            default.
        stop: Number of the decision to stop at, with its task up but the decision not taken; all by default.
        otherwise: Takes the ids of decisions that this release prices otherwise than they were recorded; without it
            such a decision is an error.
        before: Told before each decision.
        after: Told after each.
        seen: Told of each decision before it is taken, for whoever wants a background and no check: nothing is priced,
            nothing is compared with what was recorded, and no outcome is read.
        records: The journal's decisions from ``start`` to ``stop``, where ``seen`` is told and they were read already.

    Returns:
        Tasks that were handed in.

    Raises:
        JournalError: If the cluster does not do the same again, so that the journal belongs to other code.
    """
    domains = [domain.name for domain in cluster.world.cluster.domains]
    interventions = _interventions(journal, start or {}, stop)
    coming = next(interventions, None)
    count, first = 0, 0 if start is None else int(start["sequence"])
    entries: Iterable[tuple[DecisionRecord, OutcomeRecord | None]]
    if seen is None:
        entries = journal.entries(first, None if stop is None else stop + 1)
    else:
        last = None if stop is None else stop + 1
        entries = ((each, None) for each in records or journal.decisions(first, last, brief=True))
    for decision, outcome in entries:
        number = decision.sequence or 0
        while coming is not None and _moment(coming)[0] <= number:
            count += _intervene(journal, cluster, coming, seed)
            coming = next(interventions, None)
        _reach(journal, cluster, decision)
        if before is not None:
            before(cluster, decision)
        if decision.slot is not None and not cluster.replanning and decision.slot != cluster.up:
            cluster.choose(decision.slot)
        there = cluster.residents[cluster.up].id
        if there != decision.task_id:
            raise _differs(journal, decision, "task", there, decision.task_id)
        if stop is not None and number == stop:
            return count
        action = np.array(decision.action, dtype=np.int64)
        if seen is not None:
            seen(decision, cluster)
            cluster.apply(action)
            continue
        view, idle = cluster.pending(), cluster.running == 0
        view = weighted(view, with_weights(view.reward, decision.weights))
        slot, paid = view.slot, cluster.paid
        if outcome is None:
            # Nobody knows whether it was carried out before the end came; its key tells whoever launches things.
            effect = cluster.carry_out(action, journal.key(decision.id))
        else:
            cluster.apply(action)
            effect = cluster.effect(slot, paid)
        apart = None
        if outcome is not None:
            apart = _apart_in(decision, effect, view, outcome)
        if apart is not None:
            if otherwise is None:
                raise _differs(journal, decision, *apart)
            otherwise.append(decision.id)
        if after is not None:
            after(decision, PolicyAnswer(view, plan_of(decision.plan, domains), 0.0, idle), effect, outcome)
    while coming is not None:
        count += _intervene(journal, cluster, coming, seed)
        coming = next(interventions, None)
    return count


class RecordedVectors:
    """Attributions as the journal has them, for a past that is lived through again: what the policy saw, to the bit.

    Working them out anew was a quarter of the time that it takes to come back to a decision.

    Args:
        records: Decisions; each holds the vector of its task.
        attribute: Who works out those of tasks that were not decided on by then.
    """

    def __init__(self, records: Iterable[DecisionRecord], attribute: Callable[[Task], AttributionVector]) -> None:
        # Those of the first releases hold no state, and a policy reads nothing else.
        self._told = {each.task_id: each for each in records if (each.attribution or {}).get("state") is not None}
        self._known: dict[str, AttributionVector] = {}
        self._attribute = attribute

    def __call__(self, task: Task) -> AttributionVector:
        """The vector of a task."""
        if task.id not in self._known:
            record = self._told.get(task.id)
            self._known[task.id] = self._attribute(task) if record is None else recorded_vector(record)
        return self._known[task.id]


def recorded_vector(record: DecisionRecord) -> AttributionVector:
    """The vector that a decision's policy saw.

    Raises:
        JournalError: If what is recorded is none.
    """
    try:
        return AttributionVector.from_dict(record.attribution or {})
    except (KeyError, TypeError, ValueError, ModelFitError) as error:
        rule = f"is no attribution ({error!r})"
        fix = "Run `attribution-sched doctor --verify` on the journal"
        raise JournalError(problem(f"decisions[{record.id}].attribution", record.attribution, rule, fix)) from error


def live_through(
    journal: Journal, make_cluster: type[SimulatedCluster] = SimulatedCluster, world: World | None = None
) -> tuple[SimulatedCluster, list[str]] | None:
    """Let all of a system's journal happen again in a cluster of its own; nothing is changed.

    Args:
        journal: What happened.
        make_cluster: What it happens in.
        world: Its world; that of its settings by default. A journal of a real cluster needs its twin's.

    Returns:
        The cluster at the end, and the ids of the decisions that this release prices otherwise; None if it cannot be
        lived through, because no system wrote it, its beginning is archived, or it is of a real cluster and no world
        was given.

    Raises:
        JournalError: If it does not come out as recorded.
    """
    header = journal.header
    if "world" not in header.settings or "cluster" not in header.seeds or journal.first():
        return None
    if world is None and header.settings.get("cluster", "simulated") != "simulated":
        return None
    seed, arrivals = int(header.seeds["cluster"]), header.settings.get("queue") == "preset"
    world = load_settings(header.settings["world"]).build_world() if world is None else world
    cluster = make_cluster(world, seed, arrivals=arrivals)
    if header.policy in POLICIES:
        cluster.compared = bool(getattr(make_policy(header.policy), "compares_window", False))
    otherwise: list[str] = []
    replay(cluster, journal, seed, otherwise=otherwise)
    return cluster, otherwise


def _handed_in(journal: Journal, start: int, stop: int | None) -> Iterator[TaskRecord]:
    """Tasks that were handed in, in order; those of the simulation come by themselves."""
    return journal.tasks(start, stop, holding="after_decisions")


def _interventions(
    journal: Journal, start: Mapping[str, Any], stop: int | None = None
) -> Iterator[TaskRecord | Operation]:
    """What people did, in the order in which they did it: tasks handed in, and operations on them and on devices.

    Args:
        journal: What happened.
        start: What a snapshot says, which holds what was done before it.
        stop: Number of a decision after which nobody asks; the end by default.
    """
    operations = recorded(journal, start["operated"][0] if "operated" in start else 0)
    return heapq.merge(operations, _handed_in(journal, int(start.get("tasks", 0)), stop), key=_moment)


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
    decision: DecisionRecord, effect: Outcome, view: Decision, outcome: OutcomeRecord
) -> tuple[str, object, object] | None:
    """What comes out otherwise: its name, what it is now, what it was; None if nothing does."""
    replayed = asdict(outcome_record(decision.id, effect, view, outcome.reward or 0.0))
    known = asdict(outcome)
    return next(
        ((name, replayed[name], known[name]) for name in known if name != "reward" and replayed[name] != known[name]),
        None,
    )


def _differs(journal: Journal, decision: DecisionRecord, name: str, replayed: object, known: object) -> JournalError:
    return _apart(journal, f"decision {decision.id}", name, replayed, known)


def _apart(journal: Journal, what: str, name: str, replayed: object, known: object) -> JournalError:
    wrote = journal.header.package_version
    if wrote != __version__:
        why = f"it was written by release {wrote}, this is {__version__}"
        fix = f"Resume it once with release {wrote} and close it, which leaves a snapshot to go on from"
    else:
        why = "by this very release: its settings or weights, a library or the processor are others than they were"
        fix = "Resume it where it was written"
    rule = f"{what} does not come out as recorded ({name} is {replayed!r}, was {known!r}); {why}"
    return JournalError(problem("journal", what, rule, f"{fix}; its records can still be read and exported"))
