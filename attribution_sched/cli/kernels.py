"""The simulation's compiled kernels: are they there, or will the first run have to make them?"""

from __future__ import annotations

import os
from pathlib import Path

FIRST = "The first run compiles the simulation's kernels: a minute or two, once"


def folder() -> Path:
    """Where they are kept: beside the sources, or where ``NUMBA_CACHE_DIR`` says."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    return Path(given) if given else Path(__file__).parents[1]


def compiled() -> int:
    """How many there are."""
    return sum(1 for _ in folder().rglob("*.nbi"))
