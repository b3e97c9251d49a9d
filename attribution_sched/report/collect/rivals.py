"""The same day played by others: same cluster, same seed, same tasks, same span of the cluster's clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.live import PolicyAnswer, PolicyCall, SimulatedCluster
from attribution_sched.cluster.reward import total_of
from attribution_sched.errors import AttributionSchedError
from attribution_sched.executors.live import is_real
from attribution_sched.journal import DecisionRecord, OutcomeRecord
from attribution_sched.report.data import Contender, Number, Rivals
from attribution_sched.scheduler.policy import Episodic, Policy, twin
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.system.admission import from_record
from attribution_sched.system.replay import replay
from attribution_sched.types import FloatArray, Outcome

if TYPE_CHECKING:
    from attribution_sched.report.source import Source


DEFAULT: tuple[str, ...] = ("hi-ppo", "rule", "sjf", "greedy", "integer-programme", "static-uniform")
"""Who is compared by default; the run's own policy is left out."""

SEARCHERS, MOST_SEARCHED = frozenset({"hi-ppo", "rule+fork", "integer-programme", "exact-switch"}), 2_000
"""Rivals that play copies or solve programmes, a few per second at worst: they play runs of so many decisions again.

A number of decisions and not of seconds, so that the same run has the same table on every machine.
"""

NOTHING_DECIDED, NO_RIVAL = "nothing was decided", "no rival was named"
REAL = "the run was on a real cluster, and its jobs are not run again for others"

MOST_DECISIONS = 20_000
"""Runs of more decisions are not played again."""

BLOCKS = 12
"""Parts of the span, all of one length, over which returns are compared: long enough that one ends another's queue."""


@dataclass
class Sums:
    """What is added up on the way: placements, their terms, what the cluster earned and when, times of decisions."""

    placements: int = 0
    terms: FloatArray = field(default_factory=lambda: np.zeros(3))
    earned: FloatArray = field(default_factory=lambda: np.zeros(3))
    times_s: list[float] = field(default_factory=list)
    moments: list[tuple[float, FloatArray]] = field(default_factory=list)

    def add(self, now_s: float, effect: Outcome, seconds: float | None) -> None:
        """Count a decision, after which the cluster's clock shows ``now_s``."""
        self.earned += effect.paid
        self.moments.append((now_s, self.earned.copy()))
        if seconds is not None:
            self.times_s.append(seconds)
        if effect.code == 1:
            self.placements += 1
            self.terms += effect.terms


def rivals(system: Source, names: Sequence[str], decisions: int) -> Rivals:
    """Play the span of the run again, by its recorded decisions and by every rival.

    The span ends with the first tick of the network at or after the run's last moment, where all clusters can be
    stopped alike.
    """
    tick_s = float(system.world.tick_s)
    span_s = tick_s * max(1.0, float(np.ceil(system.now_s / tick_s)))
    others = [name for name in dict.fromkeys(names) if name != system.policy.name]
    missing = ""
    if not decisions:
        missing = NOTHING_DECIDED
    elif decisions > MOST_DECISIONS:
        missing = f"the run has {decisions:,} decisions; up to {MOST_DECISIONS:,} are played again"
    elif not others:
        missing = NO_RIVAL
    elif is_real(system.journal.header):
        missing = REAL
    if missing:
        return Rivals(span_s, tick_s, 0, (), missing)
    own, continued = _own(system, span_s)
    return Rivals(span_s, tick_s, continued, (own, *(_rival(system, span_s, name, decisions) for name in others)))


def _own(system: Source, span_s: float) -> tuple[Contender, int]:
    """The run itself: recorded decisions, then a copy of its policy up to the end of the span."""
    cluster, sums = _cluster(system), Sums()

    def after(decision: DecisionRecord, asked: PolicyAnswer, effect: Outcome, known: OutcomeRecord | None) -> None:
        sums.add(cluster.now_s, effect, decision.latencies_s.get("decision"))

    replay(cluster, system.journal, system.seed, after=after)
    continued, asking, policy = 0, PolicyCall(), twin(system.policy)
    while cluster.now_s < span_s and cluster.advance(span_s):
        asked = asking.ask(policy, cluster, system.reward)
        effect = cluster.carry_out(cluster.encode(asked.plan, asked.view.kind_index))
        sums.add(cluster.now_s, effect, None)
        asking.note(asked)
        continued += 1
    return Contender(system.policy.name, True, *_result(system, cluster, sums, span_s)), continued


