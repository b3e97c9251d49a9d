"""Do the seven attribution numbers help a scheduler? The same training with and without them on Testbed-v0.

    python benchmarks/attribution_ablation.py                 # six seeds, all tables (about 9 minutes of CPU)
    python benchmarks/attribution_ablation.py --output F      # also keeps every run in F (JSON) and reuses those in it
    python benchmarks/attribution_ablation.py --quick         # a smoke test, two seeds and a few rollouts

Flat masked PPO learns with four versions of the seven numbers of its observation; everything else is the same:

- ``EmSHAP``: conditional Shapley values of the joules per sample (``attribution_sched.attribution.attributor``);
- ``zeros``: nothing;
- ``kind mean``: the mean EmSHAP vector of the task's kind, so what the kind tells and no more;
- ``ranks``: the ranks of the raw counters, the environment's default.

The spread of the latent demands is the preset's, then twice that. A last trial at the preset's spread, added after
the first two were seen, halves the learning rate and doubles the decisions, and shows EmSHAP at a quarter of its size:
it tells what the numbers say from what seven more inputs do to a training.

Policies are measured in held-out clusters with tasks they never met (another pool seed), on whole episodes, by their
most probable actions. Work is what the completed steps would have taken on the baseline (one device at 32 bits), so
energy is in joules per second of baseline work. Intervals are paired bootstraps over the seeds of training.

Beside the learners play three that look one decision ahead with the simulator itself: one prices actions with the
task's true demands, one with those that the counters suggest (regression of the demand factors on the same seven
numbers as ``EmSHAP`` and the kind), one with the nominal ones of its kind. What separates the first from the last is
all that knowing a task beyond its kind can be worth here.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from counter_ranks import counter_ranks
from numpy.typing import NDArray

from attribution_sched.cluster.codecs import Attributor
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.envs.env import TestbedVectorEnv
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment
from attribution_sched.cluster.world import World, build_pool
from attribution_sched.config import load_settings
from attribution_sched.scheduler.ppo.flat import FlatAgent
from attribution_sched.scheduler.ppo.settings import PpoSettings
from attribution_sched.stats.bootstrap import BootstrapInterval, PairedBootstrap
from research.linear_attribution import LinearAttribution, simulated_attributor

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Act = Callable[[TestbedVectorEnv, Any, NDArray[np.bool_]], Ints]

# As in benchmarks/ppo_testbed.py, where they were chosen with the environment's default ranks.
SETTINGS = PpoSettings(
    lr=5e-3, gamma=0.2, num_steps=2048, update_epochs=2, minibatch_size=512, target_kl=None, entropy_coef=0.01
)
CLUSTERS = 256
HELD_OUT_SEED, HELD_OUT_POOL = 3_000_000, 7
EMSHAP, ZEROS, KIND, RANKS = INPUTS = ("EmSHAP", "zeros", "kind mean", "ranks")
QUARTER = "EmSHAP / 4"
TRUE, GUESSED, NOMINAL = LOOKERS = ("true demands", "demands from counters", "nominal demands of the kind")


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        decisions: Of each training.
        seeds: Trainings of each input.
        held_out: Clusters in which a policy is measured.
        looked: Clusters in which the one-step lookers play.
        idiosyncrasies: Factors on the spread of the latent demands.
        horizon_s: Length of a held-out episode; None for the preset's.
        patient: Whether the trial with the lower learning rate is run.
    """

    decisions: int = 65_536
    seeds: int = 6
    held_out: int = 96
    looked: int = 24
    idiosyncrasies: tuple[float, ...] = (1.0, 2.0)
    horizon_s: float | None = None
    patient: bool = True


FULL = Size()
QUICK = Size(decisions=4096, seeds=2, held_out=4, looked=2, idiosyncrasies=(1.0,), horizon_s=900.0, patient=False)


