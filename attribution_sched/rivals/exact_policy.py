"""Policies that put the exact solver to work: at placement only, at every event, and with a rule for moving.

Each maximises the reward R of the pending task at the network and free devices of the moment. The budget is small and R
seldom proven the highest: plans are the best the solver finds. What a snapshot cannot
see (later arrivals, how the network will move, what moving costs) is left to the three variants:

- ``exact`` solves when a task is placed and never moves it;
- ``exact-resolve`` solves at every event and moves whenever the solution has changed;
- ``exact-switch`` moves only if the gain over the work left outweighs pause and traffic of the move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import PlanValues, r_cost, value
from attribution_sched.planning.exact.problem import problem_of, reward_objective
from attribution_sched.planning.exact.solver import ExactSolver
from attribution_sched.planning.instance import usable_devices
from attribution_sched.scheduler.rules import ShortestJobFirst

# ------ When a running task should move: what the new plan earns over the remaining work, less what moving costs

MOVES_WEIGHED = 16
"""Plans of highest reward whose cost of moving is worked out."""


def move_gain_s(view: Decision, plan: Plan, reward: float, reward_now: float) -> float:
    """What changing to a plan earns until the task ends, in seconds of R_eff; negative if moving does not pay.

    Every step pays its reward once per baseline step time, the pause costs one per second of it, and the traffic of
    the move costs what the same dollars cost in steps.

    Args:
        view: A decision on a running task.
        plan: Where it might go.
        reward: What the plan is worth there.
        reward_now: What the current plan is worth.
    """
    pause_s, moved_usd = view.move_cost(plan)
    base_s, base_usd = float(view.base_step_s[view.kind_index]), float(view.base_cost_usd[view.kind_index])
    paid_s = view.reward.w_cost * r_cost(moved_usd, base_usd) * base_s
    return (reward - reward_now) * base_s * view.steps_left - (view.reward.w_eff * pause_s + paid_s)


def best_move(view: Decision, batch: PlanBatch, found: PlanValues) -> Plan | None:
    """Pick the plan whose move earns most among those of highest reward; None if none earns anything.

    Args:
        view: A decision; on a task that does not run there is nothing to move.
        batch: Plans to choose from.
        found: What they are worth.
    """
    if view.current_plan is None:
        return None
    now = float(value(view, PlanBatch.of([view.current_plan])).reward[0])
    best, gain = None, 0.0
    for at in np.argsort(-found.reward, kind="stable")[:MOVES_WEIGHED]:
        if not found.reward[at] > now:
            break
        plan = batch.plan(int(at))
        gained = move_gain_s(view, plan, float(found.reward[at]), now)
        if gained > gain:
            best, gain = plan, gained
    return best


# ------ Policies that put the exact solver to work: at placement only, at every event, and with a rule for moving

POLICY_BUDGET = 50_000
"""Segments looked at for the proof at one decision: a policy wants the plan, not the certificate."""

CANDIDATES = 10
"""Domains among which the optimum is sought when there are more: those with room and the best links."""


class Exact:
    """The exact plan at placement, kept until the task ends.

    It places the waiting task with the least work first, and charges plans for the devices they keep from others.

    Args:
        budget: Effort of the proof per decision.
    """

    name = "exact"

    def __init__(self, budget: int = POLICY_BUDGET) -> None:
        self.solver = ExactSolver(budget)
        self._shortest = ShortestJobFirst()
        self._refused: set[tuple[float, int]] = set()

    def reset(self, seed: int) -> None:
        """Forget which tasks did not fit."""
        self._refused.clear()

    def memory(self) -> dict[str, NDArray[np.float64]]:
        """Which tasks were just found not to fit: time and slot, shape ``(n, 2)``."""
        return {"refused": np.array(sorted(self._refused), dtype=np.float64).reshape(-1, 2)}

    def recall(self, memory: Mapping[str, NDArray[np.float64]]) -> None:
        """Remember which tasks did not fit."""
        self._refused = {(float(time_s), int(slot)) for time_s, slot in memory["refused"]}

    def select(self, view: Decision) -> int:
        """Choose the waiting task with the least work that has not just been found not to fit."""
        order = sorted(view.queue, key=lambda t: t.steps_left * self._shortest.nominal_step_s(view, t.kind_index))
        return next((t.slot for t in order if (view.time_s, t.slot) not in self._refused), view.slot)

    def decide(self, view: Decision) -> Plan | None:
        """Place a waiting task on its best plan; leave a running one alone."""
        return None if view.replanning else self.best(view)

    def best(self, view: Decision) -> Plan | None:
        """The best plan of the moment, or None if nothing fits."""
        found = None
        view = replace(view, free_devices=usable_devices(view))
        if (view.free_devices > 0).any():
            objective = reward_objective(view, queue_pressure=True)
            found = self.solver.try_solve(problem_of(_narrowed(view), objective), view.current_plan)
        if found is None:
            now = {entry for entry in self._refused if entry[0] == view.time_s}
            self._refused = now | {(view.time_s, view.slot)}
        return found.plan if found else None


class ExactResolve(Exact):
    """The exact plan at every event, whatever moving costs."""

    name = "exact-resolve"

    def decide(self, view: Decision) -> Plan | None:
        """Take the best plan of the moment."""
        plan = self.best(view)
        return None if plan == view.current_plan else plan


class ExactSwitch(Exact):
    """The exact plan at every event, taken only if it pays.

    A move pays if what it gains over the work left is worth more, in the reward's own units, than the pause and the
    traffic it costs.
    """

    name = "exact-switch"

    def decide(self, view: Decision) -> Plan | None:
        """Place on the best plan; move if the forecast gain exceeds the cost of moving."""
        plan = self.best(view)
        if plan is None or view.current_plan is None or plan == view.current_plan:
            return plan if view.current_plan is None else None
        return plan if switching_gain(view, plan) > 0.0 else None


def switching_gain(view: Decision, plan: Plan) -> float:
    """Reward gained by moving a running task to another plan, over the work left, cost of moving charged.

    Args:
        view: A re-planning decision.
        plan: The plan to move to.
    """
    if view.current_plan is None:
        return np.inf
    both = value(view, PlanBatch.of([view.current_plan, plan]))
    return move_gain_s(view, plan, float(both.reward[1]), float(both.reward[0]))


def _narrowed(view: Decision) -> Decision:
    """Leave the exact search at most ``CANDIDATES`` domains, by room and links; others count as full."""
    usable = np.flatnonzero(view.free_devices > 0)
    held = set(view.current_plan.domains) if view.current_plan else set()
    if len(usable) <= CANDIDATES:
        return view
    links = np.minimum(view.bandwidth_gbps, view.bandwidth_gbps.T)
    np.fill_diagonal(links, 0.0)
    close = np.sort(links[np.ix_(usable, usable)], axis=1)[:, -view.max_segments :].mean(axis=1)
    score = view.free_devices[usable] / max(1, view.free_devices.max()) + close / close.max()
    ranked = sorted(usable, key=lambda k: (int(k) not in held, -score[int(np.flatnonzero(usable == k)[0])]))
    free = np.zeros_like(view.free_devices)
    chosen = np.array(ranked[:CANDIDATES])
    free[chosen] = view.free_devices[chosen]
    return replace(view, free_devices=free)
