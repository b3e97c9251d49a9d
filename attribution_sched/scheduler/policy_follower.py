"""Any policy as the one who plays copies of a cluster on: for what-if questions; far slower than the compiled rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attribution_sched.cluster.counters import Counters
from attribution_sched.cluster.decision import Decision, Moment, encode, pend, view
from attribution_sched.cluster.demands import Demands
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import (
    PRICE_NETWORK,
    SETTLED,
    Engine,
    advance,
    close_page,
    open_page,
    reprice,
)
from attribution_sched.cluster.engine.state import StateArrays
from attribution_sched.cluster.fork import (
    CHOOSE,
    Copies,
    TenantLimits,
    begin_copy,
    close_budgets,
    devices_left,
    open_budgets,
    pass_over,
)
from attribution_sched.cluster.plan import Plan, layout_table
from attribution_sched.cluster.world import TaskPool, World
from attribution_sched.scheduler.policy import Episodic, Policy, QueueOrder, pairs, plays_copies
from attribution_sched.scheduler.rule_follower import RuleFollower
from attribution_sched.types import Task


class PolicyFollower:
    """A policy that decides in every copy; see :class:`~attribution_sched.cluster.fork.Follower`.

    Args:
        policy: Who decides; it is told that an episode begins before every copy.
        rule: Says what tasks can expect beyond the horizon, so that copies of different policies compare; None to play
            the last copy alone and ask for no worth beyond its horizon: for what happens at one instant.
        engine: Clusters of the same world, used as a shell.
        until: Slot of a task: a copy in which it runs is not played on; None plays to the horizon.
    """

    def __init__(self, policy: Policy, rule: RuleFollower | None, engine: Engine, until: int | None = None) -> None:
        self.policy, self.rule, self.engine, self.until = policy, rule, engine, until
        # Who says that it never plays copies is not shown what for: half of the time of a long queue.
        self._moment = plays_copies(policy)
        self._neighbours = pairs(policy) or self._moment

    @classmethod
    def at_once(cls, policy: Policy, moment: Moment, until: int | None = None) -> PolicyFollower:
        """A policy in the last copy of a moment's cluster, for what it would do now: the rule is not made."""
        shell = object.__new__(Engine)
        shell.world, shell.cost = moment.world, moment.cost
        shell.layouts = layout_table(moment.world.cluster, moment.world.share_limit > 1)
        return cls(policy, None, shell, until)

    @property
    def name(self) -> str:
        """The policy's."""
        return self.policy.name

    def elsewhere(self, world: World) -> PolicyFollower:
        """The same policy in a cluster with other devices."""
        return PolicyFollower(self.policy, None if self.rule is None else self.rule.elsewhere(world), Engine(world))

    def play(self, copies: Copies) -> int:
        """Play copies to their horizon, one after the other."""
        decided = 0
        count = len(copies.state.clock)
        for e in range(count - 1 if self.rule is None else 0, count):
            one = StateArrays(**{name: array[e : e + 1] for name, array in copies.state._asdict().items()})
            shell = self._shell(copies, one)
            if isinstance(self.policy, Episodic):
                self.policy.reset(0)
            copies.code[e] = begin_copy(
                copies.world, one, 0, copies.begin[e], copies.slot[e], copies.action[e], copies.paid_by_work,
                copies.ledger[e], copies.scratch,
            )  # fmt: skip
            limits = copies.limits
            if limits.active:
                limits = limits._replace(used=limits.used[e : e + 1], not_before_s=limits.not_before_s[e : e + 1])
            decided += self._play(shell, one, copies, e, limits)
            if copies.paid_by_work and self.rule is not None:
                self.rule.value(copies, one, e)
        return decided

    def _shell(self, copies: Copies, one: StateArrays) -> Engine:
        shell, rows = object.__new__(Engine), copies.world.pool
        shell.__dict__.update(self.engine.__dict__)
        shell.clusters, shell.arrays, shell.state = 1, copies.world, one
        shell.arrivals, shell.ends_s = None, float(copies.world.horizon_s)
        kinds = rows[:, st.P_KIND].astype(np.int64)
        known = {
            i: copies.tasks.get(i) or Task(kind_index=int(kinds[i]), steps=float(rows[i, st.P_STEPS]), number=i)
            for i in range(len(rows))
        }
        nothing = np.zeros((len(rows), 0))
        demands = Demands(nothing, nothing, nothing)
        shell.pool = TaskPool(kinds, rows[:, st.P_STEPS].copy(), demands, Counters(nothing), np.zeros(0), known)
        return shell

    def _play(self, shell: Engine, one: StateArrays, copies: Copies, e: int, limits: TenantLimits) -> int:
        world, ledger, decided = copies.world, copies.ledger[e], 0
        slots, tasks = one.slots[0].copy(), one.tasks[0].copy()
        deferred: set[tuple[float, int]] = set()
        refused: set[tuple[float, int, bytes]] = set()
        while one.event[0, st.DONE] == 0:
            if limits.active and one.event[0, st.EVENT] != st.NO_EVENT:
                pass_over(world, one, 0, limits)
            seen = self._seen(shell, one, limits)
            if seen is not None:
                decided += 1
                if not seen.replanning and len(seen.queue) > 1 and isinstance(self.policy, QueueOrder):
                    chosen = self.policy.select(seen)
                    if chosen != seen.slot and (seen.time_s, chosen) not in deferred:
                        pend(shell, chosen)
                        seen = self._seen(shell, one, limits) or seen
                plan = self.policy.decide(seen)
                if limits.active and plan is not None and self._beyond(one, limits, seen, plan):
                    plan = None
                if plan is None and not seen.replanning:
                    deferred.add((seen.time_s, seen.slot))
                action = encode(shell, plan, seen.kind_index)
                code = begin_copy(
                    world, one, 0, CHOOSE, seen.slot, action, copies.paid_by_work, ledger, copies.scratch
                )  # fmt: skip
                if code < 0 and not seen.replanning:
                    # Who asks for the same again is not told that it was refused, and would ask for ever: it waits.
                    asked = (seen.time_s, seen.slot, action.tobytes())
                    if asked in refused:
                        deferred.add(asked[:2])
                    refused.add(asked)
            while True:
                since_s = open_page(one, 0, slots, tasks)
                if limits.active:
                    open_budgets(world, one, 0, limits)
                wanted = advance(world, one, 0)
                if limits.active:
                    close_budgets(limits, 0, since_s, float(one.clock[0, st.NOW]))
                close_page(world, one, 0, since_s, slots, tasks, copies.paid_by_work, ledger)
                if wanted == SETTLED:
                    break
                reprice(world, one, 0, wanted == PRICE_NETWORK, copies.scratch)
            if self.until is not None and one.slots[0, self.until, st.STATUS] == st.RUNNING:
                break
        return decided

    def _seen(self, shell: Engine, one: StateArrays, limits: TenantLimits) -> Decision | None:
        """The pending decision with only what tenants may use."""
        seen = view(shell, neighbours=self._neighbours, moment=self._moment)
        if seen is None or not limits.active:
            return seen
        rows = one.slots[0, :, st.POOL]
        queue = tuple(
            task
            for task in seen.queue
            if limits.state[limits.tenant[rows[task.slot]]] == 0
            and limits.not_before_s[0, rows[task.slot]] <= seen.time_s
        )
        return replace(seen, queue=queue, free_devices=np.minimum(seen.free_devices, _left(one, limits, seen)))

    @staticmethod
    def _beyond(one: StateArrays, limits: TenantLimits, seen: Decision, plan: Plan) -> bool:
        return sum(segment.device_count for segment in plan.segments) > _left(one, limits, seen)


def _left(one: StateArrays, limits: TenantLimits, seen: Decision) -> int:
    """Devices that the quota of a decision's tenant leaves it, its own counted."""
    own = 0 if seen.current_plan is None else sum(segment.device_count for segment in seen.current_plan.segments)
    tenant = int(limits.tenant[one.slots[0, seen.slot, st.POOL]])
    most = int(limits.most[one.slots[0, seen.slot, st.POOL]])
    return min(int(devices_left(one, 0, limits, tenant)) + own, most)
