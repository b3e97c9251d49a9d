"""What the ranker sees of a decision: every candidate by named numbers, and the cluster as a graph of its domains.

candidate = (what it is) + (its task, with the EmSHAP vector and the believed demands) + (what it is believed to
take, to use and to cost) + (the same less the agents' own choice's) + (who waits, what is free)
graph     = domains as nodes (free devices, next release), links as edges (bandwidth over base)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import priced_terms
from attribution_sched.scheduler.hi_ppo.agents import Releases
from attribution_sched.scheduler.hi_ppo.lower_agent import SHORTEST_H
from attribution_sched.types import Float32Array, FloatArray, IntArray, Task

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.upper_agent import Agents
    from attribution_sched.scheduler.thinking import Option

WHAT = ("waits", "own", "rule", "upper", "lower", "keeps")
TASK = ("hours", "baseline_hours", "waited", "compute", "memory", "host", *DEMAND_NAMES)
PLAN = ("devices", "device_share", "left_share", "fills", "segments", "next_release", "r_eff", "r_util", "r_cost",
        "hours_held")  # fmt: skip
APART = ("another_task", "devices_apart", "r_eff_apart", "r_util_apart", "r_cost_apart", "hours_apart")
MOMENT = ("waiting", "free_share", "running", "soonest_release", "queue_hours", "day_sine", "day_cosine", "replanning",
          "all_devices", "domains")  # fmt: skip
FEATURES: tuple[str, ...] = (*WHAT, *TASK, *PLAN, *APART, *MOMENT)
"""Names of a candidate's numbers; hours and devices are logarithms."""

NODE = ("free_share", "device_share", "next_release", "released_share", "awake")
EDGE = ("bandwidth", "base_bandwidth")

_AT = {name: i for i, name in enumerate(FEATURES)}
_TASK, _PLAN, _APART, _MOMENT = (_AT[group[0]] for group in (TASK, PLAN, APART, MOMENT))

AWAKE_H = 40.0
"""A domain counts as awake where a task ends within so many hours."""

LEAST_ODDS = -12.0
"""Log-probabilities below are read as this."""


@dataclass(frozen=True, eq=False)
class Described:
    """A decision as the ranker sees it; A candidates, K domains.

    Attributes:
        candidates: Shape ``(A, len(FEATURES))``.
        group: Upper choice (task and first domain, or waiting) of every candidate, shape ``(A,)``.
        domain: First domain of every candidate, −1 where it has none, shape ``(A,)``.
        nodes: Shape ``(K, len(NODE))``.
        edges: Shape ``(K, K, len(EDGE))``.
    """

    candidates: Float32Array
    group: IntArray
    domain: IntArray
    nodes: Float32Array
    edges: Float32Array


