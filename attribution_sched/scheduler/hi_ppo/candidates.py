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
<<<<<<< HEAD
=======


# ------ The lower agent's partner: whether a task gets devices of its own or goes beside another, and beside whom
#
# a_low = alone | beside j,    work(i, j) = s_ij + s_ji,    s_ij the speed of i beside j over its speed alone
#
# What is believed of speeds is what pairs of this very cluster were seen to do, carried over to tasks whose attribution
# vector and pace are like theirs (:class:`~attribution_sched.scheduler.pairing.TrialBelief`,
# :class:`~attribution_sched.scheduler.pairing.VectorProfile`): no table of pairs, no model's name. Without thinking a
# measured job goes beside another only where no devices are free, and only if the pair is believed to do more work than
# one; thinking compares partners with each other, with devices of the task's own and with waiting. Tasks whose model is
# known share by thinking only: what they do to each other follows in copies from what they are believed to demand.

WORK_ODDS = 20.0
"""Log-odds per unit of a pair's work, as for a unit of a step's share of R."""

TASKS, NEIGHBOURS = 3, 3
"""Waiting tasks, and neighbours of each, that thinking compares."""


class Partners(Packing):
    """Who goes beside whom in one cluster.

    Args:
        attributions: Counters ``(n, 12)`` → vectors ``(n, 7)``, for tasks that carry none.
    """

    def __init__(self, attributions: Attributor) -> None:
        super().__init__(TrialBelief(VectorProfile(attributions)))
        self._refusals: dict[tuple[float, int, int], float] = {}
        self._tables: list[tuple[World, PairTables]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Partners:
        """The same beliefs; tables of a world are made again by whoever asks, the same ones."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            setattr(other, name, [] if name == "_tables" else copy.deepcopy(value, memo))
        return other

    @staticmethod
    def apply(view: Decision) -> bool:
        """Whether tasks of a decision may share devices, and pairs of them be seen to."""
        return bool(view.neighbours or view.co_runners)

    @staticmethod
    def leaves_room(view: Decision, plan: Plan) -> bool:
        """Whether devices of its own for a task leave room for the largest request.

        A measured job runs as fast as it can on the devices it asked for: with nobody else in the queue there is
        nothing to compare that with.
        """
        if plan.beside is not None:
            return False
        left = np.array(view.free_devices)
        for segment in plan.segments:
            left[segment.domain] -= segment.device_count
        return bool(left.max() >= max(kind.measured_devices for kind in view.kinds))

    @staticmethod
    def shares(view: Decision) -> bool:
        """Whether the running task that is decided on has a co-runner."""
        pairs = view.co_runners if view.replanning else ()
        return any(view.counters is task.counters for pair in pairs for task in (pair.task, pair.other))

    def propose(self, view: Decision) -> tuple[int, Plan] | None:
        """The shortest waiting task that has a neighbour worth it, and its plan there; of measured jobs only."""
        if not view.kind.opaque:
            return None
        for task in sorted(view.queue, key=lambda each: (each.steps_left, each.number)):
            found = self.listed(view, task, 1)
            if found:
                return task.slot, found[0][1]
        return None

    def listed(self, view: Decision, task: Task, most: int) -> list[tuple[float, Plan]]:
        """A task's best neighbours: log-odds among them and its plan beside each, best first."""
        if task.devices is not None and task.devices < view.kinds[task.kind_index].measured_devices:
            return []
        offers = sorted(self.offers(view, task), key=lambda offer: -offer[0])
        plans = []
        for work, neighbour in offers:
            plan = plan_beside(view, task.kind_index, task, neighbour)
            if plan is None or (task.devices is not None and sum(s.device_count for s in plan.segments) > task.devices):
                continue
            if not self._refused_now(view, task, neighbour.slot):
                plans.append((WORK_ODDS * work, plan))
            if len(plans) == most:
                break
        top = np.logaddexp.reduce([odds for odds, _ in plans]) if plans else 0.0
        return [(float(odds - top), plan) for odds, plan in plans]

    def options(self, view: Decision, first: int) -> list[tuple[int, float, Plan]]:
        """What thinking compares: slot, log-odds and plan of partners of a task and of the shortest others."""

        def order(task: Task) -> tuple[bool, float, int]:
            step_s = 1.0 if view.kind.opaque else float(view.base_step_s[task.kind_index])
            return task.slot != first, task.steps_left * step_s, task.number

        waiting = sorted(view.queue, key=order)[:TASKS]
        return [(task.slot, odds, plan) for task in waiting for odds, plan in self.listed(view, task, NEIGHBOURS)]

    def _refused_now(self, view: Decision, task: Task, beside: int) -> bool:
        """Whether the cluster refused the two a moment ago: memory of a pair is not all told by each."""
        before = self._refusals.get((view.time_s, task.slot, beside))
        if before is None or before == _refusals(view):
            return False
        self.refuse(task.counters, view.beside(beside).task.counters)
        return True

    def asked(self, view: Decision, slot: int, plan: Plan) -> None:
        """A pair is asked for."""
        if plan.beside is not None:
            kept = {key: count for key, count in self._refusals.items() if key[0] == view.time_s}
            self._refusals = {**kept, (view.time_s, slot, plan.beside): _refusals(view)}

    def reset(self, seed: int) -> None:
        """Forget the last episode; the seed decides nothing."""
        super().reset(seed)
        self._refusals = {}

    def table(self, view: Decision, world: World) -> PairTables | None:
        """What is believed of pairs of measured jobs, for copies; None where others share, or nobody."""
        if not (self.apply(view) and view.kind.opaque) or not isinstance(self.belief, ProfileBelief):
            return None
        for known, table in self._tables:
            if known is world:
                return table.see(view)
        pool = law_pool(world)
        law = [pool.task(row, world.kinds) for row in range(len(pool))]
        table = PairTables(self.belief, law, min(domain.gpu.memory_bytes for domain in world.cluster.domains))
        self._tables = [(world, table), *self._tables[:3]]
        return table.see(view)


def _refusals(view: Decision) -> float:
    """Plans that the cluster has refused so far."""
    return -1.0 if view.moment is None else float(view.moment.state.totals[0, st.REJECTED])
>>>>>>> cab68f5a02b74fbcaf4f3b5af8dc13edf60a9728
