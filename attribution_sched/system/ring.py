"""The ring: one decision from what is seen to what came of it, in six numbered phases.

    1 observe → 2 attribute → 3 decide → 4 record → 5 carry out → 6 learn

The cluster is looked at once; what follows until it is told the action works on that. Nothing has happened before
phase 4, and each phase from there on is done once, however often a turn is taken up again.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from attribution_sched.attribution.vector import AttributionVector
from attribution_sched.cluster.decision import attributed
from attribution_sched.cluster.live import PolicyAnswer, PolicyCall, weighted
from attribution_sched.errors import JournalError, PolicyError, problem
from attribution_sched.journal import DecisionRecord, TaskRecord, WaitRecord
from attribution_sched.kernels import clock
from attribution_sched.system import operations
from attribution_sched.system.decision_records import (
    TakenDecision,
    decision_record,
    outcome_record,
    prediction,
    reward_of,
    task_record,
)
from attribution_sched.system.recovery import snapshot
from attribution_sched.system.snapshots import EVERY
from attribution_sched.types import IntArray, Outcome, RewardTerms, Task
from attribution_sched.words.text import clean_text

if TYPE_CHECKING:
    from attribution_sched.system.system import System

FAILURES = 3
"""Tasks in a row on which a policy may fail before that is the caller's business: then the policy is broken."""

LONGEST_REASON = 300
"""Characters of an error that are kept with a task that was set aside."""

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


