"""Do the seven attribution numbers help Hi-PPO over several domains? A ceiling, then trainings that differ in them.

    python benchmarks/hi_ppo_attributions.py                    # about ten minutes of one core
    python benchmarks/hi_ppo_attributions.py --only ceiling     # half a minute
    python benchmarks/hi_ppo_attributions.py --seeds 2 --decisions 480 --episodes 8 --spreads 1

*Ceiling.* The rule that Hi-PPO is cloned from decides with four beliefs about every task: its kind's nominal demands,
those that its EmSHAP numbers suggest (regression within the kind on other tasks), those that they and the measured
throughput suggest, and its true demands. The belief enters wherever the rule looks at times: in the order of the
queue, in whether a running task could be faster, and in the layout. What the last gains over the first is what knowing
the very task can be worth to such a scheduler.

*Trainings.* A new Hi-PPO imitates the rule that knows the true demands, with four versions of its seven inputs:
EmSHAP's numbers, zeros, the mean EmSHAP vector of the task's kind (task type only) and, as the best that any
attribution could be, the logarithms of the true demands over the nominal ones. Within a seed all four learn from the
very same decisions, so nothing differs but the seven numbers and the hours that are read with them: as in the shipped
policy, a plane per kind (here laid through the tasks to learn from) says how much longer than a nominal task one with
such numbers takes, and the inputs "hours" and "gain" count with that. ``--hours nominal`` leaves them at the kind's.
None of the four is told the teacher's knowledge otherwise: the other inputs tell of a waiting task its kind and its
steps (a running one shows its measured step time, to all four alike). Who sees nothing of the task learns what is right
on average. Held-out days have tasks of another pool, so that no task can be known by its number of steps.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from field_days import Array, Days, interval, play_days

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import samples
from attribution_sched.cluster.world import TaskPool, World, build_pool
from attribution_sched.config.scenarios import build_scenario
from attribution_sched.kernels import one_thread
from attribution_sched.planning.memory_feasibility import PlannerTables
from attribution_sched.scheduler.hi_ppo.cloning import Lesson, clone, watch
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.decode import Choices, IntArray, Planner, Trace
from attribution_sched.scheduler.hi_ppo.demand_head import unbounded
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor
from attribution_sched.scheduler.hi_ppo.features import (
    ATTRIBUTION_AT,
    CANDIDATE_NAMES,
    GLOBAL_NAMES,
    PACE,
    State,
    log_pace,
)
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork, NetworkSize
from attribution_sched.scheduler.hi_ppo.partial_plans import PartialPlans
from attribution_sched.scheduler.hi_ppo.teachers import ShortestFirst
from research.linear_attribution import LinearAttribution, simulated_attributor

SCENARIOS = ("ou30", "load+20")
EMSHAP, ZEROS, KIND, TRUE = ARMS = ("EmSHAP", "zeros", "kind mean", "true demands")
NOMINAL, SEVEN, TIMED, KNOWN = BELIEFS = ("nominal", "seven numbers", "and throughput", "true")
HELD_OUT_POOL = 7
FIRST_SEED = 960_000
CLUSTERS, EPOCHS, MINIBATCH, GAMMA = 24, 4, 64, 0.99

Prices = tuple[Array, Array, Array]
"""Seconds, utilisation and joules of a step."""

_HOURS, _BASELINE, _GAIN, _RUNS = (
    CANDIDATE_NAMES.index(n) for n in ("nominal_hours", "baseline_hours", "gain", "runs")
)
_QUEUED = GLOBAL_NAMES.index("queue_hours")


class Trial:
    """A spread of demands: the pools of tasks to learn from and to be measured with, and what can be told of them.

    Args:
        spread: Idiosyncrasy of the worlds.
    """

    def __init__(self, spread: float) -> None:
        self.learnt = {name: replace(build_scenario("cross-domain", name), idiosyncrasy=spread) for name in SCENARIOS}
        seed = self.learnt[SCENARIOS[0]].pool_seed + HELD_OUT_POOL
        self.tested = {name: replace(world, pool_seed=seed) for name, world in self.learnt.items()}
        self.attributor: LinearAttribution = simulated_attributor(self.learnt[SCENARIOS[0]])

    @cached_property
    def pools(self) -> tuple[TaskPool, TaskPool]:
        """Tasks to learn from and held-out ones."""
        return build_pool(self.learnt[SCENARIOS[0]]), build_pool(self.tested[SCENARIOS[0]])

    def inputs(self, arm: str, pool: TaskPool) -> Array:
        """The seven numbers of every task of a pool, ``(n, 7)``."""
        shown = np.asarray(self.attributor(pool.counters.values))
        if arm == ZEROS:
            return np.zeros_like(shown)
        if arm == TRUE:
            return np.asarray(np.tanh(np.log(pool.demands.ratio)))
        if arm == KIND:
            known = self.pools[0]
            told = np.asarray(self.attributor(known.counters.values))
            mean = np.array([told[known.kinds == k].mean(axis=0) for k in range(int(known.kinds.max()) + 1)])
            return np.asarray(mean[pool.kinds])
        return shown

    def planes(self, arm: str) -> Array:
        """How long a task takes by its seven numbers, as the planner takes it, ``(n_kinds, PACE)``."""
        known = self.pools[0]
        x, y = unbounded(self.inputs(arm, known)), np.log(known.demands.factors[:, 0])
        found = np.zeros((int(known.kinds.max()) + 1, PACE))
        for k, plane in enumerate(found):
            own = known.kinds == k
            plane[:7] = x[own].mean(axis=0)
            plane[7:14], plane[14] = ridge(x[own] - plane[:7], y[own])
        return found

    def factors(self, belief: str) -> Array:
        """Multipliers on compute, memory and host time of the held-out tasks as somebody believes them, ``(n, 3)``."""
        known, asked = self.pools
        if belief == NOMINAL:
            return np.ones((len(asked), 3))
        if belief == KNOWN:
            return asked.demands.factors
        found = np.zeros((len(asked), 3))
        for k in range(int(known.kinds.max()) + 1):
            old, new = known.kinds == k, asked.kinds == k
            x, y = self._clues(known, belief)[old], np.log(known.demands.factors[old])
            centre = x.mean(axis=0)
            z = x - centre
            slope, level = ridge(z, y)
            found[new] = (self._clues(asked, belief)[new] - centre) @ slope + level
        return np.exp(found)

    def _clues(self, pool: TaskPool, belief: str) -> Array:
        phi = self.attributor.contributions(pool.counters.values) / self.attributor.spread
        return np.column_stack([phi, np.log(pool.samples_per_s)]) if belief == TIMED else np.asarray(phi)


def ridge(x: Array, y: Array) -> tuple[Array, Array]:
    """Slopes and level of a plane through values ``y`` at points ``x`` around 0."""
    level = y.mean(axis=0)
    return np.linalg.solve(x.T @ x + 0.1 * np.eye(x.shape[1]), x.T @ (y - level)), level


def priced(engine: Engine, t: PlannerTables, factors: Array) -> Prices:
    """Seconds, utilisation and joules of a step of every task in every layout of one domain, each ``(n, layouts)``."""
    kinds, n_layouts = engine.pool.kinds, len(t.sizes)
    found = np.full((3, len(kinds), n_layouts), np.inf)
    for k, kind in enumerate(engine.world.kinds):
        at = np.flatnonzero(kinds == k)
        whole = t.whole_s[k, 0].reshape(n_layouts, -1)
        best = whole.argmin(axis=1)
        for lay in np.flatnonzero(np.isfinite(whole.min(axis=1))):
            precision, level = divmod(int(best[lay]), t.whole_s.shape[-1])
            micro = int(t.micro[k, level])
            row = [0, 0, len(kind.model), *t.layouts[lay], precision, 0, micro, kind.batch_size // micro]
            one = np.array(row, dtype=np.int64)[None, None]
            batch = PlanBatch(np.repeat(one, len(at), axis=0), np.ones(len(at), dtype=np.int64), np.zeros_like(at))
            cost = engine.cost.score(batch, k, factors=factors[at], breakdown=False)
            norm = kind.batch_size / samples(batch)
            found[:, at, lay] = cost.step_s * norm, cost.utilisation, cost.energy_j * norm
    return found[0], found[1], found[2]


class Knowing(ShortestFirst):
    """The rule with a belief about every task; the first of the seven numbers says which task it is.

    Args:
        slower: Logarithm of the believed over the nominal time in every layout, ``(n, layouts)``.
        busier: Believed less nominal utilisation, same shape.
        whole: As ``slower``, for the task as a whole, ``(n,)``.
    """

    def __init__(self, slower: Array, busier: Array, whole: Array) -> None:
        self._slower, self._busier, self._whole = slower, busier, whole
        self._task: IntArray = np.zeros(0, dtype=np.int64)

    @classmethod
    def of(cls, engine: Engine, t: PlannerTables, factors: Array) -> Knowing:
        """The rule with a belief about the demands of an engine's tasks."""
        nominal, own = (priced(engine, t, some) for some in (np.ones_like(factors), factors))
        finite = np.isfinite(nominal[0])
        slower, busier = np.zeros_like(nominal[0]), np.zeros_like(nominal[0])
        slower[finite] = np.log(own[0][finite] / nominal[0][finite])
        busier[finite] = (own[1] - nominal[1])[finite]
        # The largest layout stands for the task as a whole.
        return cls(slower, busier, slower[:, int(np.argmax(t.sizes))])

    @property
    def whole(self) -> Array:
        """How much slower than nominal every task is believed to be, as a logarithm."""
        return self._whole

    def task(self, state: State) -> IntArray:
        """The rule's choice, given the believed hours."""
        which = names_of(state.candidates[:, :, ATTRIBUTION_AT], len(self._whole))
        seen = state.candidates.copy()
        more = self._whole[which].astype(np.float32)
        inside = seen[:, :, _HOURS] != seen[:, :, _BASELINE]
        seen[:, :, _HOURS] += np.where(inside, more / 4.0, 0.0)
        seen[:, :, _GAIN] -= np.where(seen[:, :, _RUNS] > 0, more, 0.0)
        found = super().task(replace(state, candidates=seen))
        row = np.arange(len(found))
        self._task = which[row, np.minimum(found, which.shape[1] - 1)]
        return found

    def choose(self, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray) -> IntArray:
        """The rule's choice, given the believed times and utilisation of the layouts."""
        if head == "layout":
            task, choices = self._task[offer.decision], offer.choices.copy()
            choices[:, :, 0] += self._slower[task] / 2.0
            choices[:, :, 11] += self._busier[task]
            offer = replace(offer, choices=choices)
        return super().choose(head, offer, drafts, rows)


