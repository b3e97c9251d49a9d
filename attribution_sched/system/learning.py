"""What changes in a running system: the policy's weights by learning on, the reward's weights by feedback.

Learnt weights are kept beside the journal and found again on resuming; feedback reads what was decided since its last
step, is judged on held-out episodes, and can be taken back together with what was learnt from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.cluster.live import PolicyCall, SimulatedCluster
from attribution_sched.cluster.world import Attribute, Reward, World
from attribution_sched.errors import JournalError, SettingsError, problem
from attribution_sched.explain.explanation import Explanation
from attribution_sched.feedback.foresight import Revisit
from attribution_sched.feedback.loop import Feedback, FeedbackChange
from attribution_sched.feedback.rollback import Objective
from attribution_sched.feedback.targets import Targets
from attribution_sched.feedback.window import COMPARABLE, Outcome, Window
from attribution_sched.journal import DecisionRecord, EventRecord, FeedbackRecord, Journal, OutcomeRecord
from attribution_sched.scheduler.policy import Policy, twin
from attribution_sched.system import arguments
from attribution_sched.system.results import outcome_record

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.checkpoint import Weights
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo


# --- Weights of the policy ---

LEARNT = "learnt"
"""Kind of the journal's event for weights that were taken over."""

ORIGINAL = ""
"""Name of the weights a system began with."""


@dataclass(frozen=True, eq=False)
class Learnt:
    """What came of learning on.

    Attributes:
        improved: Whether other weights decide from now on.
        return_before: Mean held-out return of the weights that decided.
        return_after: Mean held-out return of the weights that decide now.
        decisions: Decisions learnt from.
        weights: Where the new weights are; None if nothing changed, or the journal is in memory.
        policy: Who decides now.
    """

    improved: bool
    return_before: float
    return_after: float
    decisions: int
    weights: Path | None
    policy: Policy


def learn(
    policy: Policy, world: World, decisions: int, journal: Journal, versions: Versions, options: Mapping[str, Any]
) -> Learnt:
    """Let Hi-PPO learn on in a world; see :func:`attribution_sched.scheduler.hi_ppo.online_learning.learn_on`.

    Raises:
        SettingsError: If the policy is not Hi-PPO, or a number is out of range.
    """
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
    from attribution_sched.scheduler.hi_ppo.online_learning import learn_on

    if not isinstance(policy, HiPpo):
        rule = "does not learn"
        raise SettingsError(problem("policy", policy.name, rule, "Make the system with policy='hi-ppo'"))
    arguments.known_options("train", learn_on, options)
    arguments.counted("decisions", decisions, least=1)
    arguments.seed_of(options.get("seed", 0))
    learnt = learn_on(policy.learnt, world, decisions, **options)
    if not learnt.improved:
        return Learnt(False, learnt.before, learnt.after, learnt.decisions, None, policy)
    name, weights = versions.new_name(), None
    if journal.path is not None:
        from attribution_sched.scheduler.hi_ppo.checkpoint import save

        weights = journal.path.with_name(name)
        save(weights, learnt.weights, {"started_from": "a running system", "decisions": learnt.decisions})
    better = with_weights(policy, learnt.weights)
    facts = {"decisions": learnt.decisions, "return_before": learnt.before, "return_after": learnt.after}
    versions.take_over(name, better, facts)
    return Learnt(True, learnt.before, learnt.after, learnt.decisions, weights, better)


def with_weights(policy: HiPpo, weights: Weights) -> HiPpo:
    """The same policy with other weights."""
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo

    return HiPpo(
        weights, attributor=policy.attributor, search=policy.search, widen=policy.widen, predict=policy.predict,
        wishes=policy.wishes, think=policy.think or False, deadline_s=policy.deadline_s, fallback=policy.fallback,
        clock=policy.clock,
    )  # fmt: skip


