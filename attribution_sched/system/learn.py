"""A system that changes while it runs: the policy learns on, feedback reshapes the reward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.cluster.world import Reward
from attribution_sched.errors import AttributionSchedError, SettingsError, problem
from attribution_sched.explain.memory import QUICK
from attribution_sched.system import arguments
from attribution_sched.system.reward_feedback import RewardFeedback, targets_of
from attribution_sched.system.transaction import Reshaping
from attribution_sched.system.weight_versions import ORIGINAL, Learnt, Versions, learn

if TYPE_CHECKING:
    from attribution_sched.explain.explanation import Explanation
    from attribution_sched.feedback.loop import FeedbackChange
    from attribution_sched.feedback.window import DecisionOutcome as Expected
    from attribution_sched.system.system import Progress, System


class Learn:
    """Learning and feedback of a system.

    Args:
        system: Whose policy and reward.
    """

    def __init__(self, system: System) -> None:
        self.system = system

    def train(self, /, decisions: int = 4096, **options: Any) -> Learnt:
        """Let the policy learn on in this world, by the reward in force.

        The better weights, by held-out return, decide from then on.

        Args:
            decisions: Decisions to learn from, in simulated clusters of their own.
            **options: As for :func:`attribution_sched.scheduler.hi_ppo.online_learning.learn_on`.

        Raises:
            SettingsError: If the policy does not learn.
        """
        with self.system.call():
            world = replace(self.system.world, reward=self.system.reward)
            self.system.transaction.work = Reshaping()
            learnt = learn(self.system.policy, world, decisions, self.system.journal, self.system.versions, options)
            self.system.adopt(learnt.policy if learnt.improved else None)
            self.system.transaction.work = None
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
        with self.system.call():
            wanted = targets_of(targets) or self.system.targets
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
                    return self.system.questions.explain(name, target="terms", **QUICK)
                except AttributionSchedError:
                    return None

            window = self.system.reward_feedback.window(explain, why if explain else None)
            tell(max(0, explain - done))
            play = partial(self.system.reward_feedback.play, self.system.policy, self.system.reward, progress=tell)
            worth = partial(play, episodes=episodes, decisions=decisions)
            held_out = (episodes, decisions, worth) if episodes else None
            revisit = partial(self.revisit, self.system.reward_feedback.explained(explain)) if explain else None
            self.system.transaction.work = Reshaping()
            # As one: a process that is killed in between must not leave a reward taken back, and its weights not.
            with self.system.journal.as_one():
                change = self.system.reward_feedback.step(
                    window, wanted, self.system.reward, self.system.versions.current, held_out, revisit
                )
                if change.anchored:
                    self.system.versions.anchor()
                elif change.kind == "rolled back":
                    # Taking back a reward does not take back what was learnt from it.
                    self.system.adopt(self.system.versions.restore())
            self.system.reward, self.system.targets = change.reward, wanted
            self.system.transaction.work = None
            return change

    def revisit(self, names: Sequence[str], rewards: Sequence[Reward]) -> list[list[Expected | None]]:
        """What decisions would have come to, had they been made with other rewards."""
        from attribution_sched.explain.alternatives import with_weights
        from attribution_sched.feedback.window import DecisionOutcome as Expected

        weights = np.array([(each.w_eff, each.w_util, each.w_cost) for each in rewards])
        expected: list[list[Expected | None]] = []
        for name in names:
            try:
                with self.system.questions.about(name) as (decided, memory):
                    view, answers = decided.view, with_weights(memory.looks(), decided, weights)
            except AttributionSchedError:
                expected.append([None] * len(rewards))
                continue
            known = {"base_step_s": float(view.base_step_s[view.kind_index]), "steps": view.steps_left}
            expected.append([None if one is None else Expected(**asdict(one), **known) for one in answers])
        return expected

    def reload(self) -> None:
        """Take over from the journal what feedback or learning had recorded when they were cut short."""
        system = self.system
        original = system.versions.policy(ORIGINAL)
        system.versions = Versions(system.journal, original)
        system.reward_feedback = RewardFeedback(system.journal, system.world, system.seed, system.attribute)
        number = system.journal.count()
        system.adopt(system.versions.due(number))
        system.reward = system.reward_feedback.in_force(number, system.reward)
        system.targets = system.reward_feedback.targets or system.targets
        anchored = system.reward_feedback.anchored_weights
        system.versions.anchored = system.versions.current if anchored is None else anchored
        system.transaction.work = None
