"""Attribution: counters, the energy model, and EmSHAP's conditional Shapley values of its predictions.

Names load on first use, so importing this package costs nothing.
"""

from __future__ import annotations

from attribution_sched import lazy_names

__all__ = [
    "DATA_VARIABLE",
    "KEPLER_COUNTERS",
    "AttributionVector",
    "Capability",
    "Column",
    "ColumnMap",
    "EmSHAP",
    "EnergyModel",
    "Fitted",
    "OperatorProfile",
    "ProcessSource",
    "Provenance",
    "Reading",
    "Recorder",
    "Recording",
    "ReplaySource",
    "Source",
    "accelwattch_components",
    "accelwattch_counters",
    "detect",
    "difference",
    "from_idle",
    "kepler",
    "load_recording",
    "load_runs",
    "profile",
    "zeus_power",
]

_HOMES = {
    "AttributionVector": "attribution_sched.attribution.vector",
    "Capability": "attribution_sched.attribution.sources",
    "Column": "attribution_sched.attribution.recordings",
    "ColumnMap": "attribution_sched.attribution.recordings",
    "DATA_VARIABLE": "attribution_sched.attribution.recording_presets",
    "EmSHAP": "attribution_sched.attribution.emshap",
    "EnergyModel": "attribution_sched.attribution.energy_model",
    "Fitted": "attribution_sched.attribution.fitted",
    "KEPLER_COUNTERS": "attribution_sched.attribution.recording_presets",
    "OperatorProfile": "attribution_sched.attribution.sources",
    "ProcessSource": "attribution_sched.attribution.sources",
    "Provenance": "attribution_sched.attribution.sources",
    "Reading": "attribution_sched.attribution.sources",
    "Recorder": "attribution_sched.attribution.recorder",
    "Recording": "attribution_sched.attribution.recordings",
    "ReplaySource": "attribution_sched.attribution.recorder",
    "Source": "attribution_sched.attribution.sources",
    "accelwattch_components": "attribution_sched.attribution.recording_presets",
    "accelwattch_counters": "attribution_sched.attribution.recording_presets",
    "detect": "attribution_sched.attribution.sources",
    "difference": "attribution_sched.attribution.sources",
    "from_idle": "attribution_sched.attribution.accounting",
    "kepler": "attribution_sched.attribution.recording_presets",
    "load_recording": "attribution_sched.attribution.recordings",
    "load_runs": "attribution_sched.attribution.measured_runs",
    "profile": "attribution_sched.attribution.sources",
    "zeus_power": "attribution_sched.attribution.recording_presets",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