class Ring:
    """Takes decisions for a system, one after the other.

    Args:
        system: Whose cluster, policy and journal.

    Attributes:
        call: How the policy is asked, and what it said lately.
        recorded: Slot → id of its task, if the journal has that one.
        since: Decisions since the last result.
        waits_s: When it was last recorded who waits without a question.
        finished: A decision that an earlier call had begun and this one finished.
    """

    def __init__(self, system: System) -> None:
        self.system = system
        self.call = PolicyCall()
        self.recorded: dict[int, str] = {}
        self.since = 0
        self.waits_s = -1.0
        self.finished: TakenDecision | None = None
        self._failed: list[str] = []

    def next(self, limit_s: float = math.inf) -> TakenDecision | None:
        """The next decision: one that an earlier call could not finish, else the cluster's; None if there is none."""
        finished, self.finished = self.finished, None
        if finished is not None:
            return finished
        while self.system.advance(limit_s) and self.system.now_s <= limit_s:
            try:
                taken: TakenDecision | None = self.decide()
            except Exception as error:
                if error is not self.call.failure:
                    raise
                self.call.failure = None
                taken = self._without_answer(error)
            if taken is not None:
                if taken.effect.code == 1:
                    self._failed.clear()
                return taken
        return None

    def decide(self, reason: str = "") -> TakenDecision:
        """Take the pending decision: one turn of the ring.

        Args:
            reason: Why a running task keeps its plan without a question; asks the policy by default.
        """
        turn = self._propose(reason)
        self.system.transaction.work = turn
        return self.complete(turn)

    def _propose(self, kept: str) -> Turn:
        """Phases 1 to 3 of the ring; nothing has happened yet when they end."""
        cluster = self.system.cluster
        clock = Clock()
        # 1 observe: the cluster as it is, the queue, the links, the weights in force
        seen = weighted(cluster.pending(), self.system.reward)
        clock.phase("observe", f"{len(seen.queue)} waiting")
        # 2 attribute: every task has had its vector since it came; a cluster that gives none is helped out
        seen = attributed(seen, self.system.attribute)
        clock.phase("attribute", f"{len(seen.queue)} tasks")
        clock.spent_s["attribute"] += self.system.attribute.spent_s()
        # 3 decide
        if kept:
            asked = PolicyAnswer(seen, None, 0.0, cluster.running == 0, kept)
        else:
            asked = self.call.ask(self.system.policy, cluster, self.system.reward, seen)
        vector = self._attribution(asked)
        clock.phase("decide", asked.view.slot)
        action = self.call.encode(cluster, asked)
        record = decision_record(cluster, self.system.policy, asked, action, vector, clock.spent_s["attribute"])
        slot, task = asked.view.slot, cluster.residents[asked.view.slot]
        known = task.submitted or self.recorded.get(slot) == task.id
        new = None if known else task_record(cluster, asked.view)
        number = self.system.journal.count()
        record = replace(record, sequence=number)
        paid, decided = cluster.paid, cluster.decided
        return Turn(
            number, asked, action, record, new, task, vector, paid, decided, self.since, clock, self._left_waiting()
        )

    def complete(self, turn: Turn, *, again: bool = False) -> TakenDecision:
        """Phases 4 to 6: recorded, then carried out, then booked; each of them once, however often this is called.

        Args:
            turn: What was decided.
            again: Whether an earlier try was cut short, so that parts of it may be done already. What is done is asked
                of the journal and of the cluster: a note in memory could itself have been cut short.
        """
        cluster, journal, transaction = self.system.cluster, self.system.journal, self.system.transaction
        asked, clock = turn.asked, turn.clock
        # 4 record: on disk before it takes effect
        if again and journal.count() > turn.number:
            made = journal.last()
            if made is None or made.sequence != turn.number or made.action != turn.action.tolist():
                rule = f"decision number {turn.number} is not the one that was being taken"
                raise JournalError(problem("journal", str(journal.path), rule, "Resume it with System.resume"))
        else:
            made = journal.record_decision(turn.told, task=turn.new, waits=turn.waits)
        clock.phase("record", made.id)
        # 5 carry out
        if again and cluster.decided > turn.decided:
            effect = cluster.effect(asked.view.slot, turn.paid)
        else:
            with transaction.moves():
                effect = cluster.carry_out(turn.action, journal.key(made.id))
        if effect.predicted is None and effect.code > 0:
            effect = replace(effect, predicted=prediction(asked.view, asked.plan))
        clock.phase("carry out", made.id)
        # 6 learn: what it came to, for the journal, for explanations and for feedback
        reward = self._book(turn, made, effect, again=again)
        clock.phase("learn", made.id)
        transaction.work = None
        snapshot(self.system, EVERY)
        return TakenDecision(made, asked, turn.task, turn.vector, effect, reward, clock.latencies_s(asked.seconds))

    def _book(self, turn: Turn, made: DecisionRecord, effect: Outcome, *, again: bool = True) -> RewardTerms:
        """Record what a decision came to, and remember it; each once."""
        journal = self.system.journal
        asked = turn.asked
        reward = reward_of(effect, asked.view.reward)
        if not (again and journal.outcome(made.id) is not None):
            journal.record_outcome(outcome_record(made.id, effect, asked.view, reward.total))
        self.recorded[asked.view.slot] = turn.task.id
        self.call.note(asked, turn.number)
        self.system.memory.remember(made.id, asked.view, asked.plan, turn.number, made.source)
        self.since = turn.since + 1
        return reward

    def _without_answer(self, error: Exception) -> TakenDecision | None:
        """Go on although the policy failed on a task: one that waits is set aside, one that runs keeps its plan.

        Raises:
            PolicyError: If it has failed too often in a row, or nobody else is left to ask about.
        """
        cluster = self.system.cluster
        name, words = cluster.residents[cluster.up].id, type(error).__name__
        words = clean_text(f"{words}: {error}" if str(error) else words)[:LONGEST_REASON]
        taken = None
        if cluster.replanning:
            log.warning("task %s keeps its plan: %s failed on it (%s)", name, self.system.policy.name, words)
            taken = self.decide(f"keeps ({self.system.policy.name} failed: {words})")
        else:
            reason = (
                f"{self.system.policy.name} failed on it ({words}); mend the cause, then let it in again with release"
            )
            self.system.operate.carry_out(operations.operation(cluster, operations.SET_ASIDE, name, reason=reason))
            log.warning("task %s is set aside: %s", name, reason)
        if name not in self._failed:
            self._failed.append(name)
        if len(self._failed) >= FAILURES or (taken is None and not cluster.expecting):
            failed, self._failed = ", ".join(self._failed), []
            rule = f"failed on {failed} with nothing placed in between; the last error is {words}"
            fix = "Mend the policy, then System.release(id) those that are set aside; System.queue() lists them"
            raise PolicyError(problem("policy", self.system.policy.name, rule, fix)) from error
        return taken

    def _left_waiting(self) -> tuple[WaitRecord, ...]:
        """What this event leaves waiting without a question, as one record; nothing while the queue is short."""
        cluster = self.system.cluster
        left, now_s = cluster.left_waiting, self.system.now_s
        if not left or not cluster.backlog or now_s == self.waits_s:
            return ()
        self.waits_s = now_s
        return (WaitRecord(now_s, sum(left.values()), left),)

    def _attribution(self, asked: PolicyAnswer) -> AttributionVector:
        """The very vector that the policy was given; a cluster that gave none (not one of ours) is asked for it now."""
        vector = asked.view.attribution
        return self.system.attribute(asked.view.task or asked.view.counters) if vector is None else vector
