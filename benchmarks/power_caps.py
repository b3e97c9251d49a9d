"""What a power cap for each task is worth: per job by the law, then over days in which the rule chooses caps.

    python benchmarks/power_caps.py            # about two minutes of one core
    python benchmarks/power_caps.py --quick    # the jobs alone: each its own 9.1 and 6.9 %, one for all 1.2 %
    python benchmarks/power_caps.py --policy 'hi-ppo[quick]' --seed 3198000 --days 16   # days of another policy

*Jobs*: the 26 measured jobs alone on a V100, each under the level that saves most energy within 5 % of its time, beside
one common cap that keeps every job within 5 % (Zeus: 9 % of energy per job, nothing by a common cap). *Days*: the rule
with and without the freedom, paired, with 95 % intervals: ``shared`` at a quarter of its size and load 0.9 (the rule
does not pair), and ``cross-domain``, whose preset has no cap levels because of what stands here. With ``--policy`` the
quarter of ``shared`` alone, by that policy: caps allowed, forbidden, and each task given the cap of an earlier one, so
that what its counters tell is cut.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np

from attribution_sched.cli.senses import LEVELS, site, without_caps
from attribution_sched.cluster.cost import opaque_cap
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.interference import measured_jobs
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.power import MOST_LEVELS
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.planning.power_caps import with_cap
from attribution_sched.scheduler.episode import EpisodeSummary, play
from attribution_sched.scheduler.hi_ppo.rule import Rule
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.stats.bootstrap import PairedBootstrap
from attribution_sched.types import FloatArray

WITHIN = 1.05
FIRST_SEED, DAYS = 3_199_000, 10
FINE = tuple(np.round(np.arange(0.95, 0.34, -0.05), 2).tolist())


def levelled(world: World, levels: tuple[float, ...]) -> World:
    """The world with other cap levels."""
    return replace(world, cluster=replace(world.cluster, cap_levels=levels))


def jobs_alone() -> None:
    """Print what caps save of the measured jobs' energy."""
    working = np.maximum(measured_jobs().device_busy, 1e-3)
    print("26 measured jobs alone on a V100, share of their energy that caps save within 5 % of each one's time")
    for name, levels in (("every 5 %", FINE), ("the preset's four", LEVELS)):
        found = _effects(levels, working)
        saved = np.where(found[:, :, 0] <= WITHIN, 1.0 - found[:, :, 1], 0.0).max(axis=0)
        # Joules of a job over an hour alone: idle power and what it draws above it.
        weight = 37.0 + working * (294.4 - 37.0)
        common = max(
            ((1.0 - each[:, 1]) @ weight / weight.sum() for each in found if (each[:, 0] <= WITHIN).all()), default=0.0
        )
        own = (saved @ weight) / weight.sum()
        print(f"  {name:18} each its own {100 * own:5.1f} %   one for all {100 * common:.1f} %")


def _effects(levels: tuple[float, ...], working: np.ndarray) -> np.ndarray:
    """Time and energy of every job under every level over none, shape ``(levels, jobs, 2)``."""
    if len(levels) > MOST_LEVELS:
        return np.concatenate([_effects(levels[:MOST_LEVELS], working), _effects(levels[MOST_LEVELS:], working)])
    cost = Engine(levelled(load_settings("shared").build_world(), tuple(levels))).cost
    return np.array([
        [np.take(opaque_cap(cost.domains, cost.power_law, 0, 1, level, share), (0, 2)) for share in working]
        for level in range(1, len(levels) + 1)
    ])  # fmt: skip


def days(name: str, world: World) -> None:
    """Print paired days of the rule with and without caps."""
    pairs = [
        (play(levelled(world, LEVELS), Rule(), seed), play(without_caps(world), Rule(), seed))
        for seed in range(FIRST_SEED, FIRST_SEED + DAYS)
    ]
    compared(f"{name}, the rule, {len(pairs)} runs from seed {FIRST_SEED}: caps allowed over not", pairs)


def compared(title: str, pairs: list[tuple[EpisodeSummary, EpisodeSummary]]) -> None:
    """Print what differs between paired days."""
    draws = PairedBootstrap(len(pairs), 0)
    print(f"\n{title}")
    for label, unit, values in (
        ("energy of an hour of work", "%", [100 * (_per_work(a) / _per_work(b) - 1) for a, b in pairs]),
        ("mean completion time", "%", [100 * (a.mean_completion_h / b.mean_completion_h - 1) for a, b in pairs]),
        ("R", "", [a.reward - b.reward for a, b in pairs]),
    ):
        told = draws.estimate(draws.means(np.array(values)))
        print(f"  {label:26} {told.value:+6.2f} [{told.low:+.2f}, {told.high:+.2f}] {unit}")


def _per_work(day: EpisodeSummary) -> float:
    return day.task_energy_kwh / day.baseline_running_h


class ShuffledCaps:
    """A policy whose plans get the caps of earlier tasks in the place of their own."""

    def __init__(self, policy: Any, seed: int) -> None:
        self.policy, self.name, self.levels = policy, policy.name, [0]
        self.rng = np.random.default_rng(seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def attributions(self, counters: FloatArray) -> FloatArray:
        """As the policy reads them."""
        found: FloatArray = self.policy.attributions(counters)
        return found

    def reset(self, seed: int) -> None:
        """An episode begins."""
        self.policy.reset(seed)

    def select(self, view: Decision) -> int:
        """Which task goes first."""
        return int(self.policy.select(view))

    def decide(self, view: Decision) -> Plan | None:
        """The policy's plan with another task's cap."""
        plan: Plan | None = self.policy.decide(view)
        if plan is None:
            return None
        self.levels.append(plan.segments[0].cap)
        return with_cap(plan, int(self.rng.choice(self.levels)))


def days_of(policy: str, seed: int, count: int) -> None:
    """Print paired days of a policy with caps, without, and with each other's."""
    world, rows, chosen = site("0.9"), list[tuple[EpisodeSummary, ...]](), list[int]()
    for day in range(seed, seed + count):
        shuffled = ShuffledCaps(make_policy(policy), day)
        rows.append((
            play(levelled(world, LEVELS), make_policy(policy), day),
            play(without_caps(world), make_policy(policy), day),
            play(levelled(world, LEVELS), shuffled, day),
        ))  # fmt: skip
        chosen += shuffled.levels[1:]
    print(f"caps that {policy} chooses, share of placements by level: {np.bincount(chosen, minlength=5) / len(chosen)}")
    title = f"shared, 16 devices, two days, load 0.9, {policy}, {count} runs from seed {seed}: caps allowed over"
    compared(f"{title} not", [(row[0], row[1]) for row in rows])
    compared(f"{title} those of another task", [(row[0], row[2]) for row in rows])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--policy", help="who plays the days; the rule, with and without, by default")
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--days", type=int, default=DAYS)
    given = parser.parse_args()
    if given.policy:
        days_of(given.policy, given.seed, given.days)
        return
    quick = given.quick
    jobs_alone()
    if not quick:
        days("shared, 16 devices, two days, load 0.9", site("0.9"))
        days("cross-domain, a day", load_settings("cross-domain").build_world())


if __name__ == "__main__":
    main()
