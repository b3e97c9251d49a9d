"""Everything a report says, gathered from a system in named steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched import __version__
from attribution_sched.billing.usage import Usage
from attribution_sched.cluster.live import SimulatedCluster
from attribution_sched.errors import AttributionSchedError, ModelFitError
from attribution_sched.executors.live import Twin, is_real
from attribution_sched.feedback.ascent import Miss
from attribution_sched.feedback.targets import KINDS, Targets
from attribution_sched.feedback.window import Window
from attribution_sched.feedback.words import standing
from attribution_sched.journal import Journal
from attribution_sched.report.collect.bill import bill_and_usage
from attribution_sched.report.collect.passing import Passed, consequential, passed
from attribution_sched.report.collect.reasons import reasons
from attribution_sched.report.collect.rivals import rivals
from attribution_sched.report.data import (
    SCHEMA,
    Changes,
    Course,
    Energy,
    FeedbackStep,
    Holding,
    Moment,
    Number,
    Report,
    Run,
    Standing,
    TaskEnergy,
    Timeline,
    Traffic,
)
from attribution_sched.report.source import STEPS
from attribution_sched.rivals.splits import StaticUniform
from attribution_sched.system.decision_records import plan_record
from attribution_sched.system.replay import replay
from attribution_sched.types import FloatArray

if TYPE_CHECKING:
    from attribution_sched.report.source import Progress, Source

# ------ What the cluster did over time, read off the record every bill is written from

MOST_HOLDINGS = 600
"""Holdings that are told one by one, the newest: more could not be seen in a picture."""

INTERVALS = 240
"""Intervals of the share in use and of the queue, all of one length."""


def course(usage: Usage) -> Course | None:
    """Who held what, how many devices were in use and how many tasks waited; None if no time passed."""
    first, last = float(usage.edges_s[0]), float(usage.edges_s[-1])
    if last <= first:
        return None
    holdings = _holdings(usage)
    edges = np.linspace(first, last, INTERVALS + 1)
    held = np.zeros(len(usage.lengths_s))
    np.add.at(held, usage.span_interval, usage.span_devices)
    # Devices held and tasks waiting change at few moments: means over equal intervals are differences of integrals.
    passed = np.concatenate([[0.0], np.cumsum(held * usage.lengths_s)])
    busy = np.diff(np.interp(edges, usage.edges_s, passed)) / (np.diff(edges) * max(1, int(usage.devices.sum())))
    return Course(
        holdings=tuple(holdings[-MOST_HOLDINGS:]),
        left_out=max(0, len(holdings) - MOST_HOLDINGS),
        edges_s=tuple(edges.tolist()),
        busy=tuple(busy.tolist()),
        waiting=tuple(_waiting(usage, edges).tolist()),
        provenance=usage.provenance,
    )


def _waiting(usage: Usage, edges: FloatArray) -> FloatArray:
    """Tasks that had come and had never run yet, on average over each interval."""
    came = np.array([task.submitted_s for task in usage.tasks])
    began = np.array([np.inf if task.started_s is None else task.started_s for task in usage.tasks])
    # Length of the part of each interval in which a task waits, added up over tasks one edge at a time.
    until = np.array([np.clip(edge - came, 0.0, np.maximum(began - came, 0.0)).sum() for edge in edges])
    return np.diff(until) / np.diff(edges)


def _holdings(usage: Usage) -> list[Holding]:
    """Rows of neighbouring intervals in which a task holds the same devices are one holding; by their start."""
    order = np.lexsort((usage.span_interval, usage.span_domain, usage.span_task))
    holdings: list[Holding] = []
    before = (-1, -1, -1.0, -2)
    for row in order.tolist():
        task, domain = int(usage.span_task[row]), int(usage.span_domain[row])
        devices, interval = float(usage.span_devices[row]), int(usage.span_interval[row])
        end_s = float(usage.edges_s[interval + 1])
        if before == (task, domain, devices, interval - 1):
            holdings[-1] = Holding(
                holdings[-1].task, holdings[-1].kind, domain, devices, holdings[-1].start_s, end_s
            )  # fmt: skip
        else:
            start_s = float(usage.edges_s[interval])
            holdings.append(Holding(usage.tasks[task].id, usage.tasks[task].model, domain, devices, start_s, end_s))
        before = (task, domain, devices, interval)
    return sorted(holdings, key=lambda each: (each.start_s, each.task, each.domain))


# ------ Traffic between domains, as the cluster had it after a decision; or, if no plan crossed, what a split would
# send

SHOWN = 3
"""Decisions whose traffic is shown."""


def traffic(system: Source, journaled: Passed) -> tuple[Traffic, ...]:
    """Traffic of the decisions across domains that commit most; of a split instead if there are none."""
    moments = list(journaled.moments)
    if len(system.domains) < 2 or not moments:
        return ()
    crossing = [moment for moment in moments if len(moment.domains) > 1]
    chosen = consequential(crossing, SHOWN)
    if chosen:
        return tuple(_taken(system, moment, journaled.sequences[moment.decision]) for moment in chosen)
    return _avoided(system, consequential(moments, SHOWN), journaled)


def _at(system: Source, number: int) -> SimulatedCluster:
    """The cluster as it was at a decision, which is pending."""
    queue = system.journal.header.settings.get("queue", "preset")
    made = Twin if is_real(system.journal.header) else SimulatedCluster
    cluster = made(system.world, system.seed, arrivals=queue == "preset")
    replay(cluster, system.journal, system.seed, stop=number)
    return cluster


def _taken(system: Source, moment: Moment, number: int) -> Traffic:
    cluster = _at(system, number)
    slot = cluster.pending().slot
    cluster.carry_out(np.array(system.journal.decision(moment.decision).action, dtype=np.int64))
    sent = cluster.engine.state.traffic[0, slot]
    return _told(moment, moment.words, moment.plan, sent, moment.bill_usd, True, "simulated")


def _avoided(system: Source, moments: Sequence[Moment], journaled: Passed) -> tuple[Traffic, ...]:
    """The static uniform split of the most consequential task that can be split."""
    for moment in moments:
        view = _at(system, journaled.sequences[moment.decision]).pending()
        plan = None if view.replanning else StaticUniform().decide(view)
        if plan is None or len(plan.segments) < 2:
            continue
        bandwidth, latency = view.bandwidth_gbps, view.latency_s
        cost = view.cost.score([plan], view.kind_index, bandwidth_gbps=bandwidth, latency_s=latency)
        record = plan_record(plan, system.domains, replanning=False) or {}
        bill = float(cost.bill_usd[0])
        return (_told(moment, record["words"], record, cost.traffic_bytes[0], bill, False, "estimated"),)
    return ()


def _told(
    moment: Moment, words: str, plan: Mapping[str, Any], sent: FloatArray, bill_usd: float, taken: bool, provenance: str
) -> Traffic:
    rows = tuple(tuple(float(cell) for cell in row) for row in sent)
    return Traffic(
        moment.decision, moment.task, moment.kind, words, plan, rows, bill_usd, moment.device_hours, taken, provenance
    )


# ------ What was run, and what it came to in all

COUNTED = ("placed", "moved", "kept", "waited", "refused")


def run_facts(system: Source, journaled: Passed) -> Run:
    """The run at a glance."""
    header, world = system.journal.header, system.world
    events = [event for event in system.journal.events() if event.kind in ("resumed", "learnt")]
    # A journal is also resumed to be explained or reported: the run went on only if something was decided after it.
    decisions = system.journal.count()
    resumed = [one for one in events if one.kind == "resumed" and one.details.get("decisions", 0) < decisions]
    queue = str(header.settings.get("queue", "preset"))
    reward = system.reward
    return Run(
        preset=header.preset,
        description=system.settings.description,
        policy=system.policy.name,
        seed=system.seed,
        queue=queue,
        domains=system.domains,
        devices=tuple(domain.devices for domain in world.cluster.domains),
        gpus=tuple(domain.gpu.name for domain in world.cluster.domains),
        weights=(reward.w_eff, reward.w_util, reward.w_cost),
        version=__version__,
        journal="" if system.journal.path is None else system.journal.path.name,
        journal_version=header.package_version,
        created_at=header.created_at,
        fingerprint=journaled.fingerprint,
        resumed=len(resumed),
        learnt=sum(one.kind == "learnt" for one in events),
        submitted=sum("after_decisions" in task.meta for task in system.journal.tasks()),
        shipped=_shipped(system),
        last_placed=journaled.last_code == 1,
        totals=_totals(system, journaled),
    )


def _shipped(system: Source) -> bool:
    from attribution_sched.config import load_settings
    from attribution_sched.scheduler.registry import POLICIES

    try:
        known = load_settings(system.journal.header.preset)
    except AttributionSchedError:
        return False
    same = known.model_dump(mode="json") == system.settings.model_dump(mode="json")
    return same and system.policy.name in POLICIES


def _totals(system: Source, journaled: Passed) -> dict[str, Number]:
    sums, now_s = system.cluster.totals(), system.now_s
    devices = sum(domain.devices for domain in system.world.cluster.domains)
    totals = {name: Number(float(journaled.counts[name]), "", "simulated") for name in COUNTED}
    totals["decisions"] = Number(float(sum(journaled.counts.values())), "", "simulated")
    totals |= {
        name: Number(value, unit, "simulated")
        for name, value, unit in (
            ("arrived", sums["arrived"], ""),
            ("completed", sums["completed"], ""),
            ("turned_away", sums["dropped"], ""),
            ("deadline_misses", sums["missed"], ""),
            ("running", float(system.cluster.running), ""),
            ("waiting", float(system.cluster.waiting), ""),
            ("cluster_h", now_s / 3600.0, "h"),
            ("completion_h", sums["completion_s"] / sums["completed"] / 3600.0 if sums["completed"] else None, "h"),
            ("waiting_h", sums["wait_s"] / 3600.0, "h"),
            ("energy_kwh", sums["meter_j"] / 3.6e6, "kWh"),
            ("task_energy_kwh", sums["task_j"] / 3.6e6, "kWh"),
            ("idle_energy_kwh", sums["idle_j"] / 3.6e6, "kWh"),
            ("traffic_usd", sums["bill_usd"], "USD"),
            ("carbon_kg", sums["carbon_g"] / 1e3, "kg CO2e"),
            ("idle_carbon_kg", sums["idle_g"] / 1e3, "kg CO2e"),
            ("network_carbon_kg", sums["wan_g"] / 1e3, "kg CO2e"),
            ("electricity_usd", sums["electricity_usd"], "USD"),
            ("gpu_h", sums["busy_device_s"] / 3600.0, "h"),
            ("steps_done", sums["steps_done"], ""),
            ("utilisation", sums["busy_device_s"] / (devices * now_s) if now_s > 0 else None, ""),
        )
    }
    totals["reward_interval_s"] = Number(system.reward.interval_s, "s", "given")
    terms = np.array([[*moment.terms, moment.reward] for moment in journaled.moments if not moment.moved])
    for at, name in enumerate(("mean_r_eff", "mean_r_util", "mean_r_cost", "mean_reward")):
        totals[name] = Number(float(terms[:, at].mean()) if len(terms) else None, "", "simulated")
    timed = np.quantile(journaled.times_s, [0.5, 0.99]).tolist() if journaled.times_s else [None, None]
    totals |= {f"decision_p{p}_s": Number(s, "s", "measured") for p, s in zip((50, 99), timed, strict=True)}
    return totals


# ------ Where the joules of the placed tasks go, counter by counter

MOST_TASKS = 500
"""Tasks that are told one by one, the newest."""


def energy(system: Source, journaled: Passed) -> Energy | None:
    """Attributions of the placed tasks; None if there is none."""
    if not journaled.attributions:
        return None
    last = next(reversed(journaled.attributions.values()))
    # A run could be resumed with another attributor: vectors that do not fit the newest are left out.
    alike = [name for name, one in journaled.attributions.items() if _sort(one) == _sort(last)]
    facts = last.get("provenance", {})
    return Energy(
        counters=tuple(last["names"]),
        unit=str(last["units"]),
        provenance="estimated",
        method=str(last["method"]),
        question=str(last.get("question", "conditional")),
        median_error=facts.get("median_error"),
        fitted_on=facts.get("tasks"),
        tasks=tuple(_task(system, journaled, name) for name in alike[-MOST_TASKS:]),
        left_out=len(journaled.attributions) - len(alike[-MOST_TASKS:]),
    )


def _sort(vector: Mapping[str, Any]) -> tuple[Any, ...]:

    return tuple(vector["names"]), vector["units"], vector.get("question", "conditional")


def _task(system: Source, journaled: Passed, name: str) -> TaskEnergy:
    task, vector = journaled.tasks[name], journaled.attributions[name]
    kind = system.world.kinds[int(task.meta["kind_index"])]
    return TaskEnergy(
        task=name,
        kind=task.kind,
        training=kind.training,
        samples=float(task.steps) * kind.batch_size,
        base=float(vector["base"]),
        predicted=float(vector["prediction"]),
        parts=tuple(float(part) for part in vector["values"]),
        errors=tuple(float(error) for error in vector["standard_error"]),
        counters=journaled.counters[name],
    )


# ------ Targets met or missed, over all plans put in force


def standings(system: Source, journaled: Passed) -> tuple[Standing, ...]:
    """Where the run stands with each target that was set."""
    targets: Targets | None = getattr(system, "targets", None)
    if targets is None:
        return ()
    known = [outcome for outcome in journaled.outcomes if outcome.r_eff is not None]
    window = Window.of(known, span_s=system.now_s or None) if known else None
    return tuple(_standing(targets, name, limit, window) for name, limit in targets.named().items())


def _standing(targets: Targets, name: str, limit: float, window: Window | None) -> Standing:
    kind = KINDS[name]
    asked = Number(limit, kind.unit, "given")
    if window is None:
        nothing = ("no plan was put in force yet", "尚无方案生效")
        return Standing(name, asked, Number(None, kind.unit, "simulated"), 0, None, *nothing)
    try:
        measured = window.measure(name)
    except ModelFitError as error:
        return Standing(name, asked, Number(None, kind.unit, "simulated"), 0, None, str(error), str(error))
    low, high = measured.interval()
    violation = targets.violation(name, measured.value)
    ends = (low, high) if math.isfinite(low) else (None, None)
    verdict = standing(Miss(name, limit, measured, violation))
    number = Number(measured.value, kind.unit, "simulated", *ends)
    return Standing(name, asked, number, measured.count, violation, *verdict)


# ------ What feedback changed, and why

EVENT = "feedback"
"""Kind of the journal's event for a step of feedback."""


