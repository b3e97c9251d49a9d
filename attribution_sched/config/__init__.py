"""Typed, validated settings: YAML or a mapping in, a frozen record out, a world built on request.

from attribution_sched.config import load_settings

world = load_settings("cross-domain").build_world()
"""

from __future__ import annotations

from attribution_sched.config.schema import Settings
from attribution_sched.config.sources import load_settings, load_training_settings, preset_names
from attribution_sched.config.training import GnnSettings, PpoSettings, TrainingSettings

__all__ = [
    "GnnSettings",
    "PpoSettings",
    "Settings",
    "TrainingSettings",
    "load_settings",
    "load_training_settings",
    "preset_names",
]
