"""What a journal's tasks used: its cluster lives through it again with a meter on every device.

Between two changes nothing but time passes, so watts times seconds are exact, and what is booked on tasks and on idle
devices adds up to the engine's own meter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attribution_sched.attribution.vector import ACCOUNTING, AttributionVector
from attribution_sched.billing import games
from attribution_sched.billing.bill import UNATTRIBUTED, Bill, Tariff, make_bill
from attribution_sched.billing.games import CostShares
from attribution_sched.billing.rules import Sharing
from attribution_sched.billing.usage import TaskUse, Usage
from attribution_sched.cluster.decision import capture
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine, domain_power_w, signal_hour, slowdown_beside
from attribution_sched.cluster.fork import replay
from attribution_sched.cluster.live import SimulatedCluster, Waiting
from attribution_sched.cluster.plan import DOMAIN
from attribution_sched.cluster.signals import DAY, Series
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.errors import JournalError, SettingsError, problem
from attribution_sched.journal import Journal
from attribution_sched.scheduler.rule_follower import RuleFollower
from attribution_sched.system.operations import FAILED, FINISHED, STARTED, recorded
from attribution_sched.system.replay import live_through, recorded_vector
from attribution_sched.types import BoolArray, FloatArray, IntArray, Task

J_PER_KWH = 3.6e6

CONGESTION_GROUPS = 64
"""Groups that congestion replays for each payer: all of them up to nine payers."""


class MeteredCluster(SimulatedCluster):
    """A simulated cluster that books every interval; takes what :class:`SimulatedCluster` takes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._edges_s: list[float] = [0.0]
        self._spans: list[tuple[float, ...]] = []
        self._idle_j: list[FloatArray] = []
        self._ticks_s: list[float] = []
        self._uses: dict[str, TaskUse] = {}
        self._number: dict[str, int] = {}
        self._rows_of: dict[str, FloatArray] = {}
        self._slowed_h: dict[tuple[int, int], float] = {}
        super().__init__(*arguments, **options)

    def _pass_time(self) -> int:
        state, before_s = self.engine.state, self.now_s
        watts, idle_w = self._read()
        held, busy = self._held_and_busy()
        running = np.flatnonzero(state.slots[0, :, st.STATUS] == st.RUNNING)
        bills = state.tasks[0, running, st.BILL].copy()
        names = [self._use(self.residents[slot]) for slot in running.tolist()]
        slowed = self._slowed_by(running.tolist())
        tick_s = float(state.clock[0, st.LAST_TICK])
        wanted = super()._pass_time()
        now_s = self.now_s
        lasted_s = now_s - before_s
        if lasted_s <= 0.0:
            return wanted
        at = len(self._idle_j)
        self._edges_s.append(now_s)
        self._idle_j.append(idle_w * lasted_s)
        self._ticks_s.append(tick_s)
        number = dict(zip(running.tolist(), (self._number[name] for name in names), strict=True))
        for slot, (other, lost) in slowed.items():
            pair = number[slot], number[other]
            self._slowed_h[pair] = self._slowed_h.get(pair, 0.0) + lost * lasted_s / 3600.0
        own_idle_w = held * np.array(self.engine.arrays.domains.rows["idle_w"], dtype=np.float64)
        for slot, bill, name in zip(running.tolist(), bills.tolist(), names, strict=True):
            use = self._uses[name]
            started_s = before_s if use.started_s is None else use.started_s
            over = state.slots[0, slot, st.STATUS] == st.FREE
            spent = float(state.tasks[0, slot, st.BILL]) - bill
            self._uses[name] = replace(
                use, started_s=started_s, finished_s=now_s if over else None, egress_usd=use.egress_usd + spent
            )
            for domain in np.flatnonzero(held[slot]).tolist():
                static_w = min(own_idle_w[slot, domain], watts[slot, domain])
                self._spans.append((
                    at, self._number[name], domain, held[slot, domain], busy[slot, domain] * lasted_s,
                    (watts[slot, domain] - static_w) * lasted_s, static_w * lasted_s,
                ))  # fmt: skip
        return wanted

    def apply(self, action: IntArray) -> None:
        """Let the pending decision take effect; what a move costs is booked on its task."""
        name = self._use(self.residents[self.up])
        before = float(self.engine.state.totals[0, st.BILL_TOTAL])
        super().apply(action)
        spent = float(self.engine.state.totals[0, st.BILL_TOTAL]) - before
        if spent:
            self._uses[name] = replace(self._uses[name], egress_usd=self._uses[name].egress_usd + spent)

    def usage(self, electricity_usd_per_kwh: float | None = None) -> Usage:
        """Everything since the start.

        Args:
            electricity_usd_per_kwh: Price of electricity; what the preset pays for energy by default.
        """
        for task in [*self.residents.values(), *(each.task for each in self.backlog),
                     *(each.waiting.task for each in self.held.values())]:  # fmt: skip
            if task.id:
                self._use(task)
        domains, intervals = self.world.cluster.domains, len(self._idle_j)
        grams = np.array([domain.carbon_g_per_kwh / J_PER_KWH for domain in domains])
        arrays = self.engine.arrays
        hours = [signal_hour(arrays, tick_s) for tick_s in self._ticks_s]
        ratios = arrays.signals[:, hours].reshape(2, intervals, len(domains))
        paid = self.world.reward.energy_usd_per_kwh if electricity_usd_per_kwh is None else electricity_usd_per_kwh
        return Usage.of_spans(
            self._spans,
            domains=tuple(domain.name for domain in domains),
            devices=np.array([domain.devices for domain in domains], dtype=np.int64),
            edges_s=np.array(self._edges_s),
            tasks=tuple(self._uses.values()),
            idle_j=np.array(self._idle_j).reshape(intervals, len(domains)),
            carbon_g_per_j=grams * ratios[st.CARBON],
            electricity_usd_per_j=ratios[st.ELECTRICITY] * paid / J_PER_KWH,
            meter_j=float(self.engine.state.totals[0, st.METER_J]),
            meter_egress_usd=float(self.engine.state.totals[0, st.BILL_TOTAL]),
            slowed=tuple((task, other, hours) for (task, other), hours in self._slowed_h.items()),
            repeated=tuple(
                (domain.name, signal.period_s / 3600.0)
                for domain in domains
                for signal in (domain.carbon, domain.electricity)
                # A day that repeats is meant to.
                if isinstance(signal, Series) and signal.period_s < self.now_s and signal.source != DAY
            ),
        )

    def _admit(self, waiting: Waiting) -> None:
        self._rows_of.setdefault(waiting.task.id, waiting.row)
        super()._admit(waiting)

    def _enter(self, waiting: Waiting) -> None:
        self._rows_of.setdefault(waiting.task.id, waiting.row)
        super()._enter(waiting)

    def congestion(
        self, usage: Usage, by: str = "tenant", *, evaluations: int | None = None, seed: int = 0
    ) -> CostShares:
        """Whose being there makes tasks wait, in task-hours.

        v(S) is how long the tasks of S would have waited had only S handed in, from the empty cluster on, each at its
        recorded time, links at their base; the compiled rule decides for every group alike, also for all of them, so
        the sum is the rule's waiting and not the policy's. Quotas and the share rule are obeyed. Who has no quota of
        devices would have all of them alone, so shares are externalities: what a group adds to what others wait.

        Args:
            usage: This cluster's, whose payers share.
            by: ``tenant``, ``task`` or ``model``.
            evaluations: Groups to replay, default :data:`CONGESTION_GROUPS` a payer; all of them if there are no more.
            seed: Of those that are drawn.
        """
        sharing = Sharing(usage, by)
        # With room for everybody who came at once, so that nobody is turned away.
        waiting = max(self.world.queue_capacity, len(self._rows_of))
        moment = capture(Engine(replace(self.world, queue_capacity=waiting)))
        known = [at for at, use in enumerate(usage.tasks) if use.id in self._rows_of]
        known.sort(key=lambda at: (usage.tasks[at].submitted_s, at))
        rows = np.array([self._rows_of[usage.tasks[at].id] for at in known]).reshape(
            -1, self.engine.arrays.pool.shape[1]
        )
        came_s = np.array([usage.tasks[at].submitted_s for at in known])
        tenants = np.array([usage.tasks[at].tenant for at in known])
        group, until_s = np.asarray(sharing.group)[known], float(usage.edges_s[-1])
        follower = RuleFollower.of(moment)

        def hours(masks: BoolArray) -> FloatArray:
            waited_h = np.zeros(len(masks))
            for at, mask in enumerate(masks):
                there = mask[group]
                if there.any():
                    waited_s = replay(moment, rows[there], came_s[there], until_s, follower, tenants[there].tolist())
                    waited_h[at] = waited_s.sum() / 3600.0
            return waited_h

        groups = CONGESTION_GROUPS * len(sharing.names) if evaluations is None else evaluations
        return games.congestion(len(sharing.names), hours, evaluations=groups, seed=seed)

    def finished_s(self, task: str) -> float | None:
        """When a task was done; None if it was not, or never ran."""
        use = self._uses.get(task)
        return None if use is None else use.finished_s

    def take_tenants(self) -> list[tuple[str, float, float]]:
        """Joules and device-seconds of each tenant since this was last asked; devices that hold no task are ``""``.

        What was asked for is forgotten: a page that follows a journal for weeks keeps sums, no intervals. A cluster
        that is read in this way has no :meth:`usage`.
        """
        sums: dict[str, list[float]] = {"": [0.0, 0.0]}
        tenants = [use.tenant for use in self._uses.values()]
        lasted = np.diff(self._edges_s)
        for at, task, _, devices, _, dynamic_j, static_j in self._spans:
            booked = sums.setdefault(tenants[int(task)], [0.0, 0.0])
            booked[0] += dynamic_j + static_j
            booked[1] += devices * float(lasted[int(at)])
        sums[""][0] += float(sum(each.sum() for each in self._idle_j))
        self._spans, self._idle_j, self._ticks_s, self._edges_s = [], [], [], [self._edges_s[-1]]
        return [(tenant, joules, seconds) for tenant, (joules, seconds) in sums.items()]

    def _use(self, task: Task) -> str:
        """Enter a task into the books, once; its name there."""
        if task.id not in self._uses:
            self._number[task.id] = len(self._uses)
            self._uses[task.id] = TaskUse(task.id, task.tenant, task.model, task.arrived_s, requested=task.devices)
        return task.id

    def _read(self) -> tuple[FloatArray, FloatArray]:
        """Watts of every task in every domain, shape ``(S, K)``, and of devices that hold none, shape ``(K,)``.

        The engine's own meter is asked domain by domain; where it books watts, they are taken off again.
        """
        world, state = self.engine.arrays, self.engine.state
        columns = [st.POWER, st.CARBON_RATE]
        saved = state.tasks[0][:, columns].copy()
        watts = np.zeros((state.tasks.shape[1], len(self.world.cluster.domains)))
        idle_w = np.zeros(watts.shape[1])
        for domain in range(watts.shape[1]):
            state.tasks[0, :, st.POWER] = 0.0
            _, idle_w[domain] = domain_power_w(world, state, 0, domain, False, True)
            watts[:, domain] = state.tasks[0, :, st.POWER]
        state.tasks[0][:, columns] = saved
        return watts, idle_w

    def _held_and_busy(self) -> tuple[FloatArray, FloatArray]:
        """Devices held, and at work by the share of time they compute; each ``(S, K)``, of a shared one its part."""
        state = self.engine.state
        wanted = np.zeros((state.slots.shape[1], len(self.world.cluster.domains)))
        for slot in np.flatnonzero(state.slots[0, :, st.STATUS] == st.RUNNING).tolist():
            if state.tasks[0, slot, st.PAUSED] > self.now_s:
                continue
            for row in range(int(state.slots[0, slot, st.SEGMENTS])):
                wanted[slot, int(state.plans[0, slot, row, DOMAIN])] = float(state.loads[0, slot, row, st.BUSY])
        held, busy, occupant = np.zeros_like(wanted), np.zeros_like(wanted), state.occupant[0]
        for place in range(2):
            domain, device = np.nonzero(occupant[:, :, place] >= 0)
            slots, others = occupant[domain, device, place], occupant[domain, device, 1 - place]
            np.add.at(held, (slots, domain), np.where(occupant[domain, device, 1] >= 0, 0.5, 1.0))
            mine, theirs = wanted[slots, domain], np.where(others >= 0, wanted[others, domain], 0.0)
            # No device works more than all of the time.
            np.add.at(busy, (slots, domain), mine / np.maximum(1.0, mine + theirs))
        return held, busy

    def _slowed_by(self, running: list[int]) -> dict[int, tuple[int, float]]:
        """Slot of a task that shares devices → the slot that slows it most, and the part of its time that costs.

        Ranks wait for each other, so the slowest device sets the pace, as in the engine.
        """
        state, slowed = self.engine.state, dict[int, tuple[int, float]]()
        pairs = {(int(a), int(b)) for a, b in state.occupant[0].reshape(-1, 2) if a >= 0 and b >= 0}
        for slot, other in sorted(pairs | {(b, a) for a, b in pairs}):
            if slot not in running or other not in running or state.tasks[0, slot, st.PAUSED] > self.now_s:
                continue
            worst = slowed.get(slot, (other, 0.0))
            for row in range(int(state.slots[0, slot, st.SEGMENTS])):
                domain = int(state.plans[0, slot, row, DOMAIN])
                rows = np.flatnonzero(
                    state.plans[0, other, : int(state.slots[0, other, st.SEGMENTS]), DOMAIN] == domain
                )
                if len(rows):
                    times = slowdown_beside(self.engine.arrays, state, 0, slot, row, other, int(rows[0]))
                    worst = max(worst, (other, 1.0 - 1.0 / times), key=lambda each: each[1])
            if worst[1] > 0.0:
                slowed[slot] = worst
        return slowed


