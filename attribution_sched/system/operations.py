"""What an operator does to tasks and devices: withdraw, cancel, hold, release, set aside, reserve, unreserve.

An operation is recorded as an intent before it takes effect and as an effect after, so that one which was cut short is
finished at the next call, or by the next process. Like tasks handed in, operations happen again when a journal is gone
through: at the same moment of the cluster's clock, after as many decisions, between the same two tasks that came.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attribution_sched.cluster.live import BY_OWNER, Reservation, SimulatedCluster
from attribution_sched.errors import SettingsError, TaskError, nearest, problem
from attribution_sched.limits import name_rule

if TYPE_CHECKING:
    from attribution_sched.journal import Journal

WITHDRAW, CANCEL, HOLD, RELEASE, SET_ASIDE, RESERVE, UNRESERVE = BY_PEOPLE = (
    "withdraw", "cancel", "hold", "release", "set-aside", "reserve", "unreserve",
)  # fmt: skip

STARTED, MEASURED, FINISHED, FAILED = OBSERVED = ("started", "measured", "finished", "failed")
"""What a real cluster reports of a task: it enters the twin in the way of an operation."""

SIGNAL = "signal"
"""What a live source said of a domain's grid."""

KINDS = (*BY_PEOPLE, *OBSERVED, SIGNAL)
"""Operations, by the word the journal keeps them under."""

LONGEST_HOURS = 24 * 366.0
"""Hours of a reservation; longer ones are a matter of the preset."""


@dataclass(frozen=True)
class Operation:
    """One operation, at its moment.

    Attributes:
        kind: One of :data:`KINDS`.
        name: Of its task, reservation or domain.
        cluster_time_s: When, on the cluster's clock.
        came: Tasks that had come by then.
        deciding: Whether a decision was pending then.
        more: What else is needed: the reason of a refusal, the fields of a reservation.
        after_decisions: Decisions before it.
        number: Of its intent in the journal; None before it is recorded.
        done: Whether its effect is recorded.
    """

    kind: str
    name: str
    cluster_time_s: float
    came: int
    deciding: bool
    more: Mapping[str, Any] = field(default_factory=dict)
    after_decisions: int = 0
    number: int | None = None
    done: bool = False

    def details(self) -> dict[str, Any]:
        """What the journal keeps of it."""
        moment = {"cluster_time_s": self.cluster_time_s, "came": self.came, "deciding": self.deciding}
        return {"name": self.name, **moment, **self.more}


def operation(cluster: SimulatedCluster, kind: str, name: str, **more: Any) -> Operation:
    """An operation at the present moment of a cluster."""
    return Operation(kind, name, cluster.now_s, cluster.came, cluster.deciding, more)


def recorded(journal: Journal, start: int = 0) -> Iterator[Operation]:
    """Operations of a journal in order.

    Args:
        journal: Where they are kept.
        start: Number of the first intent to look at.
    """
    for each in journal.intents(start):
        if each.kind in KINDS:
            more = dict(each.details)
            moment = {part: more.pop(part) for part in ("name", "cluster_time_s", "came", "deciding")}
            at, done = each.after_decisions, each.effect is not None
            yield Operation(each.kind, **moment, more=more, after_decisions=at, number=each.number, done=done)


def still_open(journal: Journal) -> list[Operation]:
    """Operations whose effect is not recorded."""
    numbers = [each.number for each in journal.open_intents() if each.kind in KINDS]
    return [each for each in recorded(journal, min(numbers)) if not each.done] if numbers else []


def happen(cluster: SimulatedCluster, what: Operation, *, live: bool) -> None:
    """Let an operation take effect.

    Args:
        cluster: Where.
        what: The operation; it was checked before it was recorded.
        live: Whether this is the first time, so that a real cluster must be told; else it is lived through again.
    """
    cluster.operated = int(what.number or 0) + 1
    cluster.settle()
    if what.kind in OBSERVED:
        cluster.observed(what.kind, what.name, what.more)
    elif what.kind == SIGNAL:
        cluster.hear(what.name, str(what.more["signal"]), float(what.more["value"]))
    elif what.kind == RESERVE:
        cluster.reserve(Reservation(what.name, **what.more))
    elif what.kind == UNRESERVE:
        cluster.unreserve(what.name)
    elif what.kind == RELEASE:
        cluster.let_in(what.name)
    elif what.kind == HOLD:
        cluster.put_aside(what.name, BY_OWNER)
    elif what.kind == SET_ASIDE:
        cluster.put_aside(what.name, str(what.more["reason"]), aside=True)
    elif cluster.place_of(what.name) != "running":
        cluster.take_out(what.name)
    elif live:
        cluster.cancel(what.name)
    else:
        cluster.stop(what.name)


