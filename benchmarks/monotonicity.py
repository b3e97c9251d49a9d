"""Monotonicity audit: pairs of decisions that differ in one thing, and what must not get worse, or other, by it.

    python benchmarks/monotonicity.py --pairs 10000 --seed 3600000

Decisions are those that ``sjf`` meets on fresh days of the presets. Laws of the world (a violation is a bug):

* room: more free devices never make a plan unfit, nor the best plan in any domain worth less
* link: more bandwidth never makes a given plan over several domains slower
* energy, carbon: a lower price never raises the cost of a given plan
* request: whoever may use more devices can be placed wherever one may that may use fewer
* advice: a task that starts now on so many devices by ``why``'s own rule also fits when asking for no more than that

Habits of the policies (a violation is theirs, and is counted):

* queue: more tasks waiting never make the agents take more devices for a task
* odds: more free devices elsewhere never make a plan that fits impossible for the policy
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import price, value
from attribution_sched.config import load_settings
from attribution_sched.explain.room import best_inside, fits_at_all
from attribution_sched.planning.domain_orders import best_by_domains
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.glass_box.tree_policy import HiPpoTree
from attribution_sched.scheduler.hi_ppo.agents import CERTAIN, weighed_by
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.rules import ShortestJobFirst

ROUNDING = 1e-9
Rng = np.random.Generator
Verdict = bool | None
"""Whether a pair keeps the law; None where it is none."""


class Watched(ShortestJobFirst):
    """Shortest job first, every decision kept."""

    def __init__(self) -> None:
        super().__init__()
        self.views: list[Decision] = []

    def decide(self, view: Decision) -> Plan | None:
        """As it does."""
        self.views.append(view)
        return super().decide(view)


def views_of(preset: Any, days: int, seed: int) -> list[Decision]:
    """Decisions of some days."""
    world, watched = load_settings(preset).build_world(), Watched()
    for day in range(days):
        play(world, watched, seed + day)
    return watched.views


def more_room(view: Decision, rng: Rng) -> Decision | None:
    """The decision with some more devices free in one domain."""
    devices, free = np.asarray(view.cost.domains.rows.devices), np.asarray(view.free_devices)
    open_ = np.flatnonzero(free < devices)
    if len(open_) == 0:
        return None
    k = int(rng.choice(open_))
    more = free.copy()
    more[k] += int(rng.integers(1, devices[k] - free[k] + 1))
    return replace(view, free_devices=more)


def room(view: Decision, rng: Rng) -> Verdict:
    """More free devices never make the best plan in any domain worth less."""
    wider = more_room(view, rng)
    if wider is None:
        return None
    for k in np.flatnonzero(np.asarray(view.free_devices) > 0).tolist():
        before = best_inside(view, k)
        if before is None:
            continue
        after = best_inside(wider, k)
        if after is None or worth(wider, after) < worth(view, before) - ROUNDING:
            return False
    return True


def worth(view: Decision, plan: Plan) -> float:
    """R of a plan."""
    return float(value(view, PlanBatch.of([plan], view.max_segments)).reward[0])


def link(view: Decision, rng: Rng) -> Verdict:
    """More bandwidth never makes a given plan slower."""
    plans = best_by_domains(view)[:4]
    if not plans:
        return None
    batch = PlanBatch.of([plans[int(rng.integers(len(plans)))]], view.max_segments)
    factor = np.ones_like(view.bandwidth_gbps)
    i, j = rng.choice(len(factor), 2, replace=False)
    factor[i, j] = factor[j, i] = rng.uniform(1.05, 8.0)
    faster = replace(view, bandwidth_gbps=view.bandwidth_gbps * factor)
    return bool(price(faster, batch).step_s[0] <= price(view, batch).step_s[0] * (1.0 + ROUNDING))


def cheaper(name: str) -> Callable[[Decision, Rng], Verdict]:
    """A lower price never raises the cost of a given plan."""

    def law(view: Decision, rng: Rng) -> Verdict:
        free = np.flatnonzero(np.asarray(view.free_devices) > 0)
        plan = best_inside(view, int(rng.choice(free))) if len(free) else None
        if plan is None:
            return None
        batch, high = PlanBatch.of([plan], view.max_segments), float(rng.uniform(0.05, 2.0))
        low = high * float(rng.uniform(0.0, 1.0))
        costs = [
            float(value(replace(view, reward=replace(view.reward, **{name: each})), batch).r_cost[0])
            for each in (high, low)
        ]
        return costs[1] <= costs[0] + ROUNDING

    return law


def request(view: Decision, rng: Rng) -> Verdict:
    """Whoever may use more devices can be placed wherever one may that may use fewer."""
    few = int(rng.integers(1, 16))
    return not fits_at_all(view, few) or fits_at_all(view, few + int(rng.integers(1, 17)))


def advice(view: Decision, rng: Rng) -> Verdict:
    """The best plan under a limit keeps within it, and is there under any wider limit."""
    free = np.flatnonzero(np.asarray(view.free_devices) > 0)
    if len(free) == 0:
        return None
    k, few = int(rng.choice(free)), int(rng.integers(1, 17))
    plan, wider = best_inside(view, k, most=few), best_inside(view, k, most=2 * few)
    if plan is None:
        return None
    within = sum(segment.device_count for segment in plan.segments) <= few
    return bool(within and wider is not None and worth(view, wider) >= worth(view, plan) - ROUNDING)


def queue(policy: HiPpo) -> Callable[[Decision, Rng], Verdict]:
    """More tasks waiting never make the agents take more devices for a task."""

    def law(view: Decision, rng: Rng) -> Verdict:
        if view.replanning or not (np.asarray(view.free_devices) > 0).any():
            return None
        seen = policy.perceive(view).only(0)
        pair = seen.take(np.zeros(2, dtype=np.int64))
        pair.waiting[1] += int(rng.integers(1, 9))
        planner = policy.planner(view)
        actor = policy.agents_actor(view, planner, pair)
        fits = planner.describe(pair)[0].mask[:, :-1]
        weighed = weighed_by(actor.agents, pair, actor.believed, fits, actor.releases)
        if (weighed.domain[:, 0] < 0).any():
            return None
        return bool(weighed.size[1, 0] <= weighed.size[0, 0])

    return law


def odds(policy: HiPpo) -> Callable[[Decision, Rng], Verdict]:
    """More free devices elsewhere never make a plan that fits impossible for the policy."""

    def law(view: Decision, rng: Rng) -> Verdict:
        wider = more_room(view, rng)
        if wider is None or view.replanning:
            return None
        free = np.flatnonzero(np.asarray(view.free_devices) > 0)
        plan = best_inside(view, int(rng.choice(free))) if len(free) else None
        if plan is None:
            return None
        seen = policy.perceive(view).only(0)
        pair = seen.take(np.zeros(2, dtype=np.int64))
        pair.free[1] = wider.free_devices
        before, after = policy.log_odds(view, pair, plan)
        return bool(before <= -CERTAIN or after > -CERTAIN)

    return law


def laws() -> dict[str, tuple[float, Callable[[Decision, Rng], Verdict]]]:
    """Share of the pairs and the law, by name."""
    return {
        "room": (0.22, room),
        "link": (0.16, link),
        "energy price": (0.1, cheaper("energy_usd_per_kwh")),
        "carbon price": (0.1, cheaper("carbon_usd_per_kg")),
        "request": (0.06, request),
        "advice": (0.1, advice),
        "queue, hi-ppo": (0.1, queue(HiPpo())),
        "queue, hi-ppo-tree": (0.1, queue(HiPpoTree())),
        "odds, hi-ppo": (0.06, odds(HiPpo())),
    }


def audit(views: list[Decision], pairs: int, seed: int) -> list[tuple[str, int, int, float]]:
    """Pairs that were looked at, violations and CPU seconds of every law."""
    found = []
    for number, (name, (share, law)) in enumerate(laws().items()):
        rng, seen, wrong, tries = np.random.default_rng([seed, number]), 0, 0, 0
        began, wanted = time.process_time(), round(share * pairs)
        while seen < wanted and tries < 20 * wanted:
            tries += 1
            verdict = law(views[int(rng.integers(len(views)))], rng)
            if verdict is not None:
                seen += 1
                wrong += not verdict
        found.append((name, seen, wrong, time.process_time() - began))
    return found


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", default="cross-domain,cross-domain-easy,testbed")
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=2)
    parser.add_argument("--seed", type=int, default=3_600_000)
    given = parser.parse_args()
    total: dict[str, list[float]] = {}
    names = given.presets.split(",")
    for name in names:
        views = views_of(name, given.days, given.seed)
        for law, seen, wrong, cpu_s in audit(views, given.pairs // len(names), given.seed):
            row = total.setdefault(law, [0, 0, 0.0])
            row[0] += seen
            row[1] += wrong
            row[2] += cpu_s
    print("| law | pairs | violations | CPU s |\n|---|---:|---:|---:|")
    for law, (seen, wrong, cpu_s) in total.items():
        print(f"| {law} | {seen:.0f} | {wrong:.0f} | {cpu_s:.0f} |")
    print(f"| together | {sum(row[0] for row in total.values()):.0f} | {sum(row[1] for row in total.values()):.0f} | |")


if __name__ == "__main__":
    main()
