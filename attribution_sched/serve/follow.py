"""Follows a journal while somebody writes it, and says how all of it stands as one mapping of plain JSON.

Each look reads the journal as of one moment and lets what is new in it happen in a cluster of its own, with a meter on
every device. Where that is not possible (the beginning is archived, this release prices otherwise, no system wrote it),
the journal's own rows are shown and the reason is named.
"""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np

from attribution_sched.billing.metering import MeteredCluster
from attribution_sched.cluster.decision import capture
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.fork import fork
from attribution_sched.cluster.live import PolicyAnswer, SimulatedCluster
from attribution_sched.config import load_settings
from attribution_sched.errors import AttributionSchedError, JournalError, ModelFitError
from attribution_sched.executors.live import MeteredTwin, is_real, twin_of
from attribution_sched.feedback.targets import KINDS, Targets
from attribution_sched.feedback.window import DecisionOutcome as Measured
from attribution_sched.feedback.window import Window
from attribution_sched.journal import DecisionRecord, Journal, OutcomeRecord
from attribution_sched.scheduler.registry import POLICIES, make_policy
from attribution_sched.serve.rows import decision_row, observed_figures
from attribution_sched.system.decision_records import plan_of
from attribution_sched.system.operations import OBSERVED, recorded
from attribution_sched.system.replay import replay
from attribution_sched.system.snapshots import restore_snapshot
from attribution_sched.system.status import queue_table
from attribution_sched.types import Outcome

SHOWN = 25
"""Newest decisions on the page."""
BARS = 240
"""Newest bars of the Gantt chart."""
QUEUED = 200
"""Waiting tasks on the page; the count is of all."""
WINDOW = 1000
"""Newest outcomes that targets are judged by."""
WHOLE = 20_000
"""Decisions up to which a journal is lived through from its beginning; a longer one from its newest snapshot."""
FUTURES, HOURS = 24, 24.0
"""Futures in which starts are looked for, and how far."""


