"""What thinking is worth: a policy with the fork against the same policy without, on the same days, paired.

    python benchmarks/fork_gain.py --scenario ou30 --days 16 --seed 1950000
    python benchmarks/fork_gain.py --scenario mixed-gpus --days 16 --policies rule,rule+fork

Prints the gain with its 95 % interval (paired bootstrap over days), the gain that was predicted (the sum of the shrunk
gains of the choices that replaced the policy's own), how often thinking decided, and CPU time per decision.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.config.scenarios import build_scenario, scenario_names
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.rule import Rule, RuleFork
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.scheduler.thinking import Think
from attribution_sched.stats.bootstrap import PairedBootstrap
from attribution_sched.types import FloatArray

MIXED = (("H100-80", 8), ("A100-80", 16), ("A100-40", 32), ("V100-32", 32))


def world_of(scenario: str) -> World:
    """A scenario of ``cross-domain-easy``, four domains of different GPUs, or a preset by its name."""
    if scenario in scenario_names():
        return build_scenario("cross-domain-easy", scenario)
    if scenario == "mixed-gpus":
        world = load_settings("cross-domain-easy").build_world()
        domains = tuple(
            replace(domain, gpu=gpu(name), devices=devices)
            for domain, (name, devices) in zip(world.cluster.domains, MIXED, strict=False)
        )
        return replace(world, cluster=replace(world.cluster, domains=domains))
    return load_settings(scenario).build_world()


class Counted:
    """A policy whose thoughts are added up."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.predicted, self.thought, self.replaced, self.followed = 0.0, 0, 0, 0
        self.name = policy.name
        self._last: Any = None
        self.times_s: list[float] = []
        self._selected_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def reset(self, seed: int) -> None:
        """An episode begins."""
        self.policy.reset(seed)

    def select(self, view: Decision) -> int:
        """Which task goes first; timed."""
        began = time.process_time()
        found = self.policy.select(view)
        self._selected_s = time.process_time() - began
        return int(found)

    def attributions(self, counters: FloatArray) -> FloatArray:
        """As the policy reads them."""
        found: FloatArray = self.policy.attributions(counters)
        return found

    def decide(self, view: Decision) -> Plan | None:
        """The policy's plan; its thoughts are booked."""
        began = time.process_time()
        plan: Plan | None = self.policy.decide(view)
        self.times_s.append(self._selected_s + time.process_time() - began)
        self._selected_s = 0.0
        last = self.policy.last
        if last is not self._last and last is not None and last.thought is not None:
            self.thought += 1
            self.followed += last.thought.decisions
            if last.thought.chosen:
                self.replaced += 1
                self.predicted += float(last.thought.shrunk[last.thought.chosen])
        self._last = last
        return plan


def policy_of(name: str, think: Think) -> Any:
    """A policy by name; those that think do it as told."""
    if name == "rule":
        return Rule()
    if name == "rule-no-search":
        return Rule(search=False)
    if name == "rule+fork":
        return RuleFork(think=think)
    if name == "rule+fork-no-search":
        return RuleFork(search=False, think=think)
    if name == "hi-ppo+think":
        return HiPpo(think=think, deadline_s=np.inf)
    if name == "hi-ppo":
        return HiPpo(deadline_s=np.inf)
    return make_policy(name)


def main() -> None:
    """Play the days and print the table."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--scenario", default="ou30")
    asked.add_argument("--days", type=int, default=8)
    asked.add_argument("--seed", type=int, default=1_950_000)
    asked.add_argument("--policies", default="rule,rule+fork", help="the first is what the others are compared with")
    asked.add_argument("--think", default="{}", help="settings of Think as JSON")
    asked.add_argument("--minutes", type=float, default=12.0, help="begin no further day after this many CPU minutes")
    given = asked.parse_args()
    think, world = Think(**json.loads(given.think)), world_of(given.scenario)
    names = given.policies.split(",")
    made = {name: policy_of(name, think) for name in names}
    policies = {name: Counted(policy) if hasattr(policy, "last") else policy for name, policy in made.items()}
    returns: dict[str, list[float]] = {name: [] for name in names}
    began = time.process_time()
    for day in range(given.days):
        if (time.process_time() - began) / 60.0 > given.minutes:
            break
        for name, policy in policies.items():
            returns[name].append(play(world, policy, given.seed + day).reward)
        print(day, *(f"{name} {returns[name][-1]:.1f}" for name in names), flush=True)
    days = len(returns[names[0]])
    boot = PairedBootstrap(days, 0)
    print(f"\n{given.scenario}, {days} days from {given.seed}, {think}")
    for name in names:
        own, base = np.array(returns[name]), np.array(returns[names[0]])
        policy, gain = policies[name], own - base
        line = f"{name:22s} {own.mean():9.2f}"
        if name != names[0]:
            found = boot.estimate(boot.means(gain))
            line += f"  gain {gain.mean():+.2f} [{found.low:+.2f}, {found.high:+.2f}]"
        if not isinstance(policy, Counted):
            print(line)
            continue
        if policy.thought:
            line += (
                f"  predicted {policy.predicted / days:+.2f} a day; "
                f"thinking replaced {policy.replaced}/{policy.thought}; "
                f"{policy.followed / policy.thought:.0f} followed decisions a thought"
            )
        # The first decisions load weights, tables and kernels.
        ms = 1e3 * np.array(policy.times_s[5:] or [0.0])
        print(line, f" CPU ms a decision: mean {ms.mean():.1f}, p99 {np.quantile(ms, 0.99):.1f}")


if __name__ == "__main__":
    main()
