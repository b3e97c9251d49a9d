"""Explainability-first scheduling of AI workloads."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attribution_sched.system import System

__all__ = ["System", "__version__"]

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """Load what is heavy when it is first asked for."""
    if name == "System":
        from attribution_sched.system import System

        return System
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