def _rival(system: Source, span_s: float, name: str, decisions: int) -> Contender:
    if name in SEARCHERS and decisions > MOST_SEARCHED:
        missing = f"the run has {decisions:,} decisions; a policy that searches plays up to {MOST_SEARCHED:,} again"
        return Contender(name, False, {}, missing=missing)
    try:
        policy = twin(make_policy(name))
        if isinstance(policy, Episodic):
            policy.reset(system.seed)
        return Contender(name, False, *_played(system, policy, span_s))
    except AttributionSchedError as error:
        return Contender(name, False, {}, missing=str(error))
    except Exception as error:  # A rival that breaks on this preset must not take the report with it.
        return Contender(name, False, {}, missing=f"{type(error).__name__}: {error}")


def _played(system: Source, policy: Policy, span_s: float) -> tuple[dict[str, Number], tuple[float, ...]]:
    cluster, sums, asking = _cluster(system), Sums(), PolicyCall()

    def decide() -> None:
        asked = asking.ask(policy, cluster, system.reward)
        effect = cluster.carry_out(cluster.encode(asked.plan, asked.view.kind_index))
        sums.add(cluster.now_s, effect, asked.seconds)
        asking.note(asked)

    for task in [task for task in system.journal.tasks() if "after_decisions" in task.meta]:
        _until(cluster, task.submitted_s, decide)
        cluster.hand_in(from_record(system.world, task, system.seed), task.id)
    _until(cluster, span_s, decide)
    return _result(system, cluster, sums, span_s)


def _until(cluster: SimulatedCluster, limit_s: float, decide: Callable[[], None]) -> None:
    while cluster.now_s < limit_s and cluster.advance(limit_s):
        decide()


def _cluster(system: Source) -> SimulatedCluster:
    queue = system.journal.header.settings.get("queue", "preset")
    attribute = system.cluster.attribute
    return SimulatedCluster(system.world, system.seed, arrivals=queue == "preset", attribute=attribute)


def _result(
    system: Source, cluster: SimulatedCluster, sums: Sums, span_s: float
) -> tuple[dict[str, Number], tuple[float, ...]]:
    """Figures of the whole span, and what was earned in each block of it."""
    figures, weights = _figures(system, cluster, sums, span_s), np.array(_weights(system))
    times = np.array([0.0, *(now_s for now_s, _ in sums.moments), span_s])
    earned = np.array([0.0, *(float(weights @ one) for _, one in sums.moments), figures["earned"].value])
    # What is earned between two decisions is booked at the later one: spread evenly over the time between them.
    return figures, tuple(np.diff(np.interp(np.linspace(0.0, span_s, BLOCKS + 1), times, earned)).tolist())


def _weights(system: Source) -> tuple[float, float, float]:
    return system.reward.w_eff, system.reward.w_util, system.reward.w_cost


def _figures(system: Source, cluster: SimulatedCluster, sums: Sums, span_s: float) -> dict[str, Number]:
    totals, state = cluster.totals(), cluster.engine.state
    devices, finished = system.world.cluster.devices, totals["completed"]
    # A cluster without work stops early; its devices idle on to the end of the span.
    idle_j = float(state.clock[0, st.METER_W]) * max(0.0, span_s - cluster.now_s)
    earned = sums.earned + state.outcome[0, st.INTEGRALS :]
    weights = _weights(system)
    means: list[float | None] = [None] * 4
    if sums.placements:
        terms = sums.terms / sums.placements
        means = [*terms.tolist(), float(total_of(terms, weights))]
    simulated: dict[str, tuple[float | None, str]] = {
        "placed": (totals["placed"], ""),
        "completed": (finished, ""),
        "mean_reward": (means[3], ""),
        "mean_r_eff": (means[0], ""),
        "mean_r_util": (means[1], ""),
        "mean_r_cost": (means[2], ""),
        "earned": (float(weights @ earned), ""),
        "utilisation": (totals["busy_device_s"] / (devices * span_s), ""),
        "energy_kwh": ((totals["meter_j"] + idle_j) / 3.6e6, "kWh"),
        "traffic_usd": (totals["bill_usd"], "USD"),
        "waiting_h": (totals["wait_s"] / 3600.0, "h"),
        "completion_h": (totals["completion_s"] / finished / 3600.0 if finished else None, "h"),
    }
    figures = {name: Number(value, unit, "simulated") for name, (value, unit) in simulated.items()}
    timed = float(np.median(sums.times_s)) if sums.times_s else None
    return figures | {"decision_s": Number(timed, "s", "measured")}
