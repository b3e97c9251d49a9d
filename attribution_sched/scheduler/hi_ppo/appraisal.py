"""What Hi-PPO thinks of plans in many situations at once; what explanations are made of.

- *terms*, the plan's own R_eff, R_util and R_cost while it runs: the cost model's prices over the situation's links for
  the demands that the task's attributions and pace speak of (:mod:`~attribution_sched.scheduler.beliefs`). Nothing
  else has a hand in them, so an input that cannot matter has exactly no effect. What moving a running task costs once
  is not among them.
- *log-probability*: of both agents, task first, then domain and devices.

What a choice earns later is the fork's to say (:mod:`~attribution_sched.explain.played`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import MICROBATCHES, Plan, PlanBatch
from attribution_sched.cluster.reward import priced_terms
from attribution_sched.errors import PlanError, problem
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.action_masks import DONE
from attribution_sched.scheduler.hi_ppo.agents import (
    AgentsActor,
    layout_log_probabilities,
    plan_place,
    task_log_probabilities,
    weighed_by,
)
from attribution_sched.scheduler.hi_ppo.decode import Planner, decode
from attribution_sched.scheduler.hi_ppo.repricing import (
    P_BILL_USD,
    P_CARBON_G,
    P_ENERGY_J,
    P_STEP_S,
    P_UTILISATION,
    reprice,
    reprice_each,
)
from attribution_sched.scheduler.policy import Appraisal, Preferred
from attribution_sched.types import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo


ROWS = 1024
"""Situations that go through the agents together: larger arrays leave the cache."""

REMEMBERED = 512
"""Plans that are not checked again when they are asked about again."""


def appraise(
    policy: HiPpo,
    view: Decision,
    situations: Decisions,
    plans: Sequence[Plan | None],
    *,
    log_probability: bool = True,
) -> Appraisal:
    """Judge plans for the view's task; see :class:`~attribution_sched.scheduler.policy.Appraiser`.

    Raises:
        PlanError: If a situation holds a number that is not finite or is one of another cluster, or a plan cannot run.
    """
    planner = policy.planner(view)
    acting = np.array([p for p, plan in enumerate(plans) if plan is not None], dtype=np.int64)
    batch = _carried_out(policy, view, tuple(plan for plan in plans if plan is not None))
    situations = _within(view, situations) if log_probability else _readable(view, situations, batch)
    _own_kind(situations, np.full(len(situations), view.kind_index))
    n, count = len(situations), len(plans)
    found = Appraisal(np.zeros((n, count, 3)), np.zeros((n, count)))
    if len(acting):
        owner = np.zeros(n, dtype=np.int64)
        factors = _factors(policy, [view], owner, situations, np.arange(n))
        prices = reprice(planner.tables, view.kind_index, batch, _links(view, situations, batch), factors)
        found.terms[:, acting] = _terms(view, prices)
    if log_probability:
        agents = policy.agents_actor(view, planner, situations)
        found.log_probability[:] = _agents_log_probability(agents, planner, situations, plans)
    return found


def appraise_each(
    policy: HiPpo,
    views: Sequence[Decision],
    situations: Decisions,
    owner: IntArray,
    plans: Sequence[Plan | None],
) -> Appraisal:
    """Judge a plan of each of many decisions of one cluster; see :class:`~.policy.BatchAppraiser`."""
    planner = policy.planner(views[0])
    clusters = {(id(view.cost), view.max_segments, id(view.base_step_s)): view for view in views}
    if any(policy.planner(view) is not planner for view in clusters.values()):
        raise PlanError(problem("views", len(views), "must be of one cluster", "Judge each cluster by itself"))
    # Only decisions that are asked about now are prepared.
    asked, owner = np.unique(owner, return_inverse=True)
    views, plans = [views[i] for i in asked], [plans[i] for i in asked]
    acting = np.array([plan is not None for plan in plans])
    batch = _joined([
        _carried_out(policy, view, (plan,) if plan is not None else ()) for view, plan in zip(views, plans, strict=True)
    ])  # fmt: skip
    situations = _readable(views[0], situations, batch)
    n, t = len(situations), planner.tables
    kinds = np.array([view.kind_index for view in views])
    _own_kind(situations, kinds[owner])
    found = Appraisal(np.zeros((n, 1, 3)), np.zeros((n, 1)))
    rows = np.flatnonzero(acting[owner])
    if len(rows):
        at = (np.cumsum(acting) - 1)[owner[rows]]
        links = _links(views[0], situations, batch)
        links = links[rows] if len(links) > 1 else links
        factors = _factors(policy, views, owner, situations, rows)
        prices = reprice_each(t, kinds[acting], batch, at, links, factors)
        for kind in np.unique(kinds[acting]):
            some = kinds[owner[rows]] == kind
            view = views[int(np.flatnonzero(kinds == kind)[0])]
            found.terms[rows[some]] = _terms(view, prices[some, None])
    return found


def _crosses(batch: PlanBatch) -> bool:
    return bool((batch.counts > 1).any())


def _links(view: Decision, situations: Decisions, batch: PlanBatch) -> FloatArray:
    """Links of the situations, or one set for all where no plan feels them."""
    if _crosses(batch):
        return situations.links
    return np.stack([view.bandwidth_gbps, view.latency_s])[None]


def _factors(
    policy: HiPpo, views: Sequence[Decision], owner: IntArray, situations: Decisions, rows: IntArray
) -> FloatArray:
    """Demand multipliers ``(len(rows), 3)`` of situations: their attributions, and the pace measured of the task."""
    kinds = np.array([view.kind_index for view in views])[owner[rows]]
    speed = np.array([view.samples_per_s if view.counters.size else 0.0 for view in views])[owner[rows]]
    given = situations.attribution[rows, 0].astype(np.float64)
    return np.exp(policy.demands(views[0].kinds).log_factors(kinds, given, speed))


def _joined(parts: list[PlanBatch]) -> PlanBatch:
    return PlanBatch(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in ("segments", "counts", "schedules"))
    )


def propose(policy: HiPpo, view: Decision, situations: Decisions) -> list[Plan | None]:
    """What the agents themselves would do with the view's task in each situation, before the local search.

    None if they do nothing, place another of the waiting tasks first, or let a running task stay as it is. Where
    waiting would not help the task, what the agents would do if they had to act. What fits is judged by the situation's
    own free devices.
    """
    planner, situations = policy.planner(view), checked(view, situations)
    with one_thread(torch=False):
        made = [each.plan for _, part in agents_choices(policy, view, planner, situations) for each in part]
    return [None if stays(view, plan) else plan for plan in made]


def agents_choices(
    policy: HiPpo, view: Decision, planner: Planner, situations: Decisions
) -> Iterator[tuple[Decisions, list[Preferred]]]:
    """What the agents choose for the view's task, some situations at a time."""
    for begin in range(0, len(situations), ROWS):
        part = situations.take(np.arange(begin, min(len(situations), begin + ROWS)))
        found = decode(planner, part, policy.agents_actor(view, planner, part))
        acts = (found.task < part.kind.shape[1]) & (found.drafts.status == DONE)
        made = [
            Preferred(found.batch.plan(row) if acts[row] and task == 0 else None, bool(acts[row]) and task > 0)
            for row, task in enumerate(found.task)
        ]
        forced = np.flatnonzero(~acts & found.state.mask[:, 0] & waiting_is_futile(policy, planner, part))
        if len(forced):
            # It does not come to waiting there: the policy must place the task.
            one = part.take(forced).only(0)
            own = decode(planner, one, policy.agents_actor(view, planner, one, must_act=True))
            for row, at in enumerate(forced):
                made[at] = Preferred(own.batch.plan(row) if own.batch.counts[row] else None)
        yield part, made


