"""Throughput of the batched CrossDomain environment against the same environment stepped one by one.

All sides run the same world, seeds and actions; only the time inside ``step`` is counted (process CPU time).
Actions: a waiting task gets a layout that fits it in the domain with most free devices, every tenth running task
under review is cut over two domains, all others keep their plan. Two opponents:

- single environments, each a batch of one over the same compiled kernels;
- the same environment in plain Python: the same code with the compiler switched off, on a few clusters.

Run: ``python benchmarks/env_throughput.py [--clusters 256] [--steps 200]``
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import encode
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.envs.env import CrossDomainEnv, CrossDomainVectorEnv
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings

IntArray = NDArray[np.int64]


class Script:
    """A cheap deterministic policy: templates per task kind, looked up, not searched."""

    def __init__(self, engine: Engine) -> None:
        self.inside, self.cut = [], []
        domains = len(engine.world.cluster)
        for k, kind in enumerate(engine.world.kinds):
            n, micro = len(kind.model), kind.microbatches[0]
            count = kind.batch_size // micro
            best = min(
                (
                    Plan((Replica((Segment(0, 0, n, dp, tp, pp, Precision.BF16),), micro, count),))
                    for dp, tp, pp, share in engine.layouts.tolist()
                    if not share and micro % dp == 0 and pp <= n
                ),
                key=lambda plan, k=k: self._cost(engine, plan, k),
            )
            self.inside.append(encode(engine, best, k))
            halves = (Segment(0, 0, n // 2, 1, 8, 1, Precision.BF16), Segment(1, n // 2, n, 1, 8, 1, Precision.BF16))
            self.cut.append(encode(engine, Plan((Replica(halves, micro, count),)), k))
        self.keep = encode(engine, None, 0)
        self.domains = domains

    @staticmethod
    def _cost(engine: Engine, plan: Plan, k: int) -> float:
        scored = engine.cost.score(plan, k, breakdown=False)
        devices = plan.segments[0].device_count
        return float(scored.step_s[0]) * devices if scored.fits[0] else np.inf

    def act(self, engine: Engine, number: int) -> IntArray:
        """Actions of all clusters, shape ``(E, 5·P)``."""
        kinds, events = engine.pending_kind(), engine.state.event[:, st.EVENT]
        free = engine.free_devices().argmax(axis=1)
        actions = np.empty((engine.clusters, *self.keep.shape), dtype=np.int64)
        for e in range(engine.clusters):
            if events[e] == st.PLACE:
                actions[e] = self.inside[kinds[e]]
                actions[e, 0, 0] = free[e]
            elif (number + e) % 10 == 0:
                actions[e] = self.cut[kinds[e]]
            else:
                actions[e] = self.keep
        return actions.reshape(engine.clusters, -1)


def batched(world: World, clusters: int, steps: int) -> tuple[float, NDArray[np.float64], list[IntArray]]:
    """CPU seconds in ``step``, summed rewards and the actions taken."""
    env = CrossDomainVectorEnv(world, clusters)
    env.reset(seed=0)
    script, taken, total, spent = Script(env.engine), [], np.zeros(clusters), 0.0
    for number in range(steps):
        actions = script.act(env.engine, number)
        taken.append(actions)
        start = time.process_time()
        _, rewards, *_ = env.step(actions)
        spent += time.process_time() - start
        total += rewards
    return spent, total, taken


def one_by_one(world: World, clusters: int, actions: list[IntArray]) -> tuple[float, NDArray[np.float64]]:
    """CPU seconds in ``step`` and summed rewards of single environments with the same seeds and actions."""
    envs = [CrossDomainEnv(world) for _ in range(clusters)]
    over = np.zeros(clusters, dtype=np.bool_)
    total, spent = np.zeros(clusters), 0.0
    for e, env in enumerate(envs):
        env.reset(seed=e)
    for step in actions:
        for e, env in enumerate(envs):
            start = time.process_time()
            if over[e]:
                env.reset()
                over[e] = False
            else:
                _, reward, _, over[e], _ = env.step(step[e])
                total[e] += reward
            spent += time.process_time() - start
    return spent, total


def interpreted(preset: str, clusters: int, steps: int) -> float:
    """Decisions per CPU second of single environments with the compiler switched off."""
    command = [sys.executable, __file__, "--preset", preset, "--clusters", str(clusters), "--steps", str(steps)]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([*command, "--plain"], env=environment, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["decisions_per_s"])


def plain(world: World, clusters: int, steps: int) -> None:
    """Play a few clusters one by one and print the rate; meant to run with the compiler switched off."""
    script = Script(Engine(world))
    envs = [CrossDomainEnv(world) for _ in range(clusters)]
    spent = 0.0
    for e, env in enumerate(envs):
        env.reset(seed=e)
        for number in range(steps):
            action = script.act(env.engine, number + e)[0]
            start = time.process_time()
            env.step(action)
            spent += time.process_time() - start
    print(json.dumps({"decisions_per_s": clusters * steps / spent}))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=256)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--preset", default="cross-domain-easy")
    parser.add_argument("--plain", action="store_true", help="only the plain-Python side, as JSON")
    chosen = parser.parse_args()
    world = load_settings(chosen.preset).build_world()
    if chosen.plain:
        plain(world, chosen.clusters, chosen.steps)
        return
    batched(world, 2, 2)
    fast, rewards, actions = batched(world, chosen.clusters, chosen.steps)
    slow, single_rewards = one_by_one(world, chosen.clusters, actions)
    decisions = chosen.clusters * chosen.steps
    same = bool(np.array_equal(rewards, single_rewards))
    rate = decisions / fast
    python_rate = interpreted(chosen.preset, 2, 40)
    print(f"{'':<42} {'decisions per CPU s':>20} {'batched is':>12}")
    print(f"{f'batched, {chosen.clusters} clusters':<42} {rate:>20,.0f}")
    print(f"{'one by one, compiled kernels':<42} {decisions / slow:>20,.0f} {slow / fast:>10.1f} x")
    print(f"{'one by one, plain Python (2 clusters)':<42} {python_rate:>20,.1f} {rate / python_rate:>10.0f} x")
    print(f"target: 50 x. Rewards of the two compiled sides identical: {same}")


if __name__ == "__main__":
    main()
