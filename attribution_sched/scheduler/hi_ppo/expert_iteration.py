"""Rounds of comparing and preferring, each kept only if held-out episodes do not suffer."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.cloning import Lesson
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch, stagger
from attribution_sched.scheduler.hi_ppo.counterfactual_rollouts import Comparison, compare, prefer
from attribution_sched.scheduler.hi_ppo.decode import Actor
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor
from attribution_sched.scheduler.hi_ppo.held_out import HeldOut
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork

COPIES = 192
"""Copies of clusters that are played side by side."""

BETWEEN = 3
"""Decisions of a cluster from one comparison to the next."""


@dataclass(frozen=True)
class Round:
    """One round.

    Attributes:
        number: Counted from 1.
        compared: Decisions compared so far.
        worth: Worth the network expected of itself among the choices compared, in units, at the end.
        before: Held-out return before the round.
        after: Held-out return after it.
        kept: Whether the weights of this round are kept.
    """

    number: int
    compared: int
    worth: float
    before: float
    after: float
    kept: bool


def improve(
    network: HiPpoNetwork,
    fields: list[ClusterBatch],
    lessons: list[Lesson],
    held_out: HeldOut,
    follower: Actor,
    *,
    rounds: int,
    decisions: int,
    epochs: int,
    lr: float,
    hold: float,
    seed: int,
    told: Callable[[Round], None] | None = None,
) -> list[Round]:
    """Improve a network by what other choices would have been worth.

    Args:
        network: What learns; it has the best weights afterwards.
        fields: Clusters at the beginning of their episodes.
        lessons: What the critics are kept right by.
        held_out: Where a round has to prove itself.
        follower: Who decides in the copies after the choice that is compared.
        rounds: How many rounds; one that does not help is undone, and its comparisons serve the next.
        decisions: Decisions compared in each field per round.
        epochs: Passes over all comparisons so far, per round.
        lr: Learning rate of a round at its start.
        hold: As :func:`~attribution_sched.scheduler.hi_ppo.counterfactual_rollouts.prefer` takes it.
        seed: Of everything that is drawn.
        told: Told of every round.
    """
    rng = np.random.default_rng(seed)
    copies = [
        ClusterBatch(field.engine.world, COPIES, 0, network.attributions, paces=field.planner.paces) for field in fields
    ]
    for field in fields:
        stagger(field, follower)
    before, known, found = held_out.measure(network).mean, [], []
    for number in range(1, rounds + 1):
        for field, twins in zip(fields, copies, strict=True):
            for _ in range(math.ceil(decisions / field.clusters)):
                known += _compared(network, field, twins, follower, rng)
        best = copy.deepcopy(network.state_dict())
        reached = prefer(network, known, lessons, epochs, lr, rng, hold)
        after = held_out.measure(network).mean
        compared = sum(len(one.starts) - 1 for one in known)
        found.append(Round(number, compared, reached[-1], before, after, after >= before))
        if told is not None:
            told(found[-1])
        if after < before:
            # What was compared is not lost: the next round learns from it, too.
            network.load_state_dict(best)
        before = max(before, after)
    return found


def _compared(
    network: HiPpoNetwork, field: ClusterBatch, copies: ClusterBatch, follower: Actor, rng: np.random.Generator
) -> list[Comparison]:
    """Go on for some decisions, by the network or by the follower, and compare."""
    with one_thread():
        for _ in range(BETWEEN):
            field.step(NetworkActor(network, None) if rng.random() < 0.5 else follower)
        one = compare(network, field, copies, follower, rng)
    return [] if one is None else [one]
