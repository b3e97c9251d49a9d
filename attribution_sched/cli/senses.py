"""What each sense and each freedom is worth to one policy: paired days of the same arrivals, 95 % intervals.

    attribution-sched bench senses shared --days 8        # tasks that share devices
    attribution-sched bench senses shared --days 8 --against "kind (model's name)"    # over another arm than usual
    attribution-sched bench senses cross-domain --days 4  # models that no region holds

Both are played by the rule with the fork, which compares its choice with others in copies of the cluster. *shared*: the
preset's site at a quarter of its size, power caps off but where they are the question; arms differ in what is believed
of a pair. *nothing*: any partner is as good as any; *kind*: the mean of measured pairs of the two models' names;
*pace*, *pace + raw counters*, *pace + bounded vector*, *pace + EmSHAP vector*: what pairs of this cluster were seen to
do, carried over to tasks that look alike by these readings (no table, no name: nothing of a job's family is known
before). The EmSHAP vector is read as the policies read it that are shipped, without its bound; *bounded* are the seven
numbers in [-1, 1] themselves, in units of how much tasks differ in them. *true demands*: the measured table itself.
*cross-domain*: arms differ in what is believed of tasks, links, carbon and prices. In both, freedoms are cut one by
one: sharing or cutting a model, power caps, waiting. A negative number is a sense or a freedom that costs. Days that
were played are kept in a folder (one JSON line each) and not played again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.decision import Decision, Moment
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.fork import Belief
from attribution_sched.cluster.interference import measured_jobs
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import World, build_pool
from attribution_sched.config import load_settings
from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.limits import make_folder
from attribution_sched.scheduler.beliefs import AttributionBeliefs
from attribution_sched.scheduler.episode import EpisodeSummary, play
from attribution_sched.scheduler.hi_ppo.rule import Rule, RuleFork
from attribution_sched.scheduler.pairing import (
    PairBelief,
    ReferenceBelief,
    TrialBelief,
    VectorProfile,
    among,
    counter_profile,
    nearest_job,
)
from attribution_sched.scheduler.thinking import Think, Thinker
from attribution_sched.stats.bootstrap import PairedBootstrap
from attribution_sched.types import Attributor, FloatArray, Task

FIRST_SEED = 3_190_000
FIGURES = ("baseline_running_h", "mean_completion_h", "waiting_h", "reward", "task_energy_kwh", "carbon_kg")
SPREAD = 1.5
"""Length of one standard deviation of an attribution: that of the logarithm of a counter of the measured jobs."""

LOADS = {"0.9": 4.0, "1.4": 6.2}
"""Tasks per hour on 16 devices that ask for so many of them alone."""


class NameBelief:
    """The mean of measured pairs of the two models' names: what a scheduler knows that is told the model."""

    def __init__(self) -> None:
        jobs = measured_jobs()
        families = np.array(jobs.families)
        self._mean = np.array([
            [np.nanmean(jobs.pair_speed[np.ix_(families == a, families == b)]) for b in jobs.families]
            for a in jobs.families
        ])  # fmt: skip

    def speeds(self, own: Task, other: Task) -> tuple[float, float]:
        """Mean speeds of the two families."""
        a, b = nearest_job(own), nearest_job(other)
        return float(self._mean[a, b]), float(self._mean[b, a])

    def profile(self, task: Task) -> FloatArray:
        """The job whose family it is of."""
        return np.array([float(nearest_job(task))])

    def speeds_among(self, profiles: FloatArray) -> FloatArray:
        """Mean speeds of the families."""
        return among(self._mean, profiles)


class AnyPartner:
    """Nothing is known: every pair is believed to do the same."""

    def speeds(self, own: Task, other: Task) -> tuple[float, float]:
        """The same for all."""
        return SAME, SAME

    def profile(self, task: Task) -> FloatArray:
        """Nothing."""
        return np.zeros(1)

    def speeds_among(self, profiles: FloatArray) -> FloatArray:
        """The same for all."""
        return np.full((len(profiles), len(profiles)), SAME)


SAME = 0.65
"""Speed that every task is believed to have beside any other."""


def pace_of(task: Task) -> FloatArray:
    """Pace alone."""
    return np.log(np.maximum([task.samples_per_s], 1e-6))


def vector_reader(world: World, attribute: Callable[[Any], Any]) -> Callable[[Task], FloatArray]:
    """Pace and the bounded vector; its seven numbers in units of how much tasks of this world differ in them."""
    pool = Engine(world).pool
    states = np.array([attribute(pool.task(i, world.kinds)).state for i in range(0, len(pool), 4)], dtype=np.float64)
    spread = states.std(axis=0) + 1e-6

    def read(task: Task) -> FloatArray:
        state = task.attribution.state if task.attribution is not None else None
        scaled = np.zeros(len(spread)) if state is None else np.asarray(state, dtype=np.float64) / spread
        return np.append(SPREAD * scaled, pace_of(task))

    return read


