"""Constants fitted to measured data; every group names its source, licence, rows and errors."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def load_constants(name: str) -> dict[str, Any]:
    """Read one file of fitted constants, once.

    Args:
        name: File name without ``.json``, for example ``throughput``.
    """
    text = resources.files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8")
    constants: dict[str, Any] = json.loads(text)
    return constants