def _unbillable(journal: Journal, rule: str, fix: str) -> JournalError:
    return JournalError(problem("journal", str(journal.path), rule, fix))


def metered(journal: Journal) -> MeteredCluster:
    """A simulated journal's cluster, lived through again with meters on.

    Args:
        journal: Only read.

    Raises:
        JournalError: If it cannot be lived through again: its beginning is archived, no system wrote it, this release
            prices its decisions otherwise, or its cluster is a real one.
    """
    if journal.header.settings.get("cluster", "simulated") != "simulated":
        rule = "is of a real cluster, which cannot be played again"
        raise _unbillable(journal, rule, "Ask for what its executors metered")
    lived = live_through(journal, MeteredCluster)
    if lived is None:
        fix = "Bill a period before its rows are archived; `attribution-sched doctor` tells what is there"
        raise _unbillable(journal, "cannot be billed: its beginning is archived, or no system wrote it", fix)
    cluster, otherwise = lived
    if otherwise:
        rule = f"{len(otherwise)} of its decisions, {otherwise[0]} first, are priced otherwise by this release"
        raise _unbillable(journal, rule, "Bill it with the release that wrote it")
    if not isinstance(cluster, MeteredCluster):
        raise TypeError("live_through makes the cluster it is told to")
    if not cluster.expecting:
        # Nobody waits and nobody comes: what runs ends as it is, and a bill that ended with the last decision would
        # leave out all of it.
        cluster.advance()
    return cluster


