"""Where plans really run: one executor for each domain, of local processes or of an engine.

Names load on first use, so importing this package costs nothing.
"""

from __future__ import annotations

from attribution_sched import lazy_names

__all__ = [
    "Executor",
    "Handle",
    "JobSpec",
    "LinkProfile",
    "LocalExecutor",
    "RayExecutor",
    "SlurmExecutor",
    "measured_step_s",
    "probe_link",
    "probe_stages",
]

_HOMES = {
    "Executor": "attribution_sched.executors.executor",
    "Handle": "attribution_sched.executors.records",
    "JobSpec": "attribution_sched.executors.records",
    "LinkProfile": "attribution_sched.cluster.rendezvous",
    "LocalExecutor": "attribution_sched.executors.local",
    "RayExecutor": "attribution_sched.executors.ray",
    "SlurmExecutor": "attribution_sched.executors.slurm",
    "measured_step_s": "attribution_sched.cluster.rendezvous",
    "probe_link": "attribution_sched.executors.probes",
    "probe_stages": "attribution_sched.executors.probes",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
