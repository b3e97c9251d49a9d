"""Attribution: counters, the energy model, and EmSHAP's conditional Shapley values of its predictions.

Names load on first use, so importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "AmortisedAttribution": "amortised",
    "AttributionVector": "vector",
    "Column": "recordings",
    "ColumnMap": "recordings",
    "EmSHAP": "emshap",
    "EnergyModel": "energy_model",
    "EnergyReport": "energy_model",
    "LinearAttribution": "linear",
    "OperatorProfile": "sources",
    "Provenance": "sources",
    "Reading": "sources",
    "Recorder": "recorder",
    "Recording": "recordings",
    "ReplaySource": "recorder",
    "Source": "sources",
    "detect": "sources",
    "load_recording": "recordings",
    "profile": "sources",
}

__all__ = [
    "AmortisedAttribution",
    "AttributionVector",
    "Column",
    "ColumnMap",
    "EmSHAP",
    "EnergyModel",
    "EnergyReport",
    "LinearAttribution",
    "OperatorProfile",
    "Provenance",
    "Reading",
    "Recorder",
    "Recording",
    "ReplaySource",
    "Source",
    "detect",
    "load_recording",
    "profile",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Public names, loaded or not."""
    return sorted(__all__)