def waiting_is_futile(policy: HiPpo, planner: Planner, situations: Decisions) -> BoolArray:
    """Where waiting is out of the question for candidate 0, shape ``(n,)``: the search places it then."""
    if not policy.search:
        return np.zeros(len(situations), dtype=np.bool_)
    return planner.waiting_is_futile(situations)[:, 0]


def stays(view: Decision, plan: Plan | None) -> bool:
    """Whether a plan leaves a running task as it is; its caps are no part of what a plan is compared by."""
    return view.replanning and view.current_plan is not None and plan == view.current_plan.uncapped()


def _agents_log_probability(
    agents: AgentsActor, planner: Planner, situations: Decisions, plans: Sequence[Plan | None]
) -> FloatArray:
    """Log π of plans for candidate 0 in every situation, shape ``(n, P)``: task first, then domain and devices."""
    state, _ = planner.describe(situations)
    weighed = weighed_by(agents.agents, situations, agents.believed, state.mask[:, :-1], agents.releases)
    tasks = task_log_probabilities(weighed, situations.replanning)
    layouts = layout_log_probabilities(weighed, np.zeros(len(situations), dtype=np.int64))
    found = np.zeros((len(situations), len(plans)))
    for p, plan in enumerate(plans):
        if plan is None:
            found[:, p] = tasks[:, -1]
            continue
        k, j = plan_place(plan)
        own = layouts[:, k, min(j, layouts.shape[2] - 1)]
        # The agents do not weigh plans over several domains against each other: the cut is the rule's.
        found[:, p] = tasks[:, 0] + np.where(np.isfinite(own), own, 0.0 if len(plan.segments) > 1 else -50.0)
    return found