class Following:
    """A journal that is looked at again and again.

    Args:
        path: The journal; only read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.journal = Journal.read(path)
        self.trouble = ""
        self._version = -1
        self._cluster: MeteredCluster | None = None
        self._next: dict[str, Any] = {"sequence": 0, "tasks": 0, "operated": [0]}
        self._since = 0
        self._bars: deque[dict[str, Any]] = deque(maxlen=BARS)
        self._open: dict[str, list[dict[str, Any]]] = {}
        self._newest: deque[dict[str, Any]] = deque(maxlen=SHOWN)
        self._outcomes: deque[OutcomeRecord] = deque(maxlen=WINDOW)
        self._measured: dict[str, dict[str, Any]] = {}
        self._seen = 0
        self._tenants: dict[str, dict[str, float]] = {}
        self._counts = dict.fromkeys(("placed", "moved", "kept", "refused"), 0)
        self._latest: dict[str, Any] = {}
        self.starts: dict[str, dict[str, float | None]] = {}

    def close(self) -> None:
        """Let the journal go."""
        self.journal.close()

    def look(self) -> dict[str, Any] | None:
        """How it stands; None if nothing was written since the last look."""
        with self.journal.one_moment() as version:
            if version == self._version:
                return None
            self._read_rows()
            if not self.trouble:
                try:
                    self._live_on()
                except AttributionSchedError as error:
                    self.trouble, self._cluster = str(error), None
            self._latest = self._view()
            self._version = version
        return self._latest

    # --- The journal's own rows ---

    def _read_rows(self) -> None:
        count = self.journal.count()
        key = self.journal.key
        for operation in recorded(self.journal, int(self._next["operated"][0]) if self._version >= 0 else 0):
            if operation.kind in OBSERVED:
                figures = self._measured.setdefault(str(operation.more["key"]), {})
                figures |= observed_figures(operation.kind, operation.more)
        # The newest decision may have been pending when it was last seen.
        again = max(self.journal.first(), count - WHOLE) if self._version < 0 else max(0, self._seen - 1)
        for decision, outcome in self.journal.entries(again, count):
            number = decision.sequence or 0
            if number >= self._seen or (self._newest and self._newest[-1]["pending"]):
                if number < self._seen:
                    self._newest.pop()
                row = decision_row(decision, outcome, key(decision.id))
                if row["result"] == "kept":
                    # A task that waits is asked about again and again: the newest of these says it all.
                    kept = [old for old in self._newest if (old["task"], old["result"]) != (row["task"], "kept")]
                    self._newest = deque(kept, maxlen=SHOWN)
                self._newest.append(row)
                self._count(outcome)
        self._seen = count
        for row in self._newest:
            row["measured"] = self._measured.get(row["key"], {})

    def _count(self, outcome: OutcomeRecord | None) -> None:
        if outcome is None:
            return
        word = {1: "placed", 2: "moved"}.get(outcome.code, "kept" if outcome.code >= 0 else "refused")
        self._counts[word] += 1
        if outcome.code > 0 and outcome.r_eff is not None:
            self._outcomes.append(outcome)

    # --- The cluster ---

    def _start(self) -> MeteredCluster:
        journal, header = self.journal, self.journal.header
        if "world" not in header.settings or "cluster" not in header.seeds:
            raise JournalError("No system wrote this journal, so its cluster is not known")
        twin = twin_of(header)
        made: type[MeteredCluster] = MeteredCluster if twin is None else MeteredTwin
        world = load_settings(header.settings["world"]).build_world() if twin is None else twin[1]
        cluster = made(world, int(header.seeds["cluster"]), arrivals=header.settings.get("queue") == "preset")
        if header.policy in POLICIES:
            cluster.compared = bool(getattr(make_policy(header.policy), "compares_window", False))
        count = journal.count()
        if journal.first() or count > WHOLE:
            self._next = restore_snapshot(journal.newest_snapshot(count), cluster)
            self._since = int(self._next["sequence"])
            if self._since <= journal.first() > 0:
                raise JournalError("The beginning of this journal is archived, and it has no snapshot to go on from")
        return cluster

    def _live_on(self) -> None:
        cluster = self._cluster = self._cluster or self._start()
        seed = int(self.journal.header.seeds["cluster"])
        replay(cluster, self.journal, seed, start=self._next, otherwise=[], after=self._after)
        self._next = {
            "sequence": self.journal.count(),
            "tasks": self.journal.task_count(),
            "operated": [cluster.operated],
        }
        self._close_bars(cluster)
        for tenant, joules, seconds in cluster.take_tenants():
            sums = self._tenants.setdefault(tenant, {"energy_j": 0.0, "device_s": 0.0})
            sums["energy_j"] += joules
            sums["device_s"] += seconds

    def _after(
        self, decision: DecisionRecord, asked: PolicyAnswer, effect: Outcome, _known: OutcomeRecord | None
    ) -> None:
        if effect.code not in (1, 2) or decision.task_id is None or decision.plan is None:
            return
        self._end_bars(decision.task_id, decision.cluster_time_s)
        plan = plan_of(decision.plan, [each.name for each in self._cluster_domains()])
        assert plan is not None
        bars = []
        for segment in plan.segments:
            bar = {
                "task": decision.task_id, "decision": decision.id, "start_s": decision.cluster_time_s, "end_s": None,
                "domain": self._cluster_domains()[segment.domain].name, "devices": segment.device_count,
            }  # fmt: skip
            bars.append(bar)
            self._bars.append(bar)
        self._open[decision.task_id] = bars

    def _cluster_domains(self) -> tuple[Any, ...]:
        assert self._cluster is not None
        return tuple(self._cluster.world.cluster.domains)

    def _end_bars(self, task: str, at_s: float) -> None:
        for bar in self._open.pop(task, ()):
            bar["end_s"] = max(at_s, bar["start_s"])

    def _close_bars(self, cluster: MeteredCluster) -> None:
        for task in list(self._open):
            if cluster.place_of(task) != "running":
                ended_s = cluster.finished_s(task)
                self._end_bars(task, cluster.now_s if ended_s is None else ended_s)

    def estimate_starts(self) -> bool:
        """Look when waiting tasks start, in copies of the cluster that the rule plays on; False if nobody waits."""
        cluster = self._cluster
        if cluster is None or not cluster.waiting:
            self.starts = {}
            return False
        from attribution_sched.scheduler.rule_follower import RuleFollower

        moment = replace(capture(cluster.engine), spent=cluster.spending.used.copy())
        played = fork(moment, [], FUTURES, HOURS, RuleFollower.of(moment), 0)
        column = played.ledger[0, :, :, 0]
        waiting = {
            task.id: at
            for at, slot in enumerate(played.tasks)
            if (task := moment.tasks[slot]).id and cluster.engine.state.slots[0, slot, st.STATUS] == st.QUEUED
        }
        self.starts = {name: _interval(column[:, at] - played.began_s) for name, at in waiting.items()}
        return True

    # --- The mapping ---

    def view(self) -> dict[str, Any]:
        """The last look, with the starts as they were last estimated."""
        if not self._latest:
            return {}
        queue = [{**row, "starts": self.starts.get(row["id"])} for row in self._latest["queue"]]
        return {**self._latest, "queue": queue}

    def _view(self) -> dict[str, Any]:
        header, cluster = self.journal.header, self._cluster
        newest = self.journal.last()
        page: dict[str, Any] = {
            "journal": {
                "id": header.journal_id, "preset": header.preset, "policy": header.policy,
                "name": "" if self.journal.path is None else self.journal.path.name,
                "cluster": str(header.settings.get("cluster", "simulated")), "created_at": header.created_at,
                "version": header.package_version,
            },
            "decisions_total": self.journal.count(),
            "tasks_total": self.journal.task_count(),
            "recorded_at": header.created_at if newest is None else newest.recorded_at,
            "looked_unix_s": time.time(),
            "counts": dict(self._counts),
            "decisions": list(reversed(self._newest)),
            "targets": self._targets(),
            "trouble": self.trouble,
            "since_decision": self._since,
        }  # fmt: skip
        nothing: dict[str, Any] = {
            "cluster_time_s": 0.0 if newest is None else newest.cluster_time_s, "domains": [], "links": [],
            "queue": [], "waiting": None, "running": [], "bars": [], "tenants": [], "totals": {}, "provenance": "",
        }  # fmt: skip
        return page | (nothing if cluster is None else self._cluster_view(cluster))

    def _cluster_view(self, cluster: MeteredCluster) -> dict[str, Any]:
        world, state = cluster.world, cluster.engine.state
        free = cluster.engine.free_devices()[0].tolist()
        domains = [
            {"name": each.name, "gpu": each.gpu.name, "devices": each.devices, "free": int(free[at])}
            for at, each in enumerate(world.cluster.domains)
        ]
        base_gbps, now_gbps = world.cluster.wan.bandwidth_gbps, state.links[0, 1] * 8e-9
        links = [
            {"source": domains[i]["name"], "target": domains[j]["name"], "gbps": float(now_gbps[i, j]),
             "base_gbps": float(base_gbps[i, j]), "latency_s": float(world.cluster.wan.latency_s[i, j])}
            for i in range(len(domains)) for j in range(len(domains)) if i != j
        ]  # fmt: skip
        queue = queue_table(cluster)
        queue["reason_zh"] = queue_table(cluster, "zh")["reason"]
        rows = [
            {str(name): _plain(value) for name, value in row.items()} for row in queue.head(QUEUED).to_dict("records")
        ]
        sums = cluster.totals()
        devices = sum(each.devices for each in world.cluster.domains)
        totals = {
            "arrived": sums["arrived"], "completed": sums["completed"], "deadline_misses": sums["missed"],
            "energy_j": sums["meter_j"], "idle_j": sums["idle_j"], "traffic_usd": sums["bill_usd"],
            "carbon_g": sums["carbon_g"],
            "utilisation": sums["busy_device_s"] / (devices * cluster.now_s) if cluster.now_s > 0 else None,
        }  # fmt: skip
        booked = sum(each["energy_j"] for each in self._tenants.values())
        tenants = [
            {"tenant": name, **each, "share": each["energy_j"] / booked if booked else None}
            for name, each in sorted(self._tenants.items(), key=lambda pair: -pair[1]["energy_j"])
        ]
        return {
            "cluster_time_s": cluster.now_s, "domains": domains, "links": links, "queue": rows,
            "waiting": len(queue), "running": self._running(cluster), "bars": [dict(bar) for bar in self._bars],
            "tenants": tenants, "totals": {name: _plain(value) for name, value in totals.items()},
            "provenance": "estimated" if is_real(self.journal.header) else "simulated",
        }  # fmt: skip

    def _running(self, cluster: SimulatedCluster) -> list[dict[str, Any]]:
        state = cluster.engine.state
        running = []
        for slot, task in sorted(cluster.residents.items(), key=lambda pair: pair[1].number):
            if state.slots[0, slot, st.STATUS] == st.RUNNING:
                step_s, left = float(state.tasks[0, slot, st.STEP]), float(state.tasks[0, slot, st.LEFT])
                bars = self._open.get(task.id, [])
                running.append({
                    "id": task.id, "kind": task.model, "tenant": task.tenant, "step_s": _plain(step_s),
                    # A twin never foretells an end.
                    "left_s": None if is_real(self.journal.header) else _plain(step_s * left),
                    "domains": [bar["domain"] for bar in bars], "devices": sum(bar["devices"] for bar in bars),
                    "decision": bars[0]["decision"] if bars else "",
                })  # fmt: skip
        return running

    def _targets(self) -> list[dict[str, Any]]:
        asked = self.journal.header.settings.get("targets") or {}
        if not asked:
            return []
        targets = Targets.of(asked)
        known = [each for each in self._outcomes if Measured.of(each) is not None]
        window = Window.of(known, span_s=self._span_s()) if known else None
        rows = []
        for name, limit in targets.named().items():
            row: dict[str, Any] = {
                "name": name, "en": KINDS[name].english, "zh": KINDS[name].chinese, "unit": KINDS[name].unit,
                "limit": limit, "value": None, "low": None, "high": None, "met": None,
            }  # fmt: skip
            try:
                if window is not None:
                    measured = window.measure(name)
                    low, high = measured.interval()
                    met = targets.violation(name, measured.value) <= 0
                    row |= {"value": _plain(measured.value), "low": _plain(low), "high": _plain(high), "met": met}
            except ModelFitError:
                pass
            rows.append(row)
        return rows

    def _span_s(self) -> float | None:
        newest = self.journal.last()
        return None if newest is None else newest.cluster_time_s or None


def _interval(starts_s: np.ndarray[Any, Any]) -> dict[str, float | None]:
    """Middle 80 % of futures; None beyond what was played."""
    beyond = np.where(np.isnan(starts_s), np.inf, starts_s)
    low, middle, high = (float(each) for each in np.quantile(beyond, [0.1, 0.5, 0.9], method="nearest"))
    return {"low_s": _plain(low), "middle_s": _plain(middle), "high_s": _plain(high)}


def _plain(value: Any) -> Any:
    """For JSON: no NaN, no infinity, no scalar of another library."""
    if value is None or isinstance(value, str | bool):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    if not np.isfinite(number):
        return None
    return int(number) if number.is_integer() and isinstance(value, int | np.integer) else number
