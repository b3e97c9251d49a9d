"""The policy that does best where it is used: shipped policies play the user's own world, and the best one decides.

Which policy is best depends on the world: short jobs on one node, models that no domain holds, long queues. So before
its first decision ``auto`` plays each contender through the same days of the decision's world, in simulation, takes the
one with the largest mean return and says so: :attr:`Auto.table`, and one line in the log, on the console of ``run``
and in ``System.status()``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import World
from attribution_sched.errors import SettingsError, problem
from attribution_sched.scheduler.policy import AttributionReader, Episodic, Hurried, Policy, QueueOrder, Recallable
from attribution_sched.stats.interval import standard_error
from attribution_sched.types import FloatArray

CONTENDERS = ("sjf", "least-loaded", "greedy", "exact-switch", "rule", "rule+fork", "hi-ppo")
"""Who plays by default."""

PACKERS = ("lucid", "pair-learner", "gavel-sharing")
"""Who plays beside them where jobs were measured on shared devices."""

DAYS = 3
HOURS = 24.0
"""How long each plays: so many days, of at most so many hours, or the world's own episode if that is shorter.

Days begin empty, and short ones flatter who does well while the cluster fills: in 8 hours of ``cross-domain`` whoever
never cuts a model is level with the best, over whole days 23 behind.
"""

FIRST_SEED = 860_000
"""Seed of the first day."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Contender:
    """How one policy did.

    Attributes:
        policy: Its name.
        reward: Mean return of a day.
        error: Standard error of the difference to the best one; 0 for the best.
    """

    policy: str
    reward: float
    error: float


class Auto:
    """Decides as the contender does that earns most in the decision's own world.

    Args:
        contenders: Names of policies; :data:`CONTENDERS` by default, and :data:`PACKERS` where measured jobs may share
            devices.
        days: How many days each plays; all play the same ones.
        hours: Longest day.
        seed: Of the first day.
    """

    name = "auto"
    pairs = True
    """It must be told of neighbours: who was chosen may put tasks beside them."""

    def __init__(
        self, contenders: Sequence[str] | None = None, *, days: int = DAYS, hours: float = HOURS, seed: int = FIRST_SEED
    ) -> None:
        from attribution_sched.scheduler.registry import policy_spec

        given = None if contenders is None else tuple(contenders)
        if given is not None and (not given or self.name in given):
            rule = "must be names of other policies, at least one"
            raise SettingsError(problem("contenders", given, rule, "Use sjf, rule and hi-ppo"))
        if days < 1 or not hours > 0.0:
            raise SettingsError(problem("days, hours", (days, hours), "must be >= 1 and > 0", "Use 3 and 24"))
        for name in given or CONTENDERS:
            policy_spec(name)
        self.contenders, self.days, self.hours, self.seed = given, days, hours, seed
        self.table: tuple[Contender, ...] = ()
        self.chosen: Policy | None = None
        self._memory: Mapping[str, FloatArray] | None = None
        self._deadline_s: float | None = None

    def choose(self, world: World) -> Policy:
        """Play the contenders in a world and take the best; the table is kept."""
        from attribution_sched.scheduler.episode import play
        from attribution_sched.scheduler.registry import make_policy

        short = replace(world, horizon_s=min(world.horizon_s, 3600.0 * self.hours))
        returns = {}
        shared = world.share_limit > 1 and any(kind.opaque for kind in world.kinds)
        for name in self.contenders or (*CONTENDERS, *(PACKERS if shared else ())):
            policy = make_policy(name)
            returns[name] = np.array([play(short, policy, self.seed + day).reward for day in range(self.days)])
        best = max(returns, key=lambda name: float(returns[name].mean()))
        self.table = tuple(
            sorted(
                (Contender(name, float(own.mean()), _error(own - returns[best])) for name, own in returns.items()),
                key=lambda row: -row.reward,
            )
        )
        _logger.info("%s", self.told)
        self.chosen = make_policy(best)
        if self._deadline_s is not None and isinstance(self.chosen, Hurried):
            self.chosen.deadline_s = self._deadline_s
        self._hand_over()
        return self.chosen

    @property
    def told(self) -> str:
        """Who was taken, and the table, in a line; empty before the first decision."""
        if not self.table:
            return ""
        rows = ", ".join(
            f"{row.policy} {row.reward:.1f}" + (f" (± {row.error:.1f})" if row.error else "") for row in self.table
        )
        return f"auto takes {self.table[0].policy}: mean return of {self.days} days in the twin of this world: {rows}"

    @property
    def deadline_s(self) -> float:
        """How long the chosen policy may take, if it looks at a clock."""
        from attribution_sched.scheduler.hi_ppo.coordinator import COORDINATION_LIMIT_S

        policy: object = self.chosen
        if isinstance(policy, Hurried):
            return policy.deadline_s
        return COORDINATION_LIMIT_S if self._deadline_s is None else self._deadline_s

    @deadline_s.setter
    def deadline_s(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        policy: object = self.chosen
        if isinstance(policy, Hurried):
            policy.deadline_s = deadline_s

    def reset(self, seed: int) -> None:
        """Forget the last episode; who was chosen stays."""
        policy: object = self.chosen
        if isinstance(policy, Episodic):
            policy.reset(seed)

    def select(self, view: Decision) -> int:
        """Which waiting task goes first."""
        policy = self._policy(view)
        return policy.select(view) if isinstance(policy, QueueOrder) else view.slot

    def decide(self, view: Decision) -> Plan | None:
        """Place, defer, move or keep the task of the view."""
        return self._policy(view).decide(view)

    def attributions(self, counters: FloatArray) -> FloatArray:
        """As the contenders' weights have learnt to read them."""
        from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo

        reader = self.chosen if isinstance(self.chosen, AttributionReader) else HiPpo()
        return reader.attributions(counters)

    def memory(self) -> dict[str, FloatArray]:
        """What the chosen policy remembers."""
        policy: object = self.chosen
        return policy.memory() if isinstance(policy, Recallable) else {}

    def recall(self, memory: Mapping[str, FloatArray]) -> None:
        """Remember that."""
        self._memory = memory
        self._hand_over()

    def _hand_over(self) -> None:
        policy: object = self.chosen
        if self._memory is not None and isinstance(policy, Recallable):
            policy.recall(self._memory)

    def _policy(self, view: Decision) -> Policy:
        if self.chosen is None:
            if view.moment is None:
                rule = "is needed to know the world that policies are tried in"
                raise SettingsError(problem("decision.moment", None, rule, "Name a policy instead of auto"))
            return self.choose(view.moment.world)
        return self.chosen


def _error(apart: FloatArray) -> float:
    return float(standard_error(apart)) if len(apart) > 1 else 0.0
