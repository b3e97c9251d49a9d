"""Why a task is still waiting: the binding cause, who holds the room, and a change of one's own request that helps.

Causes are a closed list in strict precedence: the first that applies is the answer, so an answer never depends on who
asks. What is advised was tried: the policy places the task with that change. Whoever is named as a blocker was tried
too: without it the policy places the task.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan
from attribution_sched.explain.decision_table import least_devices
from attribution_sched.explain.digits import number
from attribution_sched.explain.preference import redecided
from attribution_sched.explain.recorder import perceived
from attribution_sched.explain.room import empty_cluster, fits_at_all
from attribution_sched.explain.words import Phrase, in_language
from attribution_sched.scheduler.policy import Policy
from attribution_sched.types import IntArray, Task


class Cause(enum.Enum):
    """Why a task waits, in order of precedence."""

    MISCONFIGURED = "misconfigured"
    """It asks for fewer devices than hold it anywhere."""
    FITS_NOWHERE = "fits_nowhere"
    """Not even the empty cluster holds it."""
    QUOTA = "quota"
    """It is on hold, its tenant's quota or budget is used up, or devices that would do are reserved for others."""
    NO_ROOM = "no_room"
    """It fits the cluster, and not what is free of it now."""
    HELD_FOR_ANOTHER = "held_for_another"
    """There is room, and the policy places or keeps it for another waiting task."""
    LINK_OR_PRICE = "link_or_price"
    """With faster links or free traffic the policy would place it, or it waits for a cleaner or cheaper hour."""
    POLICY_WAITS = "policy_waits"
    """There is room for it alone, and the policy prefers to wait."""
    BEHIND = "behind"
    """It is behind the window of tasks that the policy looks at."""


@dataclass(frozen=True)
class Holder:
    """A running task and the devices that it holds.

    Attributes:
        task: Its id.
        tenant: Whose it is.
        devices: Per domain, shape ``(K,)``.
    """

    task: str
    tenant: str
    devices: tuple[int, ...]


@dataclass(frozen=True)
class Why:
    """Why a task waits.

    Attributes:
        task: Its id.
        cause: The binding cause.
        sentence: It in one sentence.
        blockers: Tasks without which the policy places it, tried; empty if there are none or nobody knows who runs.
        advice: A change of its own request with which the policy starts it now, tried; empty if none was found.
        change: The same as fields of a request.
        tried: How often the policy was asked.
        behind_others: Whether blockers alone do not do: others that wait would be placed first.
        share: The share rule in force and what it means for the tenant, in one sentence; empty if it plays no part.
    """

    task: str
    cause: Cause
    sentence: str
    blockers: tuple[str, ...] = ()
    advice: str = ""
    change: Mapping[str, int] | None = None
    tried: int = 0
    behind_others: bool = False
    share: str = ""

    def say(self, lang: str = "en") -> str:
        """All of it in a language."""
        parts = [in_language(self.sentence, lang)]
        parts += [in_language(more, lang) for more in (self.share, self.advice) if more]
        return (" " if lang == "en" else "").join(parts)


def put_up(view: Decision, task: Task) -> Decision:
    """A decision about another of the waiting tasks, at the same moment."""
    queue = view.queue if any(each.slot == task.slot for each in view.queue) else (*view.queue, task)
    return replace(
        view, kind=view.kinds[task.kind_index], kind_index=task.kind_index, counters=task.counters, replanning=False,
        current_plan=None, steps_left=task.steps_left or task.steps, slot=task.slot, queue=queue, running_step_s=0.0,
        samples_per_s=task.samples_per_s, task=task, attribution=task.attribution,
    )  # fmt: skip


class _Asked:
    """Asks the policy about one task, and counts."""

    def __init__(self, policy: Policy, view: Decision) -> None:
        self.policy, self.view, self.count = policy, view, 0

    def places(self, *, most: int | None = None, alone: bool = False, **changes: object) -> Plan | None:
        """The policy's plan for the task in the changed moment, on at most so many devices; None if it waits.

        A plan over several domains can sum up to more than was asked for: as in a system, the policy is then asked once
        more, about the domain with most room.
        """
        view = replace(self.view, **changes)  # type: ignore[arg-type]
        if alone:
            view = replace(view, queue=tuple(each for each in view.queue if each.slot == view.slot), backlog=0)
        free = np.asarray(view.free_devices)
        for attempt in range(2):
            self.count += 1
            within = free if most is None else np.minimum(free, most)
            if attempt:
                within = np.where(np.arange(len(free)) == int(np.argmax(within)), within, 0)
            tried = replace(view, free_devices=within)
            plan = redecided(self.policy, tried, perceived(self.policy, tried))[0]
            if plan is None or most is None or sum(segment.device_count for segment in plan.segments) <= most:
                return plan
        return None