def site(load: str) -> World:
    """A quarter of the shared site for two days; the queue holds whoever comes."""
    settings = load_settings("shared").model_dump(mode="json")
    settings["domain_defaults"]["devices"] = 16
    settings["arrivals"]["rate_per_hour"] = LOADS[load]
    settings["episode"] |= {"horizon_s": 172_800.0, "pool_size": 1024, "queue_capacity": 128, "max_running": 32}
    return load_settings(settings).build_world()


Arms = dict[str, Callable[[int], EpisodeSummary]]
"""Arm → seed → what the days came to."""


def shared_arms(load: str) -> Arms:
    """Arms of the shared site."""
    from attribution_sched.attribution.attributor import as_attributor
    from attribution_sched.attribution.vector import state_vectors

    capped = site(load)
    world = without_caps(capped)
    states = as_attributor(None, world)
    attribute = state_vectors(states, DEMAND_NAMES)
    bounded, unbounded = vector_reader(world, attribute), VectorProfile(states)

    def arm(make: Callable[[], Any], world: World = world, **freedoms: Any) -> Callable[[int], EpisodeSummary]:
        return lambda seed: play(world, Sees(BOTH, belief=make(), **freedoms), seed, attribute=attribute)

    def vector() -> TrialBelief:
        return TrialBelief(unbounded)

    return {
        "nothing": arm(AnyPartner),
        "kind (model's name)": arm(NameBelief),
        "pace": arm(lambda: TrialBelief(pace_of)),
        "pace + raw counters": arm(lambda: TrialBelief(counter_profile)),
        "pace + bounded vector": arm(lambda: TrialBelief(bounded)),
        "pace + EmSHAP vector": arm(vector),
        "true demands": arm(ReferenceBelief),
        "caps allowed": arm(vector, capped),
        "sharing not allowed": arm(vector, replace(world, share_limit=1)),
        "waiting not allowed": arm(vector, waits=False),
        "rule, sharing not allowed": arm(vector, replace(world, share_limit=1), fork=False),
        "rule, the same, caps allowed": arm(vector, replace(capped, share_limit=1), fork=False),
    }


BOTH = ("attributions", "pace")

LEVELS = (0.9, 0.75, 0.5, 0.35)
"""Caps of a preset that has none of its own, as shares of the TDP."""


def without_caps(world: World) -> World:
    """The world without cap levels."""
    return replace(world, cluster=replace(world.cluster, cap_levels=()))


class Sees:
    """The rule with the fork, which believes only what an arm allows.

    Args:
        reads: Of ``attributions`` and ``pace``; neither is the kind alone.
        links: Whether it is shown what links carry now; else their nominal speed, and nothing of their failures.
        hourly: Whether it is shown the carbon of the hour and its forecast; else the annual mean.
        priced: Whether it is shown the price of electricity of the hour and its forecast; else its mean.
        cut: Whether it may cut models over several domains.
        waits: Whether it may leave a task waiting that fits.
        fork: Whether it thinks at all; the rule alone does not.
        belief: What it believes of pairs; what it learns from them by default.
        beliefs: What it believes of tasks, in the place of what attributions and pace tell.
    """

    name = "rule+fork"

    def __init__(
        self,
        reads: tuple[str, ...],
        *,
        links: bool = True,
        hourly: bool = True,
        priced: bool = True,
        cut: bool = True,
        waits: bool = True,
        fork: bool = True,
        belief: PairBelief | None = None,
        beliefs: TrueBeliefs | RawBeliefs | None = None,
    ) -> None:
        self._policy = RuleFork() if fork else Rule()
        coordinator = self._policy._coordinator
        coordinator.waits = waits
        self.pairs = coordinator.pairs
        if belief is not None:
            coordinator.partners.belief = belief
        if fork:
            coordinator._thinker = Thinker(Think(), coordinator.attributions, reads=reads)
            if beliefs is not None:
                coordinator._thinker._beliefs = [(beliefs.world, beliefs)]
        self.links, self.hourly, self.priced, self.cut = links, hourly, priced, cut

    def reset(self, seed: int) -> None:
        """Forget the last episode."""
        self._policy.reset(seed)

    def select(self, seen: Decision) -> int:
        """Choose which waiting task goes first."""
        return self._policy.select(self._shown(seen))

    def decide(self, seen: Decision) -> Plan | None:
        """Place, defer, move or keep."""
        return self._policy.decide(self._shown(seen))

    def attributions(self, counters: FloatArray) -> FloatArray:
        """As the rule reads them."""
        return self._policy.attributions(counters)

    def _shown(self, seen: Decision) -> Decision:
        if not self.cut:
            seen = replace(seen, max_segments=1)
        if not self.hourly and seen.moment is not None:
            seen = replace(seen, moment=by_the_mean(seen.moment, "carbon"), carbon_g_per_kwh=np.zeros(0))
        if not self.priced and seen.moment is not None:
            mean = by_the_mean(seen.moment, "electricity")
            seen = replace(seen, moment=mean, electricity_usd_per_kwh=np.zeros(0))
        if self.links or seen.moment is None:
            return seen
        base = seen.moment.arrays.base[0] / BYTES_PER_GBIT
        return replace(seen, bandwidth_gbps=base, link_gbps=base, moment=nominal_links(seen.moment))


