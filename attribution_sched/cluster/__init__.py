"""The world: tasks and layers, GPUs, networks, and what a plan costs on them; simulator and environments.

Start at ``world.World`` (the scheduling problem), ``cost.CostModel`` (what a plan takes), ``engine.Engine`` (many
clusters at once), ``env`` (Gymnasium, one or many), ``simulator`` (events, failures, preemption). Public names
load on first use, so importing this package costs nothing.
"""

from __future__ import annotations

from attribution_sched import lazy_names

__all__ = [
    "DEMAND_NAMES",
    "DOMAIN_FEATURES",
    "PRECISIONS",
    "TASK_FEATURES",
    "CostModel",
    "Failures",
    "Grid",
    "Live",
    "Plan",
    "Precision",
    "Preemption",
    "Replica",
    "Segment",
    "Series",
    "Shared",
    "Signal",
    "TaskKind",
    "World",
    "from_config",
    "from_torch",
    "import_log",
    "move_cost",
    "moved_bytes",
    "simulate",
    "with_adapters",
]

_HOMES = {
    "with_adapters": "attribution_sched.cluster.models.declared",
    "import_log": "attribution_sched.cluster.trace_import",
    "from_torch": "attribution_sched.cluster.models.torch_module",
    "from_config": "attribution_sched.cluster.models.huggingface",
    "Signal": "attribution_sched.cluster.signals",
    "Series": "attribution_sched.cluster.signals",
    "Live": "attribution_sched.cluster.signals",
    "Grid": "attribution_sched.cluster.signals",
    "CostModel": "attribution_sched.cluster.cost",
    "DEMAND_NAMES": "attribution_sched.cluster.demands",
    "DOMAIN_FEATURES": "attribution_sched.cluster.engine.engine",
    "Failures": "attribution_sched.cluster.simulator.dispatch",
    "PRECISIONS": "attribution_sched.cluster.gpus",
    "Plan": "attribution_sched.cluster.plan",
    "Precision": "attribution_sched.cluster.gpus",
    "Preemption": "attribution_sched.cluster.simulator.dispatch",
    "Replica": "attribution_sched.cluster.plan",
    "Segment": "attribution_sched.cluster.plan",
    "Shared": "attribution_sched.cluster.simulator.dispatch",
    "TASK_FEATURES": "attribution_sched.cluster.engine.engine",
    "TaskKind": "attribution_sched.cluster.world",
    "World": "attribution_sched.cluster.world",
    "move_cost": "attribution_sched.cluster.cost",
    "moved_bytes": "attribution_sched.cluster.cost",
    "simulate": "attribution_sched.cluster.simulator.simulator",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
