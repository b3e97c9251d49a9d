"""Behaviour cloning: a network learns to make the choices of a teacher, and its critics what came of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attribution_sched.cluster.decision import Decisions, from_view
from attribution_sched.errors import ModelFitError, problem
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.decode import Actor, Planner, Trace, decode
from attribution_sched.scheduler.hi_ppo.evaluate import judge, take_trace, trace_offsets
from attribution_sched.scheduler.hi_ppo.network import COMPONENTS, HiPpoNetwork
from attribution_sched.scheduler.hi_ppo.rollout import join_traces
from attribution_sched.scheduler.hi_ppo.teachers import PlanFollower
from attribution_sched.scheduler.ppo.ppo import gae
from attribution_sched.scheduler.seq2seq.traces import Trace as TaughtPlan
from attribution_sched.scheduler.seq2seq.traces import views_of

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lesson:
    """What a teacher did in one world.

    Attributes:
        trace: Its choices.
        returns: Discounted reward terms that followed, shape ``(B, 3)``; None if nobody knows.
        weight: How much each decision counts beside those of other lessons.
    """

    trace: Trace
    returns: FloatArray | None
    weight: float = 1.0


def watch(field: ClusterBatch, teacher: Actor, steps: int, gamma: float) -> Lesson:
    """Let a teacher decide in every cluster of a field."""
    terms, ended, traces = [], [], []
    for _ in range(steps):
        move = field.step(teacher)
        terms.append(move.terms)
        ended.append(move.ended)
        traces.append(move.decoded.trace)
    rewards, over = np.array(terms), np.array(ended)
    zeros = np.zeros((steps + 1, field.clusters, len(COMPONENTS)))
    _, returns = gae(rewards, zeros, over, None, gamma, 1.0)
    # What follows the last decisions watched is not known; the mean of what is stands in for it.
    left = gamma ** np.arange(steps, 0, -1)
    known = returns[: max(1, steps // 2)].mean(axis=(0, 1))
    returns = returns + left[:, None, None] * known
    return Lesson(join_traces(traces), returns.reshape(-1, len(COMPONENTS)))


def clone(
    network: HiPpoNetwork,
    lessons: list[Lesson],
    epochs: int,
    lr: float,
    minibatch: int,
    generator: torch.Generator,
    value_coef: float = 0.1,
) -> list[float]:
    """Fit a network to lessons; returns the mean loss per decision of every epoch.

    Args:
        network: What learns.
        lessons: What it learns from.
        epochs: Passes over all of them.
        lr: Learning rate at the start; it falls to a tenth.
        minibatch: Decisions per gradient step, all of one lesson.
        generator: Source of the order.
        value_coef: Weight of the critics' loss.
    """
    if not lessons:
        raise ModelFitError(problem("lessons", 0, "must be at least one", "Record what a teacher does first"))
    device = next(network.parameters()).device
    optimiser = torch.optim.Adam(network.parameters(), lr=lr, eps=1e-5)
    offsets = [trace_offsets(lesson.trace) for lesson in lessons]
    pieces = [(i, len(lesson.trace.task)) for i, lesson in enumerate(lessons)]
    losses: list[float] = []
    with one_thread():
        for epoch in range(epochs):
            for group in optimiser.param_groups:
                group["lr"] = lr * (1.0 - 0.9 * epoch / max(1, epochs - 1))
            total, count = 0.0, 0
            parts: list[tuple[int, IntArray]] = []
            for i, size in pieces:
                order = torch.randperm(size, generator=generator, device=generator.device).cpu().numpy()
                parts += [(i, part) for part in np.array_split(order, max(1, round(size / minibatch)))]
            for at in torch.randperm(len(parts), generator=generator, device=generator.device).tolist():
                i, rows = parts[at]
                lesson = lessons[i]
                found = judge(network, take_trace(lesson.trace, rows, offsets[i]))
                loss: Tensor = -(found.upper + found.lower).mean()
                total, count = total + float(loss.detach()) * len(rows), count + len(rows)
                if lesson.returns is not None:
                    goal = torch.from_numpy(lesson.returns[rows]).float().to(device)
                    for values in (found.values, found.action_values):
                        loss = loss + value_coef * (values - goal).pow(2).sum(dim=-1).mean()
                # Small lessons count by their size, so that a teacher's decisions weigh alike.
                loss = loss * lesson.weight * len(rows) / minibatch
                optimiser.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimiser.step()
            losses.append(total / max(1, count))
    return losses


# ------ Lessons from recorded traces: decisions that an optimiser solved, retold as Hi-PPO's own choices


def stack(decisions: list[Decisions]) -> Decisions:
    """Put decisions of one cluster together; all must have as many candidates."""
    return Decisions(
        **{f.name: np.concatenate([getattr(part, f.name) for part in decisions]) for f in fields(Decisions)}
    )


def retell(traces: Iterable[TaughtPlan], weight: float = 1.0) -> tuple[list[Lesson], int, int]:
    """Turn traces into lessons, one per world.

    Returns:
        Lessons, how many decisions they hold, and how many were left out because a choice of the teacher's plan is not
        on offer (another order of filling the domains, or a layout drafts do not know).
    """
    lessons: list[Lesson] = []
    kept = left_out = 0
    for _, group in groupby(views_of(traces), key=lambda pair: id(pair[1].cost)):
        pairs = list(group)
        first = pairs[0][1]
        planner = Planner.of(first.cost, first.kinds, first.base_step_s, first.base_cost_usd, first.max_segments)
        decisions = stack([from_view(view, None) for _, view in pairs])
        kind = np.array([view.kind_index for _, view in pairs])
        follower = PlanFollower(planner.tables, np.zeros(len(pairs), dtype=np.int64), [t.rows for t, _ in pairs], kind)
        found = decode(planner, decisions, follower)
        follower.compare(found.drafts)
        rows = np.flatnonzero(follower.followed)
        kept, left_out = kept + len(rows), left_out + len(pairs) - len(rows)
        if len(rows):
            lessons.append(Lesson(take_trace(found.trace, rows, trace_offsets(found.trace)), None, weight))
    return lessons, kept, left_out
