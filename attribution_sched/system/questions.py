"""What can be asked of a system: why this, why not that, why it waits, when it starts, what if, who is to blame.

Questions only read. Those about decisions of the journal have a lock of their own, so that whoever decides never waits
for an explanation.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attribution_sched.cluster.live import SimulatedCluster, as_policy, weighted, with_weights
from attribution_sched.errors import (
    AttributionSchedError,
    ExplanationError,
    JournalError,
    TaskError,
    nearest,
    problem,
)
from attribution_sched.executors.live import Twin, outcome_words
from attribution_sched.explain.memory import Memorised, Memory, seeing
from attribution_sched.explain.recorder import Decided, perceived
from attribution_sched.journal import DecisionRecord, ExplanationRecord
from attribution_sched.scheduler.policy import LinkWatcher
from attribution_sched.scheduler.registry import POLICIES
from attribution_sched.system import arguments
from attribution_sched.system.admission import handed_in, prepared
from attribution_sched.system.decision_records import plan_of
from attribution_sched.system.explain_many import ManyExplained, explain_aside, unexplained
from attribution_sched.system.moments import moment_of, present_moment
from attribution_sched.system.replay import RecordedVectors, replay
from attribution_sched.system.results import SchedulingResult
from attribution_sched.system.snapshots import restore_snapshot, snapshot_before
from attribution_sched.types import Task
from attribution_sched.words.text import clean_text

if TYPE_CHECKING:
    from attribution_sched.cluster.decision import Decision
    from attribution_sched.explain.blame import Blame
    from attribution_sched.explain.decision_table import Alternative, DecisionTable
    from attribution_sched.explain.delay import Delay
    from attribution_sched.explain.explanation import Explanation
    from attribution_sched.explain.what_if import WhatIf
    from attribution_sched.explain.when import When
    from attribution_sched.explain.why import Why
    from attribution_sched.system.system import Progress, System

log = logging.getLogger(__name__)


class Questions:
    """Answers about the decisions and the present moment of a system.

    Args:
        system: Who is asked.
    """

    def __init__(self, system: System) -> None:
        self.system = system
        self.lock = threading.RLock()
        self._again: SimulatedCluster | None = None
        self._earlier: tuple[str, Memory] | None = None

    @contextlib.contextmanager
    def about(self, decision: SchedulingResult | str) -> Iterator[tuple[Decided, Memory]]:
        """A decision of the journal and what explains it, for the time of an answer.

        Whatever goes wrong meanwhile is an error of this one answer, which whoever asks for many can count and leave.

        Raises:
            JournalError: If the journal has no such decision; the message names the nearest.
            ExplanationError: If the answer fails for a reason that nobody foresaw.
        """
        name = decision.id if isinstance(decision, SchedulingResult) else str(decision)
        with self.lock:
            try:
                yield self.recall(name), self.memory_of(self.system.journal.decision(name))
            except AttributionSchedError:
                raise
            except Exception as error:
                log.warning("decision %s cannot be explained", name, exc_info=True)
                rule = f"cannot be explained ({type(error).__name__}: {clean_text(str(error))})"
                fix = "The decision stands; this is a fault of the package, please report it with the journal"
                raise ExplanationError(problem("decision", name, rule, fix)) from error

    def explain(self, /, decision: SchedulingResult | str, **options: Any) -> Explanation:
        """Say why a decision was made; the explanation is journaled too.

        Args:
            decision: A result, or the id of any decision in the journal.
            **options: As for :meth:`~attribution_sched.explain.explainer.Explainer.explain`.

        Raises:
            JournalError: If the journal has no such decision; the message names the nearest.
            ExplanationError: If an option is wrong.
        """
        chosen, journal = arguments.explain_options(options), self.system.journal
        with self.about(decision) as (decided, memory):
            task = handed_in(
                self.system.world, journal.task(str(journal.decision(decided.id).task_id)), self.system.seed
            )
            explanation = memory.explain(decided, task=task, **chosen)
            if self.system.live is not None:
                explanation = replace(explanation, outcome=outcome_words(journal, decided.id))
            entry = ExplanationRecord(decided.id, explanation.target, explanation.to_dict())
            journal.record_explanation(entry, replace=True)
            return explanation

    def explain_many(
        self,
        /,
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
        journal = self.system.journal
        chosen = arguments.explain_options(options)
        todo, known = unexplained(journal, ids, chosen)
        done: dict[str, str] = {}
        for name, target, told in self._each_explained(todo, workers, chosen):
            done[name] = told if isinstance(told, str) else ""
            if workers is not None and not isinstance(told, str):
                journal.record_explanation(ExplanationRecord(name, target, told), replace=True)
            if progress is not None:
                progress(len(done), len(todo))
        failed = {name: why for name, why in done.items() if why}
        return ManyExplained(tuple(name for name in todo if not done[name]), known, failed)

    def _each_explained(
        self, todo: list[str], workers: int | str | None, chosen: dict[str, Any]
    ) -> Iterator[tuple[str, str, dict[str, Any] | str]]:
        journal = self.system.journal
        if workers is None:
            for name in todo:
                try:
                    self.explain(name, **chosen)
                    yield name, "", {}
                except AttributionSchedError as error:
                    yield name, "", str(error)
            return
        if journal.path is None:
            fix = "Give System a journal, or leave out workers="
            raise JournalError(problem("journal", "in memory", "no worker can read it", fix))
        policy = None if journal.header.policy in POLICIES else self.system.policy
        yield from explain_aside(journal.path, todo, workers, chosen, policy, self.system.attributor)

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

        with self.about(decision) as (decided, memory):
            return decision_table(memory.looks(), decided, seed=self.system.seed, drivers=drivers)

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

        with self.about(decision) as (decided, memory):
            return tree_readings(memory.looks(), decided)

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

        cluster = self.system.cluster
        with self.system.lock:
            seen, holders, allowed, behind = moment_of(cluster, task)
            # What it remembers of the links is part of what it would do now.
            quota, asked = cluster.quota_reason(seen), self.system.memory.looks(remembers=True)
            share = cluster.share_reason(seen.task.tenant) if seen.task is not None else None
            confirm = None
            if self.system.live is None:
                again = self.system.memory.looks(remembers=True)
                confirm = LiveTrial(cluster, again, self.system.ring.call, self.system.reward, task)
        seen = weighted(seen, self.system.reward)
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

        with self.system.lock:
            seen, now_s = weighted(moment_of(self.system.cluster, task)[0], self.system.reward), self.system.now_s
            asked = self.system.memory.looks()
        chosen = self.system.seed if seed is None else seed
        told = delay_shares(asked, seen, futures=futures, hours=hours, seed=chosen)
        with self.lock:
            found = self._since_submission(task, seen, now_s)
        if found is None:
            return told
        first, came = found
        return replace(told, waited=past_shares(asked, first, task, came, now_s, seed=chosen))

    def _since_submission(self, task: str, seen: Decision, now_s: float) -> tuple[Decision, list[Task]] | None:
        """The first decision at which a waiting task was there, and who came since; None if there is none."""
        journal = self.system.journal
        came_s = journal.task(task).submitted_s
        since = [each for each in journal.decisions(brief=True) if came_s <= each.cluster_time_s < now_s]
        tried = [*since[:1], *(each for each in since if each.task_id == task)][:2]
        first, start = None, 0
        for record in tried:
            view = self.recall(record.id).view
            if view.moment is not None and any(each.id == task for each in view.moment.tasks.values()):
                first, start = view, since.index(record)
                break
        if first is None:
            return None
        came: dict[str, Task] = {}
        for record in since[start + 1 :]:
            # Whoever came and ran was placed; who still waits is here now.
            if record.plan is not None and str(record.task_id) not in came:
                moment = self.recall(record.id).view.moment
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

        journal = self.system.journal
        asking.check(hours, most, futures)
        decisions = list(journal.decisions(brief=True))
        waited_h, started, first_s, last_s = 0.0, False, -math.inf, math.inf
        if task is not None:
            if not journal.knows_task(task):
                known = list(dict.fromkeys(str(each.task_id) for each in decisions if each.task_id))[-12:]
                raise TaskError(problem("task", task, "is not in the journal", nearest(task, known)))
            came_s = journal.task(task).submitted_s
            began = [each for each in journal.decisions_on(task) if each.plan is not None]
            started = bool(began)
            last_s = began[0].cluster_time_s if began else self.system.now_s
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
        with self.lock:
            lived = [self.recall(each.id) for each in chosen]
            came = {one.id: one for each in lived if each.view.moment for one in each.view.moment.tasks.values()}
            if task is not None:
                # Those that came until it started; the decision that started it saw them all.
                last = self.recall((began[0] if began else decisions[-1]).id).view.moment
                came |= {} if last is None else {one.id: one for one in last.tasks.values()}
            seed = self.system.seed if seed is None else seed
            for record, decided in zip(chosen, lived, strict=True):
                far = hours
                if task is not None:
                    far = (last_s - decided.view.time_s) / 3600.0 + asking.AFTER_H
                policy = self.memory_of(record).looks()
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

        with self.system.lock:
            seen = weighted(moment_of(self.system.cluster, task)[0], self.system.reward)
            asked = self.system.memory.looks()
        return when_starts(asked, seen, futures=futures, hours=hours, seed=self.system.seed if seed is None else seed)

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

        cluster = self.system.cluster
        with self.system.lock:
            rows = [str(row.id) for row in self.system.queue().itertuples() if row.state == "window"]
            if not rows:
                return []
            seen = weighted(moment_of(cluster, rows[0])[0], self.system.reward)
            slots = [slot for name in rows if (slot := cluster.slot_of(name)) is not None]
            asked = self.system.memory.looks()
        chosen = self.system.seed if seed is None else seed
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

        cluster = self.system.cluster
        with self.system.lock:
            seen = weighted(present_moment(cluster), self.system.reward)
            asked = self.system.memory.looks()
            more: Task | None = None
            if task is not None:
                record, made = prepared(task, {}, self.system.world, self.system.seed, self.system.journal, cluster)
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
        seed = self.system.seed if seed is None else seed
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

        cluster, journal = self.system.cluster, self.system.journal
        wanted = read_plan(where, self.system.domains)
        asked = None if 0 in wanted.values() else wanted
        taken = [each for each in journal.decisions_on(task) if each.plan is not None]
        if taken and cluster.place_of(task) in (None, "running"):
            with self.about(taken[-1].id) as (decided, memory):
                eyes = memory.looks()
        else:
            with self.system.lock:
                seen = weighted(moment_of(cluster, task)[0], self.system.reward)
                eyes = self.system.memory.looks()
            decided = Decided(task, seen, None, perceived(eyes, seen))
        rows = decision_table(eyes, decided, seed=self.system.seed, asked=asked).rows
        if asked is not None:
            return rows[-1]
        # The domain by itself, else the best plan that it has a part in, else what was done is there itself.
        there = [row for row in rows if where in row.domains or (row.missing and not row.domains)]
        return next(
            (row for row in there if row.domains == (where,) and not row.chosen),
            next((row for row in there if not row.chosen), rows[0]),
        )

    def memory_of(self, record: DecisionRecord) -> Memory:
        """What explains a decision: by the weights that took it, also if others decide by now."""
        name = self.system.versions.at(record.sequence or 0)
        if name == self.system.versions.current:
            return self.system.memory
        if self._earlier is None or self._earlier[0] != name:
            self._earlier = name, self.system.new_memory(self.system.versions.policy(name))
        return self._earlier[1]

    def recall(self, name: str) -> Decided:
        """A decision from memory; one that was forgotten is lived through again, with those it is compared with."""
        journal, world = self.system.journal, self.system.world
        record = journal.decision(name)
        memory, number = self.memory_of(record), record.sequence or 0
        if name in memory and not memory.lacks(number):
            return memory[name]
        first, until = memory.window(number)
        snapshot = snapshot_before(journal, first)
        if self._again is None or snapshot is None:
            arrivals, made = self.system.task_source == "preset", SimulatedCluster if self.system.live is None else Twin
            self._again = made(world, self.system.seed, arrivals=arrivals, attribute=self.system.attribute)
            self._again.compared = self.system.compares
        again, eyes, version = self._again, memory.eyes(), self.system.versions.at(number)
        records = list(journal.decisions(snapshot.sequence if snapshot else 0, number + 1, brief=True))
        again.attribute = RecordedVectors(records, self.system.attribute)
        start = restore_snapshot(snapshot, again, eyes)
        watcher, see = eyes if isinstance(eyes, LinkWatcher) else None, seeing(eyes)
        lived: dict[str, Memorised] = {}
        watched_s = -math.inf

        def seen(decision: DecisionRecord, cluster: SimulatedCluster) -> None:
            nonlocal watched_s
            at = decision.sequence or 0
            wanted = at == number or (first <= at < until and self.system.versions.at(at) == version)
            if not wanted and (watcher is None or cluster.link_time_s == watched_s):
                return
            reward = self.system.reward_feedback.in_force(at, world.reward)
            view = weighted(cluster.pending(background=at < number), with_weights(reward, decision.weights))
            if watcher is not None:
                watcher.watch_links(view)
                watched_s = cluster.link_time_s if (view.free_devices > 0).any() else watched_s
            if wanted:
                plan = plan_of(decision.plan, self.system.domains)
                lived[decision.id] = Memorised(view, plan, see(view), at, decision.source)

        replay(again, journal, self.system.seed, start=start, stop=number, seen=seen, records=records)
        seen(record, again)
        return memory.recall(name, number, lived)
