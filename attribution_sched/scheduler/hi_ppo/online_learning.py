"""Learning that goes on while the policy is in use: small steps from the weights that decide, never for the worse."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from attribution_sched.cluster.world import World
from attribution_sched.errors import SettingsError, problem
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch, stagger
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor
from attribution_sched.scheduler.hi_ppo.held_out import FIRST_SEED, HeldOut, Measured
from attribution_sched.scheduler.hi_ppo.learning import Budget, Learning, Report
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork
from attribution_sched.scheduler.hi_ppo.policy_search import Days, Search, next_group
from attribution_sched.scheduler.hi_ppo.runtime_estimate import paces_of
from attribution_sched.scheduler.hi_ppo.trainer import HiPpoSettings, Trainer
from attribution_sched.scheduler.hi_ppo.upper_agent import SCALES, rule_theta
from attribution_sched.types import FloatArray

MOST_CLUSTERS = 10_000

GROUP, NEAR = 8, 0.2
"""Members of a group of corrections, and how far they spread: small steps from what decides."""


@dataclass(frozen=True, eq=False)
class Continued:
    """What came of learning on.

    Attributes:
        network: The better of the networks before and after, by held-out return.
        before: Held-out returns of the network that was given.
        after: Held-out returns of ``network``.
        improved: Whether ``network`` differs from the one that was given.
        decisions: Decisions taken to learn.
    """

    network: HiPpoNetwork
    before: Measured
    after: Measured
    improved: bool
    decisions: int


def learn_on(
    network: HiPpoNetwork,
    world: World,
    decisions: int,
    settings: HiPpoSettings | None = None,
    *,
    lr_share: float = 0.1,
    clusters: int = 32,
    seed: int = 0,
    first_seed: int = 0,
    episodes: int = 32,
    every: int = 5,
    progress: Callable[[Report], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Continued:
    """Let a copy of weights that are in use learn on in a world, and give back the better of the two.

    Args:
        network: What decides now; it is not touched.
        world: Where it decides.
        decisions: Decisions to learn from.
        settings: How; the defaults of the specification if none are given.
        lr_share: Learning rate as a share of that of the settings.
        clusters: Simulated clusters side by side.
        seed: Of choices and minibatches.
        first_seed: Of the clusters.
        episodes: Held-out episodes that judge.
        every: Iterations between two measurements.
        progress: Told how far it has come.
        stop: Asked after every iteration; True ends it.

    Raises:
        SettingsError: If a number is out of range.
    """
    if decisions < 1:
        raise SettingsError(problem("decisions", decisions, "must be >= 1", "Give it something to learn from"))
    if not 1 <= clusters <= MOST_CLUSTERS:
        raise SettingsError(problem("clusters", clusters, f"must lie in 1..{MOST_CLUSTERS}", "Use for example 32"))
    if not 0.0 < lr_share <= 1.0:
        raise SettingsError(problem("lr_share", lr_share, "must be > 0 and at most 1", "Use for example 0.1"))
    if network.theta is not None:
        return _agents_learn_on(network, world, decisions, clusters, seed + first_seed, episodes, progress, stop)
    how = settings or HiPpoSettings()
    steps = min(how.ppo.num_steps, max(decisions, clusters))
    smaller = min(how.ppo.minibatch_size, steps)
    how = replace(how, ppo=replace(how.ppo, lr=how.ppo.lr * lr_share, num_steps=steps, minibatch_size=smaller))
    learner = copy.deepcopy(network)
    paces = paces_of(network, world.kinds)
    field = ClusterBatch(world, min(clusters, steps), first_seed, network.attributions, "deployed", paces=paces)
    trainer = Trainer(learner, [field], how, seed)
    stagger(field, NetworkActor(learner, trainer.generator))
    weights: dict[str, Tensor] = {}

    def keep() -> None:
        weights.update({name: tensor.clone() for name, tensor in learner.state_dict().items()})

    held_out = HeldOut(world, episodes, network.attributions, paces)
    learning = Learning(trainer, held_out, Budget(decisions, math.inf), every, keep=keep, progress=progress)
    before, best = learning.run(stop or (lambda: False))
    learner.load_state_dict(weights)
    return Continued(learner.eval(), before, best.measured, best.iteration > 0, trainer.decisions)


def _agents_learn_on(
    network: HiPpoNetwork, world: World, decisions: int, clusters: int, seed: int, episodes: int,
    progress: Callable[[Report], None] | None, stop: Callable[[], bool] | None,
) -> Continued:  # fmt: skip
    """Let the agents learn on in whole days of a world; a gain counts only beyond its interval on held-out days."""
    own = rule_theta() if network.theta is None else network.theta
    days, judged = Days(world, clusters, network), Days(world, episodes, network)
    search = replace(Search.begun(), mean=(own - rule_theta()) / SCALES, step=NEAR)
    while days.decided < decisions and not (stop is not None and stop()):
        first = seed + search.groups * clusters

        def worth(theta: FloatArray, first: int = first) -> float:
            return float(days.returns(theta, first).mean())

        search = next_group(search, worth, GROUP, seed)
        if progress is not None:
            share = min(1.0, days.decided / decisions)
            progress(Report("learning", share, search.groups, days.decided, None, None, None, None))
    before, after = judged.returns(own, FIRST_SEED), judged.returns(search.theta, FIRST_SEED)
    gain = after - before
    improved = bool(gain.mean() > 1.96 * gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else False
    learner = copy.deepcopy(network)
    if improved:
        learner.set_agents(search.theta)
    first_returns = Measured(tuple(before.tolist()))
    now = Measured(tuple(after.tolist())) if improved else first_returns
    return Continued(learner.eval(), first_returns, now, improved, days.decided)
