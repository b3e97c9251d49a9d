"""What the EmSHAP vector is worth beside the measured pace: the same days, only what is believed of tasks differs.

    python benchmarks/vector_worth.py ou30:300 testbed:200 --seed 1990000
    python benchmarks/vector_worth.py cross-domain:12 testbed:12 --seed 1992000 --think --runs vector.jsonl
    python benchmarks/vector_worth.py shared:12 --seed 1992000 --think --arms 4 --runs vector.jsonl

Arms: both, pace alone (the vector cut), the vector alone, neither, raw counters in the vector's place, and the true
demands. Without thinking, compiled days, agents as shipped; paired by day, 95 %.

With ``--think`` whole days of the policy as it is deployed, pace kept in every arm, resumable: the
vector, the vector zeroed at deployment, beliefs fitted without it, raw counters in its place, and the same two where
the operators' counters could not be read (the vector then is EmSHAP's estimate with its interval, a raw counter its
mean). ``--arms 4`` leaves the last two out, whose vectors take a minute a day. Where jobs share devices (``shared``,
36 hours of it) pairs are believed by the same reading as tasks are, and the third arm is every task with another's
vector; beliefs without it are the fifth.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from fork_gain import world_of
from hi_ppo_presets import UNSEEN
from hi_ppo_presets import played as played_before
from hi_ppo_presets import world_of as preset_world

from attribution_sched.attribution.attributor import AccountAttributor, as_attributor
from attribution_sched.attribution.vector import AttributionVector, state_vectors
from attribution_sched.cli.senses import pace_of
from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.fork import Belief
from attribution_sched.cluster.reward import total_of
from attribution_sched.cluster.world import World, build_pool
from attribution_sched.config.scenarios import scenario_names
from attribution_sched.scheduler.beliefs import AttributionBeliefs
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.checkpoint import Weights, load
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.policy_search import Days
from attribution_sched.scheduler.pairing import TrialBelief, counter_profile
from attribution_sched.scheduler.thinking import Think, Thinker
from attribution_sched.scheduler.training import training_world
from attribution_sched.types import Attributor, FloatArray, Task

OPERATORS = ("conv", "fc", "attention")
"""Counters that are unread in the arms of a machine that does not tell them."""

MEGAJOULE = 1e6


def played(days: Days, theta: FloatArray, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return and megajoules of every day by the agents."""
    sums, reward = days.sums(theta, seed), days.world.reward
    weights = np.array([reward.w_eff, reward.w_util, reward.w_cost])
    return total_of(sums[:, 2:5], weights), sums[:, 5] / MEGAJOULE


