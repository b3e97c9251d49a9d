"""Agent steps per CPU-second of both kinds of learners at 256 clusters, learning included.

    python benchmarks/learner_throughput.py                  # about three minutes
    python benchmarks/learner_throughput.py --quick          # one repeat, a few rollouts

``flat`` is PPO of ``scheduler/ppo`` on ``Testbed-v0``: playing, advantages and updates with the settings of
``attribution-sched train`` for the testbed. ``simulator`` is the time inside the environment's ``step`` of the same
run, ``learner`` the rest. ``hierarchical`` are the upper and the lower agent of Hi-PPO learning as shipped: groups of
corrections play whole compiled days of 256 clusters and the better half is moved toward. The ``game`` by level is what
learners of other libraries are offered (``scheduler/multi_agent.py``): candidate plans, each tried on the one cluster;
no learner is in its figure, and each agent that is asked counts. Elsewhere a step is a decision of a cluster, which
both levels take together and which counts once; beliefs, tables and observations that are made once a world are made
before the clock starts, as compiled kernels are. Time is the process's own CPU time, one thread; the machine's
frequency and its other programs still show, so each figure is the median of some repeats with the range.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from attribution_sched.cluster.envs.env import TestbedVectorEnv
from attribution_sched.config import load_settings
from attribution_sched.rivals.candidate_env import CandidateCluster
from attribution_sched.rivals.multi_agent import MOST, TwoLevels
from attribution_sched.scheduler.hi_ppo.checkpoint import load
from attribution_sched.scheduler.hi_ppo.policy_search import Days, Search, next_group
from attribution_sched.scheduler.ppo.flat import FlatAgent
from attribution_sched.scheduler.training import TESTBED_PPO

CLUSTERS = 256
GROUP = 4
"""Corrections of a group. Training has 20; the update costs next to nothing beside the days of even four."""

TARGETS = {"flat": 25_000.0, "hierarchical": 8_000.0}


@dataclass(frozen=True)
class Rate:
    """Steps of one repeat and the CPU seconds they took."""

    steps: int
    cpu_s: float

    @property
    def per_s(self) -> float:
        """Steps per CPU-second."""
        return self.steps / self.cpu_s


def flat(decisions: int, seed: int) -> dict[str, Rate]:
    """Train a new agent for so many decisions: the whole, the simulator's part and the learner's."""
    env = TestbedVectorEnv(load_settings("testbed").build_world(), CLUSTERS)
    agent, step, inside = FlatAgent(env, TESTBED_PPO, seed), env.step, [0.0]
    # The first rollout is not counted: torch sets itself up in it.
    agent.train(TESTBED_PPO.num_steps)

    def timed(actions: Any) -> Any:
        since = time.process_time()
        out = step(actions)
        inside[0] += time.process_time() - since
        return out

    env.step = timed  # type: ignore[method-assign]
    since = time.process_time()
    agent.train(agent.steps + decisions)
    took = time.process_time() - since
    return {
        "flat": Rate(decisions, took),
        "  its simulator": Rate(decisions, inside[0]),
        "  its learner": Rate(decisions, took - inside[0]),
    }


def hierarchical(preset: str, repeats: int) -> list[Rate]:
    """Let both agents learn in whole compiled days, a group a repeat."""
    weights = load()
    days = Days(load_settings(preset).build_world(), CLUSTERS, weights)
    days.returns(weights.theta, 0)
    found, search = [], Search.begun(weights.theta)
    for repeat in range(repeats):
        days.decided, since, seed = 0, time.process_time(), CLUSTERS * (repeat + 1)
        search = next_group(search, lambda theta, seed=seed: float(days.returns(theta, seed).mean()), GROUP, 0)
        found.append(Rate(days.decided, time.process_time() - since))
    return found


def game(preset: str, decisions: int, seed: int) -> Rate:
    """Upper and lower agent of the game for other libraries, choosing at random: one cluster, plans tried on it."""
    world = load_settings(preset).build_world()
    cluster, levels, rng = CandidateCluster(world, MOST), TwoLevels(len(world.cluster)), np.random.default_rng(seed)
    cluster.reset(seed)
    asked, since = 0, 0.0
    for number in range(-10, decisions):
        if number == 0:
            asked, since = 0, time.process_time()
        seen, plans = cluster.look()
        if seen is None:
            cluster.reset(seed + number + 11)
            continue
        dialogue, plan = levels.ask(seen, plans), None
        try:
            shown = next(dialogue)
            while True:
                asked += len(shown)
                masks = {agent: each.reshape(-1)[-7 * levels.choices :][6::7] > 0.5 for agent, each in shown.items()}
                shown = dialogue.send({agent: int(rng.choice(np.flatnonzero(mask))) for agent, mask in masks.items()})
        except StopIteration as end:
            plan = end.value
        cluster.carry_out(plan)
    return Rate(asked, time.process_time() - since)


def line(name: str, rates: list[Rate]) -> str:
    """One row: median and range, and the target where there is one."""
    per_s = np.array([rate.per_s for rate in rates])
    target = TARGETS.get(name.split(",")[0])
    told = "" if target is None else f"{target:,.0f}: {'met' if np.median(per_s) >= target else '**missed**'}"
    return (
        f"| {name} | {np.median(per_s):,.0f} | {per_s.min():,.0f} to {per_s.max():,.0f} | "
        f"{sum(rate.steps for rate in rates):,} | {told} |"
    )


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--repeats", type=int, default=5)
    asked.add_argument("--decisions", type=int, default=65_536, help="of flat PPO, per repeat")
    asked.add_argument("--presets", default="testbed,cross-domain-easy,cross-domain")
    asked.add_argument("--quick", action="store_true")
    given = asked.parse_args()
    if given.quick:
        given.repeats, given.decisions, given.presets = 1, 8192, "testbed"
    print(f"| agents, {CLUSTERS} clusters | steps per CPU-second | repeats | steps in all | target |")
    print("|---|---:|---:|---:|---|")
    runs = [flat(given.decisions, seed) for seed in range(given.repeats)]
    for name in runs[0]:
        print(line(name + (", `testbed`" if name == "flat" else ""), [run[name] for run in runs]), flush=True)
    for preset in given.presets.split(","):
        print(line(f"hierarchical, `{preset}`", hierarchical(preset, given.repeats)), flush=True)
    for preset in given.presets.split(","):
        rates = [game(preset, 40 if given.quick else 150, seed) for seed in range(given.repeats)]
        print(line(f"game by level for other libraries, one cluster, `{preset}`", rates), flush=True)


if __name__ == "__main__":
    main()
