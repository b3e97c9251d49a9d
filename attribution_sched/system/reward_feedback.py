"""Steps of feedback in one system.

Feedback reads what was decided since its last step, is judged on held-out episodes, and can be taken back together
with what was learnt from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from attribution_sched.cluster.live import PolicyCall, SimulatedCluster
from attribution_sched.cluster.world import Attribute, Reward, World
from attribution_sched.errors import SettingsError, problem
from attribution_sched.explain.explanation import Explanation
from attribution_sched.feedback.foresight import Revisit
from attribution_sched.feedback.loop import Feedback, FeedbackChange
from attribution_sched.feedback.rollback import Objective
from attribution_sched.feedback.targets import Targets
from attribution_sched.feedback.window import COMPARABLE, DecisionOutcome, Window
from attribution_sched.journal import DecisionRecord, EventRecord, FeedbackRecord, Journal, OutcomeRecord
from attribution_sched.scheduler.policy import Policy, twin
from attribution_sched.system.decision_records import outcome_record

if TYPE_CHECKING:
    pass

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
        outcomes: list[DecisionOutcome] = []
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
                outcome = DecisionOutcome.of(outcome_record(f"held-out {taken}", effect, asked.view, 0.0))
                outcomes += [] if outcome is None else [outcome]
        return Window(tuple(outcomes), span_s=cluster.now_s or None)


def _outcomes(entries: Iterable[tuple[DecisionRecord, OutcomeRecord | None]]) -> list[OutcomeRecord]:
    return [outcome for _, outcome in entries if outcome is not None]


def _spread(names: list[str], most: int) -> list[str]:
    """So many of them, at equal distances."""
    count = min(max(most, 0), len(names))
    return [names[(2 * i + 1) * len(names) // (2 * count)] for i in range(count)]