def names(counters: Array) -> Array:
    """Instead of attributions: which task of the pool it is."""
    found = np.zeros((len(counters), 7))
    found[:, 0] = (np.arange(len(counters)) + 1) / len(counters)
    return found


def names_of(told: Any, pool: int) -> IntArray:
    """Tasks by what :func:`names` wrote; the first one where there is none."""
    return np.asarray(np.maximum(0, np.rint(np.asarray(told, dtype=np.float64) * pool) - 1), dtype=np.int64)


def tables_of(world: World) -> tuple[Engine, PlannerTables]:
    """An engine of a world and what the planner knows of it."""
    engine = Engine(world, 1)
    kinds = engine.arrays.kinds
    base = kinds[:, st.K_BASE_STEP].copy(), kinds[:, st.K_BASE_COST].copy()
    return engine, Planner.of(engine.cost, world.kinds, *base, world.max_segments).tables


def ceiling(trial: Trial, scenario: str, episodes: int) -> dict[str, Any]:
    """Days of the rule under every belief."""
    engine, tables = tables_of(trial.tested[scenario])
    truth = Knowing.of(engine, tables, trial.factors(KNOWN)).whole
    real = priced(engine, tables, trial.factors(KNOWN))
    found: dict[str, Any] = {}
    for belief in BELIEFS:
        chooser = Knowing.of(engine, tables, trial.factors(belief))
        error = float((chooser.whole - truth).std())
        measured = outcome(play_days(trial.tested[scenario], chooser, episodes, FIRST_SEED, names))
        found[belief] = measured | one_step(engine, priced(engine, tables, trial.factors(belief)), real, error)
    return found


