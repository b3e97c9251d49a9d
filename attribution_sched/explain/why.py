"""Why a task is still waiting: the binding cause, who holds the room, and a change of one's own request that helps.

Causes are a closed list in strict precedence: the first that applies is the answer, so an answer never depends on who
asks. Whoever is named, and whatever is advised, was tried in a copy of the cluster (:mod:`~.trial`): with the blockers
and those who would go before it gone, or with the request changed, the policy starts the task at once.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.explain.decision_table import least_devices
from attribution_sched.explain.digits import number
from attribution_sched.explain.preference import redecided
from attribution_sched.explain.recorder import perceived
from attribution_sched.explain.room import empty_cluster, fits_at_all
from attribution_sched.explain.trial import Trial
from attribution_sched.scheduler.policy import Policy
from attribution_sched.types import IntArray, Task
from attribution_sched.words.say import Phrase, counted, in_language


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
    """There is room, and the policy gives or keeps it to other waiting tasks."""
    LINK_OR_PRICE = "link_or_price"
    """With faster links or free traffic the policy would place it, or it waits for a cleaner or cheaper hour."""
    POLICY_WAITS = "policy_waits"
    """There is room for it alone, and the policy prefers to wait."""
    BEHIND = "behind"
    """Its turn comes: it is behind the window of tasks that the policy looks at, or others are decided on first."""


MOST_TRIED = 6
"""Sets of running tasks that are tried as blockers, the smallest first."""

MOST_ROOMS = 2
"""Of these, so many are tried with a policy that looks ahead, and so many with those gone who would go first."""

MOST_HOLDERS = 12
"""Running tasks at most of which the fewest are sought without which the task starts."""

MOST_ROUNDS = 64
"""How often those who go first are taken out of the queue too."""


class Confirm(Protocol):
    """Tries what is about to be said where it counts: in the live cluster once more."""

    def starts_without(self, gone: Collection[str]) -> bool:
        """Whether the task starts at once if these, waiting or running, are not there."""
        ...

    def asking(self, task: Task) -> bool:
        """Whether the task starts at once if it is handed in anew with this request."""
        ...


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
        blockers: Running tasks without which, and without those ``ahead``, it starts now, tried; empty if none is.
        ahead: Waiting tasks that would go first; they have to be gone too.
        advice: A change of its own request with which it starts now, tried; empty if none was found.
        change: The same as fields of a request.
        tried: How many copies of the cluster were asked.
        share: The share rule in force and what it means for the tenant, in one sentence; empty if it plays no part.
    """

    task: str
    cause: Cause
    sentence: str
    blockers: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()
    advice: str = ""
    change: Mapping[str, int] | None = None
    tried: int = 0
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
    confirm: Confirm | None = None,
) -> Why:
    """Say why the task of a decision waits.

    Args:
        policy: Who decides; a copy of it, if it remembers.
        view: The decision about the waiting task, with all devices that are free, whoever they are for, and its moment.
        holders: Who runs where.
        allowed: Devices per domain that the task may use of the free ones, reservations considered; all by default.
        private: Whether names of others are left out.
        behind: Tasks before it, if the policy does not look at it yet; 0 if it does.
        quota: What the quota of its tenant leaves it, in words; None if it has none.
        share: What the share rule means for its tenant, in words; told where the turn of the task matters.
        confirm: Tries in the live cluster once more what a copy of this decision says; only what holds there too is
            told. Without it, the copy's word is taken.

    Raises:
        SettingsError: If the decision does not carry its moment.
    """
    return _Question(policy, view, holders, allowed, private, behind, quota, share, confirm).answer()


def _cleaner_hour(policy: Policy, view: Decision) -> Phrase | None:
    """What a policy that thinks expects of leaving the task until a cleaner hour; None if it does not leave it."""
    moment = view.moment
    if moment is None or len(view.queue) != 1 or all(each.carbon is None for each in moment.world.cluster.domains):
        return None
    policy.decide(view)
    thought = getattr(getattr(policy, "last", None), "thought", None)
    later = None if thought is None else thought.options[thought.chosen].later
    if later is None:
        return None
    kg, error, usd = number(later.carbon_g / 1e3), number(later.carbon_error_g / 1e3, 2), number(later.usd, 2)
    return Phrase("why.cleaner_hour", hours=number(later.hours), kg=kg, error=error, usd=usd)