def why_waiting(
    policy: Policy,
    view: Decision,
    holders: Sequence[Holder] = (),
    allowed: IntArray | None = None,
    *,
    private: bool = False,
    behind: int = 0,
    quota: Phrase | None = None,
    share: Phrase | None = None,
) -> Why:
    """Say why the task of a decision waits.

    Args:
        policy: Who decides; a copy of it, if it remembers.
        view: The decision about the waiting task, with all devices that are free, whoever they are for.
        holders: Who runs where.
        allowed: Devices per domain that the task may use of the free ones, reservations considered; all by default.
        private: Whether names of others are left out.
        behind: Tasks before it, if the policy does not look at it yet; 0 if it does.
        quota: What the quota of its tenant leaves it, in words; None if it has none.
        share: What the share rule means for its tenant, in words; told where the turn of the task matters.
    """
    task = view.task.id if view.task is not None and view.task.id else str(view.slot)
    limit = None if view.task is None else view.task.devices
    free = np.asarray(view.free_devices)
    may = free if allowed is None else np.minimum(free, np.asarray(allowed))
    asked = _Asked(policy, replace(view, free_devices=may))
    empty = empty_cluster(view)
    needs = [need for k in range(len(free)) if (need := least_devices(view, k)) is not None]

    def answer(cause: Cause, blockers: tuple[str, ...] = (), **values: object) -> Why:
        change, advice = _advice(asked, view, may, limit)
        named = tuple(Phrase("why.somebody") for _ in blockers) if private else blockers
        message = f"why.{cause.value}_behind" if "ahead" in values else f"why.{cause.value}"
        message = "why.cleaner_hour" if "kg" in values else message
        # A model that no domain holds by itself has no number of devices in one.
        message += "_several" if "need" in values and not needs else ""
        sentence = Phrase(message, task=task, **{**values, **({"who": named} if blockers else {})})
        behind_others = "ahead" in values
        turn = behind_others or cause in (Cause.NO_ROOM, Cause.HELD_FOR_ANOTHER, Cause.BEHIND)
        rule = share if share is not None and turn and len(view.queue) + view.backlog > 1 else ""
        shown = () if private else blockers
        return Why(task, cause, sentence, shown, advice, change, asked.count, behind_others, rule)

    if not fits_at_all(empty):
        return answer(Cause.FITS_NOWHERE, devices=int(empty.free_devices.sum()))
    if limit is not None and not fits_at_all(empty, limit):
        return answer(Cause.MISCONFIGURED, asked=limit, need=min(needs, default=0))
    if view.task is not None and view.task.hold:
        return answer(Cause.QUOTA, what=Phrase("why.on_hold"))
    if not fits_at_all(asked.view, limit):
        if fits_at_all(view, limit):
            if quota is not None:
                return answer(Cause.QUOTA, what=quota)
            return answer(Cause.QUOTA, what=Phrase("why.reserved", devices=int((free - may).sum())))
        most = int(np.argmax(may))
        names = [domain.name for domain in view.cost.cluster.domains]
        room: dict[str, Any] = {
            "need": min(needs, default=0), "free": int(may[most]), "domain": names[most], "all": int(may.sum()),
        }  # fmt: skip
        blockers = _blockers(asked, holders, may, limit)
        if blockers:
            return answer(Cause.NO_ROOM, blockers, **room)
        # With the room free the policy would place another first: told who holds it, and that others go before.
        blockers = _blockers(asked, holders, may, limit, alone=True)
        if blockers:
            ahead = max(1, len(view.queue) - 1)
            return answer(Cause.NO_ROOM, blockers, **room, ahead=ahead)
        return answer(Cause.NO_ROOM, **room, who=(Phrase("why.nobody"),))
    if behind:
        return answer(Cause.BEHIND, count=behind)
    later = _cleaner_hour(policy, asked.view)
    if later is not None:
        kg, error = number(later.carbon_g / 1e3), number(later.carbon_error_g / 1e3, 2)
        return answer(Cause.LINK_OR_PRICE, hours=number(later.hours), kg=kg, error=error, usd=number(later.usd, 2))
    alone = asked.places(alone=True, most=limit)
    if alone is not None:
        return answer(Cause.HELD_FOR_ANOTHER, count=max(0, len(view.queue) - 1))
    if asked.places(alone=True, most=limit, bandwidth_gbps=10.0 * view.bandwidth_gbps) is not None:
        return answer(Cause.LINK_OR_PRICE)
    return answer(Cause.POLICY_WAITS)


def _cleaner_hour(policy: Policy, view: Decision) -> Any:
    """What a policy that thinks expects of leaving the task until a cleaner hour; None if it does not leave it."""
    if view.moment is None or len(view.queue) != 1 or view.moment.world.cluster.domains[0].carbon is None:
        return None
    policy.decide(view)
    thought = getattr(getattr(policy, "last", None), "thought", None)
    return None if thought is None else thought.options[thought.chosen].later


def _advice(asked: _Asked, view: Decision, may: IntArray, limit: int | None) -> tuple[Mapping[str, int] | None, str]:
    """The smallest change of the number of devices asked for with which the policy starts the task, tried."""
    largest = int(may.max(initial=0))
    sizes = [2**i for i in range(largest.bit_length()) if 2**i <= largest]
    now = limit or largest
    nearest_first = sorted(sizes, key=lambda size: (abs(np.log2(size / max(1, now))), size))
    for size in (size for size in nearest_first if size != limit):
        if asked.places(most=size) is not None:
            return {"devices": size}, Phrase("why.advice_devices", devices=size)
    return None, ""


def _blockers(
    asked: _Asked, holders: Sequence[Holder], own: IntArray, limit: int | None, *, alone: bool = False
) -> tuple[str, ...]:
    """The fewest running tasks of one domain without which the policy places the task, tried; others waiting or not."""
    found: list[tuple[str, ...]] = []
    for domain in range(len(own)):
        there = sorted((each for each in holders if each.devices[domain]), key=lambda each: -each.devices[domain])
        freed, gone = own.copy(), []
        for each in there:
            gone.append(each.task)
            freed = freed + np.array(each.devices)
            if asked.places(free_devices=freed, most=limit, alone=alone) is not None:
                found.append(tuple(gone))
                break
        if any(len(each) == 1 for each in found):
            break
    return min(found, key=len) if found else ()