def describe_candidates(
    view: Decision, options: Sequence[Option], agents: Agents, known: dict[int, Task], believed: dict[int, FloatArray]
) -> Described:
    """Describe the candidates of a decision, the agents' own choice first.

    Args:
        view: The decision.
        options: The candidates.
        agents: Tables of the cluster.
        known: Slot → record of the tasks the decision tells of.
        believed: Slot → logarithms of compute, memory and host time over nominal.
    """
    cluster, releases = view.cost.cluster, Releases.of(view)
    devices = np.array([domain.devices for domain in cluster.domains], dtype=np.float64)
    total = float(devices.sum())
    found = np.zeros((len(options), len(FEATURES)), dtype=np.float64)
    group, domain = np.zeros(len(options), dtype=np.int64), np.full(len(options), -1, dtype=np.int64)
    free = np.asarray(view.free_devices, dtype=np.float64)
    moment = _moment(view, agents, releases, known, believed, free, total)
    found[:, _MOMENT:] = moment
    reached: dict[int, list[int]] = {}
    for i, option in enumerate(options):
        row = found[i]
        waits = option.plan is None and not view.replanning
        row[: len(WHAT)] = (
            waits,
            i == 0,
            option.trusted,
            max(LEAST_ODDS, option.upper),
            max(LEAST_ODDS, option.lower),
            (option.plan is None and view.replanning),
        )
        if waits:
            group[i] = -1
            continue
        task = known.get(option.slot)
        plan = option.plan if option.plan is not None else view.current_plan
        if task is None or plan is None:
            group[i] = -1
            continue
        _task(row, view, task, agents, believed[option.slot])
        first = plan.segments[0].domain
        domain[i], group[i] = first, option.slot * len(devices) + first
        held = sum(segment.device_count for segment in plan.segments)
        left = free[first] - sum(s.device_count for s in plan.segments if s.domain == first)
        row[_PLAN : _PLAN + 6] = (
            np.log2(held), held / total, left / devices[first], left == 0, len(plan.segments),
            np.log1p(releases.hours[first]),
        )  # fmt: skip
        reached.setdefault(task.kind_index, []).append(i)
    for kind, rows in reached.items():
        plans = [options[i].plan or view.current_plan for i in rows]
        factors = np.exp(np.array([believed[options[i].slot] for i in rows]))
        batch = PlanBatch.of([plan for plan in plans if plan is not None])
        cost = view.cost.score(
            batch, kind, bandwidth_gbps=view.bandwidth_gbps, latency_s=view.latency_s, factors=factors, breakdown=False
        )
        terms = priced_terms(
            view.reward, float(view.base_step_s[kind]), float(view.base_cost_usd[kind]), cost.step_s, cost.utilisation,
            cost.bill_usd, cost.energy_j, cost.carbon_g,
        )  # fmt: skip
        steps = np.array([known[options[i].slot].steps_left for i in rows])
        found[rows, _PLAN + 6 : _PLAN + 9] = np.clip(terms, -4.0, 4.0)
        found[rows, _PLAN + 9] = np.log(steps * np.minimum(cost.step_s, 1e6) / 3600.0 + SHORTEST_H)
    own = found[0].copy()
    found[:, _APART] = [option.slot != options[0].slot or option.plan is None for option in options]
    found[:, _APART + 1] = found[:, _PLAN] - own[_PLAN]
    found[:, _APART + 2 : _APART + 5] = found[:, _PLAN + 6 : _PLAN + 9] - own[_PLAN + 6 : _PLAN + 9]
    found[:, _APART + 5] = found[:, _TASK] - own[_TASK]
    nodes = np.column_stack([
        free / devices, devices / total, np.log1p(releases.hours), releases.devices / devices,
        (releases.hours < AWAKE_H).astype(np.float64),
    ])  # fmt: skip
    base = np.maximum(np.asarray(cluster.wan.bandwidth_gbps, dtype=np.float64), 1e-6)
    edges = np.stack([np.asarray(view.bandwidth_gbps) / base, np.log1p(base) / 4.0], axis=-1)
    edges[np.arange(len(devices)), np.arange(len(devices))] = 0.0
    return Described(
        found.astype(np.float32), group, domain, nodes.astype(np.float32), np.clip(edges, 0.0, 4.0).astype(np.float32)
    )


def _task(row: FloatArray, view: Decision, task: Task, agents: Agents, factors: FloatArray) -> None:
    kind = task.kind_index
    pace = float(agents.nominal_shares[kind] @ factors)
    hours = task.steps_left * float(agents.nominal_s[kind]) * np.exp(pace) / 3600.0
    base_h = task.steps_left * float(view.base_step_s[kind]) / 3600.0
    waited_h = 0.0 if view.replanning else task.waited_s / 3600.0
    row[_TASK : _TASK + 6] = (
        np.log(hours + SHORTEST_H), np.log(base_h + SHORTEST_H), np.log1p(waited_h), *factors,
    )  # fmt: skip
    vector = task.attribution
    if vector is not None and vector.state is not None:
        row[_TASK + 6 : _TASK + 13] = vector.state


def _moment(
    view: Decision, agents: Agents, releases: Releases, known: dict[int, Task], believed: dict[int, FloatArray],
    free: FloatArray, total: float,
) -> FloatArray:  # fmt: skip
    queue_h = 0.0
    for task in view.queue:
        kind = task.kind_index
        pace = float(agents.nominal_shares[kind] @ believed[task.slot])
        queue_h += task.steps_left * float(agents.nominal_s[kind]) * np.exp(pace) / 3600.0
    angle = 2.0 * np.pi * view.time_s / 86_400.0
    return np.array([
        np.log1p(len(view.queue) + view.backlog), free.sum() / total, np.log1p(releases.running),
        np.log1p(releases.hours.min()), np.log1p(8.0 * queue_h / total), np.sin(angle), np.cos(angle),
        float(view.replanning), np.log2(total) / 4.0, np.log2(len(free)),
    ])  # fmt: skip
