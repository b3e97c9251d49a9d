"""Situations: decisions some of whose inputs are those of another decision.

A decision and its background are :class:`~attribution_sched.cluster.decision.Decisions` with the task in
question as candidate 0. Every number of such a record belongs to one player, or to none and stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import PER_CANDIDATE, SIGNALS, Decision, Decisions, with_signal
from attribution_sched.cluster.engine.engine import DAY_S, EVENT_FEATURES
from attribution_sched.errors import ExplanationError, problem
from attribution_sched.types import BoolArray, FloatArray, IntArray, Task

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector


NOBODY = -1
"""Owner of a number that belongs to no player."""

DAY_SINE, DAY_COSINE = EVENT_FEATURES.index("day_sine"), EVENT_FEATURES.index("day_cosine")


def widened(decisions: Decisions, width: int) -> Decisions:
    """The same decisions with room for so many candidates; the last ones are cut off if there are more."""
    found = {}
    for name in PER_CANDIDATE:
        values = getattr(decisions, name)
        wide = np.full((len(values), width, *values.shape[2:]), -1 if name == "kind" else 0, dtype=values.dtype)
        kept = min(width, values.shape[1])
        wide[:, :kept] = values[:, :kept]
        found[name] = wide
    return replace(decisions, **found)


def stacked(parts: list[Decisions]) -> Decisions:
    """Decisions of one cluster, one after the other, with room for the candidates of all."""
    width = max(part.kind.shape[1] for part in parts)
    wide = [widened(part, width) for part in parts]
    return Decisions(**{f.name: np.concatenate([getattr(part, f.name) for part in wide]) for f in fields(Decisions)})


def mean_state(states: Decisions) -> Decisions:
    """One state with the mean of every number, whole numbers rounded; to be read, not to be decided on."""
    found = {}
    for field in fields(Decisions):
        values = getattr(states, field.name)
        mean = values.mean(axis=0, keepdims=True, dtype=np.float64)
        found[field.name] = (mean if values.dtype.kind == "f" else np.round(mean)).astype(values.dtype)
    return Decisions(**found)


class Mixture(Decisions):
    """Situations whose fields are put together when they are first read: most questions read few of them."""

    @classmethod
    def of(cls, blend: Blender, coalitions: BoolArray, background: IntArray, decision: IntArray) -> Mixture:
        """Situations of coalitions ``(n, P)``, the absent from states ``(n,)``, of decisions ``(n,)``."""
        made = cls.__new__(cls)
        made.__dict__["_parts"] = (blend, coalitions, background, decision)
        return made

    def __len__(self) -> int:
        parts = self.__dict__.get("_parts")
        return super().__len__() if parts is None else len(parts[3])

    def take(self, index: IntArray | BoolArray) -> Decisions:
        """Some of the situations."""
        parts = self.__dict__.get("_parts")
        if parts is None:
            return super().take(index)
        return Mixture.of(parts[0], *(part[index] for part in parts[1:]))

    def __getattr__(self, name: str) -> NDArray[Any]:
        parts = self.__dict__.get("_parts")
        if parts is None or name not in Decisions.__dataclass_fields__:
            raise AttributeError(name)
        blend, coalitions, background, decision = parts
        made: NDArray[Any] = blend.field(name, coalitions, background, decision)
        self.__dict__[name] = made
        return made


@dataclass(frozen=True, eq=False)
class Blender:
    """Puts situations together.

    Attributes:
        decisions: The D decisions explained.
        background: The M states that absent players are taken from, of the same shapes.
        owners: Per field the player that owns each number of a row, :data:`NOBODY` for none; flat.
    """

    decisions: Decisions
    background: Decisions
    owners: Mapping[str, IntArray]

    @classmethod
    def of(cls, decisions: Decisions, background: Decisions, owners: Mapping[str, IntArray]) -> Blender:
        """Check shapes and lay everything out flat."""
        for field in fields(Decisions):
            own, other = getattr(decisions, field.name), getattr(background, field.name)
            if own.shape[1:] != other.shape[1:]:
                rule = f"must be {own.shape[1:]} as in the decision"
                fix = "Use a background of the same cluster"
                raise ExplanationError(problem(f"background.{field.name}.shape", other.shape[1:], rule, fix))
        flat = {name: np.ascontiguousarray(owner.reshape(-1)) for name, owner in owners.items() if (owner >= 0).any()}
        return cls(decisions, background, flat)

    def only(self, players: IntArray) -> Blender:
        """The same for coalitions in which nobody but these players is ever absent; it has less to do."""
        found = {}
        for name, owner in self.owners.items():
            mine = np.isin(owner, players)
            if mine.any():
                found[name] = np.where(mine, owner, NOBODY)
        return replace(self, owners=found)

    def __call__(self, coalitions: BoolArray, background: IntArray, decision: IntArray) -> Decisions:
        """Situations of coalitions ``(n, P)`` of decisions ``(n,)``, the absent from background states ``(n,)``."""
        return Mixture.of(self, coalitions, background, decision)

    def field(self, name: str, coalitions: BoolArray, background: IntArray, decision: IntArray) -> NDArray[Any]:
        """One field of such situations."""
        own = getattr(self.decisions, name)
        if name not in self.owners:
            return own[decision]  # type: ignore[no-any-return]
        flat, other = own.reshape(len(own), -1), getattr(self.background, name)
        other = other.reshape(len(other), -1)
        owner = self.owners[name]
        owned = np.flatnonzero(owner >= 0)
        mixed: NDArray[Any] = flat[decision]
        if 2 * len(owned) < len(owner):
            keep = coalitions[:, owner[owned]]
            mixed[:, owned] = np.where(keep, mixed[:, owned], other[:, owned][background])
        else:
            # One more column, always present, for what belongs to nobody.
            present = np.concatenate([coalitions, np.ones((len(coalitions), 1), dtype=np.bool_)], axis=1)
            mixed = np.where(present[:, owner], mixed, other[background])
        return mixed.reshape(len(decision), *own.shape[1:])


def to_view(view: Decision, situations: Decisions, row: int) -> Decision:
    """A situation as a view, for policies that want one.

    Attributions are the situation's; they cannot be turned back into counters, which stay as they were: other waiting
    tasks have theirs if they are the decision's own, else none. The time of day is moved within the decision's own day.
    """
    s = situations
    angle = float(np.arctan2(s.event[row, DAY_SINE], s.event[row, DAY_COSINE])) % (2.0 * np.pi)
    time_s = view.time_s - view.time_s % DAY_S + angle / (2.0 * np.pi) * DAY_S
    if np.isclose(time_s, view.time_s, atol=1.0):
        time_s = view.time_s
    queue = [] if view.replanning else _queue(view, s, row)
    weights = s.weights[row]
    link, moment = view.link_gbps, view.moment
    for signal, name in SIGNALS.items():
        if moment is not None and getattr(s, name).shape[1]:
            moment = with_signal(moment, signal, getattr(s, name)[row])
    return replace(
        view,
        moment=moment,
        carbon_g_per_kwh=s.carbon[row].copy(),
        electricity_usd_per_kwh=s.electricity[row].copy(),
        free_devices=s.free[row].copy(),
        bandwidth_gbps=s.links[row, 0].copy(),
        latency_s=s.links[row, 1].copy(),
        observed=None if view.observed is None else s.domains[row].astype(np.float64),
        steps_left=float(s.left[row, 0]),
        time_s=time_s,
        queue=view.queue if view.replanning else tuple(queue),
        running_step_s=float(s.step_s[row]),
        link_gbps=None if link is None else link * s.links[row, 0] / view.bandwidth_gbps,
        attribution=_seen(view.attribution, s.attribution[row, 0]),
        reward=replace(view.reward, w_eff=float(weights[0]), w_util=float(weights[1]), w_cost=float(weights[2])),
    )


def _queue(view: Decision, s: Decisions, row: int) -> list[Task]:
    """Waiting tasks of a situation in order of arrival, each in a slot of its own."""
    known = {task.slot: task for task in view.queue}
    queue: list[Task] = []
    taken = {view.slot}
    for q in np.flatnonzero(s.kind[row] >= 0):
        if q == 0 and view.slot not in known:
            continue
        slot, kind, left = int(s.slot[row, q]), int(s.kind[row, q]), float(s.left[row, q])
        before = known.get(slot)
        same = before is not None and (q == 0 or (before.kind_index, before.steps_left) == (kind, left))
        if q > 0 and slot in taken:
            # A background's task may stand where the decision's own does; two in one slot could not be told apart.
            slot = next(free for free in range(len(taken) + 1) if free not in taken)
        taken.add(slot)
        waited_s = float(s.waited_s[row, q])
        if before is not None and same:
            # What it is stays; what is seen of its attribution may be another task's.
            task = replace(before, attribution=_seen(before.attribution, s.attribution[row, q]))
        else:
            task = Task(kind_index=kind, priority=view.kinds[kind].priority)
        queue.append(task.at(slot, left, waited_s))
    return sorted(queue, key=lambda task: -task.waited_s)


def _seen(vector: AttributionVector | None, state: FloatArray) -> AttributionVector | None:
    """A task's attribution as a situation shows it; a task that nobody attributed stays so."""
    return None if vector is None else vector.with_state(state)
