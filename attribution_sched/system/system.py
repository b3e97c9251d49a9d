"""The loop: a task's counters are attributed, a policy decides, the journal keeps it, the cluster runs it.

from attribution_sched import System

system = System()
print(system.schedule_next_task())

Every decision is in the journal before it takes effect. A system may be shared by threads: calls take turns, so each
decision is taken once. It is not carried over to forked processes.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched import __version__
from attribution_sched.attribution.attributor import TaskAttributor, as_attributor
from attribution_sched.attribution.vector import measured
from attribution_sched.cluster.decision import attributed, co_runners
from attribution_sched.cluster.live import (
    Moment,
    PolicyAnswer,
    PolicyCall,
    SimulatedCluster,
    TaskInstance,
    as_policy,
    weighted,
    with_weights,
)
from attribution_sched.cluster.world import Reward
from attribution_sched.config import Settings, load_settings
from attribution_sched.errors import (
    ExplanationError,
    JournalError,
    PolicyError,
    SettingsError,
    TaskError,
    nearest,
    problem,
)
from attribution_sched.executors.live import Twin, live_of, onlooker, outcome_of, outcome_words, recorded_cluster
from attribution_sched.executors.submission import SUBMIT_S
from attribution_sched.executors.workers import check_workers, spread
from attribution_sched.explain.memory import QUICK, Memorised, Memory, seeing
from attribution_sched.explain.recorder import Decided, perceived
from attribution_sched.journal import (
    DecisionRecord,
    EventRecord,
    ExplanationRecord,
    Journal,
    OutcomeRecord,
    TaskRecord,
    WaitRecord,
)
from attribution_sched.journal.journal import temporary_copy
from attribution_sched.journal.store import dispose_of
from attribution_sched.kernels import clock
from attribution_sched.scheduler.policy import Appraiser, Episodic, LinkWatcher, Policy, Recallable
from attribution_sched.scheduler.registry import POLICIES
from attribution_sched.system import arguments, operations
from attribution_sched.system.admission import Admission, demo_of, handed_in, prepared
from attribution_sched.system.learning import ORIGINAL, Learnt, RewardFeedback, Versions, learn, targets_of
from attribution_sched.system.moments import moment_of, present_moment, warm_up
from attribution_sched.system.operations import Status, queue_table, status_of
from attribution_sched.system.results import (
    RunSummary,
    SchedulingResult,
    TakenDecision,
    Tally,
    decision_record,
    outcome_record,
    plan_of,
    plan_record,
    prediction,
    result_of,
    reward_of,
    task_record,
)
from attribution_sched.system.resume import (
    EVERY,
    RecordedVectors,
    recall_from,
    recall_newest,
    record_snapshot,
    replay,
    restore_snapshot,
    snapshot_before,
)
from attribution_sched.types import FloatArray, IntArray, Outcome, RewardTerms, Task
from attribution_sched.words.say import check_language
from attribution_sched.words.text import clean_text

if TYPE_CHECKING:
    import pandas as pd

    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.billing.bill import Bill, Prices
    from attribution_sched.cluster.decision import Decision
    from attribution_sched.cluster.demands import Demands
    from attribution_sched.explain.blame import Blame
    from attribution_sched.explain.decision_table import Alternative, DecisionTable
    from attribution_sched.explain.delay import Delay
    from attribution_sched.explain.explanation import Explanation
    from attribution_sched.explain.several_agents import AgentsCompared
    from attribution_sched.explain.what_if import WhatIf
    from attribution_sched.explain.when import When
    from attribution_sched.explain.why import Why
    from attribution_sched.feedback.loop import FeedbackChange
    from attribution_sched.feedback.window import Outcome as Expected

Preset = str | Path | Mapping[str, Any] | Settings
Progress = Callable[[int, int | None], None]
"""Called with how many tasks were placed, and of how many; None if that is open."""

PATIENCE = 1000
"""Decisions without a placement after which ``schedule_next_task`` returns one that leaves its task waiting."""

AGAIN = 256
"""Decisions of a long journal that are lived through again on resuming, so that explanations have a background."""

FAILURES = 3
"""Tasks in a row on which a policy may fail before that is the caller's business: then the policy is broken."""

LONGEST_REASON = 300
"""Characters of an error that are kept with a task that was set aside."""

DECISION = "decision"
"""What is explained by default."""

MOST_VECTORS = 2048
"""Vectors that are kept by default."""


@dataclass(frozen=True)
class CacheUse:
    """How much a cache was worth.

    Attributes:
        hits: Vectors that were there.
        misses: Vectors that had to be worked out.
        kept: Vectors in it now.
        most: How many it holds at most.
    """

    hits: int
    misses: int
    kept: int
    most: int

    @property
    def hit_rate(self) -> float | None:
        """Share of questions that it could answer; None before the first."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None


class AttributionCache:
    """A measured task in, attribution vector out; the least recently used are forgotten first.

    Args:
        attributor: Who works them out, see :func:`~attribution_sched.attribution.attributor.as_attributor`.
        most: How many to keep.
    """

    def __init__(self, attributor: TaskAttributor, most: int = MOST_VECTORS) -> None:
        if most < 1:
            raise SettingsError(problem("most", most, "must be >= 1", f"Use {MOST_VECTORS}"))
        self.attributor = attributor
        self._most = most
        self._kept: OrderedDict[bytes, AttributionVector] = OrderedDict()
        self._hits = 0
        self._misses = 0
        self._spent_s = 0.0

    def spent_s(self) -> float:
        """Seconds spent since this was last asked: tasks are attributed when they come, not when decided on."""
        spent, self._spent_s = self._spent_s, 0.0
        return spent

    @property
    def use(self) -> CacheUse:
        """Hits and misses so far."""
        return CacheUse(self._hits, self._misses, len(self._kept), self._most)

    def __call__(self, task: Task | FloatArray) -> AttributionVector:
        """The vector of one task, or of bare counters ``(12,)``."""
        began = time.perf_counter()
        known = measured(task)
        unread = [name for name, way in known.provenance.items() if way == "unavailable"]
        about = f"{known.samples_per_s!r} {known.training} {known.measured_devices} {unread}"
        signature = np.ascontiguousarray(known.counters, dtype=np.float64).tobytes() + about.encode()
        found = self._kept.get(signature)
        if found is not None:
            self._hits += 1
            self._kept.move_to_end(signature)
        else:
            self._misses += 1
            self._kept[signature] = found = self.attributor.vector(known)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        self._spent_s += time.perf_counter() - began
        return found


PHASES: tuple[str, ...] = ("observe", "attribute", "decide", "record", "carry out", "learn")
"""The ring, in order."""

log = logging.getLogger("attribution_sched.ring")


class Clock:
    """Times the phases of one turn and logs each as it ends."""

    def __init__(self) -> None:
        self.spent_s: dict[str, float] = {}
        self._last = clock()

    def phase(self, name: str, about: object) -> None:
        """A phase has ended."""
        now = clock()
        self.spent_s[name] = spent_s = now - self._last
        self._last = now
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%d %s %s: %.3f ms", PHASES.index(name) + 1, name, about, 1e3 * spent_s)

    def latencies_s(self, decision_s: float) -> dict[str, float]:
        """Seconds by part, as results tell them; the policy's own time stands for the phase in which it was asked."""
        spent = self.spent_s
        return {
            "attribution": spent["attribute"],
            "decision": decision_s,
            "journal": spent["record"] + spent["learn"],
            "effect": spent["carry out"],
        }


@dataclass(frozen=True, eq=False)
class Turn:
    """A decision that is being taken.

    Attributes:
        number: Decisions in the journal before it.
        asked: What the policy was asked and said.
        action: The same as the cluster is told it.
        told: What the journal is to keep of it before it takes effect.
        new: Its task, if the journal does not have it yet.
        task: Whose task.
        vector: Where its joules go: what the policy saw.
        paid: What the cluster had earned since the decision before it.
        decided: Decisions that had taken effect before it.
        since: Decisions since the last result.
        clock: Its phases.
        waits: What its event leaves waiting without a question.
    """

    number: int
    asked: PolicyAnswer
    action: IntArray
    told: DecisionRecord
    new: TaskRecord | None
    task: Task
    vector: AttributionVector
    paid: tuple[float, float, float]
    decided: int
    since: int
    clock: Clock = field(repr=False)
    waits: tuple[WaitRecord, ...] = ()


@dataclass(frozen=True)
class ManyExplained:
    """What came of explaining many decisions.

    Attributes:
        explained: Ids of those that were explained now.
        known: Ids of those that the journal had such an explanation of.
        failed: Id → why it cannot be explained.
    """

    explained: tuple[str, ...]
    known: tuple[str, ...]
    failed: Mapping[str, str]


