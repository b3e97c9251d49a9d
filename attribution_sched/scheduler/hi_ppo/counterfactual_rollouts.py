"""Learning from comparisons: what another choice would have been worth, everything else being equal.

What follows a decision depends far more on the tasks that happen to come than on the decision. So each decision is
tried again with one choice changed, in copies of the cluster that meet the same arrivals and the same network: the
difference of what they earn is the worth of the choice, at a tenth of the noise of returns. The network then learns to
prefer what was worth more, and holds on to its own choice where the difference is small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.reward import total_of
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.candidates import OWN, TRIED, Deviating, distinct
from attribution_sched.scheduler.hi_ppo.cloning import Lesson
from attribution_sched.scheduler.hi_ppo.cluster_batch import ENGINE, ClusterBatch, field_arrays, restore_field
from attribution_sched.scheduler.hi_ppo.decode import Actor, Trace, decode
from attribution_sched.scheduler.hi_ppo.evaluate import (
    NetworkActor,
    judge,
    take_trace,
    trace_offsets,
)
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork
from attribution_sched.scheduler.hi_ppo.rollout import join_traces

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

UNIT = 0.05
"""Worth is counted in a fifth of what an average task takes on the baseline."""

MOST = 3.0
"""A worth beyond this many units counts as this much: how bad the bad is does not matter."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Decisions with several choices each and what these were worth.

    Attributes:
        trace: The choices, those of a decision one after the other.
        starts: Where each decision begins, shape ``(G + 1,)``; its first choice is the network's own.
        worth: Worth over that of the own choice, in units, shape ``(n,)``.
    """

    trace: Trace
    starts: IntArray
    worth: FloatArray


def compare(
    network: HiPpoNetwork,
    field: ClusterBatch,
    copies: ClusterBatch,
    follower: Actor,
    rng: np.random.Generator,
    futures: int = 2,
    hours: float = 8.0,
) -> Comparison | None:
    """Try other choices at the present decision of every cluster; None if there is nothing to choose.

    Args:
        network: Whose choices are compared with others.
        field: The clusters; they stay as they are.
        copies: Clusters of the same world to play in.
        follower: Who decides after the first decision.
        rng: Source of the changes and of what happens.
        futures: In how many futures each choice is tried; every choice of a decision meets the same ones.
        hours: For how long, or to the end of the episode if that comes first.
    """
    many = len(TRIED)
    row, change = np.repeat(np.arange(field.clusters), many), np.tile(TRIED, field.clusters)
    pick = rng.random(len(row))
    streams = rng.integers(1, 2**63, size=(field.clusters, futures, 2, 4), dtype=np.uint64)
    tried = Deviating(NetworkActor(network, None), change, pick)
    found = decode(field.planner, field.decisions().take(row), tried)
    keep = np.flatnonzero(distinct(found, (change == OWN) | tried.made, many))
    if len(keep) == 0:
        return None
    kept, parts, totals = field_arrays(field), [], []
    per = copies.clusters // futures
    for at in range(0, len(keep), per):
        rows = keep[at : at + per]
        # The last part is filled up: every copy has to stand somewhere.
        full = np.resize(rows, per)
        _set(copies, kept, np.repeat(row[full], futures), streams[row[full]].reshape(-1, 2, 4))
        first = Deviating(NetworkActor(network, None), np.repeat(change[full], futures), np.repeat(pick[full], futures))
        trace, total = _play(copies, first, follower, hours)
        parts.append(take_trace(trace, np.arange(len(rows)) * futures, trace_offsets(trace)))
        totals.append(total.reshape(per, futures)[: len(rows)].mean(axis=1))
    total = np.concatenate(totals)
    starts = np.flatnonzero(change[keep] == OWN)
    sizes = np.diff(np.append(starts, len(keep)))
    worth = np.clip((total - np.repeat(total[starts], sizes)) / UNIT, -MOST, MOST)
    return Comparison(join_traces(parts), np.append(starts, len(keep)), worth)


def prefer(
    network: HiPpoNetwork,
    comparisons: list[Comparison],
    lessons: list[Lesson],
    epochs: int,
    lr: float,
    rng: np.random.Generator,
    hold: float = 0.3,
    decisions: int = 96,
    value_coef: float = 0.1,
) -> list[float]:
    """Let a network prefer what was worth more; returns the mean worth it expects of itself, by epoch.

    Among the choices compared at a decision, the expected worth under the policy is raised; it is linear in what was
    measured, so noise does not favour what merely varies most.

    Args:
        network: What learns.
        comparisons: What it learns from.
        lessons: Decisions with known returns, by which the critics are kept right.
        epochs: Passes over all comparisons.
        lr: Learning rate at the start; it falls to a fifth.
        rng: Source of the order.
        hold: Weight of the own choice's log-probability: a change must be worth about as much.
        decisions: Decisions per gradient step.
        value_coef: Weight of the critics' loss.
    """
    device = next(network.parameters()).device
    optimiser = torch.optim.Adam(network.parameters(), lr=lr, eps=1e-5)
    offsets = [trace_offsets(one.trace) for one in comparisons]
    known = [(lesson, trace_offsets(lesson.trace)) for lesson in lessons if lesson.returns is not None]
    reached = []
    with one_thread():
        for epoch in range(epochs):
            for group in optimiser.param_groups:
                group["lr"] = lr * (1.0 - 0.8 * epoch / max(1, epochs - 1))
            batches = [
                (i, np.sort(part))
                for i, one in enumerate(comparisons)
                for part in np.array_split(rng.permutation(len(one.starts) - 1), max(1, len(one.starts) // decisions))
            ]
            total = 0.0
            for at in rng.permutation(len(batches)):
                i, part = batches[at]
                gain, own = _expected(network, comparisons[i], offsets[i], part, device)
                loss = -gain - hold * own
                if known:
                    loss = loss + value_coef * _critics(network, *known[rng.integers(len(known))], rng, device)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimiser.step()
                total += float(gain.detach())
            reached.append(total / len(batches))
    return reached


def _expected(
    network: HiPpoNetwork, one: Comparison, offsets: dict[str, IntArray], part: IntArray, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Mean worth expected of the policy among the choices compared, and mean log-probability of its own choices."""
    sizes = one.starts[part + 1] - one.starts[part]
    rows = np.repeat(one.starts[part] - np.append(0, np.cumsum(sizes)[:-1]), sizes) + np.arange(sizes.sum())
    found = judge(network, take_trace(one.trace, rows, offsets))
    log_prob = found.upper + found.lower
    group = torch.from_numpy(np.repeat(np.arange(len(part)), sizes)).to(device)
    highest = torch.full((len(part),), -torch.inf, device=device).scatter_reduce(0, group, log_prob.detach(), "amax")
    share = (log_prob - highest[group]).exp()
    share = share / torch.zeros(len(part), device=device).index_add(0, group, share)[group]
    worth = torch.from_numpy(one.worth[rows]).float().to(device)
    own = torch.from_numpy(np.append(0, np.cumsum(sizes)[:-1])).to(device)
    return (share * worth).sum() / len(part), log_prob[own].mean()