class Versions:
    """The weights a system decides by in its course, by name: those it began with, and those it learnt.

    Args:
        journal: Where a change of weights is recorded.
        original: Who decided at first.
    """

    def __init__(self, journal: Journal, original: Policy) -> None:
        self.current = self.anchored = ORIGINAL
        self._journal = journal
        self._events = [event for event in journal.events() if event.kind == LEARNT]
        self._taken_over = [(event.details["after_decisions"], event.details["weights"]) for event in self._events]
        self._learnt = sum(event.details["weights"] != ORIGINAL for event in self._events)
        self._kept: dict[str, Policy] = {ORIGINAL: original}

    def new_name(self) -> str:
        """A name for weights that are about to take over; it is also that of their file."""
        path = self._journal.path
        return f"{'' if path is None else path.name + '.'}learnt-{self._learnt}.safetensors"

    def take_over(self, name: str, policy: Policy, facts: Mapping[str, Any]) -> None:
        """Record that other weights decide from now on."""
        event = {"after_decisions": self._journal.count(), "weights": name, **facts}
        self._journal.record_event(EventRecord(LEARNT, event))
        self._taken_over.append((self._journal.count(), name))
        self._learnt += name not in self._kept
        self._kept[name] = policy
        self.current = name
        if self._journal.path is not None:
            # The others are read again should they ever be asked for.
            self._kept = {each: kept for each, kept in self._kept.items() if each in self._needed()}

    def anchor(self) -> None:
        """Remember who decides now as the last one known to be good."""
        self.anchored = self.current

    def restore(self) -> Policy | None:
        """Let the last one known to be good decide again; None if it does already."""
        if self.current == self.anchored:
            return None
        policy = self.policy(self.anchored)
        self.take_over(self.anchored, policy, {"restored": True})
        return policy

    def due(self, decisions: int) -> Policy | None:
        """The policy that took over before the decision of this number and after the last one asked about.

        Raises:
            JournalError: If its weights are gone.
        """
        policy: Policy | None = None
        while self._events and self._events[0].details["after_decisions"] <= decisions:
            name = self._events.pop(0).details["weights"]
            policy = self._kept[name] = self.policy(name)
            self.current = name
        return policy

    def at(self, number: int) -> str:
        """Name of the weights that took the decision of this number."""
        return next((name for count, name in reversed(self._taken_over) if count <= number), ORIGINAL)

    def _needed(self) -> set[str]:
        return {ORIGINAL, self.current, self.anchored}

    def policy(self, name: str) -> Policy:
        """Who decides by the weights of a name.

        Raises:
            JournalError: If they are gone.
        """
        if name in self._kept:
            return self._kept[name]
        from attribution_sched.scheduler.hi_ppo.checkpoint import load
        from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo

        original, path = self._kept[ORIGINAL], self._journal.path
        if path is None or not path.with_name(name).is_file() or not isinstance(original, HiPpo):
            rule = "the weights that decided from there on are not beside the journal"
            raise JournalError(problem("weights", name, rule, "Put the file back where the journal is"))
        return with_weights(original, load(path.with_name(name)))


# --- Weights of the reward ---

FEEDBACK = "feedback"
"""Kind of the journal's event for a step of feedback."""

SEED_STEP = 104_729
"""Added to a system's seed for every held-out episode: other days of the same world."""

Why = Callable[[str], Explanation | None]
"""Explains a decision; None if it cannot be explained."""


def targets_of(targets: Any) -> Targets | None:
    """What the user wants of the cluster: targets, a mapping by name, or nothing.

    Raises:
        SettingsError: If it is something else, or a target does not exist.
    """
    if targets is None or isinstance(targets, Targets):
        return targets
    if isinstance(targets, Mapping):
        return Targets.of(targets)
    fix = "For example targets={'utilisation_at_least': 0.85}"
    raise SettingsError(problem("targets", targets, "must be a mapping from target to number", fix))