def unexplained(
    journal: Journal, ids: Sequence[str] | None, options: Mapping[str, Any]
) -> tuple[list[str], tuple[str, ...]]:
    """Decisions of a journal that have no such explanation yet, and those that have.

    Raises:
        JournalError: If there is no such decision; the message names the nearest.
    """
    names = [each.id for each in journal.decisions()] if ids is None else [journal.decision(name).id for name in ids]
    target = "parts" if options.get("parts") else options.get("target") or ("" if options.get("against") else DECISION)
    # One that is compared with something has a target of its own, by the policy: it is always explained.
    known = {name for name in names if any(each.target == target for each in journal.explanations(name))}
    return [name for name in dict.fromkeys(names) if name not in known], tuple(n for n in names if n in known)


BLOCKS = 8
"""Decisions that a worker is handed at a time: neighbours share most of what has to be lived through again."""

Aside = tuple[str, dict[str, bytes], Any, Any, dict[str, Any]]
"""A journal's name and files, its policy and attributor where they cannot be made by their names, how to explain."""


def explain_aside(
    path: Path, todo: Sequence[str], workers: int | str, options: Mapping[str, Any], policy: Any, attributor: Any
) -> Iterator[tuple[str, str, dict[str, Any] | str]]:
    """Explain decisions of a journal in workers; the journal itself is only read.

    Returns:
        Id, target and explanation of each as it is ready, or in the explanation's place why there is none.
    """
    who = check_workers(workers)
    if not todo:
        return
    with temporary_copy(path) as copy:
        files = {each.name: each.read_bytes() for each in copy.parent.iterdir()}
        shared: Aside = (copy.name, files, policy, attributor, dict(options))
    jobs = [todo[at : at + BLOCKS] for at in range(0, len(todo), BLOCKS)]
    for _, block in spread(who, _explain_block, shared, jobs):
        yield from block


_rebuilt: dict[str, System] = {}


