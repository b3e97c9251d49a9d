"""Must: "why is it waiting" answers that hold when they are followed.

    python benchmarks/why_waiting.py [--seed 61000] [--answers 1000] [--policy sjf] [--planted 100]

Fresh days of the ``cross-domain`` preset. At every decision in which a task is left waiting it is asked why. Then the
answer is followed, by the deployed policy and not by what gave the answer:

- the *named blocker* is removed (its devices are free; where the answer says that others that wait go first, these are
  gone too) and the policy decides again: placed?
- the *advised change* of the task's own request is made and the policy decides again: started?
- *planted causes*: moments changed so that one cause is the binding one, as many of each token as asked for: named?
- *contradictions*: the cause is lack of room, its holders are gone, and the policy still does not place the task.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import replace

import numpy as np

from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.cluster.decision import Decision
from attribution_sched.config import load_settings
from attribution_sched.explain.decision_table import least_devices
from attribution_sched.explain.preference import redecided
from attribution_sched.explain.recorder import perceived
from attribution_sched.explain.room import empty_cluster
from attribution_sched.explain.why import Cause, Holder, Why, why_waiting
from attribution_sched.explain_memory import moment_of
from attribution_sched.live_cluster import PolicyCall, SimulatedCluster
from attribution_sched.scheduler.greedy import Greedy
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.policy import Policy, twin
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.types import Task


def placed(policy: Policy, view: Decision, free: np.ndarray) -> bool:
    """Whether the policy places the task with so many free devices."""
    limit = None if view.task is None else view.task.devices
    changed = replace(view, free_devices=free if limit is None else np.minimum(free, limit))
    return redecided(policy, changed, perceived(policy, changed))[0] is not None


def ahead_removed(view: Decision, why: Why) -> Decision:
    """The moment without the others that wait, where the answer says that they go first."""
    if not why.behind_others:
        return view
    return replace(view, queue=tuple(each for each in view.queue if each.slot == view.slot), backlog=0)


def freed(view: Decision, holders: list[Holder], why: Why) -> np.ndarray:
    """Free devices once the named blockers are gone."""
    free = np.array(view.free_devices)
    for each in holders:
        if each.task in why.blockers:
            free = free + np.array(each.devices)
    return free


class Never:
    """Waits whatever comes."""

    name = "never"

    def decide(self, view: Decision) -> None:
        """Wait."""


class Alone:
    """Places a task only if nobody else waits."""

    name = "alone"

    def decide(self, view: Decision) -> object:
        """A plan if the queue is empty but for it."""
        return Greedy().decide(view) if len(view.queue) <= 1 else None


class Impatient:
    """Places a task only over links five times as fast as they are."""

    name = "impatient"

    def __init__(self, gbps: float) -> None:
        self.gbps = gbps

    def decide(self, view: Decision) -> object:
        """A plan if links are fast."""
        return Greedy().decide(view) if view.bandwidth_gbps.max() >= self.gbps else None


def plant(cause: Cause, view: Decision) -> Why | None:
    """What is answered where one cause is planted; None if this moment cannot carry it."""
    empty = empty_cluster(view)
    needs = [need for k in range(len(empty.free_devices)) if (need := least_devices(view, k)) is not None]
    task = replace(view.task or Task(), kind_index=view.kind_index, slot=view.slot, devices=None, hold=False)
    empty = replace(empty, task=task)
    two = empty if len(empty.queue) > 1 else replace(empty, queue=(*empty.queue, replace(task, slot=view.slot + 1)))
    if cause is Cause.MISCONFIGURED:
        if not needs or min(needs) < 2:
            return None
        return why_waiting(Greedy(), replace(empty, task=replace(task, devices=min(needs) // 2)))
    if cause is Cause.FITS_NOWHERE:
        # A world whose catalogue the cluster holds has no such task: its devices are taken out of the moment instead.
        return None
    if cause is Cause.QUOTA:
        return why_waiting(Greedy(), empty, allowed=np.zeros_like(empty.free_devices))
    if cause is Cause.NO_ROOM:
        return why_waiting(Greedy(), replace(empty, free_devices=np.zeros_like(empty.free_devices)))
    if cause is Cause.HELD_FOR_ANOTHER:
        return why_waiting(Alone(), two)
    if cause is Cause.LINK_OR_PRICE:
        return why_waiting(Impatient(5.0 * float(view.bandwidth_gbps.max())), empty)
    if cause is Cause.POLICY_WAITS:
        return why_waiting(Never(), empty)
    return why_waiting(Greedy(), empty, behind=3)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=61_000)
    parser.add_argument("--answers", type=int, default=1000)
    parser.add_argument("--planted", type=int, default=100)
    parser.add_argument("--policy", default="sjf")
    args = parser.parse_args()
    policy = HiPpo(deadline_s=1e9) if args.policy == "hi-ppo" else make_policy(args.policy)
    world = load_settings("cross-domain").build_world()
    attribute, seed = as_attributor(None, world).vector, args.seed
    causes: Counter[str] = Counter()
    planted: Counter[str] = Counter()
    right: Counter[str] = Counter()
    named, started, behind_others, advised, followed, took = 0, 0, 0, 0, 0, []
    while sum(causes.values()) < args.answers:
        cluster, call = SimulatedCluster(world, seed, attribute=attribute), PolicyCall()
        if hasattr(policy, "reset"):
            policy.reset(0)
        while cluster.advance() and sum(causes.values()) < args.answers and cluster.now_s < 86_400.0:
            asked = call.ask(policy, cluster)
            if asked.plan is None and not asked.view.replanning:
                name = cluster.residents[asked.view.slot].id
                view, holders, allowed, behind = moment_of(cluster, name)
                other = twin(policy)
                began = time.process_time()
                why = why_waiting(other, view, holders, allowed, behind=behind)
                took.append(time.process_time() - began)
                causes[why.cause.value] += 1
                if why.blockers:
                    named += 1
                    behind_others += why.behind_others
                    started += placed(other, ahead_removed(view, why), freed(view, list(holders), why))
                if why.change is not None:
                    advised += 1
                    followed += placed(other, view, np.minimum(view.free_devices, why.change["devices"]))
                for cause in Cause:
                    if planted[cause.value] < args.planted:
                        found = plant(cause, view)
                        planted[cause.value] += found is not None
                        right[cause.value] += found is not None and found.cause is cause
            cluster.carry_out(cluster.encode(asked.plan, asked.view.kind_index))
            call.note(asked)
        seed += 1
    count = sum(causes.values())
    print(f"{args.policy}: {count} answers, seeds {args.seed}–{seed - 1}: {dict(causes)}")
    print(f"named a blocker: {named} ({named / count:.1%}), {behind_others} with others that go first; ", end="")
    print(f"removed, the policy places it: {started} of {named}")
    print(f"advised a change: {advised} ({advised / count:.1%}); followed, it starts: {followed} of {advised}")
    print("planted causes named: " + ", ".join(f"{c.value} {right[c.value]}/{planted[c.value]}" for c in Cause))
    print(f"CPU ms: median {1e3 * np.median(took):.0f}, p99 {1e3 * np.quantile(took, 0.99):.0f}")


if __name__ == "__main__":
    main()
