"""The loop: a task's counters are attributed, a policy decides, the journal keeps it, the cluster runs it.

from attribution_sched import System

system = System()
print(system.schedule_next_task())

Every decision is in the journal before it takes effect. A system may be shared by threads: calls take turns, so each
decision is taken once. It is not carried over to forked processes.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from attribution_sched import __version__
from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.attribution.cache import AttributionCache, CacheUse
from attribution_sched.cluster.live import SimulatedCluster, as_policy
from attribution_sched.cluster.world import Reward
from attribution_sched.config import Settings, load_settings
from attribution_sched.errors import AttributionSchedError, SettingsError, problem
from attribution_sched.executors.live import live_of, outcome_of, recorded_cluster
from attribution_sched.executors.submission import SUBMIT_S
from attribution_sched.explain.memory import Memory
from attribution_sched.journal import Journal
from attribution_sched.kernels import clock
from attribution_sched.scheduler.policy import Episodic, Policy
from attribution_sched.system import arguments, operations
from attribution_sched.system.admission import demo_of
from attribution_sched.system.decision_records import TakenDecision, result_of
from attribution_sched.system.fits import Admission
from attribution_sched.system.learn import Learn
from attribution_sched.system.moments import warm_up
from attribution_sched.system.operate import Operate
from attribution_sched.system.questions import Questions
from attribution_sched.system.recovery import go_on_with, rebuild, snapshot
from attribution_sched.system.results import RunSummary, SchedulingResult
from attribution_sched.system.reward_feedback import RewardFeedback, targets_of
from attribution_sched.system.ring import Ring, Turn
from attribution_sched.system.status import Status, queue_table, status_of
from attribution_sched.system.tally import Tally
from attribution_sched.system.transaction import Entry, Reshaping, Transaction
from attribution_sched.system.weight_versions import Versions
from attribution_sched.types import Outcome, Task
from attribution_sched.words.say import check_language

if TYPE_CHECKING:
    import pandas as pd

    from attribution_sched.billing.bill import Bill, Tariff

Preset = str | Path | Mapping[str, Any] | Settings
Progress = Callable[[int, int | None], None]
"""Called with how many tasks were placed, and of how many; None if that is open."""

PATIENCE = 1000
"""Decisions without a placement after which ``schedule_next_task`` returns one that leaves its task waiting."""

log = logging.getLogger(__name__)

Part = TypeVar("Part", Operate, Questions, Learn)
P = ParamSpec("P")
R = TypeVar("R")

_PARTS = {Operate: "operate", Questions: "questions", Learn: "learn"}


class Verb(Generic[P, R]):
    """What one of its parts does, asked of a system itself: ``system.why(...)`` is ``system.questions.why(...)``."""

    def __init__(self, method: Callable[Concatenate[Part, P], R]) -> None:
        self.method: Callable[..., R] = method
        self.__doc__ = method.__doc__
        owner = method.__qualname__.partition(".")[0]
        self._part = next(name for part, name in _PARTS.items() if part.__name__ == owner)

    @overload
    def __get__(self, system: None, owner: type) -> Callable[..., R]: ...

    @overload
    def __get__(self, system: System, owner: type) -> Callable[P, R]: ...

    def __get__(self, system: System | None, owner: type) -> Callable[..., R]:
        return self.method if system is None else MethodType(self.method, getattr(system, self._part))


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

    submit, withdraw, cancel = Verb(Operate.submit), Verb(Operate.withdraw), Verb(Operate.cancel)
    hold, release = Verb(Operate.hold), Verb(Operate.release)
    reserve, unreserve = Verb(Operate.reserve), Verb(Operate.unreserve)
    true_demands = Verb(Operate.true_demands)
    explain, explain_many = Verb(Questions.explain), Verb(Questions.explain_many)
    why, why_not, when, when_all = (
        Verb(Questions.why),
        Verb(Questions.why_not),
        Verb(Questions.when),
        Verb(Questions.when_all),
    )
    what_if, delay, blame = Verb(Questions.what_if), Verb(Questions.delay), Verb(Questions.blame)
    alternatives, tree_readings = Verb(Questions.alternatives), Verb(Questions.tree_readings)
    train, feedback = Verb(Learn.train), Verb(Learn.feedback)

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
        self.live = live_of(cluster, settings, journal)
        self.make_cluster = arguments.cluster_of(cluster) if self.live is None else self.live.make
        self.set_up(settings, as_policy(policy), seed, explain, queue, attributor)
        wanted = {} if self.targets is None else self.targets.named()
        header = arguments.header_of(self.settings, self.task_source, self.policy.name, self.seed, __version__, wanted)
        header = header if self.live is None else self.live.header_of(header)
        self.keep_in(Journal.memory(header) if journal is None else Journal.create(journal, header))
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
            self.live = live_of(cluster, settings, path)
            self.make_cluster = arguments.cluster_of(cluster) if self.live is None else self.live.make
            self.set_up(settings, decider, seed, explain, queue, attributor)
            self.keep_in(journal)
            self.targets = self.reward_feedback.targets or self.targets
            go_on_with(self, rehearse=rehearse and isinstance(self.policy, Episodic))
            self._submit_demo()
        except BaseException:
            journal.close()
            raise
        return self

    def set_up(self, settings: Settings, policy: Any, seed: Any, explain: Any, queue: Any, attributor: Any) -> None:
        """Check what was asked for, and make all but the journal."""
        self.seed, self.task_source = arguments.seed_of(seed), arguments.queue_of(queue)
        self.explaining = arguments.explaining(explain)
        self.settings, self.policy, self.attributor = settings, policy, attributor
        self.world = settings.build_world() if self.live is None else self.live.world_of(settings.build_world())
        self.domains = tuple(domain.name for domain in self.world.cluster.domains)
        self.reward = self.world.reward
        self.attribute = AttributionCache(as_attributor(attributor, self.world, policy))
        self.cluster = self.new_cluster()
        # An attributor that cannot answer is refused here, and what it fits or compiles counts in no decision's time.
        self.attribute.attributor.vector(Task(counters=self.cluster.engine.pool.counters.values[0], samples_per_s=1.0))
        self.memory = self.new_memory(policy)
        self.admission = Admission(self.cluster.engine)
        self.lock = threading.RLock()
        self.transaction = Transaction()
        self.ring = Ring(self)
        self.operate, self.questions, self.learn = Operate(self), Questions(self), Learn(self)
        self.snapshot_at = 0
        if isinstance(policy, Episodic):
            policy.reset(self.seed)

    def keep_in(self, journal: Journal) -> None:
        """Keep decisions in a journal, and go by the weights that it has."""
        self.journal = journal
        if self.live is not None:
            self.live.attach(journal)
        self.versions = Versions(journal, self.policy)
        self.reward_feedback = RewardFeedback(journal, self.world, self.seed, self.attribute)

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

    @property
    def is_real(self) -> bool:
        """Whether there are machines behind the cluster."""
        return self.live is not None

    @property
    def cluster_kind(self) -> str:
        """What tasks run on: ``simulated``, or what executors are called."""
        return "simulated" if self.live is None else self.live.kind

    def queue(self, lang: str = "en") -> pd.DataFrame:
        """Every task that waits or is held, in the order in which they are asked about, and what is known of why."""
        check_language(lang)
        with self.lock:
            return queue_table(self.cluster, lang)

    def status(self) -> Status:
        """The clock, free devices, tasks, reservations, weights: how all of it stands now."""
        with self.lock:
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
        with self.call():
            taken, note = None, ""
            for _ in range(PATIENCE):
                nothing = self.ring.finished is None and not self.cluster.expecting
                taken = None if nothing else self.ring.next()
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

    def _result(self, taken: TakenDecision) -> SchedulingResult:
        began, why, missing = clock(), None, ""
        if self.explaining is not None:
            try:
                why = self.explain(taken.record.id, **self.explaining)
            except AttributionSchedError as error:
                # The task is placed: its result must not be lost with its explanation.
                missing = str(error)
        between, self.ring.since = self.ring.since - 1, 0
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
        with self.call():
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
                taken = self.ring.next(limit_s)
                if taken is None:
                    break
                tally.add(taken)
                if progress is not None and taken.effect.code == 1:
                    progress(tally.placed, tasks)
            return tally.summary(stopped)

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
        with self.lock:
            return write_report(self, path, lang=lang, **options)

    def bill(
        self,
        by: str = "tenant",
        rule: str = "shapley",
        *,
        electricity_usd_per_kwh: float | None = None,
        prices: Tariff | None = None,
        congestion: bool = False,
    ) -> Bill:
        """Who answers for the energy, electricity, egress, carbon and device time of everything so far.

        Args:
            by: ``tenant``, ``task``, ``model`` or ``domain``.
            rule: ``shapley``, ``reservation``, ``usage``, ``cpu-time`` or ``max-request-use``.
            electricity_usd_per_kwh: Price of electricity; what the preset pays for energy by default.
            prices: What else is charged for; see :class:`~attribution_sched.billing.bill.Tariff`.
            congestion: Whether to work out who makes whom wait, too; a play of everything for each group of payers.

        Raises:
            SettingsError: If an argument is wrong.
            JournalError: If the beginning of the journal is archived, or congestion is asked of a real cluster.
        """
        from attribution_sched.billing.metering import bill_of

        with self.lock:
            return bill_of(self.journal, by, rule, electricity_usd_per_kwh, prices, congestion=congestion)[0]

    def close(self) -> None:
        """Close the journal and let the next writer in; harmless when done twice.

        The state is kept with it, so that whoever resumes it, also with a release that prices otherwise, need not live
        through it again.
        """
        with self.lock:
            if self.transaction.whole and self.journal.path is not None and not self.journal.closed:
                snapshot(self, 1)
            self.journal.close()

    def __enter__(self) -> System:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """A call that changes something: it waits its turn, and first finishes what an earlier one could not."""
        with self.lock:
            transaction = self.transaction
            if isinstance(transaction.work, Reshaping):
                self.learn.reload()
            if transaction.moving:
                rebuild(self)
            # Rebuilding settles some of it.
            work, self.ring.finished = transaction.work, None
            if isinstance(work, Entry):
                self.operate.enter(work, again=True)
            elif isinstance(work, operations.Operation):
                self.operate.carry_out(work, again=True)
            elif isinstance(work, Turn):
                self.ring.finished = self.ring.complete(work, again=True)
            yield

    def advance(self, limit_s: float = math.inf) -> bool:
        """Let time pass in the cluster; see :meth:`SimulatedCluster.advance`."""
        if self.live is not None:
            return self.live.drive(self, limit_s)
        with self.transaction.moves():
            return self.cluster.advance(limit_s)

    def new_memory(self, policy: Policy) -> Memory:
        """What explains the decisions of a policy here."""
        return Memory(self.world, policy, partial(warm_up, self.world, self.attribute), self.seed)

    def new_cluster(self) -> SimulatedCluster:
        """A cluster of this world at its beginning."""
        cluster = self.make_cluster(self.world, self.seed, arrivals=self.task_source == "preset")
        cluster.attribute = self.attribute
        cluster.compared = self.compares
        return cluster

    @property
    def compares(self) -> bool:
        """Whether the policy compares all waiting tasks that it sees, so that waiting is an answer for all of them."""
        return bool(getattr(self.policy, "compares_window", False))

    def _submit_demo(self) -> None:
        """Hand in the demonstration's tasks, those that a killed process did not."""
        if self.task_source == "demo" and self.journal.count() == 0:
            known = {task.id for task in self.journal.tasks()}
            for request in demo_of(self.world):
                if request.id not in known:
                    self.submit(request)

    def adopt(self, policy: Policy | None) -> None:
        """Let another policy decide from now on; None changes nothing."""
        if policy is not None:
            self.policy = policy
            self.memory.policy_changed(policy)
