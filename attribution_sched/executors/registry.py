"""Every engine that can run jobs, by name: how an executor of a domain is made, and what a system has to know of it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attribution_sched.executors.executor import Executor


@dataclass(frozen=True)
class ExecutorSpec:
    """How to make the executors of a cluster.

    Attributes:
        name: What ``System(cluster=…)`` and ``--cluster`` call it.
        description: One line for people.
        module: Dotted name of the module that holds it.
        factory: Function there: name of the domain, its devices and the folder of its jobs → an executor.
        poll_s: How often it is looked at.
        asked_first: Whether every executor is asked what it has before anything is journaled.
    """

    name: str
    description: str
    module: str
    factory: str
    poll_s: float
    asked_first: bool = True

    def make(self, domain: str, devices: int, folder: Path) -> Executor:
        """Import the module and make the executor of a domain."""
        made: Any = getattr(importlib.import_module(self.module), self.factory)(domain, devices, folder)
        executor: Executor = made
        return executor


_SPECS = (
    ExecutorSpec(
        "local", "processes of this machine", "attribution_sched.executors.local", "LocalExecutor", 0.05, False
    ),
    ExecutorSpec(
        "slurm", "a Slurm partition for each domain, of the same name", "attribution_sched.executors.slurm",
        "executor_of", 1.0,
    ),
    ExecutorSpec(
        "ray", "Ray nodes that carry the label domain", "attribution_sched.executors.ray", "executor_of", 0.2
    ),
)  # fmt: skip

EXECUTORS: Mapping[str, ExecutorSpec] = MappingProxyType({spec.name: spec for spec in _SPECS})
"""Name → how to make its executors."""
