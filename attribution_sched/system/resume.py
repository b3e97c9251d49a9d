"""Going on where a journal ends: everything it holds happens again, from the newest snapshot on, to the last bit.

Seed, tasks handed in and actions give the same cluster. A journal keeps the state of a running system now and then, so
that going on takes a bounded time however long the history is. Nothing here is pickled: arrays are saved as they are,
the rest is JSON.
"""

from __future__ import annotations

import heapq
import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched import __version__
from attribution_sched.attribution.vector import AttributionVector
from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.demands import Demands
from attribution_sched.cluster.live import (
    LASTED,
    Backlog,
    Heard,
    Held,
    PolicyAnswer,
    Reservation,
    SimulatedCluster,
    Waiting,
    weighted,
    with_weights,
)
from attribution_sched.cluster.world import World, hourly_ratios
from attribution_sched.config import load_settings
from attribution_sched.errors import JournalError, ModelFitError, problem
from attribution_sched.explain.memory import BLOCK
from attribution_sched.journal import DecisionRecord, Journal, OutcomeRecord, SnapshotRecord, TaskRecord
from attribution_sched.scheduler.policy import Policy, Recallable
from attribution_sched.scheduler.registry import POLICIES, make_policy
from attribution_sched.storage import take
from attribution_sched.system.admission import from_record
from attribution_sched.system.operations import Operation, happen, recorded
from attribution_sched.system.results import outcome_record, plan_of
from attribution_sched.types import Outcome, Task

# --- Living through a journal again ---

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
        start: What :func:`~attribution_sched.system.resume.restore_snapshot` said of the cluster; a fresh one by
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


# --- Snapshots ---

EVERY = BLOCK
"""Decisions between two snapshots: small beside them, and each stands where a block of explanations begins."""

FORMAT = 2
"""Of what is written here; a snapshot of another one is passed over, and the journal gone through instead."""

Arrays = dict[str, NDArray[Any]]

ELSEWHERE = frozenset({"counters", "attribution"})
"""Fields of a task that are not written: counters stand among the arrays, attributions are worked out of them."""


def record_snapshot(journal: Journal, cluster: SimulatedCluster, policy: Policy, facts: Mapping[str, Any]) -> None:
    """Keep a system as it is between two decisions.

    Args:
        journal: Where.
        cluster: The cluster.
        policy: Who decides; one that can say what it remembers is kept with it.
        facts: What else it needs to go on.
    """
    arrays, details = save_cluster(cluster)
    if isinstance(policy, Recallable):
        arrays |= {f"policy.{name}": np.asarray(array) for name, array in policy.memory().items()}
    details |= {"tasks": journal.task_count(), "remembers": isinstance(policy, Recallable), **facts}
    # The longest part of it; as bytes it is compressed with the rest.
    arrays["facts"] = np.frombuffer(json.dumps(details).encode(), dtype=np.uint8)
    journal.record_snapshot(journal.count(), arrays, {"format": FORMAT}, keep_newest=1, keep_every=1)


def restore_snapshot(
    snapshot: SnapshotRecord | None, cluster: SimulatedCluster, policy: Policy | None = None
) -> dict[str, Any]:
    """Bring a fresh cluster to where a snapshot was taken.

    Args:
        snapshot: The snapshot; None if a journal has none that is old enough.
        cluster: A fresh cluster of the journal's world and seed.
        policy: Who decides; it remembers again what it did then, if it can.

    Returns:
        The facts that were kept, with ``sequence``: the decisions that are not to be lived through again. With 0 of
        them there was no snapshot to begin from.
    """
    if snapshot is None or not _readable(snapshot):
        return {"sequence": 0, "tasks": 0}
    details: dict[str, Any] = json.loads(snapshot.arrays["facts"].tobytes())
    restore_cluster(cluster, snapshot.arrays, details)
    if policy is not None:
        recall_from(snapshot, policy)
    return details | {"sequence": snapshot.sequence}


def _readable(snapshot: SnapshotRecord) -> bool:
    return snapshot.facts.get("format") == FORMAT and "facts" in snapshot.arrays


def snapshot_before(journal: Journal, at: int) -> SnapshotRecord | None:
    """The newest snapshot of a system that includes so many decisions at most; None if there is none."""
    snapshot = journal.newest_snapshot(at)
    return snapshot if snapshot is not None and _readable(snapshot) else None


def recall_from(snapshot: SnapshotRecord, policy: Policy) -> None:
    """Let a policy remember what it did at a snapshot, if it can."""
    if isinstance(policy, Recallable):
        policy.recall(take(snapshot.arrays, "policy."))


def recall_newest(journal: Journal, policy: Policy) -> int:
    """Let a policy remember what it did at the newest snapshot; returns the decisions that this includes."""
    snapshot = journal.newest_snapshot()
    if snapshot is None or not isinstance(policy, Recallable):
        return 0
    recall_from(snapshot, policy)
    return snapshot.sequence


