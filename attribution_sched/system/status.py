"""What an operator sees: the queue as a table, the whole as a record."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.live import BY_OWNER, Reservation, SimulatedCluster
from attribution_sched.types import Task
from attribution_sched.words.duration import duration
from attribution_sched.words.say import Phrase, say

if TYPE_CHECKING:
    import pandas as pd


QUEUE_COLUMNS = (
    "id", "kind", "tenant", "priority", "waited_s", "deadline_s", "devices", "samples_per_s", "state", "reason",
)  # fmt: skip
"""Columns of the queue's table; ``deadline_s`` is on the cluster's clock, ``samples_per_s`` as measured alone on the
reference device."""


def queue_table(cluster: SimulatedCluster, lang: str = "en") -> pd.DataFrame:
    """Every task that waits, one row each, in the order in which they are asked about, with reasons in a language."""
    import pandas as pd

    state, now_s = cluster.engine.state, cluster.now_s
    rows: list[tuple[Any, ...]] = []

    def add(task: Task, where: str, reason: str) -> None:
        waited_s = now_s - task.arrived_s
        pace = task.samples_per_s or None
        rows.append((
            task.id, task.model, task.tenant, task.priority, waited_s, task.deadline_s, task.devices, pace, where,
            reason,
        ))  # fmt: skip

    window = [slot for slot, _ in cluster.residents.items() if state.slots[0, slot, st.STATUS] == st.QUEUED]
    for slot in sorted(window, key=lambda each: _turn(cluster.residents[each])):
        again_s = float(state.tasks[0, slot, st.OFFERED])
        left = say("queue.left", lang, clock=duration(again_s)) if again_s > now_s else say("queue.turn", lang)
        add(cluster.residents[slot], "window", left)
    behind = say("queue.behind", lang, capacity=cluster.world.queue_capacity)
    for waiting in sorted(cluster.backlog, key=lambda each: _turn(each.task)):
        add(waiting.task, "backlog", behind)
    for held in cluster.held.values():
        add(held.waiting.task, "set aside" if held.aside else "held", _why_held(held.reason, lang))
    table = pd.DataFrame(rows, columns=list(QUEUE_COLUMNS))
    floats = dict.fromkeys(("waited_s", "deadline_s", "samples_per_s"), "float64")
    return table.astype({"priority": "int64", "devices": "Int64", **floats})


def _why_held(reason: str, lang: str) -> str:
    # What a policy failed on is told as it told it.
    return say("queue.held", lang) if reason == BY_OWNER else reason


def _turn(task: Task) -> tuple[int, int]:
    return -task.priority, task.number


@dataclass(frozen=True)
class Status:
    """How a system stands at a moment.

    Attributes:
        cluster_time_s: The cluster's clock.
        free_devices: Domain → devices that hold no task.
        devices: Domain → devices in all.
        running: Ids of the tasks at work.
        waiting: Tasks in the queue, the backlog included.
        held: Ids of the tasks that are held.
        set_aside: Ids of those set aside because the policy failed on them.
        reservations: Devices kept for tenants.
        decisions: Decisions in the journal.
        weights: w_eff, w_util and w_cost in force.
        policy: Who decides.
        journal: Where it is kept; None in memory.
    """

    cluster_time_s: float
    free_devices: dict[str, int]
    devices: dict[str, int]
    running: tuple[str, ...]
    waiting: int
    held: tuple[str, ...]
    set_aside: tuple[str, ...]
    reservations: tuple[Reservation, ...]
    decisions: int
    weights: tuple[float, float, float]
    policy: str
    journal: str | None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)

    def told(self, lang: str = "en") -> str:
        """It in words, in a language."""
        domains = tuple(
            Phrase("status.domain", name=name, free=free, devices=self.devices[name])
            for name, free in self.free_devices.items()
        )
        head = {"clock": duration(self.cluster_time_s), "decisions": self.decisions, "policy": self.policy}
        counts = {"running": len(self.running), "held": len(self.held), "aside": len(self.set_aside)}
        weights = dict(zip(("w_eff", "w_util", "w_cost"), self.weights, strict=True))
        lines = [
            say("status.head", lang, **head),
            say("status.free", lang, domains=domains),
            say("status.tasks", lang, waiting=self.waiting, **counts),
            say("status.weights", lang, **weights),
            say("status.journal", lang, where=self.journal or Phrase("status.in memory")),
        ]
        for each in self.reservations:
            place = {"devices": each.devices, "domain": each.domain, "clock": duration(each.until_s)}
            lines.append(say("status.reserved", lang, id=each.id, tenant=each.tenant, **place))
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.told()


def status_of(
    cluster: SimulatedCluster, decisions: int, weights: tuple[float, float, float], policy: str, journal: str | None
) -> Status:
    """How a cluster and its system stand now."""
    state, domains = cluster.engine.state, cluster.world.cluster.domains
    free = cluster.engine.free_devices()[0].tolist()
    names = [domain.name for domain in domains]
    residents = sorted(cluster.residents.items(), key=lambda each: each[1].number)
    return Status(
        cluster_time_s=cluster.now_s,
        free_devices=dict(zip(names, free, strict=True)),
        devices={domain.name: domain.devices for domain in domains},
        running=tuple(task.id for slot, task in residents if state.slots[0, slot, st.STATUS] == st.RUNNING),
        waiting=cluster.waiting,
        held=tuple(name for name, each in cluster.held.items() if not each.aside),
        set_aside=tuple(name for name, each in cluster.held.items() if each.aside),
        reservations=tuple(cluster.reservations.values()),
        decisions=decisions,
        weights=weights,
        policy=policy,
        journal=journal,
    )
