"""How many decisions hang on the attribution vector, and how many could: the vector cut, and the truth in its place.

    python benchmarks/vector_decisions.py --presets testbed,cross-domain --states 200
    python benchmarks/vector_decisions.py --presets cross-domain --think

The same moments of fresh days are put to Hi-PPO four times: as they are, with the vector inverted, with the vector
zeroed, and with every task's true demands in place of what is believed of it. Told is the share of moments at which
another task or plan is chosen. Truth against a zeroed vector bounds what any vector can change by being right: a cut
that changes more decisions than that changes them for the worse or by chance.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.live import PolicyCall, SimulatedCluster
from attribution_sched.config import load_settings
from attribution_sched.scheduler.beliefs import Belief, DemandBeliefs
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.decode import Planner
from attribution_sched.scheduler.thinking import known_tasks
from attribution_sched.types import FloatArray, Task

NO_DEADLINE_S = 1e9
PER_DAY = 60
CHANGES = ("inverted", "zeroed", "truth against own", "truth against zeroed")


class Truthful(HiPpo):
    """Hi-PPO that may be told the true demands of tasks."""

    truth: dict[str, FloatArray] | None = None

    def believed(self, view: Decision, planner: Planner, decisions: Any) -> FloatArray:
        """What the agents believe of every candidate."""
        values = super().believed(view, planner, decisions)
        if self.truth is not None:
            known, values = known_tasks(view), values.copy()
            for place in np.ndindex(*decisions.slot.shape):
                task = known.get(int(decisions.slot[place]))
                if task is not None and task.id in self.truth:
                    values[place] = self.truth[task.id]
        return values

    def thinker(self) -> Any:
        """Who compares choices; its beliefs are the truth too."""
        made, policy = super().thinker(), self
        if not hasattr(made, "truthful"):
            plain = made.beliefs

            def beliefs(*given: Any) -> Any:
                return _TruthfulBeliefs(plain(*given), policy)

            made.beliefs, made.truthful = beliefs, True  # type: ignore[method-assign,attr-defined]
        return made


class _TruthfulBeliefs:
    def __init__(self, beliefs: DemandBeliefs, policy: Truthful) -> None:
        self._beliefs, self._policy = beliefs, policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._beliefs, name)

    def of(self, tasks: list[Task]) -> Belief:
        belief, truth = self._beliefs.of(tasks), self._policy.truth
        if truth is None:
            return belief
        mean = belief.mean.copy()
        for i, task in enumerate(tasks):
            if task.id in truth:
                mean[i, :3] = truth[task.id]
        return replace(belief, mean=mean)


def with_state(decision: Decision, factor: float) -> Decision:
    """The same moment with every vector's state times a factor."""

    def other(vector: Any) -> Any:
        return None if vector is None else vector.with_state(factor * vector.state)

    queue = tuple(replace(task, attribution=other(task.attribution)) for task in decision.queue)
    return replace(decision, attribution=other(decision.attribution), queue=queue)


def chosen(policy: HiPpo, decision: Decision) -> tuple[int, Any]:
    """Task and plan at one moment, nothing remembered of others."""
    policy.reset(0)
    answer = policy.coordinate(decision)
    return answer.slot, answer.plan


def differing(preset: str, states: int, seed: int, cpu_s: float, *, think: bool) -> dict[str, Any]:
    """Shares of moments that are decided otherwise; fewer moments if the CPU seconds run out."""
    world = load_settings(preset).build_world()
    attributor = as_attributor(None, world)
    policy = Truthful(deadline_s=NO_DEADLINE_S, think=think)
    runner, counts, taken, until = HiPpo(deadline_s=NO_DEADLINE_S), np.zeros(4), 0, time.process_time() + cpu_s
    while taken < states and time.process_time() < until:
        cluster, call, truth = SimulatedCluster(world, seed, attribute=attributor.vector), PolicyCall(), {}
        runner.reset(0)
        for _ in range(PER_DAY):
            if taken >= states or time.process_time() > until or not cluster.advance():
                break
            seen, engine = cluster.pending(), cluster.engine
            for slot, task in cluster.residents.items():
                row = engine.arrays.pool[int(engine.state.slots[0, slot, st.POOL])]
                truth[task.id] = np.log(row[st.P_FACTORS : st.P_FACTORS + 3])
            own, inverted, zeroed = (chosen(policy, with_state(seen, factor)) for factor in (1.0, -1.0, 0.0))
            policy.truth = truth
            true = chosen(policy, seen)
            policy.truth = None
            counts += [own != inverted, own != zeroed, true != own, true != zeroed]
            taken += 1
            answer = call.ask(runner, cluster)
            cluster.carry_out(call.encode(cluster, answer))
            call.note(answer)
        seed += 1
    return {"preset": preset, "think": think, "states": taken, **dict(zip(CHANGES, counts / taken, strict=True))}


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--presets", default="testbed,cross-domain,cross-domain-easy")
    asked.add_argument("--states", type=int, default=200)
    asked.add_argument("--seed", type=int, default=5_100, help="of the first day; later ones follow")
    asked.add_argument("--think", action="store_true", help="with thinking, as the policy hi-ppo of the registry")
    asked.add_argument("--cpu-minutes", type=float, default=60.0, help="most for a preset")
    asked.add_argument("--keep", type=Path, help="file to which a JSON line of each preset is added")
    args = asked.parse_args()
    print("preset               states  " + "  ".join(CHANGES))
    for preset in args.presets.split(","):
        row = differing(preset, args.states, args.seed, 60.0 * args.cpu_minutes, think=args.think)
        print(
            f"{preset:20s} {row['states']:6d}  " + "  ".join(f"{100 * row[name]:.1f} %" for name in CHANGES), flush=True
        )
        if args.keep is not None:
            with args.keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