@dataclass(frozen=True)
class Trial:
    """One table: inputs compared under the same training.

    Attributes:
        key: Prefix of its runs.
        title: Its heading.
        spread: Idiosyncrasy of the world.
        inputs: What is compared with the first of them.
        patience: Factor on the decisions, divisor of the learning rate.
    """

    key: str
    title: str
    spread: float
    inputs: tuple[str, ...] = INPUTS
    patience: int = 1


def trials(size: Size) -> list[Trial]:
    """The tables of a size, in order."""
    listed = [Trial(f"{spread:g}", f"Idiosyncrasy {spread:g}", spread) for spread in size.idiosyncrasies]
    if size.patient:
        title = "Idiosyncrasy 1, half the learning rate, twice the decisions"
        listed.append(Trial("patient", title, 1.0, (EMSHAP, ZEROS, KIND, QUARTER), 2))
    return listed


@dataclass(frozen=True)
class Worlds:
    """The problem to learn in, the one to be measured in, and the attributor of the former."""

    train: World
    test: World
    attributor: LinearAttribution

    @classmethod
    def build(cls, idiosyncrasy: float, size: Size) -> Worlds:
        """Testbed worlds that differ in their tasks only."""
        train = replace(load_settings("testbed").build_world(), idiosyncrasy=idiosyncrasy)
        test = replace(train, pool_seed=train.pool_seed + HELD_OUT_POOL, horizon_s=size.horizon_s or train.horizon_s)
        return cls(train, test, simulated_attributor(train))

    def input(self, name: str, world: World) -> Attributor:
        """The seven numbers of an input for the tasks of a world's pool."""
        if name == RANKS:
            return counter_ranks
        if name == EMSHAP:
            return self.attributor
        if name == QUARTER:
            return lambda counters: self.attributor(counters) / 4.0
        if name == ZEROS:
            return lambda counters: np.zeros((len(counters), 7))
        known, kinds = build_pool(self.train), build_pool(world).kinds
        shown = self.attributor(known.counters.values)
        mean = np.array([shown[known.kinds == k].mean(0) for k in range(len(world.kinds))])
        return lambda _: mean[kinds]


def play(env: TestbedVectorEnv, act: Act, seed: int) -> dict[str, float]:
    """One episode in every cluster; means over all decisions and all work."""
    engine = env.engine
    base_s = engine.arrays.kinds[:, st.K_BASE_STEP][engine.pool.kinds]
    obs, info = env.reset(seed=seed)
    n = env.num_envs
    ended, over = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    sums = dict.fromkeys(("reward", "decisions", "task_j", "work_s", "steps", "counted_steps", "completed"), 0.0)
    while not ended.all():
        live, task = ~ended, engine.pending_pool().copy()
        obs, reward, _, over, info = env.step(act(env, obs, info["action_mask"] | over[:, None]))
        placed = task[live & (info["decision"]["code"] == 1)]
        sums["reward"] += float(reward[live].sum())
        sums["decisions"] += float(live.sum())
        sums["work_s"] += float((engine.pool.steps * base_s)[placed].sum())
        sums["steps"] += float(engine.pool.steps[placed].sum())
        for e in np.flatnonzero(over & live):
            slots = engine.state.slots[e]
            running = slots[:, st.STATUS] == st.RUNNING
            left, which = engine.state.tasks[e, running, st.LEFT], slots[running, st.POOL]
            sums["work_s"] -= float(left @ base_s[which])
            sums["steps"] -= float(left.sum())
            sums["task_j"] += float(info["totals"]["task_j"][e])
            sums["counted_steps"] += float(info["totals"]["steps_done"][e])
            sums["completed"] += float(info["totals"]["completed"][e])
        ended |= over
    return {
        **sums,
        "return": sums["reward"] / sums["decisions"],
        "joules": sums["task_j"] / sums["work_s"],
    }


