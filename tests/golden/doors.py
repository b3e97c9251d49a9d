"""Three doors into the same law, recorded: a day by ``play``, whole days compiled, copies of one moment.

``python -m tests.golden.doors FILE`` writes what each gives; :mod:`tests.golden.test_doors` compares. A change that
moves a figure on purpose records again and says in this docstring what moved, and why.

Recorded first at the last commit before the rooms were rebuilt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from attribution_sched import System
from attribution_sched.cluster.fork import Wait, fork
from attribution_sched.config import load_settings
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.policy_search import Days
from attribution_sched.scheduler.hi_ppo.upper_agent import rule_theta
from attribution_sched.scheduler.registry import make_policy

FILE = Path(__file__).with_name("doors.npz")

NOT_COMPARED = ("decision_p50_s", "decision_p99_s", "wall_s")


def numbers(record: object) -> np.ndarray:
    """All plain numbers of a record, in the order of its fields."""
    told = {name: value for name, value in asdict(record).items() if name not in NOT_COMPARED}
    return np.array([float(value) for value in told.values() if isinstance(value, int | float)])


def day(preset: str, policy: str, hours: float = 6.0) -> np.ndarray:
    """One day by ``play``: what the episode came to."""
    world = replace(load_settings(preset).build_world(), horizon_s=3600.0 * hours)
    return numbers(play(world, make_policy(policy), seed=11))


def compiled_days(preset: str, hours: float = 4.0) -> np.ndarray:
    """Days by the compiled followers: by the rule, by the agents as the rule and as they learnt."""
    world = replace(load_settings(preset).build_world(), horizon_s=3600.0 * hours)
    weights = HiPpo().learnt
    days = Days(world, 3, weights)
    return np.stack([days.returns(theta, 77) for theta in (None, rule_theta(), weights.theta)])


def copies(preset: str) -> np.ndarray:
    """Copies of a moment under four futures, followed by what the default policy thinks with."""
    with System(preset, "rule", seed=5) as system:
        for _ in range(12):
            system.schedule_next_task()
        system.run(2)
        view = None
        while view is None or not view.queue or view.replanning:
            assert system.cluster.advance()
            view = system.cluster.pending()
            if view.replanning or not view.queue:
                system.cluster.apply(system.cluster.encode(None, view.kind_index))
    weights = HiPpo().learnt
    world = view.moment.world
    days = Days(replace(world, horizon_s=3600.0), 1, weights)
    told = fork(view.moment, [Wait()], 4, 6.0, days.rule, seed=3)
    return np.concatenate([told.totals.reshape(-1), told.ends.reshape(-1), told.codes.reshape(-1).astype(float)])


DOORS: dict[str, Callable[[], np.ndarray]] = {
    "day/cross-domain/hi-ppo[quick]": lambda: day("cross-domain", "hi-ppo[quick]"),
    "day/testbed/hi-ppo": lambda: day("testbed", "hi-ppo", 3.0),
    "days/cross-domain": lambda: compiled_days("cross-domain"),
    "days/testbed": lambda: compiled_days("testbed"),
    "copies/cross-domain": lambda: copies("cross-domain"),
    "copies/testbed": lambda: copies("testbed"),
}
"""Door → what it gives."""


if __name__ == "__main__":
    np.savez_compressed(
        Path(sys.argv[1]) if len(sys.argv) > 1 else FILE, **{name: door() for name, door in DOORS.items()}
    )