def one_step(engine: Engine, believed: Prices, true: Prices, error: float) -> dict[str, float]:
    """Every task alone in an empty domain: how often a belief takes another layout than the truth, and its loss."""
    base_s = engine.arrays.kinds[engine.pool.kinds, st.K_BASE_STEP][:, None]
    reward, rows = engine.world.reward, np.arange(len(base_s))

    def worth(prices: Prices) -> Array:
        finite = np.isfinite(prices[0])
        value = reward.w_eff * (1.0 - prices[0] / base_s) + reward.w_util * np.where(finite, prices[1], 0.0)
        return np.where(finite, value, -np.inf)

    real = worth(true)
    lost = real.max(axis=1) - real[rows, worth(believed).argmax(axis=1)]
    joules = true[2][rows, believed[2].argmin(axis=1)] / true[2].min(axis=1) - 1.0
    return {
        "error": error, "other": float((lost > 1e-9).mean()), "lost": float(lost.mean()), "joules": float(joules.mean())
    }  # fmt: skip


def outcome(days: Days) -> dict[str, Any]:
    """What is kept of some days."""
    return {
        "returns": days.returns.tolist(), "work_h": days.work_h.tolist(), "task_kwh": days.task_kwh.tolist(),
        "meter_kwh": days.meter_kwh.tolist(),
    }  # fmt: skip