def changes(journal: Journal) -> Changes:
    """Every change, and the steps that left everything as it was."""
    steps = [event.details for event in journal.events() if event.kind == EVENT]
    still = tuple(
        (int(step["after_decisions"]), str(step["reason"]), str(step.get("reason_zh", "")))
        for step in steps
        if step.get("kind") == "still"
    )
    listed = tuple(
        FeedbackStep(
            number=change.number or 0,
            after_decisions=change.after_decisions or 0,
            changed=change.changed,
            before=change.before,
            after=change.after,
            english=change.reason,
            chinese=change.reason_zh,
            undoes=change.undoes,
            rolled_back=change.rolled_back,
        )
        for change in journal.feedback()
    )
    return Changes(len(steps), listed, still)


# ------ Everything a report says, gathered from a system in named steps


def gather(system: Source, *, explain: int, against: Sequence[str], progress: Progress | None = None) -> Report:
    """Read, explain and play again what the report is made of.

    Args:
        system: The system.
        explain: Consequential decisions to explain; 0 explains nothing.
        against: Names of the rivals.
        progress: Told when a step begins.
    """

    def begins(step: str) -> None:
        if progress is not None:
            progress(step, STEPS.index(step), len(STEPS))

    begins("journal")
    journaled = passed(system.journal)
    run, joules = run_facts(system, journaled), energy(system, journaled)
    moments = tuple(journaled.moments)
    begins("targets")
    stands, learnt = standings(system, journaled), changes(system.journal)
    begins("explanations")
    why = reasons(system, moments, explain)
    begins("traffic")
    sent = traffic(system, journaled)
    begins("bill")
    owed, usage = bill_and_usage(system.journal)
    begins("rivals")
    others = rivals(system, against, sum(journaled.counts.values()))
    return Report(
        schema=SCHEMA,
        run=run,
        targets=stands,
        energy=joules,
        course=None if usage is None else course(usage),
        timeline=Timeline(moments, journaled.in_force - len(moments)),
        traffic=sent,
        cross_domain=journaled.cross_domain,
        reasons=why,
        changes=learnt,
        rivals=others,
        bill=owed,
    )