def raw_counters(pool: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Seven counters, each scaled to its spread over tasks, in the place of attributions."""
    logs = np.log1p(pool[:, :7])
    centre, spread = logs.mean(axis=0), np.maximum(logs.std(axis=0), 1e-6)

    def read(counters: FloatArray) -> FloatArray:
        return np.asarray(np.tanh(0.5 * (np.log1p(counters[:, :7]) - centre) / spread))

    return read


def beliefs_of(days: Days, weights: Weights) -> dict[str, Belief]:
    """Arm → what is believed of the tasks of the pool."""
    pool, world = days.engine.pool, days.world
    raw = raw_counters(pool.counters.values)
    counted = pool.attributed(state_vectors(raw, DEMAND_NAMES))
    tasks = [pool.task(row, world.kinds) for row in range(len(pool))]
    arms = {"both": (True, True), "pace": (True, False), "vector": (False, True), "neither": (False, False)}
    found = {
        name: AttributionBeliefs(world, weights.attributions, pace=pace, attributions=vector).of(tasks)
        for name, (pace, vector) in arms.items()
    }
    found["pace + raw counters"] = AttributionBeliefs(world, raw).of(
        [counted.task(row, world.kinds) for row in range(len(pool))]
    )
    truth = found["both"].mean.copy()
    truth[:, :3] = np.log(pool.demands.factors)
    found["true demands"] = Belief(truth, found["both"].root, found["both"].pace)
    return found


class PartlyRead(AccountAttributor):
    """The default attributor on a machine that cannot read the operators' counters."""

    def vector(self, task: Task | FloatArray) -> AttributionVector:
        """The vector, estimated where it was not read."""
        assert isinstance(task, Task)
        return super().vector(replace(task, provenance={**task.provenance, **dict.fromkeys(OPERATORS, "unavailable")}))


class PaceOnly(HiPpo):
    """Hi-PPO whose beliefs were fitted without the vector, of tasks and of pairs."""

    def __init__(self) -> None:
        super().__init__(think=True)
        self.partners.belief = TrialBelief(pace_of)

    def thinker(self) -> Thinker:
        """Who reads pace alone."""
        if self._thinker is None:
            self._thinker = Thinker(self.think or Think(), self.attributions, self.learnt.theta, reads=("pace",))
        return self._thinker


def shuffled(world: World, states: Attributor, seed: int = 0) -> Callable[[Task], AttributionVector]:
    """Attributes every task of a world's pool as another one of it."""
    pool, own = build_pool(world), state_vectors(states, DEMAND_NAMES)
    others = np.asarray(states(pool.counters.values))[np.random.default_rng(seed).permutation(len(pool))]
    return lambda task: own(task).with_state(others[task.number])


Arms = dict[str, tuple[HiPpo, Callable[[Task], AttributionVector]]]


def thinking_arms(world: World) -> Arms:
    """Arm → who decides and who attributes; pace is told in all of them."""
    emshap = as_attributor(None, world)
    raw = raw_counters(build_pool(world).counters.values)
    partly = PartlyRead(emshap.fitted)  # type: ignore[attr-defined]
    unread = [COUNTER_NAMES.index(name) for name in OPERATORS]

    def zero(counters: FloatArray) -> FloatArray:
        return np.zeros((len(counters), len(DEMAND_NAMES)))

    def raw_partly(counters: FloatArray) -> FloatArray:
        found = raw(counters)
        found[:, unread] = 0.0
        return found

    def by(states: Callable[[FloatArray], FloatArray]) -> Callable[[Task], AttributionVector]:
        return state_vectors(states, DEMAND_NAMES)

    by_counters = HiPpo(attributor=raw, think=True)
    by_counters.partners.belief = TrialBelief(counter_profile)
    arms: Arms = {
        "the vector, all read": (HiPpo(think=True), by(HiPpo().attributions)),
        "zeroed at deployment": (HiPpo(think=True), by(zero)),
        "beliefs fitted without it": (PaceOnly(), by(zero)),
        "raw counters in its place": (by_counters, by(raw)),
        "operators unread: EmSHAP": (HiPpo(think=True), partly.vector),
        "operators unread: raw, mean": (HiPpo(attributor=raw, think=True), by(raw_partly)),
    }
    if any(kind.opaque for kind in world.kinds):
        first = ("the vector, all read", "zeroed at deployment")
        other: Arms = {"another task's": (HiPpo(think=True), shuffled(world, HiPpo().attributions))}
        later = ("raw counters in its place", "beliefs fitted without it")
        return {name: arms[name] for name in first} | other | {name: arms[name] for name in later}
    return arms


def think(name: str, days: int, seed: int, runs: Path, minutes: float, first_arms: int) -> None:
    """Play what is missing of one world and print its table."""
    world, rows = preset_world(name) if name == "shared" else world_of(name), played_before(runs)
    began = time.process_time()
    arms = dict(list(thinking_arms(world).items())[:first_arms])
    done = {(row["preset"], row["name"], row["seed"]) for row in rows}
    for day in range(seed, seed + days):
        for arm, (policy, attribute) in arms.items():
            if (name, arm, day) in done or (time.process_time() - began) / 60.0 > minutes:
                continue
            row = {"preset": name, "name": arm, **asdict(play(world, policy, day, attribute=attribute))}
            with runs.open("a") as file:
                file.write(json.dumps(row) + "\n")
            rows.append(row)
    by = {arm: {row["seed"]: row for row in rows if (row["preset"], row["name"]) == (name, arm)} for arm in arms}
    common = sorted(set.intersection(*(set(found) for found in by.values())))
    print(f"`{name}`, {len(common)} days, thinking, pace kept; paired, 95 %\n")
    print("| vector | return | over the first | joules over the first |\n|---|---:|---|---|")
    first = next(iter(by.values()))
    for arm, found in by.items() if common else ():
        gain = np.array([found[day]["reward"] - first[day]["reward"] for day in common])
        more = np.array([100.0 * (found[day]["energy_kwh"] / first[day]["energy_kwh"] - 1.0) for day in common])
        half, half_j = (1.96 * x.std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else np.nan for x in (gain, more))
        mean = np.mean([found[day]["reward"] for day in common])
        print(f"| {arm} | {mean:.2f} | {gain.mean():+.2f} ± {half:.2f} | {more.mean():+.2f} ± {half_j:.2f} % |")
    print(flush=True)


def main() -> None:
    """Play and print."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("worlds", nargs="+", help="world:days")
    asked.add_argument("--seed", type=int, default=1_990_000)
    asked.add_argument("--think", action="store_true", help="whole days of the policy as deployed")
    asked.add_argument("--runs", type=Path, default=Path("vector.jsonl"), help="with --think: finished episodes")
    asked.add_argument("--minutes", type=float, default=9.0, help="with --think: CPU minutes for each world")
    asked.add_argument("--arms", type=int, default=6, help="with --think: how many of the arms")
    given = asked.parse_args()
    weights = load()
    for one in given.worlds:
        name, count = one.rsplit(":", 1)
        if given.think:
            think(name, int(count), given.seed, given.runs, given.minutes, given.arms)
            continue
        known = name in scenario_names() or name in ("mixed", "testbed")
        world = preset_world(name) if name in UNSEEN else training_world(name) if known else world_of(name)
        days = Days(world, int(count), weights)
        rule = days.returns(None, given.seed)
        arms = beliefs_of(days, weights)
        truth = arms["true demands"].mean[:, :3]
        own = None
        for arm, belief in arms.items():
            days.believe(belief)
            returns, joules = played(days, weights.theta, given.seed)
            if own is None:
                own = returns, joules
                print(f"{name}, {count} days from {given.seed}: rule {rule.mean():.1f}, {joules.mean():.0f} MJ a day")
            gain, more = returns - own[0], 100.0 * (joules - own[1]) / own[1].mean()
            error = np.sqrt(((belief.mean[:, :3] - truth) ** 2).mean(axis=0))
            over = returns - rule
            half, half_j, half_r = (1.96 * x.std(ddof=1) / np.sqrt(len(x)) for x in (gain, more, over))
            print(
                f"  {arm:20s} over rule {over.mean():+.2f} ± {half_r:.2f}, over both {gain.mean():+.2f} ± {half:.2f}, "
                f"joules {more.mean():+.2f} ± {half_j:.2f} %, error of log compute, memory, host "
                + " ".join(f"{x:.2f}" for x in error),
                flush=True,
            )


if __name__ == "__main__":
    main()