def usage_of(journal: Journal, electricity_usd_per_kwh: float | None = None) -> Usage:
    """What was used by the tasks of a system's journal.

    Args:
        journal: Only read.
        electricity_usd_per_kwh: As for :meth:`MeteredCluster.usage`.

    Returns:
        Joules of a simulated cluster; of a real one what its executors metered, see :func:`measured_usage`.

    Raises:
        JournalError: If it cannot be lived through again: its beginning is archived, no system wrote it, or this
            release prices its decisions otherwise.
    """
    if journal.header.settings.get("cluster", "simulated") != "simulated":
        return measured_usage(journal)
    return with_operators(metered(journal).usage(electricity_usd_per_kwh), journal)


def with_operators(usage: Usage, journal: Journal) -> Usage:
    """The same with every task's joules split by operator, as the vector accounts that the journal has of it."""
    shares: dict[str, dict[str, tuple[float, float]]] = {}
    for record in journal.decisions():
        if record.task_id is None or record.task_id in shares:
            continue
        if (record.attribution or {}).get("question") == ACCOUNTING:
            shares[record.task_id] = operator_shares(recorded_vector(record))
    tasks = tuple(replace(use, operators=shares.get(use.id) or None) for use in usage.tasks)
    return replace(usage, tasks=tasks)