def learn(worlds: Worlds, name: str, seed: int, size: Size, patience: int = 1) -> dict[str, float]:
    """Train with one input and measure the policy in held-out clusters."""
    start = time.process_time()
    settings = replace(SETTINGS, lr=SETTINGS.lr / patience)
    agent = FlatAgent(TestbedVectorEnv(worlds.train, CLUSTERS, worlds.input(name, worlds.train)), settings, seed)
    agent.train(patience * size.decisions)
    spent = time.process_time() - start
    env = TestbedVectorEnv(worlds.test, size.held_out, worlds.input(name, worlds.test))
    found = play(env, lambda _, obs, mask: agent.act(obs, mask), HELD_OUT_SEED)
    return {**found, "train_cpu_s": spent}


class Looker:
    """Takes the action whose reward is highest when priced with some belief of every task's demands.

    Args:
        belief: Demand factors (compute, memory, host) and PCIe seconds of every task of the pool, (n, 4).
        truth: The true ones, to measure what the belief costs; (n, 4).
    """

    def __init__(self, env: TestbedVectorEnv, belief: Array, truth: Array) -> None:
        self.engines = []
        for columns in (belief, truth):
            engine = Engine(env.engine.world, env.num_envs)
            pool = engine.arrays.pool.copy()
            pool[:, st.P_FACTORS : st.P_RAISED] = columns
            engine.arrays = engine.arrays._replace(pool=pool)
            self.engines.append(engine)
        reward = env.engine.world.reward
        self.weights = {"r_eff": reward.w_eff, "r_util": reward.w_util, "r_cost": -reward.w_cost}
        self.regret: list[float] = []
        self.shift: list[float] = []
        self.tilt: list[float] = []

    def __call__(self, env: TestbedVectorEnv, obs: Any, mask: NDArray[np.bool_]) -> Ints:
        """Decide in every cluster."""
        chosen = np.zeros(env.num_envs, dtype=np.int64)
        for e in range(env.num_envs):
            if env.engine.state.event[e, st.EVENT] == st.NO_EVENT:
                continue
            allowed = np.flatnonzero(mask[e])
            rows, devices = env.codec._rows(allowed, env.engine.pending_kind()[e])  # type: ignore[attr-defined]
            believed, real = (self._price(engine, env, e, rows, devices) for engine in self.engines)
            at = int(believed.argmax())
            chosen[e] = allowed[at]
            self.regret.append(float(real.max() - real[at]))
            gap = real - believed
            self.shift.append(float(gap.mean()))
            self.tilt.append(float(gap.std()))
        return chosen

    def _price(self, engine: Engine, env: TestbedVectorEnv, e: int, rows: Ints, devices: Ints) -> Array:
        # The state is the environment's own: probing changes nothing, and loads of running tasks are observed.
        engine.state = env.engine.state
        found = engine.probe(e, rows, devices)
        return np.asarray(sum(weight * found[name] for name, weight in self.weights.items()))


def look(worlds: Worlds, size: Size) -> dict[str, dict[str, float]]:
    """What the one-step lookers reach, and how far their beliefs mislead them."""
    env = TestbedVectorEnv(worlds.test, size.looked)
    truth = env.engine.arrays.pool[:, st.P_FACTORS : st.P_RAISED].copy()
    nominal = Engine(replace(worlds.test, idiosyncrasy=0.0), 1).arrays.pool[:, st.P_FACTORS : st.P_RAISED].copy()
    beliefs = {TRUE: truth, GUESSED: guessed_demands(worlds, nominal), NOMINAL: nominal}
    out = {}
    for name in LOOKERS:
        looker = Looker(env, beliefs[name], truth)
        found = play(env, looker, HELD_OUT_SEED)
        regret = np.array(looker.regret)
        out[name] = {
            **found,
            "regret": float(regret.mean()),
            "other_action": float((regret > 1e-9).mean()),
            "shift": float(np.std(looker.shift)),
            "tilt": float(np.mean(looker.tilt)),
        }
    return out