def save_cluster(cluster: SimulatedCluster) -> tuple[Arrays, dict[str, Any]]:
    """The state of a cluster between two decisions."""
    engine, pool = cluster.engine, cluster.engine.pool
    arrays: Arrays = {f"state.{name}": array.copy() for name, array in engine.state._asdict().items()}
    arrays |= {
        "pool.kinds": pool.kinds.copy(),
        "pool.steps": pool.steps.copy(),
        "pool.counters": pool.counters.values.copy(),
        "pool.samples_per_s": pool.samples_per_s.copy(),
        "pool.rows": cluster._arrays.pool.copy(),
    } | {f"pool.demands.{name}": array for name, array in _demands(pool.demands).items()}
    waiting = [*cluster.backlog, *(each.waiting for each in cluster.held.values())]
    if waiting:
        arrays |= {
            "backlog.counters": np.stack([each.task.counters for each in waiting]),
            "backlog.rows": np.stack([each.row for each in waiting]),
            "backlog.left": np.array([each.left for each in waiting]),
        }
        parts = [_demands(each.demands) for each in waiting]
        arrays |= {f"backlog.demands.{name}": np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if cluster.world.quotas:
        arrays["quotas.used"] = cluster.spending.used.copy()
    if cluster.corrected:
        arrays["links.base"] = cluster._arrays.base.copy()
    if cluster.heard:
        arrays["signals.heard"] = np.array(cluster.heard)
    facts = {
        "residents": {str(slot): _task(task) for slot, task in cluster.residents.items()},
        "backlog": [_task(each.task) for each in waiting],
        "arrived": cluster._arrived,
        "came": cluster._came,
        "next_s": cluster._next_s if np.isfinite(cluster._next_s) else None,
        "swaps": [cluster._swaps, cluster._refilled_s],
        "left_waiting": dict(cluster.left_waiting),
        "held": {name: [each.reason, each.aside] for name, each in cluster.held.items()},
        "reservations": [asdict(each) for each in cluster.reservations.values()],
        "operated": [cluster.operated, cluster._reserved, cluster.set_aside],
        "learnt": {str(kind): list(known.items()) for kind, known in cluster.learnt.items()},
        "lasted": [[*whose, *lasted] for whose, lasted in cluster.lasted.items()],
    }
    return arrays, facts


def restore_cluster(cluster: SimulatedCluster, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
    """Put a cluster of the same world into a state that was saved.

    Raises:
        JournalError: If the state is of another world or of another release's form.
    """
    engine, pool = cluster.engine, cluster.engine.pool
    targets: Arrays = {f"state.{name}": array for name, array in engine.state._asdict().items()}
    targets |= {
        "pool.kinds": pool.kinds, "pool.steps": pool.steps, "pool.counters": pool.counters.values,
        "pool.samples_per_s": pool.samples_per_s, "pool.rows": cluster._arrays.pool,
    }  # fmt: skip
    targets |= {f"pool.demands.{name}": getattr(pool.demands, name) for name in _demands(pool.demands)}
    if cluster.world.quotas:
        targets["quotas.used"] = cluster.spending.used
    for name, target in targets.items():
        array_of = arrays.get(name)
        if array_of is None or array_of.shape != target.shape or array_of.dtype != target.dtype:
            shape = None if array_of is None else (array_of.shape, str(array_of.dtype))
            rule = f"must be {(target.shape, str(target.dtype))}, as this world has it"
            raise JournalError(problem(f"snapshot.{name}", shape, rule, "Resume with the release that wrote it"))
    for name, target in targets.items():
        target[...] = arrays[name]
    # One that is used again for an earlier moment knows what was measured and heard later.
    if cluster.corrected:
        cluster._arrays.base[0] = cluster.world.cluster.wan.bandwidth_gbps * BYTES_PER_GBIT
    if "links.base" in arrays:
        cluster._arrays.base[...] = arrays["links.base"]
    cluster.corrected = "links.base" in arrays
    if cluster.heard:
        engine.arrays.signals[...] = hourly_ratios(cluster.world)
    cluster.heard = ()
    for time_s, hour, domain, row, value in arrays.get("signals.heard", ()):
        cluster.believe(Heard(float(time_s), int(hour), int(domain), int(row), float(value)))
    cluster.residents.clear()
    cluster.backlog = Backlog()
    cluster.held.clear()
    for slot, record in facts["residents"].items():
        task = cluster.attributed(_read_task(record, pool.counters.values[int(slot)].copy()))
        cluster.residents[int(slot)] = pool.tasks[int(slot)] = task
    demands = {name.removeprefix("backlog.demands."): array for name, array in arrays.items() if "backlog.dem" in name}
    for at, record in enumerate(facts["backlog"]):
        own = Demands(**{name: array[at : at + 1].copy() for name, array in demands.items()})
        task = _read_task(record, arrays["backlog.counters"][at].copy())
        left = float(arrays["backlog.left"][at])
        waiting = Waiting(task, own, arrays["backlog.rows"][at].copy(), left)
        if task.id in facts["held"]:
            cluster.held[task.id] = Held(waiting, *facts["held"][task.id])
        else:
            cluster.backlog.add(waiting)
    cluster.reservations = {each["id"]: Reservation(**each) for each in facts["reservations"]}
    cluster.operated, cluster._reserved, cluster.set_aside = facts["operated"]
    cluster.learnt = {int(kind): dict(known) for kind, known in facts.get("learnt", {}).items()}
    cluster.lasted = {(each[0], bool(each[1])): deque(each[2:], maxlen=LASTED) for each in facts.get("lasted", ())}
    cluster._arrived, cluster._came = int(facts["arrived"]), int(facts["came"])
    cluster._next_s = float("inf") if facts["next_s"] is None else float(facts["next_s"])
    cluster._swaps, cluster._refilled_s = facts["swaps"]
    cluster.left_waiting = dict(facts["left_waiting"])


def _demands(demands: Demands) -> Arrays:
    return {each.name: np.asarray(getattr(demands, each.name)).copy() for each in fields(demands)}


def _task(task: Task) -> dict[str, Any]:
    named = {each.name: getattr(task, each.name) for each in fields(task) if each.name not in ELSEWHERE}
    return named | {"provenance": dict(task.provenance)}


def _read_task(record: Mapping[str, Any], counters: NDArray[np.float64]) -> Task:
    known = {each.name for each in fields(Task)}
    return replace(Task(**{name: value for name, value in record.items() if name in known}), counters=counters)