def checked(view: Decision, situations: Decisions) -> Decisions:
    """Situations of the view's task that the compiled parts can follow without looking."""
    found = _within(view, situations)
    _own_kind(found, np.full(len(found), view.kind_index))
    return found


def _readable(view: Decision, situations: Decisions, batch: PlanBatch) -> Decisions:
    """Situations of which only what the terms of plans depend on is read, and therefore checked."""
    k = len(view.cost.domains.rows.devices)
    if len(situations) == 0 or situations.free.shape[1:] != (k,) or _crosses(batch):
        return _within(view, situations)
    if not np.isfinite(situations.attribution[:, 0]).all():
        situations.check()
    return situations


def _within(view: Decision, situations: Decisions) -> Decisions:
    """Situations of the view's cluster, finite, with no more free devices than there are."""
    devices = np.asarray(view.cost.domains.rows.devices)
    k, kinds = len(devices), len(view.kinds)
    if len(situations) == 0:
        raise PlanError(problem("situations", 0, "needs at least one", "Give the decision itself"))
    if situations.links.shape[1:] != (4, k, k) or situations.free.shape[1:] != (k,):
        rule = f"must be (4, {k}, {k}), the view's cluster has {k} domains"
        given = situations.links.shape[1:]
        raise PlanError(problem("situations.links.shape", given, rule, "Use situations of the same cluster"))
    situations.check()
    if not (situations.kind < kinds).all():
        wrong = int(situations.kind.max())
        raise PlanError(problem("situations.kind", wrong, f"must be < {kinds}", "Use situations of the same world"))
    return replace(situations, free=np.clip(situations.free, 0, devices))


def _own_kind(situations: Decisions, kinds: IntArray) -> None:
    """Refuse situations whose first candidate is not of the kind of the task asked about, ``(n,)``."""
    other = np.flatnonzero(situations.kind[:, 0] != kinds)
    if len(other):
        rule = f"candidate 0 must be the view's task, of kind {int(kinds[other[0]])}"
        given = int(situations.kind[other[0], 0])
        raise PlanError(problem(f"situations.kind[{other[0]}, 0]", given, rule, "Vary what perceive() returns"))


def _carried_out(policy: HiPpo, view: Decision, plans: tuple[Plan, ...]) -> PlanBatch:
    """Plans as the cluster would run them, the last ones asked about remembered; one that cannot run is refused."""
    known = policy._batches.setdefault(view.cost, {})
    key = (view.kind_index, view.max_segments, plans)
    if key in known:
        return known[key]
    for plan in plans:
        view.cost.check(plan, view.kind_index)
        if len(plan.segments) > view.max_segments:
            rule = f"this world allows {view.max_segments}"
            raise PlanError(problem("segments", len(plan.segments), rule, "Use fewer domains"))
    batch = PlanBatch.of(list(plans), view.max_segments)
    if plans:
        size = view.kinds[view.kind_index].batch_size
        batch.segments[:, :, MICROBATCHES] = view.cost.microbatch_counts(view.kind_index, size, batch)
    if len(known) >= REMEMBERED:
        known.clear()
    known[key] = batch
    return batch


def _terms(view: Decision, prices: FloatArray) -> FloatArray:
    """R_eff, R_util and R_cost ``(n, plans, 3)`` of plans at their prices."""
    kind, columns = view.kind_index, (P_STEP_S, P_UTILISATION, P_BILL_USD, P_ENERGY_J, P_CARBON_G)
    of_steps = (prices[:, :, column] for column in columns)
    return priced_terms(view.reward, float(view.base_step_s[kind]), float(view.base_cost_usd[kind]), *of_steps)
