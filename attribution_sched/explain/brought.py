"""What a choice brought, and by whose being there: Shapley drivers of ΔR_eff, ΔR_util and ΔR_cost in the fork itself.

    v(S) = R_c after the choice − R_c after the best other one,   future by future, with only the players of S there

Players are what the choice meets: tasks that wait, tasks that run, tasks to come, links, prices, and what was measured
of the task. Without it a player's part of the cluster is empty: nobody waits, runs or comes, links carry a hundred
times as much, traffic, energy and carbon cost nothing, the task is as its kind is. What is left with nobody there is
the plans' own difference. All coalitions are played, with the same futures, so that the drivers are exact for these
futures: ``own + Σ drivers = Δ``, and weights times components are ΔR. Intervals are over futures.
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
from attribution_sched.explain.shapley.exact import coalition_block, shapley_of_table
from attribution_sched.explain.what_if import paired_interval
from attribution_sched.scheduler.policy import Policy, go_on_as
from attribution_sched.types import FloatArray

FUTURES = 64
"""Played by default: with 16, half of what shares of small drivers differ by is the luck of the futures."""

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
        policy: Who decided; afterwards the compiled rule goes on, with this policy's beliefs if it has any.
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
        table: Per future, coalition (in code order) and component, shape ``(F, 2^d, 4)``.
        hours: How far was played.
        decisions: Decisions that were followed.
    """

    players: tuple[str, ...]
    table: FloatArray
    hours: float
    decisions: int

    @property
    def shares(self) -> FloatArray:
        """Shapley values per future, player and component, shape ``(F, d, 4)``."""
        d = len(self.players)
        return shapley_of_table(self.table, d) if d else np.zeros((len(self.table), 0, len(COMPONENTS)))


def play_coalitions(
    policy: Policy, view: Decision, plan: Plan | None, other: Plan | None, *, futures: int, hours: float = HOURS,
    seed: int = 0, first: int = 0,
) -> Coalitions | None:  # fmt: skip
    """Play two choices with every coalition of players there; see :func:`brought`.

    Args:
        policy: Who decided.
        view: The decision.
        plan: What was done.
        other: What could have been done.
        futures: How many to play for every coalition.
        hours: How far.
        seed: Of the futures.
        first: Number of the first future.
    """
    moment = view.moment
    if moment is None or view.slot not in moment.tasks:
        return None
    follower, beliefs = go_on_as(policy, view, quick=True)
    players = _there(moment, view)
    d = len(players)
    weights = np.array([view.reward.w_eff, view.reward.w_util, view.reward.w_cost])
    table, decisions, until_h = np.zeros((futures, 1 << d, len(COMPONENTS))), 0, 0.0
    choices = [Choose(view.slot, plan), Choose(view.slot, other)]
    for code, mask in enumerate(coalition_block(0, 1 << d, d)):
        left = without(moment, view.slot, {name for name, here in zip(players, mask, strict=True) if not here})
        found = fork(left, choices, futures, hours, follower, seed, beliefs=beliefs, first=first)
        if found.codes[1:].min() < 0:
            return None
        terms = found.totals[..., 2:5] + found.ends
        apart = terms[1] - terms[2]
        table[:, code] = np.concatenate([apart, total_of(apart, weights)[:, None]], axis=1)
        decisions, until_h = decisions + found.decisions, (found.until_s - found.began_s) / 3600.0
    return Coalitions(players, table, until_h, decisions)


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