class RewardFeedback:
    """Steps of feedback in one system.

    Args:
        journal: Where the system's decisions are; steps are recorded there, and earlier ones found again.
        world: Where it decides.
        seed: Of the system; held-out episodes take others.
        attribute: Who attributes the tasks of held-out episodes.
    """

    def __init__(self, journal: Journal, world: World, seed: int, attribute: Attribute | None = None) -> None:
        self._journal, self._world, self._seed, self._attribute = journal, world, seed, attribute
        self._feedback: Feedback | None = None
        self._rewards: list[tuple[int, Reward]] = []
        self.anchored_weights: str | None = None
        self.targets: Targets | None = None
        self._looked: list[int] | None = None
        self.seen = 0
        for event in journal.events():
            if event.kind == FEEDBACK:
                self._remember(event.details)

    def _remember(self, event: Mapping[str, Any]) -> None:
        user = Reward(**event["user_reward"])
        self._feedback = Feedback.from_dict(user, event["state"])
        self.seen, self.targets = event["after_decisions"], Targets.of(event["targets"])
        self._rewards.append((self.seen, self._feedback.reward))
        self._looked = event["held_out"] or self._looked
        if event["anchored"]:
            self.anchored_weights = event["weights"]

    def in_force(self, decisions: int, otherwise: Reward) -> Reward:
        """The reward after a number of decisions, as far as feedback set it."""
        return next((reward for count, reward in reversed(self._rewards) if count <= decisions), otherwise)

    def set_at(self, decisions: int) -> bool:
        """Whether the last step was taken after exactly so many decisions."""
        return bool(self._rewards) and self._rewards[-1][0] == decisions

    def window(self, most: int, explain: Why | None) -> Window:
        """Plans that were put in force since the last step, and why.

        Args:
            most: How many of them to have explained, spread over the window; what was explained before counts too.
            explain: Explains one.
        """
        entries = self._placed()
        if not entries:
            rule = "no plan was put in force since the last step of feedback"
            raise SettingsError(problem("feedback", f"after decision {self.seen}", rule, "Schedule some tasks first"))
        explanations: dict[str, Explanation] = {}
        for decision, _ in entries:
            comparable = [each for each in self._journal.explanations(decision.id) if each.target in COMPARABLE]
            if comparable:
                explanations[decision.id] = Explanation.from_dict(comparable[0].explanation)
        if explain is not None:
            # Which ones follows from the window alone: a step that was cut short explains the same when it is repeated.
            for name in _spread([decision.id for decision, _ in entries], most):
                told_now = None if name in explanations else explain(name)
                if told_now is not None:
                    explanations[name] = told_now
        return Window.of(_outcomes(entries), explanations, self._span_s())

    def explained(self, most: int) -> list[str]:
        """Decisions that :meth:`window` has explained."""
        return _spread([decision.id for decision, _ in self._placed()], most)

    def _placed(self) -> list[tuple[DecisionRecord, OutcomeRecord | None]]:
        return [pair for pair in self._journal.entries(self.seen) if pair[1] is not None and pair[1].code > 0]

    def _span_s(self) -> float | None:
        """Time on the cluster's clock from the last step's decision to the newest one."""
        first = next(iter(islice(self._journal.decisions(max(0, self.seen - 1)), 1)), None)
        last = self._journal.last()
        if first is None or last is None:
            return None
        began_s = first.cluster_time_s if self.seen else 0.0
        return max(0.0, last.cluster_time_s - began_s) or None

    def step(
        self,
        window: Window,
        targets: Targets,
        reward: Reward,
        weights: str,
        held_out: tuple[int, int, Callable[[Objective], list[float]]] | None,
        revisit: Revisit | None = None,
    ) -> FeedbackChange:
        """Take a step and record it, all of it or nothing.

        Args:
            window: What to read.
            targets: What is to be reached.
            reward: In force now. If it is not what feedback left, the user set it: feedback begins anew from there.
            weights: Name of the weights that decide now.
            held_out: How many held-out episodes of how many decisions, and what plays and scores them by an objective;
                None leaves changes unjudged.
            revisit: Asks explained decisions again with other weights.
        """
        looked = None if held_out is None else list(held_out[:2])
        feedback = self._feedback
        if feedback is None or feedback.reward != reward:
            feedback = Feedback(reward)
            feedback.state = replace(feedback.state, number=len(self._journal.feedback()))
        else:
            state = feedback.state
            if targets != self.targets or (looked is not None and looked != self._looked):
                # Other episodes, or worth something else: what earlier ones were worth judges nothing any more.
                state = replace(state, anchor=None, pending=(), trial=0, falls=0)
            feedback = Feedback(feedback.user_reward, feedback.settings, state)
        objective = Objective(feedback.user_reward, targets)
        change = feedback.step(window, targets, None if held_out is None else held_out[2](objective), revisit)
        event = {
            "after_decisions": self._journal.count(), "kind": change.kind, "reason": change.reason,
            "reason_zh": change.reason_zh, "targets": targets.named(), "evidence": change.evidence,
            "user_reward": asdict(feedback.user_reward), "state": feedback.to_dict(), "anchored": change.anchored,
            "weights": weights, "held_out": looked,
        }  # fmt: skip
        records = change.records()
        with self._journal.batch(len(records) + 2):
            for record in records:
                self._journal.record_feedback(FeedbackRecord(**record))
            self._journal.record_event(EventRecord(FEEDBACK, event))
        self._remember(event)
        return change

    def play(
        self,
        policy: Policy,
        reward: Reward,
        objective: Objective,
        episodes: int,
        decisions: int,
        progress: Callable[[int], None] | None = None,
    ) -> list[float]:
        """Worth of held-out episodes, which are the same at every step.

        Args:
            policy: Who decides; a copy of it does.
            reward: Weights in force.
            objective: What an episode is worth.
            episodes: How many.
            decisions: Of each episode.
            progress: Told the number of decisions taken.
        """
        scores = []
        for episode in range(episodes):
            seed = self._seed + SEED_STEP * (episode + 1)
            scores.append(objective.score(self._episode(twin(policy), reward, seed, decisions, progress)))
        return scores

    def _episode(
        self, policy: Policy, reward: Reward, seed: int, decisions: int, progress: Callable[[int], None] | None
    ) -> Window:
        cluster, call = SimulatedCluster(self._world, seed, attribute=self._attribute), PolicyCall()
        outcomes: list[Outcome] = []
        taken = 0
        # An episode is as long as asked for, or until something was placed in it: else it would be worth nothing.
        while (taken < decisions or not outcomes) and taken < 20 * decisions and cluster.advance():
            asked = call.ask(policy, cluster, reward)
            effect = cluster.carry_out(cluster.encode(asked.plan, asked.view.kind_index))
            call.note(asked)
            taken += 1
            if progress is not None:
                progress(1)
            if effect.code > 0:
                outcome = Outcome.of(outcome_record(f"held-out {taken}", effect, asked.view, 0.0))
                outcomes += [] if outcome is None else [outcome]
        return Window(tuple(outcomes), span_s=cluster.now_s or None)


def _outcomes(entries: Iterable[tuple[DecisionRecord, OutcomeRecord | None]]) -> list[OutcomeRecord]:
    return [outcome for _, outcome in entries if outcome is not None]


def _spread(names: list[str], most: int) -> list[str]:
    """So many of them, at equal distances."""
    count = min(max(most, 0), len(names))
    return [names[(2 * i + 1) * len(names) // (2 * count)] for i in range(count)]
