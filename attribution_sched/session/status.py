"""What waits and how the cluster stands, for people: a table of the queue, and a record of the whole."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from attribution_sched.cluster.engine import state as st
from attribution_sched.session.cluster import SimulatedCluster
from attribution_sched.session.display import _clock
from attribution_sched.session.operations import Reservation
from attribution_sched.types import Task

if TYPE_CHECKING:
    import pandas as pd

QUEUE_COLUMNS = ("id", "kind", "tenant", "priority", "waited_s", "deadline_s", "devices", "state", "reason")
"""Columns of the queue's table; ``deadline_s`` is on the cluster's clock."""


def queue_table(cluster: SimulatedCluster) -> pd.DataFrame:
    """Every task that waits, one row each, in the order in which they are asked about."""
    import pandas as pd

    state, now_s = cluster.engine.state, cluster.now_s
    rows: list[tuple[Any, ...]] = []

    def add(task: Task, where: str, reason: str) -> None:
        waited_s = now_s - task.arrived_s
        rows.append(
            (task.id, task.model, task.tenant, task.priority, waited_s, task.deadline_s, task.devices, where, reason)
        )

    window = [slot for slot, _ in cluster.residents.items() if state.slots[0, slot, st.STATUS] == st.QUEUED]
    for slot in sorted(window, key=lambda each: _turn(cluster.residents[each])):
        again_s = float(state.tasks[0, slot, st.OFFERED])
        left = f"left waiting; asked about again at {_clock(again_s)} or when devices fall free"
        add(cluster.residents[slot], "window", left if again_s > now_s else "its turn has not come")
    behind = f"behind the {cluster.world.queue_capacity} tasks that the policy compares"
    for waiting in sorted(cluster.backlog, key=lambda each: _turn(each.task)):
        add(waiting.task, "backlog", behind)
    for held in cluster.held.values():
        add(held.waiting.task, "set aside" if held.aside else "held", held.reason)
    table = pd.DataFrame(rows, columns=list(QUEUE_COLUMNS))
    return table.astype({"priority": "int64", "waited_s": "float64", "deadline_s": "float64", "devices": "Int64"})


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

    def __str__(self) -> str:
        free = ", ".join(f"{name} {free} of {self.devices[name]}" for name, free in self.free_devices.items())
        w_eff, w_util, w_cost = self.weights
        lines = [
            f"{_clock(self.cluster_time_s)} on the cluster's clock, {self.decisions} decisions by {self.policy}",
            f"  free     {free}",
            f"  tasks    {len(self.running)} running, {self.waiting} waiting, {len(self.held)} held, "
            f"{len(self.set_aside)} set aside",
            f"  weights  {w_eff:g} R_eff + {w_util:g} R_util − {w_cost:g} R_cost",
            f"  journal  {'in memory' if self.journal is None else self.journal}",
        ]
        for each in self.reservations:
            until = f"until {_clock(each.until_s)}"
            lines.append(f"  reserved {each.id}: {each.devices} of {each.domain} for {each.tenant} {until}")
        return "\n".join(lines)


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