class _Question:
    """One question, and what was found on the way; see :func:`why_waiting`."""

    def __init__(
        self, policy: Policy, view: Decision, holders: Sequence[Holder], allowed: IntArray | None, private: bool,
        behind: int, quota: Phrase | None, share: Phrase | None, confirm: Confirm | None,
    ) -> None:  # fmt: skip
        self.confirm = confirm
        self.kept = False
        self.policy, self.view, self.holders, self.private, self.behind = policy, view, holders, private, behind
        self.quota, self.share = quota, share
        self.task = view.task if view.task is not None else Task(kind_index=view.kind_index, slot=view.slot)
        self.limit = self.task.devices
        self.free = np.asarray(view.free_devices)
        self.may = self.free if allowed is None else np.minimum(self.free, np.asarray(allowed))
        # What a quota or a reservation keeps it from stays so when others are gone.
        self.kept_back = self.free - self.may
        self.trial = Trial(policy, view, None if allowed is None else self._allowed())
        self.here = view.slot in self.trial.moment.tasks
        self.needs = [need for k in range(len(self.free)) if (need := least_devices(view, k)) is not None]

    def answer(self) -> Why:
        """The first cause of the list that applies."""
        view, limit, empty = self.view, self.limit, empty_cluster(self.view)
        if not fits_at_all(empty):
            return self._told(Cause.FITS_NOWHERE, devices=int(empty.free_devices.sum()))
        if limit is not None and not fits_at_all(empty, limit):
            return self._told(Cause.MISCONFIGURED, asked=limit, need=min(self.needs, default=0))
        if self.task.hold:
            return self._told(Cause.QUOTA, what=Phrase("why.on_hold"))
        if not self._fits(self.may):
            if fits_at_all(view, limit):
                reserved = Phrase("why.reserved", devices=int(self.kept_back.sum()))
                return self._told(Cause.QUOTA, what=reserved if self.quota is None else self.quota)
            return self._no_room()
        if self.behind or not self.here:
            return self._told(Cause.BEHIND, count=max(1, self.behind))
        later = _cleaner_hour(self.policy, self._seen())
        if later is not None:
            return self._told(Cause.LINK_OR_PRICE, reason=later)
        ahead = self._ahead(())
        if ahead is not None:
            return self._told(Cause.HELD_FOR_ANOTHER, ahead=ahead) if ahead else self._told(Cause.BEHIND, count=0)
        # Only where it waits by itself too as links and prices are can better ones be what it waits for.
        for reason, change in self._better_terms() if not self._would_start_alone() else ():
            if self._would_start_alone(**change):
                return self._told(Cause.LINK_OR_PRICE, reason=Phrase(reason))
        return self._told(Cause.POLICY_WAITS)

    def _would_start_alone(self, **change: Any) -> bool:
        """Whether the policy, asked again without thinking, places the task if nobody else waits and this is so."""
        only = tuple(each for each in self.view.queue if each.slot == self.view.slot)
        alone = replace(self._seen(), **change, queue=only, backlog=0)
        return redecided(self.policy, alone, perceived(self.policy, alone))[0] is not None

    def _seen(self) -> Decision:
        """The decision as the policy is asked it."""
        return replace(self.view, free_devices=self.may if self.limit is None else np.minimum(self.may, self.limit))

    def _fits(self, free: IntArray, limit: int | None = None) -> bool:
        return fits_at_all(replace(self.view, free_devices=free), limit or self.limit)

    def _allowed(self) -> IntArray:
        whole: IntArray = np.array(self.view.cost.domains.rows.devices, dtype=np.int64) - self.kept_back
        return whole

    def _better_terms(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Moments with faster links, and with traffic and energy that cost nothing."""
        view = self.view
        faster: dict[str, Any] = {"bandwidth_gbps": 10.0 * view.bandwidth_gbps}
        if view.link_gbps is not None:
            faster["link_gbps"] = 10.0 * view.link_gbps
        if len(view.free_devices) > 1:
            yield "why.slow_links", faster
        yield "why.high_price", {"reward": replace(view.reward, w_cost=0.0)}

    def _no_room(self) -> Why:
        most = int(np.argmax(self.may))
        names = [domain.name for domain in self.view.cost.cluster.domains]
        room: dict[str, Any] = {
            "need": min(self.needs, default=0), "free": int(self.may[most]), "domain": names[most],
            "all": int(self.may.sum()),
        }  # fmt: skip
        sets = self._holding()
        if not self.here:
            # The policy does not look at it, so nothing can be tried: who holds the room is told, and who is before.
            who = sets[0] if sets else ()
            return self._told(Cause.NO_ROOM, named=tuple(who), before=self.behind, **room)
        willing = self._confirmed(who for who in sets if self.trial.without(who).starts)
        if willing is None and self.trial.looks_ahead:
            willing = self._confirmed(iter(sets))
        if willing is not None:
            return self._told(Cause.NO_ROOM, blockers=willing, **room)
        for who in sets[: 1 if self.trial.looks_ahead else MOST_ROOMS]:
            ahead = self._ahead(who)
            if ahead is not None:
                return self._told(Cause.NO_ROOM, blockers=who, ahead=ahead, **room)
        several = self._fewest()
        if several is not None:
            return self._told(Cause.NO_ROOM, blockers=several, **room)
        return self._told(Cause.NO_ROOM, unwilling=True, **room)

    def _confirmed(self, sets: Iterator[tuple[str, ...]]) -> tuple[str, ...] | None:
        """The first of some sets of tasks without which the whole policy starts the task; few are tried."""
        return next((who for who in islice(sets, MOST_ROOMS) if self._holds(who)), None)

    def _holds(self, gone: tuple[str, ...]) -> bool:
        """Whether the whole policy starts the task if these are not there: in the live cluster, if it can be tried."""
        if self.confirm is not None:
            return self.confirm.starts_without(gone)
        return self.trial.starts_without(gone)

    def _fewest(self) -> tuple[str, ...] | None:
        """Running tasks without which it starts, none of which could stay; None if it waits even with all gone."""
        who = tuple(each.task for each in sorted(self.holders, key=lambda each: sum(each.devices)))
        if not who or len(who) > MOST_HOLDERS or not self._holds(who):
            return None
        for each in who:
            # The smallest first: who holds most of the room is named last, and stays named.
            fewer = tuple(name for name in who if name != each)
            if fewer and self._holds(fewer):
                who = fewer
        return who

    def _holding(self) -> list[tuple[str, ...]]:
        """Sets of running tasks without which a plan fits, the smallest first, of these those that hold least."""
        single: list[tuple[str, ...]] = []
        several: list[tuple[str, ...]] = []
        for each in sorted(self.holders, key=lambda each: sum(each.devices)):
            if self._fits(self.may + np.array(each.devices)):
                single.append((each.task,))
                if len(single) == MOST_TRIED:
                    return single
        if single:
            return single
        for domain in (*range(len(self.may)), None):
            # Largest first: the fewest tasks. None takes all domains together, for what no domain holds by itself.
            there = [each for each in self.holders if domain is None or each.devices[domain]]
            there.sort(key=lambda each: -(sum(each.devices) if domain is None else each.devices[domain]))
            freed = self.may.copy()
            for count, each in enumerate(there, start=1):
                freed = freed + np.array(each.devices)
                if self._fits(freed):
                    several.append(tuple(one.task for one in there[:count]))
                    break
        return sorted(dict.fromkeys(several), key=len)[:MOST_TRIED]

    def _ahead(self, blockers: tuple[str, ...]) -> tuple[str, ...] | None:
        """Waiting tasks that have to be gone, beside the blockers, for it to start; None if that is not enough."""
        waiting, tasks = self.trial.waiting, self.trial.moment.tasks
        ahead, self.kept = self.trial.passing(blockers), False
        for _ in range(MOST_ROUNDS):
            instant = self.trial.without((*blockers, *ahead))
            if instant.starts or not instant.others:
                break
            ahead += instant.others
        if not instant.starts:
            # Nobody takes the room, and yet it is kept for somebody: one of them, or all.
            self.kept = True
            one = (slot for slot in waiting[:MOST_TRIED] if self.trial.without((*blockers, slot)).starts)
            first = next(one, None)
            ahead = waiting if first is None else (first,)
        names = tuple(tasks[slot].id for slot in ahead)
        if self.confirm is None:
            return names if self.trial.starts_without((*blockers, *ahead)) else None
        return names if self.confirm.starts_without((*blockers, *names)) else None

    def _told(
        self, cause: Cause, blockers: tuple[str, ...] = (), ahead: tuple[str, ...] = (), named: tuple[str, ...] = (),
        before: int = 0, unwilling: bool = False, **values: Any,
    ) -> Why:  # fmt: skip
        name = self.task.id or str(self.view.slot)
        change, advice = self._advice(cause)
        who: tuple[object, ...] = blockers or named
        who = tuple(Phrase("why.somebody") for _ in who) if self.private else who
        before = before or len(ahead)
        variant = cause.value
        if cause is Cause.NO_ROOM:
            # A model that no domain holds by itself has no number of devices in one.
            variant += ("_behind" if before else "") + ("" if self.needs else "_several")
            variant = "no_room_unwilling" if unwilling else variant
            values["who"] = who or (Phrase("why.nobody"),)
        elif cause is Cause.MISCONFIGURED:
            variant += "" if self.needs else "_several"
        elif cause is Cause.BEHIND and not values["count"]:
            variant = "next"
        first = () if self.private else tuple(each for each in ahead if each)[:3]
        values |= {
            "ahead": counted("count.kept_for" if ahead and self.kept else "count.go_first", before),
            "first": Phrase("why.such_as", who=first) if first else "",
        }
        values |= {key: counted("count.devices", values[key]) for key in ("need", "all", "asked") if key in values}
        sentence = Phrase("why.cause", variant=variant, task=name, **values)
        turn = bool(before) or cause in (Cause.NO_ROOM, Cause.HELD_FOR_ANOTHER, Cause.BEHIND)
        rule = self.share if self.share is not None and turn and len(self.view.queue) + self.view.backlog > 1 else ""
        hidden = self.private
        return Why(
            name, cause, sentence, () if hidden else blockers, () if hidden else ahead, advice, change,
            self.trial.count, rule,
        )  # fmt: skip

    def _advice(self, cause: Cause) -> tuple[Mapping[str, int] | None, str]:
        """The smallest change of the number of devices asked for with which the task starts now, tried."""
        if not self.here or cause in (Cause.FITS_NOWHERE, Cause.BEHIND) or self.task.hold:
            return None, ""
        for devices, task in self._other_requests():
            view = put_up(replace(self.view, free_devices=self.may), task)
            if fits_at_all(view, task.devices) and self.trial.asking(task) and self._works(task):
                return {"devices": devices}, Phrase("why.advice_devices", devices=counted("count.devices", devices))
        return None, ""

    def _works(self, task: Task) -> bool:
        """Whether the advice holds in the live cluster too."""
        return self.confirm is None or self.confirm.asking(task)

    def _other_requests(self) -> Iterator[tuple[int, Task]]:
        """The task with other numbers of devices asked for, the nearest number first."""
        view, own = self.view, self.view.kind
        largest = int(self.may.max(initial=0))
        if own.opaque:
            # An opaque job runs on exactly the devices it asks for; its request is its kind.
            now, sizes = own.batch_size, {k.batch_size: i for i, k in enumerate(view.kinds) if k.opaque}
        else:
            now, sizes = self.limit or largest, {2**i: view.kind_index for i in range(largest.bit_length())}
        for size in sorted(sizes, key=lambda size: (abs(np.log2(size / max(1, now))), size)):
            if size > largest or size == (own.batch_size if own.opaque else self.limit):
                continue
            steps = self.task.steps_left or self.task.steps or view.steps_left
            if own.opaque:
                # The same work: a step is a second on all devices that were asked for.
                yield size, replace(self.task, kind_index=sizes[size], steps=steps * now / size, devices=None)
            else:
                yield size, replace(self.task, steps=steps, devices=size)
