"""The user's objective: the reward as first given, less what missed targets cost. Feedback never changes it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from attribution_sched.cluster.reward import total_of
from attribution_sched.cluster.world import Reward
from attribution_sched.errors import SettingsError, problem
from attribution_sched.feedback.targets import Targets
from attribution_sched.feedback.weights import WEIGHTS
from attribution_sched.feedback.window import Window


@dataclass(frozen=True)
class Objective:
    """``U = w_eff·R_eff + w_util·R_util − w_cost·R_cost − penalty · Σ_t max(0, violation_t)``.

    Attributes:
        reward: The user's own weights.
        targets: What is to be reached.
        penalty: Price of missing a target by all of its size.
    """

    reward: Reward
    targets: Targets
    penalty: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.penalty) and self.penalty >= 0):
            raise SettingsError(problem("penalty", self.penalty, "must be finite and >= 0", "Use 1"))

    def score(self, window: Window) -> float:
        """Worth of the decisions of a window, such as one held-out episode."""
        own = float(total_of(window.terms(), [getattr(self.reward, name) for name in WEIGHTS]).mean())
        missed = [max(0.0, self.targets.violation(name, window.measure(name).value)) for name in self.targets.named()]
        return own - self.penalty * sum(missed)
