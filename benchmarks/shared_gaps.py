"""How far Hi-PPO's single decisions stay from the exact optimum where devices are shared and capped.

    python benchmarks/shared_gaps.py                       # 2 stretches of ``shared``, 4 of it with more arrivals
    python benchmarks/shared_gaps.py --stretches 1 --each 10   # a quick look

Instances are decisions about one waiting task of the preset ``shared`` as a day under Hi-PPO without thinking brings
them, with seeds that neither training nor the tuning of anything has seen. The reference lists every plan there is for
the task: on free devices each layout and format under each of the five caps (the devices' own and four lower ones);
beside every running task, under each cap. What the cluster itself would refuse (``Engine.probe``) is no plan.

What a snapshot can judge, in units of R, is what an hour of work costs by what is believed::

    alone   L = w_eff · (1 + held) · t·σ  +  w_util · (1 − U)  +  w_cost · e·λ
    beside  L = [w_eff · (2 + held) · σ + w_cost · ((w − 1)·(1 − ι) + 1)·λ] / w,    w = s_own + s_other

with t and e step time and energy over the baseline's, U utilisation (1 in the layout that was asked for), σ and λ what
the cap does to time and joules at the share of the time that the device works, s the believed speeds, ι idle over busy
power, and held = (waiting · devices + 2 · devices in use) / all devices, what the policy itself charges for the time
that devices are held (``planning/power_caps.py``). The joules are the simulator's arithmetic. Alone, L is w_eff +
w_util less R, and what is charged for holding, so a gap in L is one of R; the gap is the percentage by which L of the
policy's plan is above the least.

The policy does not minimise L: it takes the neighbour with which most work is believed to be done, and then the cap of
that pair, with the pair's own joules in the place of the two tasks' baselines. ``as settled`` has the gap by these its
own words. Whether a task waits, and which goes first, no snapshot judges: a decision to wait counts as *waits though
worth it* only if some neighbour is believed to do more than the 1.05 from which the policy pairs at all; without
thinking that is a plan not found, with thinking it may be on purpose (another task goes there, or devices are soon
free).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from dataclasses import dataclass, field, replace

import numpy as np

from attribution_sched.attribution.vector import state_vectors
from attribution_sched.cluster.cost import opaque_cap
from attribution_sched.cluster.counters import LEAST_WORKING
from attribution_sched.cluster.decision import Decision, encode, view
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment
from attribution_sched.cluster.reward import price, worth
from attribution_sched.cluster.world import World, task_working
from attribution_sched.config import load_settings
from attribution_sched.planning.power_caps import BUSY
from attribution_sched.scheduler.episode import pend
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.rule import Rule
from attribution_sched.scheduler.pairing import PairBelief
from attribution_sched.scheduler.thinking import Think

FIRST_SEED = 7_730_000
RATES = (16.0, 22.0, 28.0)
"""Arrivals an hour: the preset's, and two that keep most of its devices in use."""

HOURS = 30.0
APART_S = 300.0
"""Time between two decisions that are measured: neighbours in time are nearly the same instance."""

LEAST_WORK = 1.05
OWN, BESIDE = "own devices", "beside another"


@dataclass(frozen=True)
class Judged:
    """A plan and what an hour of its work costs: by the reward's arithmetic, and by the policy's own words."""

    plan: Plan
    cost: float
    settled: float


