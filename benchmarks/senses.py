"""What the EmSHAP vector is worth beside the measured pace: the same days, only what is believed of tasks differs.

    python benchmarks/senses.py ou30:300 testbed:200 --seed 1990000

Arms: both, pace alone (the vector cut), the vector alone, neither, raw counters in the vector's place, and the true
demands. Without thinking, compiled days, agents as shipped; paired by day, 95 %.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from fork_gain import world_of

from attribution_sched.cluster.fork import Belief, Copies
from attribution_sched.cluster.reward import total_of
from attribution_sched.config.scenarios import scenario_names
from attribution_sched.scheduler.beliefs import AttributionBeliefs
from attribution_sched.scheduler.hi_ppo.checkpoint import Weights, load
from attribution_sched.scheduler.hi_ppo.policy_search import TASKS, Days
from attribution_sched.training_worlds import training_world
from attribution_sched.types import FloatArray

MEGAJOULE = 1e6


def played(days: Days, theta: FloatArray, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return and megajoules of every day by the agents."""
    engine, n = days.engine, days.days
    days.agents.learnt.agents.theta[:] = theta
    engine.seed([seed + day for day in range(n)])
    engine.reset()
    nothing, ledger = np.zeros(n, dtype=np.int64), np.zeros((n, TASKS, 8))
    ledger[:, :, :2] = np.nan
    actions = np.zeros((n, days.world.max_segments, 5), dtype=np.int64)
    days.agents.play(Copies(
        engine.arrays, engine.state, nothing, nothing, actions, days._believed, ledger, np.zeros((n, 3)),
        nothing.copy(), not days.world.reward.per_decision, engine._scratch, {}, days.world,
        np.ones((n, TASKS), dtype=np.bool_),
    ))  # fmt: skip
    reward = days.world.reward
    weights = np.array([reward.w_eff, reward.w_util, reward.w_cost])
    return total_of(ledger[:, :, 2:5].sum(axis=1), weights), ledger[:, :, 5].sum(axis=1) / MEGAJOULE


def raw_counters(pool: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Seven counters, each scaled to its spread over tasks, in the place of attributions."""
    logs = np.log1p(pool[:, :7])
    centre, spread = logs.mean(axis=0), np.maximum(logs.std(axis=0), 1e-6)

    def read(counters: FloatArray) -> FloatArray:
        return np.asarray(np.tanh(0.5 * (np.log1p(counters[:, :7]) - centre) / spread))

    return read


def beliefs_of(days: Days, weights: Weights) -> dict[str, Belief]:
    """Arm → what is believed of the tasks of the pool."""
    from attribution_sched.attribution.vector import state_vectors
    from attribution_sched.cluster.demands import DEMAND_NAMES

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


def main() -> None:
    """Play and print."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("worlds", nargs="+", help="world:days")
    asked.add_argument("--seed", type=int, default=1_990_000)
    given = asked.parse_args()
    weights = load()
    for one in given.worlds:
        name, count = one.rsplit(":", 1)
        known = name in scenario_names() or name in ("mixed", "testbed")
        days = Days(training_world(name) if known else world_of(name), int(count), weights)
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
            half, half_j = (1.96 * x.std(ddof=1) / np.sqrt(len(x)) for x in (gain, more))
            print(
                f"  {arm:20s} over rule {(returns - rule).mean():+.2f}, over both {gain.mean():+.2f} ± {half:.2f}, "
                f"joules {more.mean():+.2f} ± {half_j:.2f} %, error of log compute, memory, host "
                + " ".join(f"{x:.2f}" for x in error),
                flush=True,
            )


if __name__ == "__main__":
    main()
