"""What was run, and what it came to in all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attribution_sched import __version__
from attribution_sched.errors import AttributionSchedError
from attribution_sched.report.collect.passing import Passed
from attribution_sched.report.data import Number, Run

if TYPE_CHECKING:
    from attribution_sched.report.source import Source

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
