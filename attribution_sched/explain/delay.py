"""Whose being there makes a task wait: Shapley shares of how long it has waited, and of how long it still has to.

    v(S) = mean wait if of the others only those of S were here,   Σ shares = v(all) − v(nobody)

Every coalition is a copy of the cluster without the rest. What is still before the task is played from now on, under
drawn futures; what lies behind it from its submission on, with the tasks that really came since, each at its time, up
to now. Players are the tasks that run, wait or came beside it; above twelve they are taken together by tenant. Few
players: all coalitions in every future; more: orders and their reverses (:mod:`attribution_sched.shapley.futures`).
What is left with nobody there, those who may still come included, is told beside the shares. A share below zero is
somebody whose presence helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.fork import Remove, fork, slot_of
from attribution_sched.errors import SettingsError, TaskError, problem
from attribution_sched.scheduler.policy import Policy, go_on_as
from attribution_sched.shapley.futures import Value, estimate_futures
from attribution_sched.types import BoolArray, FloatArray, IntArray, Task

MOST_PLAYERS = 12
"""Above it tasks are taken together by tenant."""

EXACT, EXACT_PAST = 8, 6
"""Coalitions of so many players are all played: from now on, and from the submission on."""

PAIRS, PAIRS_PAST = 4, 1
"""Orders, each with its reverse, that more players come in in every future."""

FUTURES, FUTURES_PAST, HOURS = 8, 16, 12.0

LEAST_PAST_H = 1e-3
"""A shorter wait has nothing to share out."""


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
class Waited:
    """Shares of the wait that lies behind a task.

    Attributes:
        hours: How long it has waited.
        shares: The largest first; with ``alone_h`` and ``left_h`` they add up to ``hours``.
        alone_h: Its wait if nobody else had been there.
        left_h: What the copies, with everybody there, do not give of it: whoever goes on in them decides otherwise, or
            tasks ran otherwise than was to be expected. Below 0 where they give more than it waited.
        by: ``task`` or ``tenant``.
        futures: How many were played.
    """

    hours: float
    shares: tuple[Share, ...]
    alone_h: float
    left_h: float
    by: str
    futures: int


@dataclass(frozen=True)
class Delay:
    """Shares of the wait of a task: of what lies before it, and of what lies behind it.

    Attributes:
        task: Its id.
        shares: The largest first; they add up to ``hours − alone_h``.
        hours: Its wait from now on, mean over futures; to the horizon where it does not start.
        alone_h: Its wait if nobody else were here now.
        by: ``task`` or ``tenant``.
        futures: How many were played.
        horizon_h: How far.
        decisions: Decisions that were followed.
        follower: Who decided in the copies.
        waited: The same of its wait so far; None if it has not waited, or its submission is not to be seen.
    """

    task: str
    shares: tuple[Share, ...]
    hours: float
    alone_h: float
    by: str
    futures: int
    horizon_h: float
    decisions: int
    follower: str = ""
    waited: Waited | None = None


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
        SettingsError: If there are no futures, or no time.
    """
    moment = view.moment
    if moment is None or view.slot not in moment.tasks:
        name = view.task.id if view.task is not None else str(view.slot)
        rule = "is held, or behind the window of tasks that the policy looks at, which futures do not play"
        raise TaskError(problem("task", name, rule, "Ask when it is among the first"))
    named = {slot: task if task.id else replace(task, id=str(slot)) for slot, task in moment.tasks.items()}
    moment = replace(moment, tasks=named)
    if isinstance(futures, bool) or not isinstance(futures, int) or futures < 1:
        raise SettingsError(problem("futures", futures, "must be an integer >= 1", f"Use {FUTURES}"))
    by, players = _players([task for slot, task in named.items() if slot != view.slot])
    follower, beliefs = go_on_as(policy, view, quick=True)
    own = named[view.slot].id
    played = [0, 0.0]

    def wait_h(masks: BoolArray, numbers: IntArray) -> FloatArray:
        gone = [_absent(players, mask) for mask in masks]
        changes = [Remove(each[0], tuple(each[1:])) for each in gone if each]
        found = fork(moment, changes, numbers.tolist(), hours, follower, seed, beliefs=beliefs)
        played[0] += found.decisions
        played[1] = (found.until_s - found.began_s) / 3600.0
        waits = (found.of("start_s")[..., found.tasks.index(slot_of(moment, own))] - found.began_s) / 3600.0
        # Copy 0 is everybody; the others follow in the order in which they were asked for.
        rows = np.cumsum([bool(each) for each in gone]) * np.array([bool(each) for each in gone])
        return np.asarray(waits[rows])[..., None]

    mean_h, alone_h, shares = _shared(players, futures, EXACT, PAIRS, seed, wait_h)
    return Delay(
        own, shares, mean_h, alone_h, by, futures, float(played[1]), int(played[0]),
        getattr(follower, "name", policy.name),
    )  # fmt: skip