def operator_shares(vector: AttributionVector) -> dict[str, tuple[float, float]]:
    """Parts of the joules above idle that each counter stands for, with half of the 95 % interval; empty without any.

    What a meter said beyond the prediction is a part of its own.
    """
    beyond = max(0.0, vector.unattributed)
    whole = float(vector.values.sum()) + beyond
    if not whole > 0.0:
        return {}
    low, high = vector.interval()
    halves = (high - low) / 2.0 / whole
    parts = {
        name: (float(value) / whole, float(half))
        for name, value, half in zip(vector.names, vector.values, halves, strict=True)
        if value != 0.0
    }
    return parts | ({UNATTRIBUTED: (beyond / whole, 0.0)} if beyond else {})


def bill_of(
    journal: Journal,
    by: str = "tenant",
    rule: str = "shapley",
    electricity_usd_per_kwh: float | None = None,
    prices: Tariff | None = None,
    *,
    congestion: bool = False,
) -> tuple[Bill, Usage]:
    """The bill of a journal, and what it rests on; see :meth:`attribution_sched.System.bill`."""
    if electricity_usd_per_kwh is not None and not 0.0 <= electricity_usd_per_kwh < math.inf:
        fix = "Use USD per kWh, or leave it out for the preset's"
        raise SettingsError(
            problem("electricity_usd_per_kwh", electricity_usd_per_kwh, "must be a price of 0 or more", fix)
        )
    if not congestion:
        usage = usage_of(journal, electricity_usd_per_kwh)
        return make_bill(usage, by, rule, prices=prices), usage
    if by == "domain":
        fix = "Bill tenants, tasks or models"
        raise SettingsError(problem("by", by, "cannot be made to wait by others", fix))
    cluster = metered(journal)
    usage = with_operators(cluster.usage(electricity_usd_per_kwh), journal)
    return make_bill(usage, by, rule, prices=prices, congestion=cluster.congestion(usage, by)), usage