def _critics(
    network: HiPpoNetwork,
    lesson: Lesson,
    offsets: dict[str, IntArray],
    rng: np.random.Generator,
    device: torch.device,
    count: int = 128,
) -> Tensor:
    rows = rng.integers(len(lesson.trace.task), size=count)
    found = judge(network, take_trace(lesson.trace, rows, offsets))
    goal = torch.from_numpy(np.asarray(lesson.returns)[rows]).float().to(device)
    error: Tensor = (found.values - goal).square() + (found.action_values - goal).square()
    return error.sum(dim=-1).mean()


def _set(copies: ClusterBatch, kept: dict[str, NDArray[Any]], rows: IntArray, streams: NDArray[np.uint64]) -> None:
    """Let copies stand where clusters stood, with random streams of their own."""
    arrays = {name: array if name == f"{ENGINE}world" else array[rows].copy() for name, array in kept.items()}
    arrays[f"{ENGINE}state.streams"][...] = streams
    restore_field(copies, arrays)


def _play(copies: ClusterBatch, first: Actor, follower: Actor, hours: float) -> tuple[Trace, FloatArray]:
    """One decision by one chooser, those after it by another; the first one's trace and what was earned."""
    until_s = copies.engine.state.clock[:, st.NOW] + 3600.0 * hours
    weights = copies.engine.weights
    move = copies.step(first)
    trace, total = move.decoded.trace, total_of(move.terms, weights)
    alive = ~move.ended
    while alive.any():
        move = copies.step(follower)
        total += np.where(alive, total_of(move.terms, weights), 0.0)
        alive &= ~move.ended & (copies.engine.state.clock[:, st.NOW] < until_s)
    copies.returns.clear()
    return trace, np.asarray(total)
