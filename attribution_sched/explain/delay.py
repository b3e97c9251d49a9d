"""Whose being there makes a task wait: Shapley shares of how long it still has to, exact over all coalitions.

    v(S) = mean wait from now on if of the others only those of S were here,   Σ shares = v(all) − v(nobody)

Every coalition is a copy of the cluster without the rest, played on under the same futures. Players are the tasks that
run or wait beside it; above eight they are taken together by tenant. What is left with nobody there, those who may
still come included, is told beside the shares. A share below zero is somebody whose presence helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.decision import Decision, Moment
from attribution_sched.cluster.fork import Remove, fork, slot_of
from attribution_sched.errors import TaskError, problem
from attribution_sched.explain.shapley.exact import coalition_block, shapley_of_table
from attribution_sched.explain.what_if import paired_interval
from attribution_sched.scheduler.policy import Policy, go_on_as

MOST_PLAYERS = 8
"""Coalitions of so many can all be played in a second or two."""

FUTURES, HOURS = 8, 12.0


@dataclass(frozen=True)
class Share:
    """What somebody's being there adds to a wait.

    Attributes:
        who: A task, or a tenant.
        tasks: The tasks that stand behind it.
        hours: Added to the wait, mean over futures.
        low: Lower end of its 95 % interval over futures.
        high: Upper end.
    """

    who: str
    tasks: tuple[str, ...]
    hours: float
    low: float
    high: float


@dataclass(frozen=True)
class Delay:
    """Shares of the wait that a task still has before it.

    Attributes:
        task: Its id.
        shares: The largest first; they add up to ``hours − alone_h``.
        hours: Its wait from now on, mean over futures; to the horizon where it does not start.
        alone_h: Its wait if nobody else were here now.
        by: ``task`` or ``tenant``.
        futures: How many were played.
        horizon_h: How far.
        decisions: Decisions that were followed.
    """

    task: str
    shares: tuple[Share, ...]
    hours: float
    alone_h: float
    by: str
    futures: int
    horizon_h: float
    decisions: int


def delay_shares(
    policy: Policy, view: Decision, *, futures: int = FUTURES, hours: float = HOURS, seed: int = 0
) -> Delay:
    """Share out the wait of a decision's task among the others that are here.

    Args:
        policy: Who decides; the compiled rule goes on in its place.
        view: The decision about the waiting task; it must carry its moment.
        futures: How many to play.
        hours: How far.
        seed: Of the futures.

    Raises:
        TaskError: If the task is not among those that the policy looks at.
    """
    moment = view.moment
    if moment is None or view.slot not in moment.tasks:
        name = view.task.id if view.task is not None else str(view.slot)
        rule = "is held, or behind the window of tasks that the policy looks at, which futures do not play"
        raise TaskError(problem("task", name, rule, "Ask when it is among the first"))
    by, players = _players(moment, view.slot)
    follower, beliefs = go_on_as(policy, view, quick=True)
    d = len(players)
    masks = coalition_block(0, 1 << d, d)
    absent = [
        [slot for here, (_, slots) in zip(mask, players, strict=True) if not here for slot in slots] for mask in masks
    ]
    # The last coalition is everybody: the unchanged copy.
    changes = [Remove(gone[0], tuple(gone[1:])) for gone in absent[:-1]]
    found = fork(moment, changes, futures, hours, follower, seed, beliefs=beliefs)
    wait_h = (found.of("start_s")[..., found.tasks.index(slot_of(moment, view.slot))] - found.began_s) / 3600.0
    # Copy 0 is everybody; the coalitions follow in the order of their codes.
    table = np.concatenate([wait_h[1:], wait_h[:1]]).T[..., None]
    values = shapley_of_table(table, d)[..., 0] if d else np.zeros((futures, 0))
    names = {slot: task.id or str(slot) for slot, task in moment.tasks.items()}
    shares = []
    for at, (who, slots) in enumerate(players):
        mean = float(values[:, at].mean())
        low, high = paired_interval(values[:, at]) if futures > 1 else (mean, mean)
        shares.append(Share(who, tuple(names[slot] for slot in slots), mean, low, high))
    return Delay(
        names[view.slot], tuple(sorted(shares, key=lambda share: -share.hours)), float(wait_h[0].mean()),
        float(table[:, 0].mean()), by, futures, (found.until_s - found.began_s) / 3600.0, found.decisions,
    )  # fmt: skip


def _players(moment: Moment, own: int) -> tuple[str, Sequence[tuple[str, list[int]]]]:
    """Who may be made answerable: tasks, or tenants where there are too many; the smallest tenants as one."""
    others = [slot for slot in sorted(moment.tasks) if slot != own]
    if len(others) <= MOST_PLAYERS:
        return "task", [(moment.tasks[slot].id or str(slot), [slot]) for slot in others]
    grouped: dict[str, list[int]] = {}
    for slot in others:
        grouped.setdefault(moment.tasks[slot].tenant, []).append(slot)
    ordered = sorted(grouped.items(), key=lambda item: (-len(item[1]), item[0]))
    kept, rest = ordered[: MOST_PLAYERS - 1], ordered[MOST_PLAYERS - 1 :]
    if len(rest) > 1:
        rest = [(", ".join(name for name, _ in rest), [slot for _, slots in rest for slot in slots])]
    return "tenant", [*kept, *rest]