def guessed_demands(worlds: Worlds, nominal: Array) -> Array:
    """Demand ratios of held-out tasks by regression on their contributions and kind, learnt on the training tasks."""
    known, asked = build_pool(worlds.train), build_pool(worlds.test)
    plain = Engine(replace(worlds.train, idiosyncrasy=0.0), 1).arrays.pool[:, st.P_FACTORS : st.P_RAISED]
    true = Engine(worlds.train, 1).arrays.pool[:, st.P_FACTORS : st.P_RAISED]

    def features(pool: Any) -> Array:
        kind = np.eye(len(worlds.train.kinds))[pool.kinds]
        phi = worlds.attributor.contributions(pool.counters.values) / worlds.attributor.spread
        # Each kind has its own slopes: the same counter means other things to other models.
        return np.hstack([kind, (kind[:, :, None] * phi[:, None, :]).reshape(len(phi), -1)])

    x, ratio = features(known), np.log(true / plain)
    slope = np.linalg.solve(x.T @ x + 0.1 * np.eye(x.shape[1]), x.T @ ratio)
    return np.asarray(nominal * np.exp(features(asked) @ slope))


def facts(worlds: Worlds) -> dict[str, float]:
    """How far tasks of one kind differ (standard deviations of logarithms), and how much of it the input shows."""
    pool, world = build_pool(worlds.test), worlds.test
    engine = Engine(world, 1)
    prices = np.empty((len(pool), 2))
    for task, (k, factors) in enumerate(zip(pool.kinds.tolist(), pool.demands.factors.tolist(), strict=True)):
        kind = world.kinds[k]
        micro = kind.microbatches[-1]
        whole = Segment(0, 0, len(kind.model), precision=PRECISIONS[1])
        one = PlanBatch.of([Plan((Replica((whole,), micro, kind.batch_size // micro),))])
        cost = engine.cost.score(one, k, factors=tuple(factors), breakdown=False)
        prices[task] = cost.step_s[0], cost.energy_j[0]

    def within(values: Array) -> Array:
        out = values.copy()
        for k in np.unique(pool.kinds):
            out[pool.kinds == k] -= out[pool.kinds == k].mean(0)
        return out

    shown = worlds.attributor(pool.counters.values)
    step, energy = within(np.log(prices)).std(axis=0)
    return {
        "r_squared": worlds.attributor.r_squared,
        "step": float(step),
        "energy": float(energy),
        "own": float((within(shown).var(axis=0) / shown.var(axis=0)).mean()),
    }


def cell(estimate: BootstrapInterval, digits: int = 3, sign: str = "") -> str:
    """A figure with its interval."""
    text = f"{estimate.value:{sign}.{digits}f}"
    return f"{text} [{estimate.low:{sign}.{digits}f}, {estimate.high:{sign}.{digits}f}]" if estimate.bounded else text


def verdict(difference: BootstrapInterval, better: str, worse: str) -> str:
    """What an interval of a difference says."""
    if difference.bounded and difference.low > 0:
        return better
    return worse if difference.bounded and difference.high < 0 else "no clear difference"


def compared(runs: dict[str, Any], trial: Trial, seeds: int) -> list[str]:
    """The table of a trial as Markdown, and what its intervals say."""
    draws = PairedBootstrap(seeds, 0)
    table = {
        name: np.array([[runs[f"{trial.key}/{name}/{s}"][c] for c in ("return", "joules")] for s in range(seeds)])
        for name in trial.inputs
    }
    lines = [
        "| the seven numbers | return per decision | EmSHAP minus it | J per s of baseline | EmSHAP over it, % |",
        "|---|---|---|---|---|",
    ]
    words = []
    for name in trial.inputs:
        mean = draws.means(table[name])
        lead = draws.means(table[EMSHAP] - table[name])
        gain, more = draws.estimate(lead[:, 0]), draws.estimate(100 * lead[:, 1] / mean[:, 1])
        own = f"{cell(draws.estimate(mean[:, 0]))} | {{}} | {cell(draws.estimate(mean[:, 1]), 1)} | {{}}"
        two = ("", "") if name == EMSHAP else (cell(gain, 3, "+"), cell(more, 2, "+"))
        lines.append(f"| {name} | {own.format(*two)} |")
        if name != EMSHAP:
            said = f"return {verdict(gain, 'higher', 'lower')}, energy {verdict(more, 'higher', 'lower')}"
            words.append(f"against {name}: {said}")
    return [*lines, "", f"EmSHAP {'; '.join(words)}."]


def looked_at(found: dict[str, dict[str, float]], known: dict[str, float], clusters: int) -> list[str]:
    """The table of the one-step lookers as Markdown, with the figures that explain it."""
    lines = [
        f"One-step look-ahead with the simulator, {clusters} of those clusters (no learning):",
        "",
        "| prices actions with | return per decision | J per s of baseline | another is better | lost by it |",
        "|---|---|---|---|---|",
    ]
    for name in LOOKERS:
        row = found[name]
        wrong = f"{100 * row['other_action']:.2f} % of decisions | {row['regret']:.4f}"
        lines.append(f"| {name} | {row['return']:.3f} | {row['joules']:.1f} | {wrong} |")
    nominal = found[NOMINAL]
    return [
        *lines,
        "",
        f"Within a kind, log step time varies by {known['step']:.2f} and log energy by {known['energy']:.2f} "
        f"(standard deviations); {100 * known['own']:.0f} % of the variance of the EmSHAP numbers lies within kinds; "
        f"R2 of the energy model {known['r_squared']:.2f}. Who knows only the kind misprices an action by "
        f"{nominal['shift']:.2f} of reward (standard deviation over decisions of what all actions share; "
        f"{nominal['tilt']:.2f} within a decision), yet picks the action that is best for this very task in "
        f"{100 * (1 - nominal['other_action']):.1f} % of decisions.",
    ]


def page(runs: dict[str, Any], size: Size) -> list[str]:
    """The report as Markdown; every verdict is worded from the intervals of this run."""
    lines = [
        f"Flat masked PPO on Testbed-v0, {size.decisions:,} decisions, {size.seeds} seeds for each input; "
        f"{size.held_out} held-out clusters with tasks of another pool, whole episodes, most probable actions. "
        "Brackets are 95 % paired bootstrap intervals over seeds.",
    ]
    for trial in trials(size):
        lines += ["", f"### {trial.title}", "", *compared(runs, trial, size.seeds)]
        if trial.patience == 1:
            lines += ["", *looked_at(runs[f"{trial.key}/look"], runs[f"{trial.key}/facts"], size.looked)]
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    import torch

    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--output", type=Path, help="keep every run here (JSON), and reuse those already in it")
    chosen = parser.parse_args(arguments)
    size = QUICK if chosen.quick else FULL
    runs: dict[str, Any] = {}
    if chosen.output is not None and chosen.output.exists():
        runs = json.loads(chosen.output.read_text(encoding="utf-8"))

    def once(key: str, measure: Callable[[], Any]) -> None:
        if key not in runs:
            start = time.process_time()
            runs[key] = measure()
            if chosen.output is not None:
                chosen.output.write_text(json.dumps(runs), encoding="utf-8")
            print(f"{key:<20} {time.process_time() - start:6.1f} CPU s", flush=True)

    for trial in trials(size):
        worlds = Worlds.build(trial.spread, size)
        if trial.patience == 1:
            once(f"{trial.key}/facts", partial(facts, worlds))
            once(f"{trial.key}/look", partial(look, worlds, size))
        for seed in range(size.seeds):
            for name in trial.inputs:
                one = partial(learn, worlds, name, seed, size, trial.patience)
                once(f"{trial.key}/{name}/{seed}", one)
    print("\n" + "\n".join(page(runs, size)))


if __name__ == "__main__":
    main()