def measured_usage(journal: Journal) -> Usage:
    """What executors metered of a real cluster's tasks: device time, and CPU-seconds in place of joules.

    No machine here has a meter of energy that could be asked, so none is made up. A launch that was given up counts
    with what was metered of it until then; what nobody metered is not in it.

    Args:
        journal: Only read.

    Raises:
        JournalError: If its beginning is archived.
    """
    if journal.first():
        fix = "Bill a period before its rows are archived"
        raise _unbillable(journal, "cannot be billed: its beginning is archived", fix)
    world = load_settings(journal.header.settings["world"]).build_world()
    domains = world.cluster.domains
    at = {domain.name: place for place, domain in enumerate(domains)}
    launches = _launches(journal)
    edges = sorted({0.0} | {edge for each in launches for edge in (each.start_s, each.end_s)})
    number = {name: place for place, name in enumerate(dict.fromkeys(each.task for each in launches))}
    spans: list[tuple[float, ...]] = []
    for each in launches:
        first, stop = edges.index(each.start_s), edges.index(each.end_s)
        lasted = each.end_s - each.start_s
        for domain, devices in each.devices.items():
            for interval in range(first, stop):
                part = (edges[interval + 1] - edges[interval]) / lasted
                cpu_s = each.cpu_s.get(domain, 0.0) * part
                spans.append((interval, number[each.task], at[domain], devices, cpu_s, cpu_s, 0.0))
    nothing = np.zeros((len(edges) - 1, len(domains)))
    return Usage.of_spans(
        spans, domains=tuple(at), devices=np.array([domain.devices for domain in domains], dtype=np.int64),
        edges_s=np.array(edges), tasks=_task_uses(journal, launches, number, world),
        idle_j=nothing,
        carbon_g_per_j=nothing, electricity_usd_per_j=nothing,
        meter_j=sum(sum(each.cpu_s.values()) for each in launches if each.end_s > each.start_s),
        meter_egress_usd=0.0, provenance="measured", metered="CPU time",
    )  # fmt: skip