def _explain_block(run: str, shared: Aside, names: Sequence[str]) -> list[tuple[str, str, dict[str, Any] | str]]:
    """Explain some decisions in a worker, which keeps the system that it built again from one block to the next."""
    journal, files, policy, attributor, options = shared
    if run not in _rebuilt:
        for old in _rebuilt.values():
            old.close()
        _rebuilt.clear()
        folder = Path(tempfile.mkdtemp(prefix="explain-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        dispose_of(folder)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        path = folder / journal
        # What is pending in a real cluster's journal is not ours to carry out.
        _rebuilt[run] = System.resume(path, policy=policy, attributor=attributor, cluster=onlooker(path))
    explanations: list[tuple[str, str, dict[str, Any] | str]] = []
    for name in names:
        try:
            explanation = _rebuilt[run].explain(name, **options)
            explanations.append((name, "parts" if options.get("parts") else explanation.target, explanation.to_dict()))
        except ExplanationError as error:
            explanations.append((name, "", str(error)))
    return explanations


class System:
    """Schedules tasks on a simulated cluster, one decision after the other, and can say why.

    Args:
        preset: Name of a preset, path of a YAML file, a mapping or settings.
        policy: Name of a policy, a policy, or a function from the view of a decision to a plan.
        journal: Where decisions are kept; in memory by default. A new file: :meth:`resume` goes on with an old one.
        seed: Of arrivals, network and tasks; the same seed gives the same decisions.
        explain: Whether every placement is explained as it is made, or with which arguments.
        queue: Where tasks come from: ``preset`` (simulated arrivals), ``demo`` (three tasks), ``empty`` (what is
            submitted).
        attributor: Says where the joules of a task go, before any policy is asked about it: a fitted ``EmSHAP``, an
            ``EnergyModel``, a ``Fitted`` attributor or a function from counters ``(n, 12)`` to states ``(n, 7)``, see
            :func:`~attribution_sched.attribution.attributor.as_attributor`. By default what the shipped agents
            learnt on.
        cluster: ``simulated``; ``local``, which runs tasks as processes of this machine; ``slurm``, with a partition
            for each domain, of the same name; ``ray``, with nodes that carry the label ``domain``; executors by
            domain, or :class:`~attribution_sched.executors.live.Live`, for machines of your own; or what makes a
            simulated cluster from world, seed and ``arrivals=``.
        targets: What :meth:`feedback` works toward and a report judges by: a mapping such as
            ``{"utilisation_at_least": 0.85}``, or :class:`~attribution_sched.feedback.targets.Targets`.

    Raises:
        AttributionSchedError: If an argument is wrong; nothing is written then.
    """

    def __init__(
        self,
        preset: Preset = "cross-domain",
        policy: Any = "hi-ppo",
        *,
        journal: str | os.PathLike[str] | None = None,
        seed: int = 0,
        explain: bool | Mapping[str, Any] = False,
        queue: str = "preset",
        attributor: Any = None,
        cluster: Any = "simulated",
        targets: Any = None,
    ) -> None:
        self.targets = targets_of(targets)
        settings = load_settings(preset)
        self._live = live_of(cluster, settings, journal)
        self._make_cluster = arguments.cluster_of(cluster) if self._live is None else self._live.make
        self._set_up(settings, as_policy(policy), seed, explain, queue, attributor)
        wanted = {} if self.targets is None else self.targets.named()
        header = arguments.header_of(self.settings, self._queue, self.policy.name, self.seed, __version__, wanted)
        header = header if self._live is None else self._live.header_of(header)
        self._keep_in(Journal.memory(header) if journal is None else Journal.create(journal, header))
        self._submit_demo()

    @classmethod
    def demo(cls, **options: Any) -> System:
        """The testbed with the three demonstration tasks in its queue; takes what :class:`System` takes."""
        return cls(**({"preset": "testbed", "queue": "demo"} | options))

    @classmethod
    def resume(
        cls,
        path: str | os.PathLike[str],
        *,
        preset: Preset | None = None,
        policy: Any = None,
        explain: bool | Mapping[str, Any] = False,
        attributor: Any = None,
        cluster: Any = None,
        rehearse: bool = True,
    ) -> System:
        """Go on with a journal: nothing is lost and nothing is done twice.

        The cluster is rebuilt from seed, submitted tasks and actions. A decision that was recorded but not yet carried
        out takes effect now, once.

        Args:
            path: The journal.
            preset: What it must have been written with; as it was by default.
            policy: The policy it was written with; needed only if it cannot be made by its name.
            explain: As for :class:`System`.
            attributor: As for :class:`System`.
            cluster: As for :class:`System`; as it was by default. A simulated one lives through the journal again; a
                real one is asked what became of launches that were under way, and nothing else.
            rehearse: Ask a policy with a memory all its decisions again, so that it goes on as if never stopped; else
                it begins with an empty memory, which is quicker.

        Raises:
            JournalError: If the journal is in use, damaged, of another preset or policy, or does not come out as
                recorded.
        """
        asked = None if preset is None else load_settings(preset)
        cluster = recorded_cluster(path) if cluster is None else cluster
        # What a killed process was submitting goes on without it, and must have ended before anybody asks for it.
        wait_s = 0.0 if cluster == "simulated" else SUBMIT_S
        journal = Journal.open(path, claim=False, wait_s=wait_s)
        try:
            header = journal.header
            settings, decider = arguments.settings_of(header, asked), arguments.policy_of(header, policy)
            self = cls.__new__(cls)
            queue, seed = header.settings["queue"], header.seeds["cluster"]
            self.targets = targets_of(header.settings.get("targets") or None)
            self._live = live_of(cluster, settings, path)
            self._make_cluster = arguments.cluster_of(cluster) if self._live is None else self._live.make
            self._set_up(settings, decider, seed, explain, queue, attributor)
            self._keep_in(journal)
            self.targets = self._reward_feedback.targets or self.targets
            self._go_on_with(rehearse=rehearse and isinstance(self.policy, Episodic))
            self._submit_demo()
        except BaseException:
            journal.close()
            raise
        return self

    def _set_up(self, settings: Settings, policy: Any, seed: Any, explain: Any, queue: Any, attributor: Any) -> None:
        self.seed, self._queue = arguments.seed_of(seed), arguments.queue_of(queue)
        self._explaining = arguments.explaining(explain)
        self.settings, self.policy, self._attributor = settings, policy, attributor
        self.world = settings.build_world() if self._live is None else self._live.world_of(settings.build_world())
        self.domains = tuple(domain.name for domain in self.world.cluster.domains)
        self.reward = self.world.reward
        self.attribute = AttributionCache(as_attributor(attributor, self.world, policy))
        self.cluster = self._new_cluster()
        # An attributor that cannot answer is refused here, and what it fits or compiles counts in no decision's time.
        self.attribute.attributor.vector(Task(counters=self.cluster.engine.pool.counters.values[0], samples_per_s=1.0))
        self._memory = Memory(self.world, policy, partial(warm_up, self.world, self.attribute), self.seed)
        self._earlier: tuple[str, Memory] | None = None
        self._admission = Admission(self.cluster.engine)
        self._policy_call = PolicyCall()
        self._recorded: dict[int, str] = {}
        self._since = 0
        self._turn, self._explaining_turn = threading.RLock(), threading.RLock()
        self._again: SimulatedCluster | None = None
        self._turning: Turn | None = None
        self._entering: tuple[TaskRecord, TaskInstance] | None = None
        self._finished: TakenDecision | None = None
        self._operating: operations.Operation | None = None
        self._failed: list[str] = []
        self._moving = self._torn = False
        self._waits_s, self._snapshot_at = -1.0, 0
        if isinstance(policy, Episodic):
            policy.reset(self.seed)

    def _keep_in(self, journal: Journal) -> None:
        self.journal = journal
        if self._live is not None:
            self._live.attach(journal)
        self._versions = Versions(journal, self.policy)
        self._reward_feedback = RewardFeedback(journal, self.world, self.seed, self.attribute)

    @property
    def reward(self) -> Reward:
        """The weights in force; others may be put here between two calls."""
        return self._reward

    @reward.setter
    def reward(self, reward: Any) -> None:
        if not isinstance(reward, Reward):
            fix = "For example dataclasses.replace(system.reward, w_cost=1.0)"
            raise SettingsError(problem("reward", reward, "must be a Reward", fix))
        self._reward = reward

    @property
    def attribution_cache(self) -> CacheUse:
        """How often an attribution was at hand."""
        return self.attribute.use

    @property
    def now_s(self) -> float:
        """The cluster's clock."""
        return self.cluster.now_s

    def submit(self, task: Any, **fields: Any) -> str:
        """Put a task into the queue, at the present moment of the cluster.

        Args:
            task: A kind of task of the preset by name, a mapping, or a
                :class:`~attribution_sched.system.admission.TaskRequest`.
            **fields: Its fields: ``steps``, ``batch``, ``training``, ``counters``, ``provenance``, ``id``, ``tenant``,
                ``priority``, ``deadline_s``, ``devices``, ``hold``, ``command``.

        Returns:
            Its id.

        Raises:
            TaskError: If it is not a task of the preset, fits nowhere, or the queue is full.
            CounterError: If a counter is wrong, or the attributor cannot say where the task's joules go.
        """
        with self._call():
            record, made = prepared(task, fields, self.world, self.seed, self.journal, self.cluster)
            self._admission.check(made.kind, made.task.devices)
            self._enter(record, made)
            return record.id

    def withdraw(self, task: str) -> None:
        """Take a task out of the queue that waits or is held, for good.

        Args:
            task: Its id.

        Raises:
            TaskError: If there is no such task, or it has finished, or it is running.
        """
        self._operate_on(operations.WITHDRAW, task)

    def cancel(self, task: str) -> None:
        """Stop a task that is running, which frees its devices; one that waits is withdrawn.

        Args:
            task: Its id.

        Raises:
            TaskError: If there is no such task, or it has finished.
        """
        self._operate_on(operations.CANCEL, task)

    def hold(self, task: str) -> None:
        """Ask nobody about a waiting task, until :meth:`release`.

        Args:
            task: Its id.

        Raises:
            TaskError: If it does not wait.
        """
        self._operate_on(operations.HOLD, task)

    def release(self, task: str) -> None:
        """Let a task wait again that was held, or set aside because the policy failed on it.

        Args:
            task: Its id.

        Raises:
            TaskError: If it is not held.
        """
        self._operate_on(operations.RELEASE, task)

    def _operate_on(self, kind: str, task: Any) -> None:
        with self._call():
            name = operations.check_task(self.cluster, self.journal, kind, task)
            self._operate(operations.operation(self.cluster, kind, name))

    def reserve(self, domain: str, devices: int, *, tenant: str, hours: float) -> str:
        """Keep devices of a domain for a tenant, from now on and as they fall free.

        Decisions on tasks of other tenants do not see them as free.

        Args:
            domain: Name of the domain.
            devices: How many.
            tenant: For whom.
            hours: For how long, on the cluster's clock.

        Returns:
            Its id, for :meth:`unreserve`.

        Raises:
            SettingsError: If an argument is wrong, or others have reserved too many.
        """
        with self._call():
            made = operations.check_reservation(self.cluster, domain, devices, tenant, hours)
            more = {name: value for name, value in asdict(made).items() if name != "id"}
            self._operate(operations.operation(self.cluster, operations.RESERVE, made.id, **more))
            return made.id

    def unreserve(self, reservation: str) -> None:
        """End a reservation before its time.

        Args:
            reservation: Its id.

        Raises:
            SettingsError: If there is none of that id.
        """
        with self._call():
            if reservation not in self.cluster.reservations:
                rule, known = "is no reservation in force", list(self.cluster.reservations)
                fix = nearest(reservation, known) if known else "System.status() lists reservations; there are none"
                raise SettingsError(problem("reservation", reservation, rule, fix))
            self._operate(operations.operation(self.cluster, operations.UNRESERVE, reservation))

    def _operate(self, what: operations.Operation, *, again: bool = False) -> None:
        """Record an operation, let it take effect, record that it did; each once."""
        self._operating = what
        pending = operations.still_open(self.journal) if again else []
        if again and not pending:
            # It never reached the journal, or is done with: there is nothing to finish.
            self._operating = None
            return
        number = pending[-1].number if pending else self.journal.record_intent(what.kind, what.details())
        if not (again and operations.happened(self.cluster, replace(what, number=number))):
            self._moving = True
            operations.happen(self.cluster, replace(what, number=number), live=True)
            self._moving = False
        self.journal.record_effect(int(number or 0))
        self._operating = None

    def queue(self, lang: str = "en") -> pd.DataFrame:
        """Every task that waits or is held, in the order in which they are asked about, and what is known of why."""
        check_language(lang)
        with self._turn:
            return queue_table(self.cluster, lang)

    def true_demands(self, task: str) -> Demands:
        """What a task that was handed in to a simulation really demands, for studies; no policy is told.

        Args:
            task: Its id.

        Raises:
            JournalError: If the journal has no such task.
            TaskError: If nobody handed it in: the simulation sent it, and keeps its demands.
        """
        found = handed_in(self.world, self.journal.task(task), self.seed)
        if found is None:
            raise TaskError(problem("task", task, "was not handed in", "Ask for one of submit() or of a demo"))
        return found.demands

    def status(self) -> Status:
        """The clock, free devices, tasks, reservations, weights: how all of it stands now."""
        with self._turn:
            weights = (self.reward.w_eff, self.reward.w_util, self.reward.w_cost)
            path = None if self.journal.path is None else str(self.journal.path)
            # A policy that chose another says which, and why.
            name = getattr(self.policy, "told", "") or self.policy.name
            return status_of(self.cluster, self.journal.count(), weights, name, path)

    def __repr__(self) -> str:
        cluster = self.cluster
        return (
            f"<System {self.settings.name!r}, policy {self.policy.name!r}, seed {self.seed}: {self.now_s:.0f} s, "
            f"{cluster.running} running, {cluster.waiting} waiting, {len(cluster.held)} held>"
        )

    def schedule_next_task(self) -> SchedulingResult | None:
        """Place the next task.

        Time passes to the next moment at which something can be decided; re-planning of running tasks and tasks that
        are left waiting on the way are decided by the same policy and journaled too.

        Returns:
            The placement. None if no task waits and none will arrive. A decision that leaves its task waiting, after
            :data:`PATIENCE` decisions without any placement; its ``note`` says so.

        Raises:
            PolicyError: If the policy failed on :data:`FAILURES` tasks in a row, or on all there are.
        """
        with self._call():
            taken, note = None, ""
            for _ in range(PATIENCE):
                nothing = self._finished is None and not self.cluster.expecting
                taken = None if nothing else self._next()
                if taken is None or taken.effect.code == 1:
                    break
            else:
                note = self._gave_up()
            return None if taken is None else replace(self._result(taken), note=note)

    def _gave_up(self) -> str:
        """Words for many decisions without a placement; also logged, because nobody may read a result."""
        cluster = self.cluster
        free = int(cluster.engine.free_devices().sum())
        note = (
            f"nothing was placed in {PATIENCE} decisions: {cluster.waiting} tasks wait, {cluster.running} run, "
            f"{free} of {self.world.cluster.devices} devices are free; System.queue() says who waits"
        )
        log.warning(note)
        return note

    def _without_answer(self, error: Exception) -> TakenDecision | None:
        """Go on although the policy failed on a task: one that waits is set aside, one that runs keeps its plan.

        Raises:
            PolicyError: If it has failed too often in a row, or nobody else is left to ask about.
        """
        name, words = self.cluster.residents[self.cluster.up].id, type(error).__name__
        words = clean_text(f"{words}: {error}" if str(error) else words)[:LONGEST_REASON]
        taken = None
        if self.cluster.replanning:
            log.warning("task %s keeps its plan: %s failed on it (%s)", name, self.policy.name, words)
            taken = self._decide(f"keeps ({self.policy.name} failed: {words})")
        else:
            reason = f"{self.policy.name} failed on it ({words}); mend the cause, then let it in again with release"
            self._operate(operations.operation(self.cluster, operations.SET_ASIDE, name, reason=reason))
            log.warning("task %s is set aside: %s", name, reason)
        if name not in self._failed:
            self._failed.append(name)
        if len(self._failed) >= FAILURES or (taken is None and not self.cluster.expecting):
            failed, self._failed = ", ".join(self._failed), []
            rule = f"failed on {failed} with nothing placed in between; the last error is {words}"
            fix = "Mend the policy, then System.release(id) those that are set aside; System.queue() lists them"
            raise PolicyError(problem("policy", self.policy.name, rule, fix)) from error
        return taken

    def _decide(self, reason: str = "") -> TakenDecision:
        """Take the pending decision: one turn of the ring.

        Args:
            reason: Why a running task keeps its plan without a question; asks the policy by default.
        """
        self._turning = self._propose(reason)
        return self._complete(self._turning)

    def _propose(self, kept: str) -> Turn:
        """Phases 1 to 3 of the ring; nothing has happened yet when they end."""
        clock = Clock()
        # 1 observe: the cluster as it is, the queue, the links, the weights in force
        seen = weighted(self.cluster.pending(), self.reward)
        clock.phase("observe", f"{len(seen.queue)} waiting")
        # 2 attribute: every task has had its vector since it came; a cluster that gives none is helped out
        seen = attributed(seen, self.attribute)
        clock.phase("attribute", f"{len(seen.queue)} tasks")
        clock.spent_s["attribute"] += self.attribute.spent_s()
        # 3 decide
        if kept:
            asked = PolicyAnswer(seen, None, 0.0, self.cluster.running == 0, kept)
        else:
            asked = self._policy_call.ask(self.policy, self.cluster, self.reward, seen)
        vector = self._attribution(asked)
        clock.phase("decide", asked.view.slot)
        action = self._policy_call.encode(self.cluster, asked)
        record = decision_record(self.cluster, self.policy, asked, action, vector, clock.spent_s["attribute"])
        slot, task = asked.view.slot, self.cluster.residents[asked.view.slot]
        known = task.submitted or self._recorded.get(slot) == task.id
        new = None if known else task_record(self.cluster, asked.view)
        number = self.journal.count()
        record = replace(record, sequence=number)
        paid, decided = self.cluster.paid, self.cluster.decided
        return Turn(
            number, asked, action, record, new, task, vector, paid, decided, self._since, clock, self._left_waiting()
        )

    def _left_waiting(self) -> tuple[WaitRecord, ...]:
        """What this event leaves waiting without a question, as one record; nothing while the queue is short."""
        left, now_s = self.cluster.left_waiting, self.now_s
        if not left or not self.cluster.backlog or now_s == self._waits_s:
            return ()
        self._waits_s = now_s
        return (WaitRecord(now_s, sum(left.values()), left),)

    def _attribution(self, asked: PolicyAnswer) -> AttributionVector:
        """The very vector that the policy was given; a cluster that gave none (not one of ours) is asked for it now."""
        vector = asked.view.attribution
        return self.attribute(asked.view.task or asked.view.counters) if vector is None else vector

    def _complete(self, turn: Turn, *, again: bool = False) -> TakenDecision:
        """Phases 4 to 6: recorded, then carried out, then booked; each of them once, however often this is called.

        Args:
            turn: What was decided.
            again: Whether an earlier try was cut short, so that parts of it may be done already. What is done is asked
                of the journal and of the cluster: a note in memory could itself have been cut short.
        """
        asked, clock = turn.asked, turn.clock
        # 4 record: on disk before it takes effect
        if again and self.journal.count() > turn.number:
            made = self.journal.last()
            if made is None or made.sequence != turn.number or made.action != turn.action.tolist():
                rule = f"decision number {turn.number} is not the one that was being taken"
                raise JournalError(problem("journal", str(self.journal.path), rule, "Resume it with System.resume"))
        else:
            made = self.journal.record_decision(turn.told, task=turn.new, waits=turn.waits)
        clock.phase("record", made.id)
        # 5 carry out
        if again and self.cluster.decided > turn.decided:
            effect = self.cluster.effect(asked.view.slot, turn.paid)
        else:
            self._moving = True
            effect = self.cluster.carry_out(turn.action, self.journal.key(made.id))
            self._moving = False
        if effect.predicted is None and effect.code > 0:
            effect = replace(effect, predicted=prediction(asked.view, asked.plan))
        clock.phase("carry out", made.id)
        # 6 learn: what it came to, for the journal, for explanations and for feedback
        reward = self._book(turn, made, effect, again=again)
        clock.phase("learn", made.id)
        self._turning = None
        self._snapshot(EVERY)
        return TakenDecision(made, asked, turn.task, turn.vector, effect, reward, clock.latencies_s(asked.seconds))

    def _book(self, turn: Turn, made: DecisionRecord, effect: Outcome, *, again: bool = True) -> RewardTerms:
        """Record what a decision came to, and remember it; each once."""
        asked = turn.asked
        reward = reward_of(effect, asked.view.reward)
        if not (again and self.journal.outcome(made.id) is not None):
            self.journal.record_outcome(outcome_record(made.id, effect, asked.view, reward.total))
        self._recorded[asked.view.slot] = turn.task.id
        self._policy_call.note(asked, turn.number)
        self._memory.remember(made.id, asked.view, asked.plan, turn.number, made.source)
        self._since = turn.since + 1
        return reward

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        """A call that changes something: it waits its turn, and first finishes what an earlier one could not.

        An exception, or Ctrl-C, may end a call between what is recorded and what is done. Nothing is decided anew then:
        the journal says what was decided, and it is done now.
        """
        with self._turn:
            if self._torn:
                self._reload()
            if self._moving:
                self._rebuild()
            if self._entering is not None:
                self._enter(*self._entering, again=True)
            if self._operating is not None:
                self._operate(self._operating, again=True)
            self._finished = None if self._turning is None else self._complete(self._turning, again=True)
            yield

    def _advance(self, limit_s: float = math.inf) -> bool:
        """Let time pass in the cluster; see :meth:`SimulatedCluster.advance`."""
        if self._live is not None:
            return self._live.drive(self, limit_s)
        self._moving = True
        pending = self.cluster.advance(limit_s)
        self._moving = False
        return pending

    def _next(self, limit_s: float = math.inf) -> TakenDecision | None:
        """The next decision: one that an earlier call could not finish, else the cluster's; None if there is none."""
        finished, self._finished = self._finished, None
        if finished is not None:
            return finished
        while self._advance(limit_s) and self.now_s <= limit_s:
            try:
                taken: TakenDecision | None = self._decide()
            except Exception as error:
                if error is not self._policy_call.failure:
                    raise
                self._policy_call.failure = None
                taken = self._without_answer(error)
            if taken is not None:
                if taken.effect.code == 1:
                    self._failed.clear()
                return taken
        return None

    def _rebuild(self) -> None:
        """Make the cluster anew from the journal: it was left while it moved, and nobody knows how far it had come."""
        cluster = self._new_cluster()
        replay(cluster, self.journal, self.seed, start=restore_snapshot(self.journal.newest_snapshot(), cluster))
        self.cluster, self._admission = cluster, Admission(cluster.engine)
        # What was recorded has happened by now, and a decision among it is booked and returned by who called this; a
        # task that was not recorded is handed in again by whoever was told so.
        self._entering = None
        self._moving = False

    def _enter(self, record: TaskRecord, made: TaskInstance, *, again: bool = False) -> None:
        """Record a task, then let it wait in the cluster; each once."""
        self._entering = record, made
        if not again:
            self.journal.record_task(record)
        elif not self.journal.knows_task(record.id):
            # It never reached the journal: whoever handed it in was told so by the exception.
            self._entering = None
            return
        if not (again and self.cluster.holds(record.id)):
            self._moving = True
            self.cluster.hand_in(made, record.id)
            self._moving = False
        self._entering = None

    def _reload(self) -> None:
        """Take over from the journal what feedback or learning had recorded when they were cut short."""
        original = self._versions.policy(ORIGINAL)
        self._versions = Versions(self.journal, original)
        self._reward_feedback = RewardFeedback(self.journal, self.world, self.seed, self.attribute)
        number = self.journal.count()
        self._adopt(self._versions.due(number))
        self.reward = self._reward_feedback.in_force(number, self.reward)
        self.targets = self._reward_feedback.targets or self.targets
        anchored = self._reward_feedback.anchored_weights
        self._versions.anchored = self._versions.current if anchored is None else anchored
        self._torn = False

    def _result(self, taken: TakenDecision) -> SchedulingResult:
        began, why, missing = clock(), None, ""
        if self._explaining is not None:
            try:
                why = self.explain(taken.record.id, **self._explaining)
            except ExplanationError as error:
                # The task is placed: its result must not be lost with its explanation.
                missing = str(error)
        between, self._since = self._since - 1, 0
        result = result_of(taken, self.domains, between, why, clock() - began)
        if not missing:
            return result
        return replace(result, provenance={**result.provenance, "explanation": f"unavailable ({missing})"})

    def run(
        self,
        tasks: int | None = None,
        *,
        until: str | None = None,
        hours: float | None = None,
        progress: Progress | None = None,
    ) -> RunSummary:
        """Schedule on, without explaining; what was decided is in :meth:`history`.

        Args:
            tasks: Stop when so many tasks were placed, or none is left to place.
            until: ``empty`` stops when no task waits; where none arrives by itself, when all have finished.
            hours: Stop when so many hours have passed on the cluster's clock.
            progress: Told after every placement.

        Raises:
            SettingsError: If not exactly one of the three is given, or it is out of range.
        """
        stopped = arguments.run_of(tasks, until, hours)
        with self._call():
            tally = Tally(self.cluster)
            limit_s = math.inf if hours is None else self.now_s + 3600.0 * hours
            while tasks is None or tally.placed < tasks:
                if hours is None and tally.without_placement >= PATIENCE:
                    stopped = "nothing placed"
                    break
                if until and tally.decisions and self.cluster.endless and not self.cluster.waiting:
                    break
                if tasks is not None and not self.cluster.expecting:
                    stopped = "nothing to decide"
                    break
                taken = self._next(limit_s)
                if taken is None:
                    break
                tally.add(taken)
                if progress is not None and taken.effect.code == 1:
                    progress(tally.placed, tasks)
            return tally.summary(stopped)

    def explain(self, decision: SchedulingResult | str, **options: Any) -> Explanation:
        """Say why a decision was made; the explanation is journaled too.

        Args:
            decision: A result, or the id of any decision in the journal.
            **options: As for :meth:`~attribution_sched.explain.explainer.Explainer.explain`; with ``parts=True`` the
                plan is explained by its own parts, see :class:`~attribution_sched.explain.plan_parts.PartsExplainer`.

        Raises:
            JournalError: If the journal has no such decision; the message names the nearest.
            ExplanationError: If an option is wrong.
        """
        chosen = arguments.explain_options(options)
        # Not the lock of decisions: whoever decides never waits for an explanation.
        with self._explaining_turn:
            name = decision.id if isinstance(decision, SchedulingResult) else str(decision)
            decided, record = self._recall(name), self.journal.decision(name)
            task = handed_in(self.world, self.journal.task(str(record.task_id)), self.seed)
            explanation = self._memory_of(record).explain(decided, task=task, **chosen)
            if self._live is not None:
                explanation = replace(explanation, outcome=outcome_words(self.journal, name))
            entry = ExplanationRecord(
                name, "parts" if chosen.get("parts") else explanation.target, explanation.to_dict()
            )
            self.journal.record_explanation(entry, replace=True)
            return explanation

    def explain_many(
        self,
        ids: Sequence[str] | None = None,
        *,
        workers: int | str | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> ManyExplained:
        """Explain decisions of the journal that have no such explanation yet; each as :meth:`explain` does, to the bit.

        Every explanation is journaled as it is ready, so a run that was stopped goes on where it was.

        Args:
            ids: Which decisions; all of the journal by default.
            workers: Processes that explain side by side, each with a copy of the journal; ``ray``, or the address of a
                Ray cluster, whose nodes are sent the journal. By default this process explains.
            progress: Told how many are done, and of how many.
            **options: As for :meth:`explain`; budgets in ``rows``, never in seconds.

        Raises:
            JournalError: If the journal has no such decision, or is in memory, where no worker can read it.
            ExplanationError: If an option is wrong. A decision that cannot be explained stops nobody: it is told with
                its reason.
        """
        chosen = arguments.explain_options(options)
        todo, known = unexplained(self.journal, ids, chosen)
        done: dict[str, str] = {}
        for name, target, told in self._each_explained(todo, workers, chosen):
            done[name] = told if isinstance(told, str) else ""
            if workers is not None and not isinstance(told, str):
                self.journal.record_explanation(ExplanationRecord(name, target, told), replace=True)
            if progress is not None:
                progress(len(done), len(todo))
        failed = {name: why for name, why in done.items() if why}
        return ManyExplained(tuple(name for name in todo if not done[name]), known, failed)

    def _each_explained(
        self, todo: list[str], workers: int | str | None, chosen: dict[str, Any]
    ) -> Iterator[tuple[str, str, dict[str, Any] | str]]:
        if workers is None:
            for name in todo:
                try:
                    self.explain(name, **chosen)
                    yield name, "", {}
                except ExplanationError as error:
                    yield name, "", str(error)
            return
        if self.journal.path is None:
            fix = "Give System a journal, or leave out workers="
            raise JournalError(problem("journal", "in memory", "no worker can read it", fix))
        policy = None if self.journal.header.policy in POLICIES else self.policy
        yield from explain_aside(self.journal.path, todo, workers, chosen, policy, self._attributor)

    def alternatives(self, decision: SchedulingResult | str, *, drivers: bool | int = False) -> DecisionTable:
        """What else could have been done at a decision: one sentence with the binding reason, and a table.

        Args:
            decision: A result, or the id of any decision in the journal.
            drivers: Whether to share out what was brought over the best other choice (R_eff, R_util, R_cost) among
                those who wait, run and come, links, prices and what was measured; a number is in how many futures.

        Raises:
            JournalError: If the journal has no such decision; the message names the nearest.
        """
        from attribution_sched.explain.decision_table import decision_table

        with self._explaining_turn:
            name = decision.id if isinstance(decision, SchedulingResult) else str(decision)
            decided = self._recall(name)
            eyes = self._memory_of(self.journal.decision(name)).looks()
            return decision_table(eyes, decided, seed=self.seed, drivers=drivers)

    def tree_readings(self, decision: SchedulingResult | str) -> tuple[Explanation, ...]:
        """What each tree of a policy that decides by trees said at a decision, shared out among its inputs, exactly.

        Args:
            decision: A result, or the id of any decision in the journal.

        Returns:
            One for each tree that had a say, its way down as the subject; none for a policy without trees.

        Raises:
            JournalError: If the journal has no such decision; the message names the nearest.
        """
        from attribution_sched.explain.flat import tree_readings

        with self._explaining_turn:
            name = decision.id if isinstance(decision, SchedulingResult) else str(decision)
            decided = self._recall(name)
            return tree_readings(self._memory_of(self.journal.decision(name)).looks(), decided)

    def compare_agents(
        self,
        decision: SchedulingResult | str,
        agents: Sequence[Any],
        *,
        futures: int = 32,
        hours: float = 6.0,
        **options: Any,
    ) -> AgentsCompared:
        """One decision, several agents: what each would have done with the task, why, and who was right in copies.

        Args:
            decision: A result, or the id of any decision in the journal.
            agents: Names of policies, policies (such as ``SB3Policy``) or functions, as for :class:`System`; who
                decided stands before them.
            futures: Copies in which every choice is played.
            hours: How far.
            **options: Of the explanations, as for :meth:`explain`.

        Raises:
            JournalError: If the journal has no such decision; the message names the nearest.
            SettingsError: If there is no agent to compare with, one is not known, or there are no futures.
        """
        from attribution_sched.explain.several_agents import check_agents, compare_agents

        check_agents(agents, futures, hours)
        others, chosen = [as_policy(each) for each in agents], arguments.explain_options(options)
        with self._explaining_turn:
            name = decision.id if isinstance(decision, SchedulingResult) else str(decision)
            decided, memory = self._recall(name), self._memory_of(self.journal.decision(name))
            return compare_agents(
                memory.looks(), others, decided, memory.explain_other, futures=futures, hours=hours, seed=self.seed,
                **chosen,
            )  # fmt: skip

    def why(self, task: str, *, private: bool = False) -> Why:
        """Why a task is still waiting: the binding cause, who holds the room, and what would start it now.

        Args:
            task: Its id.
            private: Whether names of others are left out.

        Raises:
            TaskError: If there is no such task, or it does not wait.
        """
        from attribution_sched.cluster.live_trial import LiveTrial
        from attribution_sched.explain.why import why_waiting

        with self._turn:
            seen, holders, allowed, behind = moment_of(self.cluster, task)
            # What it remembers of the links is part of what it would do now.
            quota, asked = self.cluster.quota_reason(seen), self._memory.looks(remembers=True)
            share = self.cluster.share_reason(seen.task.tenant) if seen.task is not None else None
            confirm = None
            if self._live is None:
                again = self._memory.looks(remembers=True)
                confirm = LiveTrial(self.cluster, again, self._policy_call, self.reward, task)
        seen = weighted(seen, self.reward)
        return why_waiting(
            asked, seen, holders, allowed, private=private, behind=behind, quota=quota, share=share, confirm=confirm
        )

    def delay(self, task: str, *, futures: int = 8, hours: float = 12.0, seed: int | None = None) -> Delay:
        """Whose being there makes a task wait: Shapley shares of the wait before it, and of the wait behind it.

        Args:
            task: Its id.
            futures: How many to play for every coalition.
            hours: How far.
            seed: Of the futures; the system's own by default.

        Raises:
            TaskError: If there is no such task, it does not wait, is held, or is behind the window of the policy.
        """
        from attribution_sched.explain.delay import delay_shares, past_shares

        with self._turn:
            seen, now_s = weighted(moment_of(self.cluster, task)[0], self.reward), self.now_s
            asked = self._memory.looks()
        chosen = self.seed if seed is None else seed
        told = delay_shares(asked, seen, futures=futures, hours=hours, seed=chosen)
        with self._explaining_turn:
            found = self._since_submission(task, seen, now_s)
        if found is None:
            return told
        first, came = found
        return replace(told, waited=past_shares(asked, first, task, came, now_s, seed=chosen))

    def _since_submission(self, task: str, seen: Decision, now_s: float) -> tuple[Decision, list[Task]] | None:
        """The first decision at which a waiting task was there, and who came since; None if there is none."""
        came_s = self.journal.task(task).submitted_s
        since = [each for each in self.journal.decisions(brief=True) if came_s <= each.cluster_time_s < now_s]
        tried = [*since[:1], *(each for each in since if each.task_id == task)][:2]
        first, start = None, 0
        for record in tried:
            view = self._recall(record.id).view
            if view.moment is not None and any(each.id == task for each in view.moment.tasks.values()):
                first, start = view, since.index(record)
                break
        if first is None:
            return None
        came: dict[str, Task] = {}
        for record in since[start + 1 :]:
            # Whoever came and ran was placed; who still waits is here now.
            if record.plan is not None and str(record.task_id) not in came:
                moment = self._recall(record.id).view.moment
                came |= {} if moment is None else {each.id: each for each in moment.tasks.values() if each.id}
        now = {} if seen.moment is None else {each.id: each for each in seen.moment.tasks.values() if each.id}
        return first, list((now | came).values())

    def blame(
        self,
        task: str | None = None,
        *,
        hours: float = 12.0,
        most: int = 40,
        futures: int = 16,
        seed: int | None = None,
    ) -> Blame:
        """Which earlier decisions made a task late, or the day's R smaller: each is replaced by its runner-up.

        Args:
            task: Its id, started or waiting; None asks about R of all tasks.
            hours: How long before the task came decisions are looked at; of a day, how far copies are played.
            most: Decisions at most, the latest.
            futures: How many to play at each.
            seed: Of the futures; the system's own by default.

        Raises:
            TaskError: If there is no such task.
            SettingsError: If a number is not one that can be used.
        """
        from attribution_sched.explain import blame as asking

        asking.check(hours, most, futures)
        decisions = list(self.journal.decisions(brief=True))
        waited_h, started, first_s, last_s = 0.0, False, -math.inf, math.inf
        if task is not None:
            if not self.journal.knows_task(task):
                known = list(dict.fromkeys(str(each.task_id) for each in decisions if each.task_id))[-12:]
                raise TaskError(problem("task", task, "is not in the journal", nearest(task, known)))
            came_s = self.journal.task(task).submitted_s
            began = [each for each in self.journal.decisions_on(task) if each.plan is not None]
            started = bool(began)
            last_s = began[0].cluster_time_s if began else self.now_s
            waited_h, first_s = (last_s - came_s) / 3600.0, came_s - 3600.0 * hours
        earlier = [
            each for each in decisions
            if first_s <= each.cluster_time_s <= last_s and each.task_id is not None
            and (each.plan is not None or each.task_id == task) and not (started and each.id == began[0].id)
        ]  # fmt: skip
        # Its own waits are few, and at most of them nothing fitted: they take no room from the others.
        kept = {each.id for each in [each for each in earlier if each.plan is not None][-most:]}
        chosen = [each for each in earlier if each.id in kept or each.plan is None][-2 * most :]
        entries, single = [], 0
        with self._explaining_turn:
            lived = [self._recall(each.id) for each in chosen]
            came = {one.id: one for each in lived if each.view.moment for one in each.view.moment.tasks.values()}
            if task is not None:
                # Those that came until it started; the decision that started it saw them all.
                last = self._recall((began[0] if began else decisions[-1]).id).view.moment
                came |= {} if last is None else {one.id: one for one in last.tasks.values()}
            seed = self.seed if seed is None else seed
            for record, decided in zip(chosen, lived, strict=True):
                far = hours
                if task is not None:
                    far = (last_s - decided.view.time_s) / 3600.0 + asking.AFTER_H
                policy = self._memory_of(record).looks()
                found = asking.blame_of(
                    policy, decided, task or "", list(came.values()), asking.within(far), futures=futures, seed=seed
                )
                single += found is None
                entries += [] if found is None else [found]
        return asking.Blame(
            task or "", waited_h, started, asking.shown(entries), single, len(earlier) - len(chosen), futures
        )

    def when(
        self, task: str, *, futures: int | None = None, hours: float | None = None, seed: int | None = None
    ) -> When:
        """When a waiting task starts and ends: 80 % intervals from copies of the cluster under drawn futures.

        Args:
            task: Its id.
            futures: How many to play; as many as the policy's speed allows by default.
            hours: How far to play; as far as it takes, at most four days, by default.
            seed: Of the futures; the system's own by default.

        Raises:
            TaskError: If there is no such task, it does not wait, is held, or is behind the window of the policy.
            SettingsError: If there are too few futures.
        """
        from attribution_sched.explain.when import when_starts

        with self._turn:
            seen = weighted(moment_of(self.cluster, task)[0], self.reward)
            asked = self._memory.looks()
        return when_starts(asked, seen, futures=futures, hours=hours, seed=self.seed if seed is None else seed)

    def when_all(
        self, *, futures: int | None = None, hours: float | None = None, seed: int | None = None
    ) -> list[When]:
        """When every task that the policy looks at starts and ends, in order of arrival; see :meth:`when`.

        All from the same futures, so that a long queue costs no more than one task; each answer is the one of
        :meth:`when`.

        Args:
            futures: As for :meth:`when`.
            hours: As for :meth:`when`.
            seed: As for :meth:`when`.

        Raises:
            SettingsError: If there are too few futures.
        """
        from attribution_sched.explain.when import all_start

        with self._turn:
            rows = [str(row.id) for row in self.queue().itertuples() if row.state == "window"]
            if not rows:
                return []
            seen = weighted(moment_of(self.cluster, rows[0])[0], self.reward)
            slots = [slot for name in rows if (slot := self.cluster.slot_of(name)) is not None]
            asked = self._memory.looks()
        chosen = self.seed if seed is None else seed
        return all_start(asked, seen, slots, futures=futures, hours=hours, seed=chosen)

    def what_if(
        self,
        *,
        link: tuple[str, str | float] | None = None,
        add: str | None = None,
        drop: str | None = None,
        task: Any = None,
        without: str | None = None,
        policy: Any = None,
        carbon_price: float | None = None,
        energy_price: float | None = None,
        futures: int = 32,
        hours: float | None = None,
        seed: int | None = None,
    ) -> list[WhatIf]:
        """What a change would do from now on: paired futures, absolute units, 95 % intervals; nothing is changed.

        Args:
            link: Two domains with a dash between and a factor on its bandwidth: ``("a-b", "x2")``.
            add: Devices for a domain: ``8@domain``, ``8xTYPE@domain``, ``-8@domain``.
            drop: A domain that is gone.
            task: One more task, as for :meth:`submit`.
            without: A task that is not there, by its id.
            policy: Another policy, as for :class:`System`.
            carbon_price: USD per kg inside R_cost.
            energy_price: USD per kWh inside R_cost.
            futures: How many to play.
            hours: How far; a day by default, or less where many tasks come or a policy has to be asked in every copy.
            seed: Of the futures; the system's own by default.

        Returns:
            One answer per change, each against no change; without any, the same twice.

        Raises:
            SettingsError: If a change does not go with the cluster.
            TaskError: If nothing waits or runs, or a task is wrong.
        """
        from attribution_sched.explain import what_if as asking

        with self._turn:
            seen = weighted(present_moment(self.cluster), self.reward)
            asked = self._memory.looks()
            more: Task | None = None
            if task is not None:
                record, made = prepared(task, {}, self.world, self.seed, self.journal, self.cluster)
                more = replace(made.task, id=record.id)
        changes = [
            *([] if link is None else [asking.link(seen, *asking.link_and_factor(link))]),
            *([] if add is None else [asking.devices(seen, add)]),
            *([] if drop is None else [asking.lose(seen, drop)]),
            *([] if more is None else [asking.one_more(more)]),
            *([] if without is None else [asking.without(without)]),
            *([] if policy is None else [asking.other_policy(seen, as_policy(policy), asked)]),
            *([] if carbon_price is None else [asking.price(carbon_usd_per_kg=carbon_price)]),
            *([] if energy_price is None else [asking.price(energy_usd_per_kwh=energy_price)]),
        ]
        seed = self.seed if seed is None else seed
        return asking.what_if(asked, seen, changes, futures=futures, hours=hours, seed=seed)

    def why_not(self, task: str, where: str) -> Alternative:
        """Why a task is not in a domain, or on a plan: against what was done, what is missing, what would win.

        Args:
            task: Its id; one that waits, or one that was placed.
            where: Name of a domain, whose best plan is told; or a plan by its devices: ``a x8``, ``a x8 + b x8``.

        Raises:
            SettingsError: If there is no such domain, or it is no plan.
            TaskError: If there is no such task.
        """
        from attribution_sched.explain.decision_table import decision_table, read_plan

        wanted = read_plan(where, self.domains)
        asked = None if 0 in wanted.values() else wanted
        taken = [each for each in self.journal.decisions_on(task) if each.plan is not None]
        if taken and self.cluster.place_of(task) in (None, "running"):
            with self._explaining_turn:
                decided = self._recall(taken[-1].id)
                eyes = self._memory_of(self.journal.decision(taken[-1].id)).looks()
        else:
            with self._turn:
                seen = weighted(moment_of(self.cluster, task)[0], self.reward)
                eyes = self._memory.looks()
            decided = Decided(task, seen, None, perceived(eyes, seen))
        rows = decision_table(eyes, decided, seed=self.seed, asked=asked).rows
        if asked is not None:
            return rows[-1]
        # The domain by itself, else the best plan that it has a part in, else what was done is there itself.
        there = [row for row in rows if where in row.domains or (row.missing and not row.domains)]
        return next(
            (row for row in there if row.domains == (where,) and not row.chosen),
            next((row for row in there if not row.chosen), rows[0]),
        )

    def _memory_of(self, record: DecisionRecord) -> Memory:
        """What explains a decision: by the weights that took it, also if others decide by now."""
        name = self._versions.at(record.sequence or 0)
        if name == self._versions.current:
            return self._memory
        if self._earlier is None or self._earlier[0] != name:
            policy = self._versions.policy(name)
            self._earlier = name, Memory(self.world, policy, partial(warm_up, self.world, self.attribute), self.seed)
        return self._earlier[1]

    def _recall(self, name: str) -> Decided:
        """A decision from memory; one that was forgotten is lived through again, with those it is compared with."""
        record = self.journal.decision(name)
        memory, number = self._memory_of(record), record.sequence or 0
        if name in memory and not memory.lacks(number):
            return memory[name]
        first, until = memory.window(number)
        snapshot = snapshot_before(self.journal, first)
        if self._again is None or snapshot is None:
            arrivals, made = self._queue == "preset", SimulatedCluster if self._live is None else Twin
            self._again = made(self.world, self.seed, arrivals=arrivals, attribute=self.attribute)
            self._again.compared = self._compares
        again, eyes, version = self._again, memory.eyes(), self._versions.at(number)
        records = list(self.journal.decisions(snapshot.sequence if snapshot else 0, number + 1, brief=True))
        again.attribute = RecordedVectors(records, self.attribute)
        start = restore_snapshot(snapshot, again, eyes)
        watcher, see = eyes if isinstance(eyes, LinkWatcher) else None, seeing(eyes)
        lived: dict[str, Memorised] = {}
        watched_s = -math.inf

        def seen(decision: DecisionRecord, cluster: SimulatedCluster) -> None:
            nonlocal watched_s
            at = decision.sequence or 0
            wanted = at == number or (first <= at < until and self._versions.at(at) == version)
            if not wanted and (watcher is None or cluster.link_time_s == watched_s):
                return
            reward = self._reward_feedback.in_force(at, self.world.reward)
            view = weighted(cluster.pending(background=at < number), with_weights(reward, decision.weights))
            if watcher is not None:
                watcher.watch_links(view)
                watched_s = cluster.link_time_s if (view.free_devices > 0).any() else watched_s
            if wanted:
                plan = plan_of(decision.plan, self.domains)
                lived[decision.id] = Memorised(view, plan, see(view), at, decision.source)

        replay(again, self.journal, self.seed, start=start, stop=number, seen=seen, records=records)
        seen(record, again)
        return memory.recall(name, number, lived)

    @property
    def is_real(self) -> bool:
        """Whether there are machines behind the cluster."""
        return self._live is not None

    @property
    def cluster_kind(self) -> str:
        """What tasks run on: ``simulated``, or what executors are called."""
        return "simulated" if self._live is None else self._live.kind

    def outcome(self, decision: SchedulingResult | str) -> Outcome:
        """What a decision came to: predicted by the twin, and measured by the machines since, where there are any.

        Args:
            decision: A result, or the id of a decision in the journal.
        """
        name = decision.id if isinstance(decision, SchedulingResult) else str(decision)
        return outcome_of(self.journal, name)

    def history(self) -> pd.DataFrame:
        """All decisions as a table, one row each, with what they came to."""
        return self.journal.history()

    def train(self, decisions: int = 4096, **options: Any) -> Learnt:
        """Let the policy learn on in this world, by the reward in force.

        The better weights, by held-out return, decide from then on.

        Args:
            decisions: Decisions to learn from, in simulated clusters of their own.
            **options: As for :func:`attribution_sched.scheduler.hi_ppo.online_learning.learn_on`.

        Raises:
            SettingsError: If the policy does not learn.
        """
        with self._call():
            world = replace(self.world, reward=self.reward)
            self._torn = True
            learnt = learn(self.policy, world, decisions, self.journal, self._versions, options)
            self._adopt(learnt.policy if learnt.improved else None)
            self._torn = False
            return learnt

    def feedback(
        self,
        targets: Any = None,
        *,
        explain: int = 24,
        episodes: int = 4,
        decisions: int = 60,
        progress: Progress | None = None,
    ) -> FeedbackChange:
        """Reshape the reward from what was decided since the last step, what came of it, and why.

        Weights move toward missed targets, within bounds; changes after which held-out episodes are worth less are
        taken back, with what was learnt meanwhile. All of it is journaled, with reasons in words.

        Args:
            targets: What is to be reached, as for :class:`System`; its own by default.
            explain: Decisions to explain for it at most, spread over the window.
            episodes: Held-out episodes that judge earlier changes; 0 leaves them unjudged.
            decisions: Decisions of each.
            progress: Told how many of the explanations and held-out decisions are done, and of how many.

        Raises:
            SettingsError: If there are no targets, or no plan was put in force since the last step.
            ModelFitError: If the outcomes do not tell what a target needs.
        """
        asked = {"explain": explain, "episodes": episodes, "decisions": decisions}
        for name, value in asked.items():
            arguments.counted(name, value, least=int(name == "decisions"))
        with self._call():
            wanted = targets_of(targets) or self.targets
            if wanted is None or not wanted.named():
                fix = "For example feedback({'utilisation_at_least': 0.85})"
                raise SettingsError(problem("targets", targets, "there is nothing to work toward", fix))
            done, total = 0, explain + episodes * decisions

            def tell(more: int) -> None:
                nonlocal done
                done = min(done + more, total)
                if progress is not None:
                    progress(done, total)

            def why(name: str) -> Explanation | None:
                tell(1)
                try:
                    return self.explain(name, target="terms", **QUICK)
                except ExplanationError:
                    return None

            window = self._reward_feedback.window(explain, why if explain else None)
            tell(max(0, explain - done))
            play = partial(self._reward_feedback.play, self.policy, self.reward, progress=tell)
            worth = partial(play, episodes=episodes, decisions=decisions)
            held_out = (episodes, decisions, worth) if episodes else None
            revisit = partial(self._revisit, self._reward_feedback.explained(explain)) if explain else None
            self._torn = True
            # As one: a process that is killed in between must not leave a reward taken back, and its weights not.
            with self.journal.as_one():
                change = self._reward_feedback.step(
                    window, wanted, self.reward, self._versions.current, held_out, revisit
                )
                if change.anchored:
                    self._versions.anchor()
                elif change.kind == "rolled back":
                    # Taking back a reward does not take back what was learnt from it.
                    self._adopt(self._versions.restore())
            self.reward, self.targets = change.reward, wanted
            self._torn = False
            return change

    def _revisit(self, names: Sequence[str], rewards: Sequence[Reward]) -> list[list[Expected | None]]:
        """What decisions would have come to, had they been made with other rewards."""
        from attribution_sched.explain.alternatives import with_weights
        from attribution_sched.feedback.window import Outcome as Expected

        weights = np.array([(each.w_eff, each.w_util, each.w_cost) for each in rewards])
        expected: list[list[Expected | None]] = []
        with self._explaining_turn:
            for name in names:
                decided = self._recall(name)
                view, eyes = decided.view, self._memory_of(self.journal.decision(name)).looks()
                known = {"base_step_s": float(view.base_step_s[view.kind_index]), "steps": view.steps_left}
                answers = with_weights(eyes, decided, weights)
                expected.append([None if one is None else Expected(**asdict(one), **known) for one in answers])
        return expected

    def report(self, path: str | os.PathLike[str], *, lang: str = "en", **options: Any) -> Path:
        """Write what the run came to, why, and against whom, as one file.

        Args:
            path: Where to; the ending decides: ``.html``, ``.json`` or ``.md``.
            lang: ``en`` or ``zh``.
            **options: As for :func:`attribution_sched.report.write.write_report`.

        Raises:
            SettingsError: If an argument is wrong or the file cannot be written; nothing is half-written.
        """
        from attribution_sched.report.write import write_report

        arguments.known_options("report", write_report, options)
        with self._turn:
            return write_report(self, path, lang=lang, **options)

    def bill(
        self,
        by: str = "tenant",
        rule: str = "shapley",
        *,
        electricity_usd_per_kwh: float | None = None,
        prices: Prices | None = None,
        congestion: bool = False,
    ) -> Bill:
        """Who answers for the energy, electricity, egress, carbon and device time of everything so far.

        Args:
            by: ``tenant``, ``task``, ``model`` or ``domain``.
            rule: ``shapley``, ``reservation``, ``usage``, ``cpu-time`` or ``max-request-use``.
            electricity_usd_per_kwh: Price of electricity; what the preset pays for energy by default.
            prices: What else is charged for; see :class:`~attribution_sched.billing.bill.Prices`.
            congestion: Whether to work out who makes whom wait, too; a play of everything for each group of payers.

        Raises:
            SettingsError: If an argument is wrong.
            JournalError: If the beginning of the journal is archived, or congestion is asked of a real cluster.
        """
        from attribution_sched.billing.metering import bill_of

        with self._turn:
            return bill_of(self.journal, by, rule, electricity_usd_per_kwh, prices, congestion=congestion)[0]

    def close(self) -> None:
        """Close the journal and let the next writer in; harmless when done twice.

        The state is kept with it, so that whoever resumes it, also with a release that prices otherwise, need not live
        through it again.
        """
        with self._turn:
            whole = not (self._moving or self._torn or self._entering or self._turning or self._operating)
            if whole and self.journal.path is not None and not self.journal.closed:
                self._snapshot(1)
            self.journal.close()

    def __enter__(self) -> System:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _new_cluster(self) -> SimulatedCluster:
        cluster = self._make_cluster(self.world, self.seed, arrivals=self._queue == "preset")
        cluster.attribute = self.attribute
        cluster.compared = self._compares
        return cluster

    @property
    def _compares(self) -> bool:
        """Whether the policy compares all waiting tasks that it sees, so that waiting is an answer for all of them."""
        return bool(getattr(self.policy, "compares_window", False))

    def _submit_demo(self) -> None:
        """Hand in the demonstration's tasks, those that a killed process did not."""
        if self._queue == "demo" and self.journal.count() == 0:
            known = {task.id for task in self.journal.tasks()}
            for request in demo_of(self.world):
                if request.id not in known:
                    self.submit(request)

    def _go_on_with(self, *, rehearse: bool) -> None:
        """Go on with the journal where it ends.

        Of a short journal everything is lived through, of a long one the newest decisions, so that explanations have a
        background. Where that does not come out as recorded, because this release prices otherwise, the newest snapshot
        is taken as it is. A policy that remembers, and cannot say what, lives through all of it.
        """
        count = self.journal.count()
        recallable = not rehearse or isinstance(self.policy, Recallable)
        near = count - AGAIN if count > self._memory.most and recallable else 0
        try:
            self._go_through(near, rehearse=rehearse)
        except JournalError as error:
            newest = self.journal.newest_snapshot()
            if newest is None or newest.sequence <= near or not recallable:
                raise
            log.warning("going on from the snapshot after %d decisions: %s", newest.sequence, error)
            self._set_up(
                self.settings, self._versions.policy(ORIGINAL), self.seed, False, self._queue, self._attributor
            )
            self._keep_in(self.journal)
            self._go_through(newest.sequence, rehearse=rehearse)

    def _go_through(self, near: int, *, rehearse: bool) -> None:
        """Go on from a snapshot: live through the decisions after it, and let take effect what was still pending.

        Args:
            near: Decisions that the snapshot may include at most; 0 lives through all of them.
            rehearse: Ask the policy again, so that it remembers.
        """
        versions, reshaping = self._versions, self._reward_feedback
        count, carried_out, otherwise = self.journal.count(), 0, 0
        priced_otherwise: list[str] = []
        start: dict[str, Any] = {"sequence": 0, "tasks": 0}
        # One that says what it sees remembers by looking; any other that can say what it remembers is asked again only
        # from its newest memory on. Where all is lived through, neither is asked about what the newest memory includes.
        ask_from, kept = 0, None
        if near <= 0 and rehearse and isinstance(self.policy, Recallable):
            kept = snapshot_before(self.journal, count)
            ask_from = kept.sequence if kept else 0
        if near > 0:
            self._adopt(versions.due(near))
            looks = rehearse and isinstance(self.policy, Appraiser)
            start = restore_snapshot(self.journal.newest_snapshot(near), self.cluster, self.policy if looks else None)
            if looks:
                ask_from = count
            elif rehearse and start["sequence"]:
                ask_from = recall_newest(self.journal, self.policy)
        if start["sequence"]:
            self._recorded = {int(slot): name for slot, name in start["recorded"].items()}
            deferred, *rest = start["asking"]
            self._policy_call.state = Moment(frozenset(deferred), *rest)
            self._since, self._waits_s = start["since"], start["waits_s"]
            self._snapshot_at = start["sequence"]

        def remember(number: int) -> None:
            if kept is not None and number == kept.sequence:
                recall_from(kept, self.policy)

        def before(cluster: SimulatedCluster, decision: DecisionRecord) -> None:
            nonlocal otherwise
            number = decision.sequence or 0
            self._adopt(versions.due(number))
            remember(number)
            self.reward = with_weights(reshaping.in_force(number, self.world.reward), decision.weights)
            if number < ask_from and isinstance(self.policy, LinkWatcher):
                seen = cluster.pending(background=True)
                self.policy.watch_links(replace(seen, co_runners=co_runners(cluster.engine)))
            if rehearse and number >= ask_from:
                asked = self._policy_call.ask(self.policy, cluster, self.reward)
                otherwise += plan_record(asked.plan, self.domains, replanning=asked.view.replanning) != decision.plan

        def after(decision: DecisionRecord, asked: PolicyAnswer, effect: Outcome, known: OutcomeRecord | None) -> None:
            nonlocal carried_out
            if known is None:
                reward = reward_of(effect, asked.view.reward).total
                self.journal.record_outcome(outcome_record(decision.id, effect, asked.view, reward))
                carried_out += 1
            self._recorded[asked.view.slot] = self.cluster.residents[asked.view.slot].id
            self._policy_call.note(asked, decision.sequence)
            if (decision.sequence or 0) >= count - self._memory.most:
                # The journal keeps weights; what feedback did to the energy price is known here.
                self._memory.remember(
                    decision.id, weighted(asked.view, self.reward), asked.plan, decision.sequence, decision.source
                )
            self._since = 0 if effect.code == 1 else self._since + 1

        replay(
            self.cluster, self.journal, self.seed, start=start, otherwise=priced_otherwise, before=before, after=after
        )
        for unfinished in operations.still_open(self.journal):
            self.journal.record_effect(int(unfinished.number or 0))
        self._adopt(versions.due(count))
        remember(count)
        if reshaping.set_at(count):
            self.reward = reshaping.in_force(count, self.reward)
        versions.anchored = versions.current if reshaping.anchored_weights is None else reshaping.anchored_weights
        facts = {
            "decisions": count, "carried_out": carried_out, "rehearsed": rehearse, "decided_otherwise": otherwise,
            "priced_otherwise": priced_otherwise[:100], "lived_through": count - start["sequence"],
        }  # fmt: skip
        if priced_otherwise:
            log.warning("%d decisions come out at other prices in this release", len(priced_otherwise))
        self.journal.record_event(EventRecord("resumed", facts, self.now_s))

    def _snapshot(self, every: int) -> None:
        """Keep the state if so many decisions were taken since it was last kept, always after a multiple of them."""
        count = self.journal.count()
        if count % every or count - self._snapshot_at < max(every, len(self.cluster.backlog) // 4):
            return
        deferred, *rest = self._policy_call.state
        facts = {
            "recorded": {str(slot): name for slot, name in self._recorded.items()},
            "asking": [sorted(deferred), *rest],
            "since": self._since,
            "waits_s": self._waits_s,
        }
        record_snapshot(self.journal, self.cluster, self.policy, facts)
        self._snapshot_at = count

    def _adopt(self, policy: Policy | None) -> None:
        if policy is not None:
            self.policy = policy
            self._memory.policy_changed(policy)
