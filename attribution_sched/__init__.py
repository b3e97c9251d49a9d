"""Explainability-first scheduling of AI workloads.

The names below are the public ones: documentation and examples use no others. Each loads on first use. The rooms
(``attribution``, ``cluster``, ``config``, ``explain``, ``feedback``, ``journal``) offer what is rarer.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from attribution_sched.lazy import loader, when_imported

if TYPE_CHECKING:
    from attribution_sched import attribution, cluster, config, executors, explain, feedback, journal, registration
    from attribution_sched.admission import TaskRequest
    from attribution_sched.arena import evaluate
    from attribution_sched.attribution.emshap import EmSHAP
    from attribution_sched.attribution.energy_model import EnergyModel
    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.cluster.decision import Decision
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
    from attribution_sched.results import SchedulingResult
    from attribution_sched.scheduler.episode import play
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
    from attribution_sched.scheduler.policy import Policy
    from attribution_sched.scheduler.registry import make_policy
    from attribution_sched.system import System
    from attribution_sched.training import train, train_testbed

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
    "train",
    "train_testbed",
]

__version__ = "0.2.0"

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
    "SchedulingResult": "attribution_sched.results",
    "Segment": "attribution_sched.cluster.plan",
    "System": "attribution_sched.system",
    "Targets": "attribution_sched.feedback.targets",
    "TaskRequest": "attribution_sched.admission",
    "attribution": "attribution_sched.attribution",
    "cluster": "attribution_sched.cluster",
    "config": "attribution_sched.config",
    "evaluate": "attribution_sched.arena",
    "executors": "attribution_sched.executors",
    "explain": "attribution_sched.explain",
    "feedback": "attribution_sched.feedback",
    "journal": "attribution_sched.journal",
    "load_settings": "attribution_sched.config.sources",
    "make_policy": "attribution_sched.scheduler.registry",
    "play": "attribution_sched.scheduler.episode",
    "plots": "attribution_sched.explain.plots",
    "reasoning": "attribution_sched.explain.reasoning",
    "registration": "attribution_sched.registration",
    "simulate": "attribution_sched.cluster.simulator.simulator",
    "train": "attribution_sched.training",
    "train_testbed": "attribution_sched.training",
}

__getattr__, __dir__ = loader(__name__, _HOMES)

# Gymnasium loads no plug-ins since 1.0: who imports both, in either order, finds the environments by name.
when_imported("gymnasium", lambda: import_module("attribution_sched.registration"))
