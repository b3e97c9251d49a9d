"""What a choice brought, and by whose being there: Shapley drivers of ΔR_eff, ΔR_util and ΔR_cost in the fork itself.

    v(S) = R_c after the choice − R_c after the best other one,   future by future, with only the players of S there

Players are what the choice meets: tasks that wait, tasks that run, tasks to come, links, prices, and what was measured
of the task. Without it a player's part of the cluster is empty: nobody waits, runs or comes, links carry a hundred
times as much, traffic, energy and carbon cost nothing, the task is as its kind is. What is left with nobody there is
the plans' own difference. By Monte Carlo over futures and orders: in every future the players come in an order of its
own and then in its reverse, and a driver is what each adds as it comes, so that ``own + Σ drivers = Δ`` in every future
and weights times components are ΔR. Most of what drivers vary by lies between futures, so that many futures with two
orders tell them better than few with all coalitions, at the same cost. Intervals are over futures, orders included.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from attribution_sched.cluster.decision import Decision, Moment
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import release
from attribution_sched.cluster.fork import Choose, fork
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.reward import total_of
from attribution_sched.explain.played import HOURS, Span
from attribution_sched.explain.what_if import paired_interval
from attribution_sched.scheduler.policy import Policy, go_on_as
from attribution_sched.shapley.exact import coalition_block, shapley_of_table
from attribution_sched.types import FloatArray, IntArray

FUTURES = 192
"""Played by default: about the work of every coalition in 64 futures."""

PLAYERS: tuple[str, ...] = ("waiting", "running", "coming", "links", "prices", "measured")

COMPONENTS: tuple[str, ...] = ("R_eff", "R_util", "R_cost", "R")

FAST = 100.0
"""Links without their player carry so many times as much."""


@dataclass(frozen=True)
class Driver:
    """What one player adds to the difference.

    Attributes:
        player: One of :data:`PLAYERS`.
        spans: Per component, in the order of :data:`COMPONENTS`.
    """

    player: str
    spans: tuple[Span, Span, Span, Span]


@dataclass(frozen=True)
class Brought:
    """What a choice brought over the best other one.

    Attributes:
        against: The other choice, in words.
        total: Δ per component, everybody there.
        own: Δ with nobody there: the two plans by themselves.
        drivers: Those that can matter here, in the order of :data:`PLAYERS`; with ``own`` they add up to ``total``.
        futures: How many were played.
        hours: How far.
        decisions: Decisions that were followed.
    """

    against: str
    total: tuple[Span, Span, Span, Span]
    own: tuple[Span, Span, Span, Span]
    drivers: tuple[Driver, ...]
    futures: int
    hours: float
    decisions: int


def brought(
    policy: Policy,
    view: Decision,
    plan: Plan | None,
    other: Plan | None,
    *,
    against: str = "",
    futures: int = FUTURES,
    hours: float = HOURS,
    seed: int = 0,
) -> Brought | None:
    """Share out what a choice brings over another one.

    Args:
        policy: Who decided; in copies whoever stands for it goes on, else the compiled rule.
        view: The decision.
        plan: What was done; None lets the task wait, or stay.
        other: What could have been done.
        against: That in words.
        futures: How many to play for every coalition.
        hours: How far.
        seed: Of the futures.

    Returns:
        The drivers; None where the decision does not carry its moment, or the cluster refuses a plan.
    """
    played = play_coalitions(policy, view, plan, other, futures=futures, hours=hours, seed=seed)
    if played is None:
        return None
    table, shares = played.table, played.shares
    drivers = tuple(Driver(name, _spans(shares[:, at])) for at, name in enumerate(played.players))
    total, own = _spans(table[:, -1]), _spans(table[:, 0])
    return Brought(against, total, own, drivers, futures, played.hours, played.decisions)


@dataclass(frozen=True, eq=False)
class Coalitions:
    """Differences with only some players there.

    Attributes:
        players: Those that can make a difference.
        table: Per future, coalition (in code order) and component, shape ``(F, 2^d, 4)``; NaN where a coalition was not
            played in a future.
        shares: Shapley values per future, player and component, shape ``(F, d, 4)``.
        hours: How far was played.
        decisions: Decisions that were followed.
    """

    players: tuple[str, ...]
    table: FloatArray
    shares: FloatArray
    hours: float
    decisions: int


def play_coalitions(
    policy: Policy, view: Decision, plan: Plan | None, other: Plan | None, *, futures: int, hours: float = HOURS,
    seed: int = 0, exact: bool = False,
) -> Coalitions | None:  # fmt: skip
    """Play two choices with coalitions of players there; see :func:`brought`.

    Args:
        policy: Who decided.
        view: The decision.
        plan: What was done.
        other: What could have been done.
        futures: How many to play.
        hours: How far.
        seed: Of the futures, and of the orders in which players come.
        exact: Whether to play every coalition in every future, not only those of one order and its reverse.
    """
    moment = view.moment
    if moment is None or view.slot not in moment.tasks:
        return None
    follower, beliefs = go_on_as(policy, view, quick=True)
    players = _there(moment, view)
    d = len(players)
    orders = np.stack([np.random.default_rng([seed, 21, f]).permutation(d) for f in range(futures)])
    # Codes that a future's order and its reverse pass through, nobody first and everybody last.
    paths = np.stack([_codes(orders), _codes(orders[:, ::-1])], axis=1)
    weights = np.array([view.reward.w_eff, view.reward.w_util, view.reward.w_cost])
    table, decisions, until_h = np.full((futures, 1 << d, len(COMPONENTS)), np.nan), 0, 0.0
    choices = [Choose(view.slot, plan), Choose(view.slot, other)]
    for code, mask in enumerate(coalition_block(0, 1 << d, d)):
        met = np.flatnonzero(exact | (paths == code).any(axis=(1, 2)))
        if not len(met):
            continue
        left = without(moment, view.slot, {name for name, here in zip(players, mask, strict=True) if not here})
        found = fork(left, choices, met.tolist(), hours, follower, seed, beliefs=beliefs, unchanged=False)
        if found.codes[1:].min() < 0:
            return None
        terms = found.totals[..., 2:5] + found.ends
        apart = terms[1] - terms[2]
        table[met, code] = np.concatenate([apart, total_of(apart, weights)[:, None]], axis=1)
        decisions, until_h = decisions + found.decisions, (found.until_s - found.began_s) / 3600.0
    shares = shapley_of_table(table, d) if exact and d else _shares(table, orders, paths)
    return Coalitions(players, table, shares, until_h, decisions)


def _codes(orders: IntArray) -> IntArray:
    """Codes of the coalitions that players form as they come in an order, shape ``(F, d + 1)``."""
    come = np.concatenate([np.zeros((len(orders), 1), dtype=np.int64), 1 << orders], axis=1)
    return np.asarray(np.cumsum(come, axis=1))


def _shares(table: FloatArray, orders: IntArray, paths: IntArray) -> FloatArray:
    """What each player adds as it comes, mean over a future's order and its reverse."""
    rows = np.arange(len(table))[:, None]
    shares = np.zeros((len(table), orders.shape[1], table.shape[2]))
    for way, order in enumerate((orders, orders[:, ::-1])):
        shares[rows, order] += np.diff(table[rows, paths[:, way]], axis=1) / 2.0
    return shares


