"""What really follows a decision when inputs are replaced: the truth that Q_c(s, a) is judged by, and can learn from.

States are put together for every coalition of four groups of inputs
(:mod:`~research.composing`); in each the decision's plan is carried out and the network goes
on deciding. Coalitions with the same background state share their random numbers, so what differs between them is the
inputs and not luck.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from attribution_sched.cluster.world import World
from attribution_sched.coalitions import all_masks, shapley_matrix
from attribution_sched.errors import PlanError, SettingsError, problem
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor, look
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork
from attribution_sched.scheduler.hi_ppo.outcomes import plan_features, reprice
from attribution_sched.scheduler.hi_ppo.runtime_estimate import paces_of
from research.composing import GROUPS, Kept, compose, endless, keep_states, own_forecasts

FloatArray = NDArray[np.float64]
Float32Array = NDArray[np.float32]
IntArray = NDArray[np.int64]

GAMMA = 0.99
"""Discount per decision, the critics'."""

CLUSTERS = 24
EVERY = 9
"""Of a rollout's first half every ninth decision is kept to learn from."""

_PLACED = 1


@dataclass(frozen=True, eq=False)
class Rolled:
    """Rollouts of D decisions with M background states and 16 coalitions each, T decisions long.

    Attributes:
        inputs: What the critic was told at some decisions, the composed one first, shape ``(L, D, M, 16, F)``.
        at: Which decisions of the rollouts these are, shape ``(L,)``.
        rewards: Reward components between decisions in units of the critics, shape ``(T, D, M, 16, 3)``.
    """

    inputs: Float32Array
    at: IntArray
    rewards: FloatArray

    @property
    def returns(self) -> FloatArray:
        """Discounted sums of the rewards, what comes after the rollout left out, shape ``(D, M, 16, 3)``."""
        found: FloatArray = np.tensordot(GAMMA ** np.arange(len(self.rewards)), self.rewards, axes=1)
        return found

    def targets(self) -> FloatArray:
        """What is earned from the kept decisions on, with the usual reward after the rollout, ``(L, D, M, 16, 3)``."""
        steps = len(self.rewards)
        value = self.rewards[steps // 2 :].mean(axis=(0, 1, 2, 3)) / (1.0 - GAMMA)
        found = np.zeros((len(self.at), *self.rewards.shape[1:]))
        for t in range(steps - 1, -1, -1):
            value = self.rewards[t] + GAMMA * value
            found[self.at == t] = value
        return found


def roll_out(
    network: HiPpoNetwork,
    world: World,
    decisions: int,
    states: int,
    steps: int,
    seed: int,
    together: int = 8,
) -> Rolled:
    """Roll out decisions of a world with inputs replaced.

    Args:
        network: Who decides.
        world: Where; its day does not end.
        decisions: Placements, drawn from states of clusters that ran for a while; fewer if there are not so many.
        states: Background states for each; only such in which its plan fits are drawn.
        steps: Decisions per rollout, at least 2.
        seed: Of the first cluster and of all draws.
        together: Decisions whose rollouts run side by side.
    """
    if min(decisions, states, together) < 1 or steps < 2:
        rule = "must be >= 1, steps >= 2"
        given = (decisions, states, together, steps)
        raise SettingsError(problem("decisions, states, together, steps", given, rule, "Use 48, 4, 8 and 120"))
    world, rng = endless(world), np.random.default_rng(seed)
    with one_thread():
        bank = keep_states(network, world, CLUSTERS, max(4, -(-3 * decisions // CLUSTERS)), seed)
        fitting = [
            (own, [other for other in bank if other is not own and own.fits_into(other, world)])
            for own in bank
            if own.action is not None
        ]
        able = [(own, others) for own, others in fitting if len(others) >= states]
        chosen = [able[i] for i in rng.permutation(len(able))[:decisions]]
        if not chosen:
            rule = f"no placement fits {states} other states"
            raise SettingsError(problem("states", states, rule, "Use fewer background states, or another world"))
        size = min(together, len(chosen))
        paces = paces_of(network, world.kinds)
        field = ClusterBatch(world, 2 ** len(GROUPS) * states * size, seed, network.attributions, paces=paces)
        parts = [_roll(network, field, chosen[i : i + size], states, steps, rng) for i in range(0, len(chosen), size)]
    joined = (np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("inputs", "rewards"))
    inputs, rewards = joined
    return Rolled(inputs, parts[0].at, rewards)


def _roll(
    network: HiPpoNetwork,
    field: ClusterBatch,
    chosen: list[tuple[Kept, list[Kept]]],
    states: int,
    steps: int,
    rng: np.random.Generator,
) -> Rolled:
    masks = all_masks(len(GROUPS))
    rows = len(masks) * states
    # A last, smaller part leaves clusters over; they repeat the last decision.
    owns = [chosen[min(i, len(chosen) - 1)] for i in range(field.clusters // rows)]
    actions = np.empty_like(field._idle)
    own_forecasts(field)
    e = 0
    for own, others in owns:
        alike = np.flatnonzero(field.engine.pool.kinds == own.kind)
        for at in rng.choice(len(others), states, replace=False):
            instance, luck = int(rng.choice(alike)), int(rng.integers(2**31))
            for present in masks:
                compose(field, e, own, others[at], instance, present, luck)
                actions[e] = _action(own)
                e += 1
    for i in range(e):
        code = field.engine.probe(i, actions[i : i + 1])["code"][0]
        if code != _PLACED:
            rule = f"was refused (code {int(code)}) in a state it should fit"
            raise PlanError(problem("plan", i, rule, "Use a world without power budgets"))
    told = [_composed_inputs(network, field, [own for own, _ in owns], rows)]
    _, terms = field.engine.step(actions)
    paid = [(terms + field._settle(np.arange(e))[1]) / field.scale]
    kept = [0, *range(3, steps // 2, EVERY)]
    for t in range(1, steps):
        chooser = NetworkActor(network, None)
        move = field.step(chooser)
        paid.append(move.terms)
        if t in kept:
            assert chooser.seen is not None
            both = torch.cat([chooser.seen.shared, chooser.seen.context], dim=-1).cpu().numpy()
            told.append(np.concatenate([both, move.decoded.trace.plans], axis=1))
    shape = (len(chosen), states, len(masks))
    count = len(chosen) * rows
    inputs = np.stack(told)[:, :count].astype(np.float32)
    rewards = np.stack(paid)[:, :count]
    return Rolled(inputs.reshape(len(kept), *shape, -1), np.array(kept), rewards.reshape(steps, *shape, -1))


def _action(own: Kept) -> IntArray:
    if own.action is None:
        raise PlanError(problem("decision", own.slot, "did not place its task", "Roll out placements"))
    return own.action


@torch.no_grad()
def _composed_inputs(network: HiPpoNetwork, field: ClusterBatch, owns: list[Kept], rows: int) -> Float32Array:
    """What the critic is told of composed states and the plans carried out in them."""
    planner, decisions = field.planner, field.decisions()
    seen_as, _ = planner.describe(decisions)
    seen = look(network, seen_as, (decisions.slot == 0).argmax(axis=1))
    both = torch.cat([seen.shared, seen.context], dim=-1).cpu().numpy()
    plans = []
    for i, own in enumerate(owns):
        links = decisions.links[i * rows : (i + 1) * rows]
        prices = reprice(planner.tables, own.kind, own.plan, links, np.ones((rows, 3)))
        plans.append(plan_features(planner.tables, own.kind, own.plan, prices, np.zeros(rows))[:, 0])
    found: Float32Array = np.concatenate([both, np.concatenate(plans)], axis=1)
    return found


@torch.no_grad()
def critic_values(network: HiPpoNetwork, inputs: Float32Array) -> FloatArray:
    """Q_c of what the critic is told, shape ``(…, 3)``."""
    device = next(network.parameters()).device
    found = network.action_value(torch.from_numpy(inputs).to(device))
    values: FloatArray = found.cpu().numpy().astype(np.float64)
    return values


def group_shares(values: FloatArray) -> FloatArray:
    """Shapley values of the four groups, shape ``(D, 4, 3)``, of values ``(D, M, 16, 3)`` averaged over states."""
    found: FloatArray = np.einsum("cp,dcr->dpr", shapley_matrix(len(GROUPS)), values.mean(axis=1))
    return found
