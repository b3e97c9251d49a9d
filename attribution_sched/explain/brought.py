"""What a choice brought, and by whose being there: Shapley drivers of ΔR_eff, ΔR_util and ΔR_cost in the fork itself.

    v(S) = R_c after the choice − R_c after the best other one,   future by future, with only the players of S there

Players are what the choice meets: tasks that wait, tasks that run, tasks to come, links, prices, and what was measured
of the task. Without it a player's part of the cluster is empty: nobody waits, runs or comes, links carry a hundred
times as much, traffic, energy and carbon cost nothing, the task is as its kind is. What is left with nobody there is
the plans' own difference. By Monte Carlo over futures and orders (:mod:`attribution_sched.shapley.futures`), so that
``own + Σ drivers = Δ`` in every future and weights times components are ΔR. Most of what drivers vary by lies between
futures, so that many futures with two orders tell them better than few with all coalitions, at the same cost.
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
from attribution_sched.explain.played import HOURS
from attribution_sched.scheduler.policy import Policy, go_on_as
from attribution_sched.shapley.futures import estimate_futures
from attribution_sched.stats.interval import MeanInterval, half_width
from attribution_sched.types import BoolArray, FloatArray, IntArray

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
    spans: tuple[MeanInterval, MeanInterval, MeanInterval, MeanInterval]


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
    total: tuple[MeanInterval, MeanInterval, MeanInterval, MeanInterval]
    own: tuple[MeanInterval, MeanInterval, MeanInterval, MeanInterval]
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
    exact: bool = False,
) -> Brought | None:
    """Share out what a choice brings over another one.

    Args:
        policy: Who decided; in copies whoever stands for it goes on, else the compiled rule.
        view: The decision.
        plan: What was done; None lets the task wait, or stay.
        other: What could have been done.
        against: That in words.
        futures: How many to play.
        hours: How far.
        seed: Of the futures, and of the orders in which players come.
        exact: Whether to play every coalition in every future, not only those of one order and its reverse.

    Returns:
        The drivers; None where the decision does not carry its moment, or the cluster refuses a plan.
    """
    moment = view.moment
    if moment is None or view.slot not in moment.tasks:
        return None
    follower, beliefs = go_on_as(policy, view, quick=True)
    players = _there(moment, view)
    weights = np.array([view.reward.w_eff, view.reward.w_util, view.reward.w_cost])
    choices = [Choose(view.slot, plan), Choose(view.slot, other)]
    decisions, until_h = 0, 0.0

    def apart(masks: BoolArray, numbers: IntArray) -> FloatArray:
        nonlocal decisions, until_h
        rows = []
        for mask in masks:
            left = without(moment, view.slot, {name for name, here in zip(players, mask, strict=True) if not here})
            found = fork(left, choices, numbers.tolist(), hours, follower, seed, beliefs=beliefs, unchanged=False)
            if found.codes[1:].min() < 0:
                raise _Refused
            terms = found.totals[..., 2:5] + found.ends
            rows.append(np.column_stack([terms[1] - terms[2], total_of(terms[1] - terms[2], weights)]))
            decisions, until_h = decisions + found.decisions, (found.until_s - found.began_s) / 3600.0
        return np.stack(rows)

    try:
        told = estimate_futures(apart, players, COMPONENTS, futures, exact=exact, seed=seed)
    except _Refused:
        return None
    half = half_width(told.standard_error, told.freedom)
    drivers = tuple(Driver(name, _spans(told.values[at], half[at], futures)) for at, name in enumerate(told.players))
    total = _spans(told.full, half_width(told.full_error, told.freedom), futures)
    own = _spans(told.base, half_width(told.base_error, told.freedom), futures)
    return Brought(against, total, own, drivers, futures, until_h, decisions)


class _Refused(Exception):
    """The cluster refuses a plan among some players."""


def _spans(mean: FloatArray, half: FloatArray, n: int) -> tuple[MeanInterval, MeanInterval, MeanInterval, MeanInterval]:
    ends = zip(mean.tolist(), (mean - half).tolist(), (mean + half).tolist(), strict=True)
    eff, util, cost, whole = (MeanInterval(*each, n) for each in ends)
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
