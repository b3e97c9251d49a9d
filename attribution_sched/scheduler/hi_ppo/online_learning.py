"""Learning that goes on while the policy is in use: small steps from the agents that decide, never for the worse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from attribution_sched.cluster.world import World
from attribution_sched.errors import SettingsError, problem
from attribution_sched.scheduler.hi_ppo.checkpoint import Weights
from attribution_sched.scheduler.hi_ppo.hi_ppo import HELD_OUT
from attribution_sched.scheduler.hi_ppo.policy_search import Days, Search, next_group
from attribution_sched.types import FloatArray

MOST_DAYS = 10_000

GROUP, NEAR = 8, 0.2
"""Members of a group of corrections, and how far they spread: small steps from what decides."""


@dataclass(frozen=True, eq=False)
class Continued:
    """What came of learning on.

    Attributes:
        weights: Those that were given, or better ones.
        before: Mean held-out return of the weights that were given.
        after: Mean held-out return of ``weights``.
        improved: Whether they differ: the gain exceeds its interval.
        decisions: Decisions taken to learn.
    """

    weights: Weights
    before: float
    after: float
    improved: bool
    decisions: int


def learn_on(
    weights: Weights,
    world: World,
    decisions: int,
    *,
    days: int = 32,
    episodes: int = 32,
    seed: int = 0,
    progress: Callable[[float, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Continued:
    """Let agents that are in use learn on in whole days of a world; a gain counts only beyond its interval.

    Args:
        weights: What decides now; it is not touched.
        world: Where it decides.
        decisions: Decisions to learn from.
        days: Simulated days side by side.
        episodes: Held-out days that judge.
        seed: Of draws and of the days.
        progress: Told the share that is done, and the decisions.
        stop: Asked after every group; True ends it.

    Raises:
        SettingsError: If a number is out of range.
    """
    if decisions < 1:
        raise SettingsError(problem("decisions", decisions, "must be >= 1", "Give it something to learn from"))
    for name, value in (("days", days), ("episodes", episodes)):
        if not 1 <= value <= MOST_DAYS:
            raise SettingsError(problem(name, value, f"must lie in 1..{MOST_DAYS}", "Use for example 32"))
    played, judged = Days(world, days, weights), Days(world, episodes, weights)
    search = replace(Search.begun(weights.theta), step=NEAR)
    while played.decided < decisions and not (stop is not None and stop()):
        first = 10_000 * (seed % 80) + search.groups * days

        def worth(theta: FloatArray, first: int = first) -> float:
            return float(played.returns(theta, first).mean())

        search = next_group(search, worth, GROUP, seed)
        if progress is not None:
            progress(min(1.0, played.decided / decisions), played.decided)
    before, after = judged.returns(weights.theta, HELD_OUT), judged.returns(search.theta, HELD_OUT)
    gain = after - before
    improved = bool(gain.mean() > 1.96 * gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else False
    better = weights.with_agents(search.theta) if improved else weights
    mean = float(before.mean())
    return Continued(better, mean, float(after.mean()) if improved else mean, improved, played.decided)
