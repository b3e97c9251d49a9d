"""How far Hi-PPO's single decisions stay from the exact optimum where a model must be cut and every part be capped.

    python benchmarks/capped_gaps.py                   # 150 instances
    python benchmarks/capped_gaps.py --instances 3     # a quick look

Instances: one large language model, its layers merged into a few blocks, over three domains of two devices that
together hold it once and none alone, so that every plan there is can be listed
(``research.lookahead_plans.all_plans``): orders of domains, cuts, replicas, layouts, formats and microbatches, tens of
thousands a decision. Each part of a plan may have one of five power caps, its domain's own and four lower ones, so
every plan counts up to 125 times. GPUs, links, prices and weights are drawn by instance, with seeds that nothing was
trained or tuned on; in a third of the instances three more tasks wait. What is searched for is what Hi-PPO's own search
and its choice of caps settle plans by::

    R(plan, caps) − w_eff · waiting · devices / all devices · T(caps) / T_base

The reference prices all plans without caps, and with all their caps those that could still be best: a cap never makes
a step shorter, leaves at least its own share of the joules, and raises utilisation at most by what it stretches. The
gap is the percentage by which what is paid, w_eff + w_util less that, is above the least. Caps alone: the same with the
policy's plan under its best caps as the reference.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from dataclasses import replace
from itertools import product

import numpy as np
from lookahead_limit import in_blocks

from attribution_sched.attribution.vector import state_vectors
from attribution_sched.cluster.arrivals import Poisson
from attribution_sched.cluster.cost import PlanCosts
from attribution_sched.cluster.decision import Decision, view
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.plan import CAP, DP, PP, TP, Plan, PlanBatch
from attribution_sched.cluster.power import cap_slowdown
from attribution_sched.cluster.reward import samples, usd_per_j
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Reward, Runtime, TaskKind, World
from attribution_sched.planning.power_caps import Judge
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.rule import Rule
from attribution_sched.types import FloatArray, IntArray
from research.lookahead_plans import all_plans

FIRST_SEED = 7_760_000
LEVELS = (0.9, 0.75, 0.5, 0.35)
MODELS = ("gpt3-13b", "llama-2-13b")
CARDS = ("A100-80", "H100-80")
CHUNK = 20_000


def instance(seed: int) -> tuple[Engine, Decision]:
    """One decision about one task."""
    rng = np.random.default_rng([seed, 7])
    names = ("west", "east", "north")
    gbps = rng.uniform(4.0, 40.0, (3, 3))
    gbps = np.where(np.eye(3) > 0, 100.0, np.minimum(gbps, gbps.T))
    wan = Wan(
        names, bandwidth_gbps=gbps, latency_s=np.where(np.eye(3) > 0, 1e-4, 0.03),
        price_usd_per_gb=np.where(np.eye(3) > 0, 0.0, rng.choice([0.0, 0.02, 0.08])), spread=0.2,
    )  # fmt: skip
    cards = [str(rng.choice(CARDS)) for _ in names]
    domains = tuple(
        Domain(name, gpu(card), 2, node_devices=2, carbon_g_per_kwh=300.0)
        for name, card in zip(names, cards, strict=True)
    )
    kind = TaskKind(in_blocks(str(rng.choice(MODELS)), 3), 32, (1, 1, 4, 4), (300, 900), 20)
    weights = Reward(
        w_eff=1.0, w_util=float(rng.choice([0.0, 0.5])), w_cost=float(rng.choice([0.25, 0.5, 1.0, 2.0])),
        energy_usd_per_kwh=0.12,
    )  # fmt: skip
    world = World(
        Cluster(domains, wan, Runtime(), cap_levels=LEVELS), (kind,), Poisson(2.0), reward=weights,
        horizon_s=24 * 3600.0, pool_size=12, max_running=6, queue_capacity=6, share_limit=1, max_segments=3,
    )  # fmt: skip
    engine = Engine(world)
    engine.pool = engine.pool.attributed(state_vectors(HiPpo().attributions, DEMAND_NAMES))
    engine.seed([seed])
    engine.reset()
    seen = view(engine)
    assert seen is not None
    if seed % 3 == 0:
        first = seen.queue[0]
        others = tuple(replace(first, slot=first.slot + n, number=first.number + n) for n in (1, 2, 3))
        seen = replace(seen, queue=(first, *others))
    return engine, seen


class Reference:
    """What plans of one decision are worth, and the best of all with their caps.

    Args:
        engine: Of the decision.
        seen: The decision.
        factors: What is believed of the task's demands over a nominal task's.
    """

    def __init__(self, engine: Engine, seen: Decision, factors: tuple[float, float, float]) -> None:
        kind, reward = seen.kind_index, seen.reward
        devices = seen.cost.cluster.devices
        self.engine, self.seen = engine, seen
        self.judge = Judge(
            seen.cost, kind, seen.kind.batch_size, reward, float(seen.base_step_s[kind]),
            float(seen.base_cost_usd[kind]), seen.bandwidth_gbps, seen.latency_s, factors,
            pressure=(len(seen.queue) - 1) / devices,
        )  # fmt: skip
        self.listed, self.looked_at = 0, 0

    def paid(self, plan: Plan) -> float:
        """What is paid under a plan: the least is best."""
        batch = PlanBatch.of([plan])
        return float(self._paid(batch.segments, int(batch.counts[0]))[0])

    def capped(self, plan: Plan) -> float:
        """The same with the best caps of this very plan."""
        batch = PlanBatch.of([plan])
        count = int(batch.counts[0])
        return float(self._paid(self._with_caps(batch.segments[:1], count), count).min())

    def best(self, known: float) -> float:
        """The least that is paid under any plan and any caps.

        Args:
            known: What some plan pays; those that cannot be below are left out.
        """
        batch = all_plans(self.engine, self.seen.kind_index)
        self.listed = len(batch)
        least, floor = np.empty(len(batch)), np.empty(len(batch))
        for count in np.unique(batch.counts):
            for rows in np.array_split(at := np.flatnonzero(batch.counts == count), max(1, -(-len(at) // CHUNK))):
                if rows.size:
                    least[rows], floor[rows] = self._bounds(batch.segments[rows], int(count))
        known = min(known, float(least.min()))
        chosen = np.flatnonzero(floor < known)
        self.looked_at = len(chosen)
        for at in chosen[np.argsort(floor[chosen], kind="stable")]:
            if floor[at] >= known:
                break
            count = int(batch.counts[at])
            known = min(known, float(self._paid(self._with_caps(batch.segments[at : at + 1], count), count).min()))
        return known

    def _with_caps(self, rows: IntArray, count: int) -> IntArray:
        levels = np.array(list(product(range(len(LEVELS) + 1), repeat=count)))
        every = np.repeat(rows, len(levels), axis=0)
        every[:, :count, CAP] = levels
        return every

    def _paid(self, rows: IntArray, count: int) -> FloatArray:
        reward = self.judge.reward
        most = reward.w_eff + reward.w_util
        batch = PlanBatch(np.ascontiguousarray(rows), np.full(len(rows), count), np.zeros(len(rows), dtype=np.int64))
        fits = self._price(batch).fits
        # Devices differ from plan to plan, and what they are charged with them.
        devices = (rows[:, :count, DP] * rows[:, :count, TP] * rows[:, :count, PP]).sum(axis=1)
        found = np.empty(len(rows))
        for each in np.unique(devices):
            same = np.flatnonzero(devices == each)
            found[same] = most - self.judge.worths(rows[same], count)
        return np.where(fits, found, np.inf)

    def _price(self, batch: PlanBatch) -> PlanCosts:
        return self.judge.cost.score(
            batch, self.judge.kind, bandwidth_gbps=self.judge.bandwidth_gbps, latency_s=self.judge.latency_s,
            breakdown=False, factors=self.judge.factors,
        )  # fmt: skip

    def _longest(self) -> float:
        """By how much any cap stretches anything, were all of it work that draws all a device may."""
        domains, found = self.judge.cost.domains, 1.0
        for row, caps in zip(domains.rows, domains.caps_w, strict=True):
            beta = max(row["compute_beta"], row["memory_beta"])
            for watts in caps:
                drawn = self.judge.cost.power_law.cap_reached * watts
                found = max(found, float(cap_slowdown(row["tdp_w"], drawn, row["cap_floor_w"], beta)))
        return found

    def _bounds(self, rows: IntArray, count: int) -> tuple[FloatArray, FloatArray]:
        """What plans pay without caps, and what they pay at least with any."""
        batch = PlanBatch(np.ascontiguousarray(rows), np.full(len(rows), count), np.zeros(len(rows), dtype=np.int64))
        priced, reward = self._price(batch), self.judge.reward
        norm = self.judge.batch_size / samples(batch)
        stretch = self._longest()
        more = np.minimum(1.0, stretch * priced.utilisation) - priced.utilisation
        # Never below its share of the power, and no shorter: what is left of the joules is at least that share.
        left = self.judge.cost.power_law.cap_reached * min(LEVELS)
        saved = (1.0 - left) * usd_per_j(reward) * norm * priced.energy_j / self.judge.base_cost_usd
        least = self._paid(rows, count)
        return least, least - reward.w_util * more - reward.w_cost * saved


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=150)
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    asked = parser.parse_args()
    gaps: dict[str, list[float]] = {"hi-ppo[quick]": [], "  its caps alone": [], "rule": [], "no caps at all": []}
    missed, listed, looked_at, capped_parts = dict.fromkeys(gaps, 0), [], [], 0
    began = time.process_time()
    for seed in range(asked.seed, asked.seed + asked.instances):
        engine, seen = instance(seed)
        policy, rule = HiPpo(deadline_s=np.inf), Rule()
        plans = {"hi-ppo[quick]": policy.decide(seen), "rule": rule.decide(seen)}
        factors = policy._believed(seen, policy.planner(seen), seen.slot)
        reference = Reference(engine, seen, factors)
        own = plans["hi-ppo[quick]"]
        best = reference.best(np.inf if own is None else reference.paid(own))
        listed.append(reference.listed)
        looked_at.append(reference.looked_at)
        if own is not None:
            plans["no caps at all"] = own.uncapped()
            gaps["  its caps alone"].append(100.0 * (reference.paid(own) / reference.capped(own) - 1.0))
            capped_parts += any(segment.cap for segment in own.segments)
        for name, plan in plans.items():
            if plan is None:
                missed[name] += 1
            else:
                gaps[name].append(100.0 * (reference.paid(plan) / best - 1.0))
    took = time.process_time() - began
    print(f"{asked.instances} instances from seed {asked.seed}; plans without caps: median {np.median(listed):,.0f}, "
          f"at most {max(listed):,}; with all caps: at most {max(looked_at):,} of them; Hi-PPO capped {capped_parts}; "
          f"{took:.0f} s\n")  # fmt: skip
    print("| | found | not found | mean % | p95 | max |\n|---|---:|---:|---:|---:|---:|")
    for name, values in gaps.items():
        found = np.array(values)
        told = f"{found.mean():.2f} | {np.percentile(found, 95):.2f} | {found.max():.2f}" if found.size else " | | "
        print(f"| {name} | {found.size} | {missed[name]} | {told} |")


if __name__ == "__main__":
    main()