def nominal_links(moment: Moment) -> Moment:
    """A moment in which every link carries its nominal speed, none is down, and none is expected to fail."""
    links = np.zeros_like(moment.state.links)
    links[0, st.BANDWIDTH] = moment.arrays.base[0]
    holding = moment.arrays._replace(fails=0.0)
    return replace(moment, state=moment.state._replace(links=links), arrays=holding)


def by_the_mean(moment: Moment, signal: Literal["carbon", "electricity"]) -> Moment:
    """A moment in which ``carbon`` or ``electricity`` is everywhere what a table says of it, now and later."""
    cluster, signals = moment.world.cluster, moment.arrays.signals.copy()
    if signal == "carbon":
        signals[st.CARBON], domains = 1.0, tuple(replace(domain, carbon=None) for domain in cluster.domains)
    else:
        signals[st.ELECTRICITY], domains = 1.0, tuple(replace(domain, electricity=None) for domain in cluster.domains)
    world = replace(moment.world, cluster=replace(cluster, domains=domains))
    return replace(moment, world=world, arrays=moment.arrays._replace(signals=signals))


class TrueBeliefs(AttributionBeliefs):
    """The demands themselves, which no scheduler can see.

    Args:
        world: Whose tasks.
        attributor: As the rule reads attributions.
    """

    def __init__(self, world: World, attributor: Attributor) -> None:
        super().__init__(world, attributor)
        self.world = world
        demands = build_pool(world).demands
        self._logs = np.log(np.column_stack([demands.factors, demands.ratio[:, 3]]))

    def of(self, tasks: Sequence[Task]) -> Belief:
        """What the pool has drawn for each."""
        told = super().of(tasks)
        rows = [task.number for task in tasks]
        return Belief(self._logs[rows], 0.0 * told.root, told.pace)


class RawBeliefs(AttributionBeliefs):
    """What pace and seven raw counters tell, each scaled to its spread over tasks."""

    def __init__(self, world: World) -> None:
        logs = np.log1p(build_pool(world).counters.values[:, : len(DEMAND_NAMES)])
        centre, spread = logs.mean(axis=0), np.maximum(logs.std(axis=0), 1e-6)

        def read(counters: FloatArray) -> FloatArray:
            return np.asarray(np.tanh(0.5 * (np.log1p(counters[:, : len(DEMAND_NAMES)]) - centre) / spread))

        super().__init__(world, read)
        self.world, self.read = world, read


def crossing_arms(preset: str) -> Arms:
    """Arms of regions whose models must be cut."""
    from attribution_sched.attribution.vector import state_vectors

    world = without_caps(load_settings(preset).build_world())
    capped = replace(world, cluster=replace(world.cluster, cap_levels=LEVELS))
    raw = RawBeliefs(world)
    counted = state_vectors(raw.read, DEMAND_NAMES)
    true = TrueBeliefs(world, Rule().attributions)

    def arm(policy: Callable[[], Any], world: World = world, **more: Any) -> Callable[[int], EpisodeSummary]:
        return lambda seed: play(world, policy(), seed, **more)

    return {
        "kind": arm(lambda: Sees(())),
        "pace": arm(lambda: Sees(("pace",))),
        "pace + raw counters": arm(lambda: Sees(BOTH, beliefs=raw), attribute=counted),
        "pace + EmSHAP vector": arm(lambda: Sees(BOTH)),
        "true demands": arm(lambda: Sees(BOTH, beliefs=true)),
        "links unknown": arm(lambda: Sees(BOTH, links=False)),
        "carbon by annual mean": arm(lambda: Sees(BOTH, hourly=False)),
        "electricity flat": arm(lambda: Sees(BOTH, priced=False)),
        "caps allowed": arm(lambda: Sees(BOTH), capped),
        "cutting not allowed": arm(lambda: Sees(BOTH, cut=False)),
        "waiting not allowed": arm(lambda: Sees(BOTH, waits=False)),
        "rule": arm(lambda: Sees((), fork=False)),
        "rule, links unknown": arm(lambda: Sees((), links=False, fork=False)),
        "rule, cutting not allowed": arm(lambda: Sees((), cut=False, fork=False)),
        "rule, caps allowed": arm(lambda: Sees((), fork=False), capped),
    }


