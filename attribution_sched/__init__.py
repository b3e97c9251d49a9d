"""Explainability-first scheduling of AI workloads.

The names below are the public ones: documentation and examples use no others. Each loads on first use. The rooms
(``attribution``, ``cluster``, ``config``, ``explain``, ``feedback``, ``journal``) offer what is rarer.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attribution_sched import attribution, cluster, config, executors, explain, feedback, journal, testing
    from attribution_sched.attribution.emshap import EmSHAP
    from attribution_sched.attribution.energy_model import EnergyModel
    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.cluster.decision import Decision
    from attribution_sched.cluster.envs import registration
    from attribution_sched.cluster.plan import Plan, Replica, Segment
    from attribution_sched.cluster.simulator.simulator import simulate
    from attribution_sched.config.sources import load_settings
    from attribution_sched.errors import AttributionSchedError
    from attribution_sched.explain import plots
    from attribution_sched.explain.background import Background
    from attribution_sched.explain.explainer import Explainer
    from attribution_sched.explain.explanation import Explanation
    from attribution_sched.explain.reasoning import reasoning
    from attribution_sched.feedback.targets import Targets
    from attribution_sched.journal.journal import Journal
    from attribution_sched.rivals.arena.by_preset import evaluate
    from attribution_sched.scheduler.episode import play
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
    from attribution_sched.scheduler.policy import Policy
    from attribution_sched.scheduler.registry import make_policy
    from attribution_sched.scheduler.training import train, train_testbed
    from attribution_sched.system.admission import TaskRequest
    from attribution_sched.system.results import SchedulingResult
    from attribution_sched.system.system import System

__all__ = [
    "AttributionSchedError",
    "AttributionVector",
    "Background",
    "Decision",
    "EmSHAP",
    "EnergyModel",
    "Explainer",
    "Explanation",
    "HiPpo",
    "Journal",
    "Plan",
    "Policy",
    "Replica",
    "SchedulingResult",
    "Segment",
    "System",
    "Targets",
    "TaskRequest",
    "__version__",
    "attribution",
    "cluster",
    "config",
    "evaluate",
    "executors",
    "explain",
    "feedback",
    "journal",
    "load_settings",
    "make_policy",
    "play",
    "plots",
    "reasoning",
    "registration",
    "simulate",
    "testing",
    "train",
    "train_testbed",
]

__version__ = "0.2.0"


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: Its dotted name.
        homes: Public name → dotted name of the module that holds it, followed by ``:`` and its name there if that is
            another; a module by itself ends in its own name.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, _, inside = homes[name].partition(":")
        module, inside = import_module(home), inside or name
        return module if home.rpartition(".")[2] == inside and not hasattr(module, inside) else getattr(module, inside)

    return load, lambda: sorted(homes)


def when_imported(package: str, then: Callable[[], object]) -> None:
    """Call something once a package is imported: now if it is, else right after whoever imports it first."""
    if package in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _AfterImport(package, then))


class _AfterImport(MetaPathFinder):
    """Finds one package as Python would, and calls something after it has run."""

    def __init__(self, package: str, then: Callable[[], object]) -> None:
        self.package, self.then = package, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.package:
            return None
        sys.meta_path.remove(self)
        found = find_spec(fullname)
        if found is not None and found.loader is not None:
            loader: Any = found.loader
            run = loader.exec_module

            def run_then(module: ModuleType) -> None:
                run(module)
                self.then()

            loader.exec_module = run_then
        return found


logging.getLogger(__name__).addHandler(logging.NullHandler())

_HOMES = {
    "AttributionSchedError": "attribution_sched.errors",
    "AttributionVector": "attribution_sched.attribution.vector",
    "Background": "attribution_sched.explain.background",
    "Decision": "attribution_sched.cluster.decision",
    "EmSHAP": "attribution_sched.attribution.emshap",
    "EnergyModel": "attribution_sched.attribution.energy_model",
    "Explainer": "attribution_sched.explain.explainer",
    "Explanation": "attribution_sched.explain.explanation",
    "HiPpo": "attribution_sched.scheduler.hi_ppo.coordinator",
    "Journal": "attribution_sched.journal.journal",
    "Plan": "attribution_sched.cluster.plan",
    "Policy": "attribution_sched.scheduler.policy",
    "Replica": "attribution_sched.cluster.plan",
    "SchedulingResult": "attribution_sched.system.results",
    "Segment": "attribution_sched.cluster.plan",
    "System": "attribution_sched.system.system",
    "Targets": "attribution_sched.feedback.targets",
    "TaskRequest": "attribution_sched.system.admission",
    "attribution": "attribution_sched.attribution",
    "cluster": "attribution_sched.cluster",
    "config": "attribution_sched.config",
    "evaluate": "attribution_sched.rivals.arena.by_preset",
    "executors": "attribution_sched.executors",
    "explain": "attribution_sched.explain",
    "feedback": "attribution_sched.feedback",
    "journal": "attribution_sched.journal",
    "load_settings": "attribution_sched.config.sources",
    "make_policy": "attribution_sched.scheduler.registry",
    "play": "attribution_sched.scheduler.episode",
    "plots": "attribution_sched.explain.plots",
    "reasoning": "attribution_sched.explain.reasoning",
    "registration": "attribution_sched.cluster.envs.registration",
    "simulate": "attribution_sched.cluster.simulator.simulator",
    "testing": "attribution_sched.testing",
    "train": "attribution_sched.scheduler.training",
    "train_testbed": "attribution_sched.scheduler.training",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)

# Gymnasium loads no plug-ins since 1.0: who imports both, in either order, finds the environments by name.
when_imported("gymnasium", lambda: import_module("attribution_sched.cluster.envs.registration"))
