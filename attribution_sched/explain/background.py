"""The states that a decision is compared with: real ones, and which of them are like it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.decision import Decisions
from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.masked_states import stacked, widened
from attribution_sched.explain.players import Lineup, Usual
from attribution_sched.explain.recorder import Decided
from attribution_sched.types import BoolArray, FloatArray, IntArray
from attribution_sched.words.names import term_phrase
from attribution_sched.words.say import Phrase

LEAST_ALIKE = 30
"""Fewer states of the same kind of task than this, and those of other kinds are used too."""


@dataclass(frozen=True, eq=False)
class Background:
    """States of one cluster, each with its task as candidate 0.

    Attributes:
        states: The states.
        counters: Measured counters of each state's task, shape ``(M, 12)``; zeros where nobody measured.
        name: Where they come from, for the record.
        ids: Of the decisions they are from, one each; empty if they are nobody's.
    """

    states: Decisions
    counters: FloatArray
    name: str
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.states) == 0:
            fix = "Let a policy decide for a while under Watch and use what it remembers"
            raise ExplanationError(problem("background", 0, "needs at least one state", fix))
        self.states.check()

    @classmethod
    def of(cls, decided: Iterable[Decided], name: str = "") -> Background:
        """States of decisions that were taken.

        Args:
            decided: The decisions, for example a :class:`~attribution_sched.explain.recorder.Watch`.
            name: Where they come from; how many there are by default.
        """
        listed = list(decided)
        if not listed:
            fix = "Let a policy decide for a while under Watch and use what it remembers"
            raise ExplanationError(problem("background", [], "needs at least one decision", fix))
        domains = {one.seen.free.shape[1] for one in listed}
        if len(domains) > 1:
            fix = "Use decisions of one cluster"
            raise ExplanationError(problem("background", sorted(domains), "mixes numbers of domains", fix))
        counters = np.zeros((len(listed), len(COUNTER_NAMES)))
        for row, one in enumerate(listed):
            counters[row, : len(one.view.counters)] = one.view.counters
        name = name or Phrase("background.decisions", count=len(listed))
        return cls(stacked([one.seen for one in listed]), counters, name, tuple(one.id for one in listed))

    def __len__(self) -> int:
        return len(self.states)

    def like(self, decision: Decisions, *, same_kind: bool | None = None) -> Background:
        """The states a decision may be compared with, brought to its shape.

        Placements are compared with placements, re-planning with re-planning. A plan is for one kind of task, so states
        of that kind are taken if there are enough.

        Args:
            decision: It.
            same_kind: True insists on the same kind of task, False takes all kinds; by default as many allow.
        """
        k = decision.free.shape[1]
        if self.states.free.shape[1] != k:
            rule = f"has {self.states.free.shape[1]} domains, the decision has {k}"
            raise ExplanationError(problem("background", self.name, rule, "Use a background of the same cluster"))
        event = self.states.replanning == decision.replanning[0]
        alike = event & (self.states.kind[:, 0] == decision.kind[0, 0])
        insist = alike.sum() >= LEAST_ALIKE if same_kind is None else same_kind
        kept = np.flatnonzero(alike if insist else event)
        what = "re-planning" if decision.replanning[0] else "placement"
        if len(kept) == 0:
            fix = "Watch more decisions, or allow other kinds of tasks"
            raise ExplanationError(problem("background", self.name, f"has no {what} decision to compare with", fix))
        states = widened(self.states.take(kept), decision.kind.shape[1])
        if decision.replanning[0]:
            message = "background.replanning_same" if insist else "background.replanning_all"
        else:
            message = "background.placement_same" if insist else "background.placement_all"
        name = Phrase(message, source=term_phrase(self.name), count=len(kept))
        return Background(states, self.counters[kept], name, self._ids(kept))

    def only(self, rows: IntArray) -> Background:
        """The reference group of a decision: some of these states.

        Args:
            rows: Which.
        """
        name = Phrase("background.group", source=term_phrase(self.name), count=len(rows))
        return Background(self.states.take(rows), self.counters[rows], name, self._ids(rows))

    def _ids(self, rows: IntArray) -> tuple[str, ...]:
        return tuple(self.ids[int(row)] for row in rows) if self.ids else ()


# ------ What decisions of one kind are compared with, worked out once


@dataclass(frozen=True, eq=False)
class Alike:
    """Background, players and their usual readings for decisions of one kind.

    Attributes:
        background: The states to compare with.
        cast: The players.
        usual: What is usual of them.
        extremes: Least and largest value of every number in the background, by field.
    """

    background: Background
    cast: Lineup
    usual: Usual
    extremes: dict[str, tuple[NDArray[Any], NDArray[Any]]]

    @classmethod
    def of(cls, background: Background, cast: Lineup) -> Alike:
        """Read what is usual off the background."""
        states = background.states
        extremes = {
            name: (getattr(states, name).min(axis=0), getattr(states, name).max(axis=0)) for name in cast.owners
        }
        return cls(background, cast, cast.usual(states), extremes)

    def differing(self, seen: Decisions) -> BoolArray:
        """Players with a number that some background state has otherwise, by decision, shape ``(D, P)``.

        The others cannot have a share.
        """
        differs = np.zeros((len(seen), len(self.cast.names)), dtype=np.bool_)
        for field, owner in self.cast.owners.items():
            own, (least, most) = getattr(seen, field), self.extremes[field]
            moved = ((least != own) | (most != own)).reshape(len(seen), -1)
            flat = owner.reshape(-1)
            row, at = np.nonzero(moved & (flat >= 0))
            differs[row, flat[at]] = True
        return differs