@dataclass
class _Launch:
    """One launch of a task, as it was reported; it ends when the last of its parts does."""

    task: str
    devices: dict[str, int]
    start_s: float
    end_s: float
    done: bool
    cpu_s: dict[str, float]


def _launches(journal: Journal) -> list[_Launch]:
    plans = {journal.key(each.id): each.plan for each in journal.decisions() if each.plan is not None}
    started: dict[str, float] = {}
    launches = []
    for each in recorded(journal):
        key = str(each.more.get("key", ""))
        plan = plans.get(key)
        if plan is None:
            continue
        if each.kind == STARTED:
            started[key] = float(each.more["start_s"])
        elif each.kind in (FINISHED, FAILED):
            report = {"end_s": each.cluster_time_s, **each.more}
            # One that began and ended between two looks has its start with its end.
            start_s = started.pop(key, each.more.get("start_s"))
            if start_s is not None:
                launches.append(_launch(each.name, plan, float(start_s), report, done=each.kind == FINISHED))
    for handle in journal.handles():
        # One that was moved away, or cancelled, has no end among what was reported: its handle has it.
        spent = handle.handle.get("spent")
        if spent and handle.key in started:
            launches.append(_launch(handle.handle["task"], plans[handle.key], started[handle.key], spent, done=False))
    return launches


def _launch(task: str, plan: Mapping[str, Any], start_s: float, report: Mapping[str, Any], *, done: bool) -> _Launch:
    devices: dict[str, int] = {}
    for replica in plan["replicas"]:
        for part in replica["segments"]:
            held = part["dp"] * part["tp"] * part["pp"]
            devices[part["domain"]] = devices.get(part["domain"], 0) + held
    start_s = max(0.0, start_s)
    cpu_s = {name: float(value) for name, value in (report.get("cpu_by_domain") or {}).items()}
    return _Launch(task, devices, start_s, max(start_s, float(report["end_s"])), done, cpu_s)


def _task_uses(
    journal: Journal, launches: list[_Launch], number: Mapping[str, int], world: World
) -> tuple[TaskUse, ...]:
    uses = []
    for name in number:
        theirs = [each for each in launches if each.task == name]
        record = journal.task(name)
        ended = [each.end_s for each in theirs if each.done]
        # What was not asked for is the kind's, as in the simulated cluster.
        asked = record.meta.get("asked", {})
        usual = world.kinds[int(record.meta["kind_index"])].tenant if "kind_index" in record.meta else "default"
        uses.append(
            TaskUse(
                name,
                str(asked.get("tenant", record.meta.get("tenant", usual))),
                record.kind,
                record.submitted_s,
                min(each.start_s for each in theirs),
                ended[-1] if ended else None,
                asked.get("devices"),
            )
        )
    return tuple(uses)