class Reference:
    """Every plan of one decision, priced by what is believed.

    Args:
        engine: Where the decision is pending.
        seen: The decision.
        belief: Of speeds of pairs.
    """

    def __init__(self, engine: Engine, seen: Decision, belief: PairBelief) -> None:
        assert seen.task is not None
        self.engine, self.seen, self.belief, self.task = engine, seen, belief, seen.task
        self.levels = range(len(seen.cost.cluster.cap_levels) + 1)
        total = seen.cost.cluster.devices
        in_use = total - float(np.sum(seen.free_devices))
        self._waiting, self._in_use, self._total = max(0, len(seen.queue) - 1), BUSY * in_use, total
        self._known: dict[tuple[int, int, int, int], tuple[float, float, float]] = {}

    def own(self) -> list[Judged]:
        """Plans on devices of its own."""
        return self._admitted([plan for plan in self._plans() if self._room(plan)])

    def beside(self) -> list[Judged]:
        """Plans beside every running task, in the layout it asked for: any other is slower there on more devices."""
        asked = [plan for plan in self._plans() if self._alone(plan)[0] <= 1.0 + 1e-3]
        slots = [slot for slot in range(self.engine.state.slots.shape[1]) if self._runs(slot)]
        return self._admitted([replace(plan, beside=slot) for slot in slots for plan in asked])

    def judge(self, plan: Plan) -> Judged:
        """What an hour of work costs under a plan."""
        segment, reward = plan.segments[0], self.seen.reward
        time, energy, busy = self._alone(plan)
        held = (self._waiting * segment.device_count + self._in_use) / self._total
        working = task_working(self.seen.kinds, self.task)
        if plan.beside is None:
            stretch, left_j = self._cap(segment, working)
            idle = reward.w_util * (1.0 - busy)
            cost = reward.w_eff * (1.0 + held) * time * stretch + idle + reward.w_cost * energy * left_j
            return Judged(plan, cost, cost)
        own, theirs, other = self._speeds(plan.beside)
        work = own + theirs
        both = own * working + theirs * other
        stretch, left_j = self._cap(segment, min(1.0, max(both, LEAST_WORKING)))
        idle = self._idle_share(segment)
        hours = reward.w_eff * (2.0 + held) * stretch
        joules = reward.w_cost * left_j
        return Judged(
            plan, (hours + joules * ((work - 1.0) * (1.0 - idle) + 1.0)) / work, (hours + joules) / work
        )  # fmt: skip

    def work(self, plan: Plan) -> float:
        """Work that is believed to be done beside the neighbour, over that of one task."""
        own, theirs, _ = self._speeds(-1 if plan.beside is None else plan.beside)
        return own + theirs

    def refused(self, plan: Plan) -> bool:
        """Whether the cluster would not carry it out."""
        action = encode(self.engine, plan, self.seen.kind_index)[None]
        return bool(self.engine.probe(0, action)["code"][0] <= 0)

    def _admitted(self, plans: list[Plan]) -> list[Judged]:
        if not plans:
            return []
        actions = np.stack([encode(self.engine, plan, self.seen.kind_index) for plan in plans])
        codes = self.engine.probe(0, actions)["code"]
        return [self.judge(plan) for plan, code in zip(plans, codes, strict=True) if code > 0]

    def _plans(self) -> list[Plan]:
        """Every layout, format, microbatch and cap of the task's kind that is priced at all."""
        kind, found = self.seen.kind, []
        for dp, tp, pp, share in self.engine.layouts.tolist():
            if share:
                continue
            for precision in PRECISIONS:
                for micro in sorted(set(kind.microbatches)):
                    one = Segment(0, 0, len(kind.model), dp, tp, pp, precision)
                    plan = Plan((Replica((one,), micro, kind.batch_size // micro),))
                    if self._possible(plan) and np.isfinite(self._alone(plan)[0]):
                        found += [self._with_cap(plan, level) for level in self.levels]
        return found

    def _possible(self, plan: Plan) -> bool:
        segment, replica = plan.segments[0], plan.replicas[0]
        gpu = self.seen.cost.cluster.domains[0].gpu
        return (
            replica.microbatch % segment.dp == 0 and segment.pp <= segment.stop and gpu.supports(segment.precision)
            and segment.device_count <= self.seen.cost.cluster.devices
        )  # fmt: skip

    @staticmethod
    def _with_cap(plan: Plan, level: int) -> Plan:
        replica = plan.replicas[0]
        return Plan((replace(replica, segments=(replace(replica.segments[0], cap=level),)),), beside=plan.beside)

    def _room(self, plan: Plan) -> bool:
        return plan.segments[0].device_count <= int(self.seen.free_devices[0])

    def _runs(self, slot: int) -> bool:
        return bool(self.engine.state.slots[0, slot, st.STATUS] == st.RUNNING)

    def _alone(self, plan: Plan) -> tuple[float, float, float]:
        """Step time and energy over the baseline's, and utilisation, alone and without a cap of its own."""
        segment = plan.segments[0]
        key = segment.dp, segment.tp, segment.pp, segment.precision.index
        if key not in self._known:
            batch = PlanBatch.of([self._with_cap(replace(plan, beside=None), 0)])
            priced = price(self.seen, batch)
            found = worth(self.seen, batch, priced, self.seen.kind_index)
            base_s = float(self.seen.base_step_s[self.seen.kind_index])
            self._known[key] = float(found.step_s[0]) / base_s, float(found.r_cost[0]), float(found.r_util[0])
        return self._known[key]

    def _cap(self, segment: Segment, working: float) -> tuple[float, float]:
        cost = self.seen.cost
        if segment.cap == 0:
            return 1.0, 1.0
        law = cost.domains, cost.power_law, segment.domain, segment.precision.index, segment.cap
        stretch, _, left_j = opaque_cap(*law, working)
        return float(stretch), float(left_j)

    def _speeds(self, slot: int) -> tuple[float, float, float]:
        """Believed speeds of the task and of the one in a slot beside it, and the share of its time that one works."""
        other = next(each.task for each in self.seen.neighbours if each.slot == slot)
        own, theirs = self.belief.speeds(self.task, other)
        return own, theirs, task_working(self.seen.kinds, other)

    def _idle_share(self, segment: Segment) -> float:
        """Idle over busy power of a device of the task: what is left of its joules if it computed nothing."""
        cost, kind = self.seen.cost, self.seen.kind_index
        uncapped = Plan((Replica((replace(segment, cap=0),), self.seen.kind.microbatches[0], 1),))
        alone = cost.score(PlanBatch.of([uncapped]), kind, breakdown=False)
        return float(cost.domains.rows[segment.domain].idle_w / alone.segment("power_w")[0, 0])


@dataclass
class Group:
    """What one policy did in one kind of decision.

    Attributes:
        gaps: Percent over the reference, by the reward's arithmetic.
        settled: The same by the policy's own words.
        missed: Decisions to wait though there was a plan worth it.
        waited: Decisions to wait where there was none.
        refused: Plans that the cluster would not have carried out.
        listed: Plans of every reference.
    """

    gaps: list[float] = field(default_factory=list)
    settled: list[float] = field(default_factory=list)
    missed: int = 0
    waited: int = 0
    refused: int = 0
    listed: list[int] = field(default_factory=list)

    def line(self, name: str) -> str:
        """The row."""
        cells = []
        for values in (self.gaps, self.settled):
            found = np.array(values)
            cells.append(
                f"{found.mean():.2f} | {np.percentile(found, 95):.2f} | {found.max():.2f}" if found.size else " | | "
            )
        listed = f"{np.median(self.listed):.0f} ({max(self.listed)})" if self.listed else ""
        return (
            f"| {name} | {len(self.gaps)} | {self.missed} | {self.waited} | {self.refused} | {listed} | "
            f"{' | '.join(cells)} |"
        )


def measure(groups: dict[tuple[str, str], Group], name: str, plan: Plan | None, reference: Reference) -> None:
    """Hold one policy's plan against every other of the decision."""
    own = reference.own() if any(reference.seen.free_devices > 0) else []
    # A pair's hour of work is two tasks': thinking may go beside another though devices are free.
    shares = plan.beside is not None if plan is not None else not own
    kind, listed = (BESIDE, reference.beside()) if shares else (OWN, own)
    group = groups.setdefault((name, kind), Group())
    if kind == BESIDE:
        listed = [each for each in listed if reference.work(each.plan) >= LEAST_WORK]
    if plan is None:
        group.missed += bool(listed)
        group.waited += not listed
        return
    if reference.refused(plan):
        group.refused += 1
        return
    group.listed.append(len(listed))
    mine = reference.judge(plan)
    group.gaps.append(100.0 * (mine.cost / min(each.cost for each in listed) - 1.0))
    group.settled.append(100.0 * (mine.settled / min(each.settled for each in listed) - 1.0))


def stretch(world: World, seed: int, each: int, think: bool, groups: dict[tuple[str, str], Group]) -> None:
    """Let Hi-PPO without thinking play, and ask all at decisions some time apart."""
    engine, policy, rule = Engine(world), HiPpo(deadline_s=np.inf), Rule()
    engine.pool = engine.pool.attributed(state_vectors(policy.attributions, DEMAND_NAMES))
    engine.seed([seed])
    engine.reset()
    policy.reset(seed)
    rule.reset(seed)
    measured = {OWN: 0, BESIDE: 0}
    next_s = dict.fromkeys(measured, 4 * 3600.0)
    deferred: set[tuple[float, int]] = set()
    while engine.state.event[0, st.DONE] == 0 and min(measured.values()) < each:
        seen = view(engine)
        if seen is None:
            break
        if not seen.replanning and len(seen.queue) > 1:
            chosen = policy.select(seen)
            if (seen.time_s, chosen) not in deferred:
                pend(engine, chosen)
                seen = view(engine) or seen
        kind = OWN if any(seen.free_devices > 0) else BESIDE
        due = not seen.replanning and seen.time_s >= next_s[kind] and measured[kind] < each and seen.neighbours
        others = []
        if due:
            thoughtful = policy.branch()
            thoughtful.think, thoughtful._thinker, thoughtful._chosen = Think(), None, None
            others = [("rule", rule.decide(seen))] + ([("hi-ppo", thoughtful.decide(seen))] if think else [])
        plan = policy.decide(seen)
        if due:
            reference = Reference(engine, seen, policy.partners.belief)
            for name, found in [("hi-ppo[quick]", plan), *others]:
                measure(groups, name, found, reference)
            measured[kind] += 1
            next_s[kind] = seen.time_s + APART_S
        if plan is None and not seen.replanning:
            deferred.add((seen.time_s, seen.slot))
        engine.step(encode(engine, plan, seen.kind_index)[None])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stretches", type=int, default=2, help="of each rate of arrivals")
    parser.add_argument("--each", type=int, default=40, help="decisions of each kind in a stretch")
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--no-think", action="store_true", help="leave out hi-ppo with thinking")
    asked = parser.parse_args()
    settings = load_settings("shared").model_dump(exclude_none=True)
    groups: dict[tuple[str, str], Group] = {}
    for number, rate in enumerate(RATES):
        settings["arrivals"]["rate_per_hour"] = rate
        settings["episode"]["horizon_s"] = 3600.0 * HOURS
        world = load_settings(settings).build_world()
        for at in range(asked.stretches):
            stretch(world, asked.seed + 100 * number + at, asked.each, not asked.no_think, groups)
    for kind in (OWN, BESIDE):
        print(f"\n{kind}\n")
        print("| policy | decided | waits though worth it | waits | refused | plans: median (most) | mean % | p95 | "
              "max | as settled: mean % | p95 | max |")  # fmt: skip
        print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
        for (name, each), group in groups.items():
            if each == kind:
                print(group.line(f"`{name}`"))


if __name__ == "__main__":
    main()
