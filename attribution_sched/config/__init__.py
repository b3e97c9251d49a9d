"""Typed, validated settings: YAML or a mapping in, a frozen record out, a world built on request.

from attribution_sched.config import load_settings

world = load_settings("cross-domain").build_world()
"""

from __future__ import annotations

from attribution_sched import lazy_names
from attribution_sched.config.schema import Settings
from attribution_sched.config.sources import load_settings, load_training_settings, preset_names
from attribution_sched.config.training import TrainingSettings
from attribution_sched.scheduler.ppo.settings import PpoSettings

__all__ = [
    "PpoSettings",
    "Settings",
    "TrainingSettings",
    "build_scenario",
    "load_settings",
    "load_training_settings",
    "preset_names",
    "scenario_names",
]

_HOMES = {
    "build_scenario": "attribution_sched.config.scenarios",
    "scenario_names": "attribution_sched.config.scenarios",
}
"""Scenarios build worlds, which takes the cluster's libraries: they load on first use."""

__getattr__, _ = lazy_names(__name__, _HOMES)
