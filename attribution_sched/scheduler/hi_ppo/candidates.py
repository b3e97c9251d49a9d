"""Other choices at a decision: what a policy would do with one thing changed, batched over changes and decisions."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from attribution_sched.scheduler.hi_ppo.action_masks import DEAD, L_SIZE, L_WORTH, PartialPlans
from attribution_sched.scheduler.hi_ppo.decode import Actor, Choices, Decoded, ShortestFirst
from attribution_sched.scheduler.hi_ppo.features import State
from attribution_sched.types import BoolArray, FloatArray, IntArray

OWN, TASK, NOTHING, DOMAIN, FEWER, MORE, CUT, REPLICA, RESIZED = range(9)
"""What is changed: nothing, the task, acting at all, the first segment's domain, devices or cut, one more replica, or
task and devices."""

TRIED = np.array([OWN, TASK, TASK, NOTHING, DOMAIN, FEWER, FEWER, MORE, CUT, REPLICA, RESIZED, RESIZED])
"""Changes tried at every decision; those that do not exist or come to the same are left out."""


class ComparedActor(Actor, Protocol):
    """Who chooses, can be given another task than it would have taken, and says how probable its choices were."""

    def retask(self, state: State, task: IntArray) -> None:
        """Go on with these tasks."""
        ...

    def log_probability(self, found: Decoded) -> FloatArray:
        """Of what was chosen, at the upper and at the lower level, shape ``(B, 2)``; zeros for who has none."""
        ...


class RuleActor(ShortestFirst):
    """The rule, which looks at every task anew."""

    def retask(self, state: State, task: IntArray) -> None:
        """Nothing of the task it would have taken is remembered."""

    def log_probability(self, found: Decoded) -> FloatArray:
        """A rule prefers nothing by degrees."""
        return np.zeros((len(found.task), 2))


class Deviating:
    """Somebody's choices except one; ``pick`` in [0, 1) says which of the others is taken instead."""

    def __init__(self, actor: ComparedActor, change: IntArray, pick: FloatArray) -> None:
        self._actor, self._change, self._pick = actor, change.copy(), pick
        self.made: BoolArray = np.zeros(len(change), dtype=np.bool_)

    def task(self, state: State) -> IntArray:
        """Its own candidate, or another where that is the change."""
        own = self._actor.task(state)
        found, last = own.copy(), state.mask.shape[1] - 1
        for r in np.flatnonzero(np.isin(self._change, (TASK, NOTHING, RESIZED))).tolist():
            others = state.mask[r].copy()
            others[own[r]] = False
            if self._change[r] == NOTHING:
                others[:last] = False
            else:
                others[last] = False
            if others.any():
                found[r] = self._one(others, r)
                self.made[r] = self._change[r] != RESIZED
            else:
                self._change[r] = OWN
        self._actor.retask(state, found)
        return found

    def choose(self, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray) -> IntArray:
        """Its own choice, or another where that is the change."""
        own = self._actor.choose(head, offer, drafts, rows)
        found = own.copy()
        if head in ("format", "level"):
            return found
        for i in np.flatnonzero(~self.made[rows]).tolist():
            r = int(rows[i])
            others = self._others(head, offer, i, int(own[i]), int(self._change[r]), bool(drafts.written[r] == 0))
            if others is None or not others.any():
                continue
            if head == "layout":
                found[i] = self._resized(offer, i, int(own[i]), others, r)
            else:
                found[i] = self._one(others, r)
            self.made[r] = True
        return found

    def _others(self, head: str, offer: Choices, i: int, own: int, change: int, first: bool) -> BoolArray | None:
        """What may be taken instead, or None where this is not the choice to change."""
        others: BoolArray = offer.mask[i].copy()
        others[own] = False
        if head == "domain":
            if change == DOMAIN and first:
                others[-1] = False
                return others
            return others if change == REPLICA and not first and offer.mask[i, -1] else None
        if not first:
            return None
        if head == "cut":
            return others if change == CUT else None
        size = offer.choices[i, :, L_SIZE]
        differs = {FEWER: size < size[own] - 0.01, MORE: size > size[own] + 0.01}
        differs[RESIZED] = differs[FEWER] | differs[MORE]
        return others & differs[change] if change in differs else None

    def _resized(self, offer: Choices, i: int, own: int, others: BoolArray, r: int) -> int:
        """The worthiest layout of the next number of devices, seldom of one further away."""
        away = np.abs(offer.choices[i, :, L_SIZE] - offer.choices[i, own, L_SIZE])
        steps = np.unique(away[others].round(3))
        at = min(len(steps) - 1, int(-np.log2(1.0 - self._pick[r])))
        near = others & (np.abs(away - steps[at]) < 0.01)
        return int(np.where(near, offer.choices[i, :, L_WORTH], -np.inf).argmax())

    def _one(self, others: BoolArray, r: int) -> int:
        found = np.flatnonzero(others)
        return int(found[int(self._pick[r] * len(found))])


def distinct(found: Decoded, made: BoolArray, many: int) -> BoolArray:
    """Which of ``many`` choices per decision are there and not the same as one before; none where only one is left."""
    plans = np.where(found.batch.counts[:, None] > 0, found.batch.segments.reshape(len(made), -1), 0)
    keys = np.column_stack([found.task, plans])
    keep: BoolArray = made & (found.drafts.status != DEAD)
    for begin in range(0, len(made), many):
        seen: set[bytes] = set()
        for r in range(begin, begin + many):
            key = keys[r].tobytes()
            keep[r] &= key not in seen
            if keep[r]:
                seen.add(key)
        # Without an own choice there is nothing to compare with.
        if len(seen) < 2 or not keep[begin]:
            keep[begin : begin + many] = False
    return keep