def past_shares(
    policy: Policy, view: Decision, task: str, came: Sequence[Task], now_s: float, *, futures: int = FUTURES_PAST,
    seed: int = 0,
) -> Waited | None:  # fmt: skip
    """Share out the wait that lies behind a task among those who were there or came since.

    Args:
        policy: Who decides.
        view: A decision soon after its submission at which it was there; it must carry its moment.
        task: Its id.
        came: Tasks that came since, by their ``arrived_s``.
        now_s: Until when it has waited.
        futures: How many to play.
        seed: Of the futures.

    Returns:
        The shares; None if there is no wait to share out, or the task is not there.
    """
    moment = view.moment
    if moment is None:
        return None
    here = {each.id: each for each in moment.tasks.values()}
    if task not in here or now_s - moment.now_s < 3600.0 * LEAST_PAST_H:
        return None
    later = [replace(each, arrived_s=max(each.arrived_s, moment.now_s)) for each in came if each.id not in here]
    by, players = _players([each for name, each in here.items() if name != task] + later)
    follower, beliefs = go_on_as(policy, view, quick=True)
    hours = (now_s - moment.now_s) / 3600.0
    # What it had waited when it was first looked at lies behind everybody.
    before_h = max(0.0, (moment.now_s - here[task].arrived_s) / 3600.0)

    def wait_h(masks: BoolArray, numbers: IntArray) -> FloatArray:
        rows = []
        for mask in masks:
            absent = set(_absent(players, mask))
            gone = [name for name in here if name in absent]
            changes = [Remove(gone[0], tuple(gone[1:]))] if gone else []
            coming = [each for each in later if each.id not in absent]
            found = fork(
                moment, changes, numbers.tolist(), hours, follower, seed, beliefs=beliefs, coming=coming,
                unchanged=not gone,
            )  # fmt: skip
            rows.append((found.of("start_s")[-1, :, found.names.index(task)] - found.began_s) / 3600.0)
        return np.stack(rows)[..., None]

    mean_h, alone_h, shares = _shared(players, futures, EXACT_PAST, PAIRS_PAST, seed, wait_h)
    return Waited(hours + before_h, shares, alone_h, hours + before_h - mean_h, by, futures)


Players = Sequence[tuple[str, tuple[str, ...]]]
"""Who, and the ids of the tasks that stand behind it."""


def _shared(
    players: Players, futures: int, exact: int, pairs: int, seed: int, wait_h: Value
) -> tuple[float, float, tuple[Share, ...]]:
    """Mean wait with everybody there, with nobody, and the share of each player.

    Args:
        players: Who.
        futures: How many to play.
        exact: Players up to which all coalitions are played.
        pairs: Orders and their reverses for more players than that.
        seed: Of the orders.
        wait_h: Hours of wait in coalitions and futures.
    """
    names = [who for who, _ in players]
    found = estimate_futures(wait_h, names, ["hours"], futures, exact=len(players) <= exact, pairs=pairs, seed=seed)
    mean = found.values[:, 0]
    low, high = (end[:, 0] for end in found.interval()) if futures > 1 else (mean, mean)
    shares = [
        Share(who, tasks, float(mean[at]), float(low[at]), float(high[at])) for at, (who, tasks) in enumerate(players)
    ]
    return float(found.full[0]), float(found.base[0]), tuple(sorted(shares, key=lambda share: -share.hours))


def _absent(players: Players, mask: BoolArray) -> list[str]:
    return [task for here, (_, tasks) in zip(mask, players, strict=True) if not here for task in tasks]


def _players(others: Sequence[Task]) -> tuple[str, Players]:
    """Who may be made answerable: tasks, or tenants where there are too many; the smallest tenants as one."""
    if len(others) <= MOST_PLAYERS:
        return "task", [(task.id, (task.id,)) for task in others]
    grouped: dict[str, list[str]] = {}
    for task in others:
        grouped.setdefault(task.tenant, []).append(task.id)
    ordered = sorted(grouped.items(), key=lambda item: (-len(item[1]), item[0]))
    kept, rest = ordered[: MOST_PLAYERS - 1], ordered[MOST_PLAYERS - 1 :]
    if len(rest) > 1:
        rest = [(", ".join(name for name, _ in rest), [task for _, tasks in rest for task in tasks])]
    return "tenant", [(who, tuple(tasks)) for who, tasks in (*kept, *rest)]
