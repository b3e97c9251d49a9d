"""How fast the fork is: followed decisions per CPU-second and the cost of 12 copies × 8 futures × 6 hours.

    python benchmarks/fork_speed.py --preset cross-domain --moments 12 --seed 1960000

CPU time of the process, one thread, kernels compiled beforehand; moments are decisions of a day that the rule decides,
one hour apart.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from attribution_sched.cluster.decision import Decision, encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.fork import PriorBeliefs, Wait, fork
from attribution_sched.config import load_settings
from attribution_sched.scheduler.rule_follower import RuleFollower
from attribution_sched.scheduler.rules import ShortestJobFirst


def moments(engine: Engine, count: int, apart_s: float = 3600.0) -> list[Decision]:
    """Decisions of a day, some time apart."""
    policy, found, next_s = ShortestJobFirst(), [], 7200.0
    while len(found) < count and engine.state.event[0, st.DONE] == 0:
        seen = view(engine)
        if seen is None:
            break
        if seen.time_s >= next_s:
            found.append(seen)
            next_s = seen.time_s + apart_s
        engine.step(encode(engine, policy.decide(seen), seen.kind_index)[None])
    return found


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--preset", default="cross-domain")
    asked.add_argument("--moments", type=int, default=12)
    asked.add_argument("--seed", type=int, default=1_960_000)
    given = asked.parse_args()
    engine = Engine(load_settings(given.preset).build_world())
    engine.seed([given.seed])
    engine.reset()
    seen = moments(engine, given.moments)
    moment = seen[0].moment
    assert moment is not None
    rule, beliefs = RuleFollower.of(moment), PriorBeliefs(moment.world)
    fork(moment, [Wait()], 1, 1.0, rule, 0, beliefs=beliefs)
    spent, followed = [], 0
    for each in seen:
        assert each.moment is not None
        began = time.process_time()
        found = fork(each.moment, [Wait()] * 11, 8, 6.0, rule, 1, beliefs=beliefs)
        spent.append(time.process_time() - began)
        followed += found.decisions
    print(f"{given.preset}, {len(seen)} moments from seed {given.seed}: 12 copies x 8 futures x 6 h")
    print(f"CPU ms: mean {1e3 * np.mean(spent):.1f}, median {1e3 * np.median(spent):.1f}, max {1e3 * max(spent):.1f}")
    print(f"followed decisions {followed / len(seen):.0f} a fork, {followed / sum(spent):,.0f} per CPU-second")


if __name__ == "__main__":
    main()