def played(
    folder: Path, name: str, arms: dict[str, Callable[[int], EpisodeSummary]], seeds: range, cpu_s: float
) -> Any:
    """Play what is missing, day by day and arm by arm, while time is left; arm → seed → figures of these seeds."""
    make_folder("output", folder)
    path, began = folder / f"{name}.jsonl", time.process_time()
    days_of: dict[str, dict[int, dict[str, Any]]] = {arm: {} for arm in arms}
    if path.exists():
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            try:
                told = json.loads(line)
                arm, day = told["arm"], told["seed"]
            except (ValueError, TypeError, KeyError):
                fix = "Remove the line: its day is played again"
                raise SettingsError(
                    problem(f"{path}, line {number}", line[:60], "is no day that was played", fix)
                ) from None
            if arm in days_of and day in seeds:
                days_of[arm][day] = told
    for seed in seeds:
        for arm, run in arms.items():
            if seed in days_of[arm]:
                continue
            if time.process_time() - began > cpu_s:
                return days_of
            summary = run(seed)
            row = {"arm": arm, "seed": seed} | {
                key: round(value, 6) for key, value in vars(summary).items() if isinstance(value, int | float)
            }
            days_of[arm][seed] = row
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
    return days_of


def table(days_of: dict[str, dict[int, dict[str, Any]]], against: str) -> str:
    """Figures of every arm, and its difference to one of them with its 95 % interval, paired by the days of both."""
    days = sorted(days_of[against])
    if len(days) < 2:
        return "no two days are whole yet"
    lines = [f"{len(days)} days of {against}, seeds {days[0]} to {days[-1]}; arms on as many of them as are told"]
    for figure in FIGURES:
        lines.append(f"\n{figure:30} {'days':>4} {'mean':>10}   minus {against}")
        for arm, rows in days_of.items():
            both = [day for day in days if day in rows]
            if len(both) < 2:
                lines.append(f"  {arm:28} {len(both):4}")
                continue
            values, base = (np.array([each[day][figure] for day in both]) for each in (rows, days_of[against]))
            draws = PairedBootstrap(len(both), 0)
            told = draws.estimate(draws.means(values - base))
            share = 100.0 * told.value / abs(base.mean()) if base.mean() else 0.0
            over = f"{told.value:+9.2f} [{told.low:+.2f}, {told.high:+.2f}] {share:+.1f} %"
            lines.append(f"  {arm:28} {len(both):4} {values.mean():10.2f}   {over}")
    return "\n".join(lines)


def measure_senses(
    preset: str,
    days: int,
    load: str,
    seed: int,
    cpu_minutes: float,
    folder: Path,
    only: str = "",
    against: str = "",
) -> str:
    """Play what is missing of so many days, and lay out all of them that was played so far.

    Args:
        preset: ``shared``, or one whose tasks are placed by the rule with the fork.
        days: Days (of ``shared``, pairs of days) of every arm.
        load: Of the shared site, one of :data:`LOADS`.
        seed: Of the first day.
        cpu_minutes: No further day is begun after so many.
        folder: Where days are kept.
        only: Arms whose name begins so, several with ``|`` between; all by default.
        against: Arm that all others are compared with; the one that reads pace and vector by default.

    Raises:
        SettingsError: If there is no such load or arm, or fewer than one day.
    """
    if load not in LOADS:
        raise SettingsError(problem("load", load, f"must be one of {', '.join(LOADS)}", "Use 0.9"))
    if days < 1:
        raise SettingsError(problem("days", days, "must be >= 1", "Use 8"))
    shared = preset == "shared"
    arms = shared_arms(load) if shared else crossing_arms(preset)
    name = f"shared_load_{load}_rule_fork" if shared else preset
    arms = {arm: run for arm, run in arms.items() if arm.startswith(tuple(only.split("|")))}
    if not arms:
        raise SettingsError(problem("only", only, "is the beginning of no arm", "Leave it out to play all"))
    if against and against not in arms:
        raise SettingsError(problem("against", against, f"must be one of {', '.join(arms)}", nearest(against, arms)))
    days_of = played(folder, name, arms, range(seed, seed + days), 60.0 * cpu_minutes)
    where = f"{preset}, load {load}, 16 devices, two days each" if shared else preset
    usual = "pace + EmSHAP vector"
    return f"{where}\n{table(days_of, against or (usual if usual in arms else next(iter(arms))))}"