def retold(trace: Trace, table: Array, kinds: IntArray, planes: Array | None) -> Trace:
    """The same decisions with other seven numbers: those of a table by task instead of its name, and hours with them.

    Args:
        trace: Decisions; tasks go by their names.
        table: The seven numbers of every task, ``(n, 7)``.
        kinds: Kinds of the tasks, ``(n,)``.
        planes: What the numbers say of the time tasks take; None leaves the hours as they are.
    """
    state = trace.state
    which = names_of(state.candidates[:, :, ATTRIBUTION_AT], len(table))
    candidates = state.candidates.copy()
    candidates[:, :, ATTRIBUTION_AT:] = np.where(state.present[:, :, None], table[which], 0.0)
    if planes is not None:
        each = [log_pace(planes[k], row) for k, row in zip(kinds, table.astype(np.float32), strict=True)]
        slower = np.where(state.present, np.array(each)[which], 0.0)
        inside = candidates[:, :, _HOURS] != candidates[:, :, _BASELINE]
        slower = np.where(inside, slower, 0.0)
        before = np.exp(4.0 * candidates[:, :, _HOURS]) * state.present
        candidates[:, :, _HOURS] += slower / 4.0
        runs = candidates[:, :, _RUNS] > 0
        candidates[:, :, _GAIN] = np.where(
            runs, np.clip(candidates[:, :, _GAIN] - slower, -2.0, 2.0), candidates[:, :, _GAIN]
        )
        more = (np.exp(4.0 * candidates[:, :, _HOURS]) * state.present - before).sum(axis=1)
        general = state.globals.copy()
        general[:, _QUEUED] = np.log1p(np.expm1(4.0 * general[:, _QUEUED]) + more) / 4.0
        state = replace(state, globals=general)
    return replace(trace, state=replace(state, candidates=candidates))


def watched(trial: Trial, seed: int, decisions: int) -> list[Lesson]:
    """Decisions of the rule that knows true demands, in every world; tasks go by their names."""
    lessons = []
    for i, world in enumerate(trial.learnt.values()):
        engine, tables = tables_of(world)
        teacher = Knowing.of(engine, tables, trial.pools[0].demands.factors)
        field = ClusterBatch(world, CLUSTERS, 10_000 * seed + 500 * i, names)
        with one_thread():
            lessons.append(watch(field, teacher, math.ceil(decisions / CLUSTERS), GAMMA))
    return lessons


def trained(
    trial: Trial, arm: str, lessons: list[Lesson], seed: int, episodes: int, *, read_hours: bool
) -> dict[str, Any]:
    """Let a new network imitate with one version of its inputs, and play held-out days."""
    start = time.process_time()
    known, planes = trial.pools[0], trial.planes(arm) if read_hours else None
    table = trial.inputs(arm, known)
    own = [Lesson(retold(one.trace, table, known.kinds, planes), one.returns) for one in lessons]
    network = HiPpoNetwork(NetworkSize(), torch.Generator().manual_seed(seed))
    losses = clone(network, own, EPOCHS, 1e-3, MINIBATCH, torch.Generator().manual_seed(seed))
    spent = time.process_time() - start
    shown = trial.inputs(arm, trial.pools[1])
    played = {
        name: outcome(
            play_days(world, NetworkActor(network, None), episodes, FIRST_SEED, lambda _: shown, None, planes)
        )
        for name, world in trial.tested.items()
    }
    return {"loss": losses[-1], "cpu_s": spent, **played}


def energy(found: list[dict[str, Any]], name: str) -> Array:
    """KWh per baseline hour of work of every training."""
    return np.array([sum(one[name]) / sum(one["work_h"]) for one in found])