def happened(cluster: SimulatedCluster, what: Operation) -> bool:
    """Whether an operation has taken effect already."""
    if what.kind in OBSERVED or what.kind == SIGNAL:
        return what.number is not None and cluster.operated > what.number
    if what.kind == RESERVE:
        return what.name in cluster.reservations
    if what.kind == UNRESERVE:
        return what.name not in cluster.reservations
    if what.kind in (HOLD, SET_ASIDE):
        return what.name in cluster.held
    if what.kind == RELEASE:
        return what.name not in cluster.held
    return not cluster.holds(what.name)


_ALLOWED: Mapping[str, tuple[str, ...]] = {
    WITHDRAW: ("window", "backlog", "held"),
    CANCEL: ("window", "backlog", "held", "running"),
    HOLD: ("window", "backlog"),
    RELEASE: ("held",),
}


def check_task(cluster: SimulatedCluster, journal: Journal, kind: str, name: Any) -> str:
    """The name of a task that an operation may be done to.

    Raises:
        TaskError: If there is no such task, or it is where the operation makes no sense.
    """
    if not isinstance(name, str):
        raise TaskError(problem("task", name, "must be the id of a task", "Take one from System.queue()"))
    place = cluster.place_of(name)
    if place in _ALLOWED[kind]:
        return name
    if place is None:
        if journal.knows_task(name):
            rule = f"cannot {kind}: it has finished, or was withdrawn or cancelled"
            raise TaskError(problem("task", name, rule, "System.queue() lists what waits, System.status() what runs"))
        known = [*cluster.names()]
        fix = nearest(name, known) if known else "Nothing waits and nothing runs"
        raise TaskError(problem("task", name, f"cannot {kind}: no such task was ever handed in", fix))
    if place == "running":
        rule, fix = f"cannot {kind}: it is running", "Use System.cancel(id), which stops it and frees its devices"
        if kind == RELEASE:
            fix = "Only tasks that are held can be released"
        raise TaskError(problem("task", name, rule, fix))
    if kind == HOLD:
        raise TaskError(problem("task", name, "cannot hold: it is held already", "Use System.release(id) to let it in"))
    raise TaskError(problem("task", name, "cannot release: it is not held", "It is in the queue already"))


def check_reservation(cluster: SimulatedCluster, domain: Any, devices: Any, tenant: Any, hours: Any) -> Reservation:
    """A reservation from the present moment on.

    Raises:
        SettingsError: If a field is wrong, or others have reserved what is left.
    """
    domains = {each.name: each.devices for each in cluster.world.cluster.domains}
    if not isinstance(domain, str) or domain not in domains:
        raise SettingsError(problem("domain", domain, "is not a domain of this preset", nearest(domain, list(domains))))
    check_tenant("tenant", tenant, SettingsError)
    if not _number(hours) or not 0.0 < hours <= LONGEST_HOURS:
        rule = f"must be a number above 0, at most {LONGEST_HOURS:g}"
        raise SettingsError(problem("hours", hours, rule, "For example hours=8"))
    reserved = sum(each.devices for each in cluster.reservations.values() if each.domain == domain)
    left = domains[domain] - reserved
    if isinstance(devices, bool) or not isinstance(devices, int) or not 1 <= devices <= domains[domain]:
        rule = f"must be a whole number from 1 to {domains[domain]}, which {domain} has"
        raise SettingsError(problem("devices", devices, rule, "Reserve fewer, or in several domains"))
    if devices > left:
        rule = f"{reserved} of {domains[domain]} devices of {domain} are reserved already"
        fix = f"Reserve at most {left}" if left else "Choose another domain, or System.unreserve(id) first"
        raise SettingsError(problem("devices", devices, rule, fix))
    return Reservation(cluster.next_reservation, tenant, domain, devices, cluster.now_s + 3600.0 * float(hours))


def check_tenant(name: str, tenant: Any, error: type[TaskError] | type[SettingsError]) -> str:
    """The name of a tenant.

    Raises:
        AttributionSchedError: If it is none.
    """
    rule = name_rule(tenant) if isinstance(tenant, str) and tenant else "must be a name"
    if rule is not None:
        raise error(problem(name, tenant, rule, "Give a short printable name"))
    return str(tenant)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
