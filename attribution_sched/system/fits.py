"""Whether a task fits anywhere in a world."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.engine.state import K_BASE_COST, K_BASE_STEP
from attribution_sched.cluster.world import within_budgets
from attribution_sched.errors import TaskError, problem
from attribution_sched.planning.candidates import feasible
from attribution_sched.planning.segment_table import single_domain_plans

GB = 1e9


class Admission:
    """Answers, once per kind, whether a task of it could ever be placed.

    Args:
        engine: The cluster; it is not touched.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[tuple[int, int | None], str | None] = {}

    def check(self, kind: int, devices: int | None = None) -> None:
        """Refuse a task that fits nowhere.

        Args:
            kind: Row of its kind.
            devices: Devices it may use at most; all by default.

        Raises:
            TaskError: With what would make it fit.
        """
        if (kind, devices) not in self._known:
            self._known[kind, devices] = self._obstacle(kind, devices)
        fits = self._known[kind, devices]
        if fits is not None:
            raise TaskError(fits)

    def unplaceable_kinds(self) -> list[str]:
        """Why kinds fit nowhere whose tasks may arrive, and would fill the queue for ever; one sentence each."""
        kinds = range(len(self._engine.world.kinds))
        found = (self._known.setdefault((kind, None), self._obstacle(kind, None)) for kind in kinds)
        return [why for why in found if why is not None]

    def _obstacle(self, kind: int, devices: int | None) -> str | None:
        seen = empty_view(self._engine, kind)
        if devices is not None:
            wide = self._obstacle(kind, None)
            if wide is not None:
                return wide
            seen = replace(seen, free_devices=np.minimum(seen.free_devices, devices))
        batch = single_domain_plans(seen)
        least = np.inf
        if len(batch):
            least = float(seen.cost.score(batch, kind, breakdown=False).memory_ratio.min())
            fitting = np.flatnonzero(seen.cost.score(batch, kind, breakdown=False).memory_ratio <= 1.0)
            if any(feasible(seen, batch.plan(int(at))) is None for at in fitting):
                return None
        from attribution_sched.rivals.exact_policy import Exact

        plan = Exact().decide(seen)
        if plan is not None and (devices is None or sum(each.device_count for each in plan.segments) <= devices):
            return None
        if devices is not None:
            rule = f"{seen.kind.model.name} fits on no {devices} devices of this cluster"
            return problem("task.devices", devices, rule, "Ask for more, or leave it out")
        name, domains = seen.kind.model.name, seen.cost.cluster.domains
        most = max(domains, key=lambda domain: domain.gpu.memory_bytes * domain.devices)
        if least <= 1.0:
            budgets = ", ".join(f"{domain.power_budget_w} W" for domain in domains if domain.power_budget_w)
            rule = f"fits nowhere: every plan draws more than the power budgets allow ({budgets})"
            return problem("task.kind", name, rule, "Raise power_budget_w of a domain, or use fewer devices there")
        room = f"{most.devices} × {most.gpu.name} of {most.gpu.memory_bytes / GB:.0f} GB in {most.name}"
        short = "cannot be laid out" if not np.isfinite(least) else f"needs {least:.1f} times the memory of"
        rule = f"fits nowhere: at its leanest it {short} {room}"
        share = 2.0 if not np.isfinite(least) else least
        devices = int(2 ** np.ceil(np.log2(most.devices * share)))
        memory = most.gpu.memory_bytes * share / GB
        fix = f"Give a domain about {devices} such devices or devices of {memory:.0f} GB, or a smaller microbatch"
        return problem("task.kind", name, rule, fix)


def empty_view(engine: Engine, kind: int) -> Decision:
    """A decision on a task of a kind in an empty cluster over undisturbed links."""
    world = engine.world
    wan, kinds = world.cluster.wan, engine.arrays.kinds
    free = np.array([domain.devices for domain in world.cluster.domains], dtype=np.int64)
    return Decision(
        kind=world.kinds[kind],
        kind_index=kind,
        counters=np.zeros(len(COUNTER_NAMES)),
        replanning=False,
        current_plan=None,
        steps_left=float(world.kinds[kind].steps[0]),
        time_s=0.0,
        slot=0,
        queue=(),
        free_devices=within_budgets(world.cluster, free),
        bandwidth_gbps=np.array(wan.bandwidth_gbps, dtype=np.float64),
        latency_s=np.array(wan.latency_s, dtype=np.float64),
        cost=engine.cost,
        kinds=world.kinds,
        reward=world.reward,
        base_step_s=kinds[:, K_BASE_STEP].copy(),
        base_cost_usd=kinds[:, K_BASE_COST].copy(),
        restart_s=world.restart_s,
        max_segments=world.max_segments,
    )