def print_ceiling(found: dict[str, Any], spread: float, scenario: str) -> None:
    """A table of beliefs."""
    nominal = found[NOMINAL]
    print(f"\nidiosyncrasy {spread:g}, {scenario}, the rule with a belief, {len(nominal['returns'])} days")
    print("| belief | error of log time | return | over nominal | kWh per h of work, tasks | all devices |"
          " other layout best | lost by it |\n|---|---:|---:|---:|---:|---:|---:|---:|")  # fmt: skip
    for belief, row in found.items():
        gain = interval(np.array(row["returns"]) - nominal["returns"]) if belief != NOMINAL else ""
        kwh = " | ".join(f"{energy([row], name)[0]:.4f}" for name in ("task_kwh", "meter_kwh"))
        print(f"| {belief} | {row['error']:.3f} | {np.mean(row['returns']):.1f} | {gain} | {kwh} |"
              f" {100 * row['other']:.1f} % | {row['lost']:.4f} |")  # fmt: skip


def print_arms(runs: dict[str, Any], spread: float, hours: str, scenario: str, seeds: int, arms: list[str]) -> None:
    """A table of trainings; intervals are over seeds of training, each on the same days."""
    found = {arm: [runs[f"{spread:g}/{hours}/{arm}/{seed}"] for seed in range(seeds)] for arm in arms}
    returns = {arm: np.array([np.mean(one[scenario]["returns"]) for one in ones]) for arm, ones in found.items()}
    kwh = {arm: energy([one[scenario] for one in ones], "task_kwh") for arm, ones in found.items()}
    print(f"\nidiosyncrasy {spread:g}, {scenario}, hours {hours}, {seeds} trainings each")
    print("| the seven numbers | loss | return | EmSHAP minus it | kWh per h of work, tasks | EmSHAP over it, % |\n"
          "|---|---:|---:|---:|---:|---:|")  # fmt: skip
    for arm in arms:
        loss = np.mean([one["loss"] for one in found[arm]])
        apart = interval(returns[EMSHAP] - returns[arm]) if arm != EMSHAP else ""
        more = interval(100 * (kwh[EMSHAP] / kwh[arm] - 1.0)) if arm != EMSHAP else ""
        print(f"| {arm} | {loss:.3f} | {returns[arm].mean():.1f} | {apart} | {kwh[arm].mean():.4f} | {more} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spreads", default="1,3", help="idiosyncrasies; the preset's is 1")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--decisions", type=int, default=3600, help="imitated in each world")
    parser.add_argument("--episodes", type=int, default=48, help="held-out days of each world")
    parser.add_argument("--arms", default=",".join(ARMS), help="versions of the seven inputs; EmSHAP must be there")
    parser.add_argument("--hours", choices=("read", "nominal"), default="read", help="hours told to the networks")
    parser.add_argument("--only", choices=("ceiling", "trainings"))
    parser.add_argument("--output", type=Path, help="keep every run here (JSON), and reuse those already in it")
    given = parser.parse_args()
    arms = [name for name in ARMS if name in given.arms.split(",")]
    runs: dict[str, Any] = {}
    if given.output is not None and given.output.exists():
        runs = json.loads(given.output.read_text(encoding="utf-8"))

    def once(key: str, measure: Callable[[], Any]) -> Any:
        if key not in runs:
            start = time.process_time()
            runs[key] = measure()
            if given.output is not None:
                given.output.write_text(json.dumps(runs), encoding="utf-8")
            print(f"{key:<28} {time.process_time() - start:6.1f} CPU s", flush=True)
        return runs[key]

    hours = str(given.hours)
    train = partial(trained, read_hours=hours == "read")
    for spread in (float(part) for part in given.spreads.split(",")):
        trial = Trial(spread)
        if given.only != "trainings":
            for scenario in SCENARIOS:
                found = once(f"{spread:g}/ceiling/{scenario}", partial(ceiling, trial, scenario, given.episodes))
                print_ceiling(found, spread, scenario)
        if given.only == "ceiling":
            continue
        for seed in range(given.seeds):
            missing = [arm for arm in arms if f"{spread:g}/{hours}/{arm}/{seed}" not in runs]
            lessons = watched(trial, seed, given.decisions) if missing else []
            for arm in missing:
                once(f"{spread:g}/{hours}/{arm}/{seed}", partial(train, trial, arm, lessons, seed, given.episodes))
        for scenario in SCENARIOS:
            print_arms(runs, spread, hours, scenario, given.seeds, arms)


if __name__ == "__main__":
    main()