def _spans(values: FloatArray) -> tuple[Span, Span, Span, Span]:
    eff, util, cost, whole = (Span(float(column.mean()), *paired_interval(column)) for column in values.T)
    return eff, util, cost, whole


def _there(moment: Moment, view: Decision) -> tuple[str, ...]:
    """Players that can make a difference at a moment; one that cannot has exactly nothing to share."""
    status = {slot: moment.state.slots[0, slot, st.STATUS] for slot in moment.tasks if slot != view.slot}
    task = moment.tasks[view.slot]
    here = {
        "waiting": any(each == st.QUEUED for each in status.values()),
        "running": any(each == st.RUNNING for each in status.values()),
        "coming": moment.law is not None,
        "links": len(moment.world.cluster) > 1,
        "prices": True,
        "measured": task.attribution is not None or task.samples_per_s > 0.0,
    }
    return tuple(name for name in PLAYERS if here[name])


def without(moment: Moment, own: int, gone: Collection[str]) -> Moment:
    """A moment without some players; the task in question stays."""
    if not gone:
        return moment
    tasks, arrays = dict(moment.tasks), moment.arrays
    state = moment.state._replace(
        slots=moment.state.slots.copy(), occupant=moment.state.occupant.copy(), traffic=moment.state.traffic.copy()
    )
    wanted = {st.QUEUED: "waiting", st.RUNNING: "running"}
    for slot in moment.tasks:
        if slot != own and wanted.get(int(state.slots[0, slot, st.STATUS])) in gone:
            if state.slots[0, slot, st.STATUS] == st.RUNNING:
                release(arrays, state, 0, slot)
                state.traffic[0, slot] = 0.0
            state.slots[0, slot] = (st.FREE, 0, 0, 0)
            del tasks[slot]
    if "links" in gone:
        arrays = arrays._replace(base=FAST * arrays.base)
    if "prices" in gone:
        free = arrays.domains._replace(price_usd_per_byte=0.0 * arrays.domains.price_usd_per_byte)
        arrays = arrays._replace(domains=free, energy_usd_per_j=0.0, carbon_usd_per_g=0.0)
    if "measured" in gone:
        tasks[own] = replace(tasks[own], attribution=None, samples_per_s=0.0)
    law = None if "coming" in gone else moment.law
    return replace(moment, tasks=tasks, arrays=arrays, state=state, law=law)
