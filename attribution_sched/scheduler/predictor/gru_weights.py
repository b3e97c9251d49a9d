"""Weights of the recurrent predictor on disk, in the one file format of :mod:`attribution_sched.storage`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched import storage
from attribution_sched.errors import CheckpointError, problem

KIND = "link-gru"
SHIPPED = Path(__file__).with_name("link_gru.safetensors")
"""The weights that come with the package."""

INPUTS = 4
"""Numbers per reading, see :func:`attribution_sched.scheduler.predictor.gru.features`."""

HORIZON_INPUTS = 3
"""Numbers that tell the head how far ahead to look."""

LIMITS = {"hidden": 1024, "window": 1024, "longest_s": 7 * 86_400}
"""Larger networks are not read: a file of a few bytes must not be able to ask for all memory."""


@dataclass(frozen=True)
class GruSize:
    """Size of the network.

    Attributes:
        hidden: Width of the recurrent state and of the head.
        window: How many readings it looks back.
        longest_s: Longest horizon it was trained on.
    """

    hidden: int = 32
    window: int = 24
    longest_s: int = 7200


@dataclass(frozen=True, eq=False)
class GruWeights:
    """Size, arrays by name, and how they were made.

    Attributes:
        size: Size of the network.
        arrays: The names of :func:`shapes` → float32 arrays.
        made: How the weights were made, ready for JSON.
    """

    size: GruSize
    arrays: Mapping[str, NDArray[np.float32]]
    made: Mapping[str, Any]


def shapes(size: GruSize) -> dict[str, tuple[int, ...]]:
    """Name every array of a network with its shape; gates are stacked as reset, update, new."""
    h = size.hidden
    return {
        "gru.weight_ih_l0": (3 * h, INPUTS),
        "gru.weight_hh_l0": (3 * h, h),
        "gru.bias_ih_l0": (3 * h,),
        "gru.bias_hh_l0": (3 * h,),
        "head.weight": (h, h + INPUTS + HORIZON_INPUTS),
        "head.bias": (h,),
        "out.weight": (2, h),
        "out.bias": (2,),
    }


def save(weights: GruWeights, path: str | Path) -> None:
    """Write weights, complete or not at all."""
    storage.write(path, KIND, {"size": asdict(weights.size), "made": dict(weights.made)}, dict(weights.arrays))


def load(path: str | Path = SHIPPED) -> GruWeights:
    """Read weights back, refusing anything but exactly what was written.

    Raises:
        CheckpointError: If a file is missing, was changed, or is of another version or shape.
    """
    header, arrays = storage.read(path, KIND)
    size = GruSize(**storage.expected_sizes(path, header.get("size"), LIMITS))
    found = {name: tuple(array.shape) for name, array in arrays.items()}
    if found != shapes(size) or any(array.dtype != np.float32 for array in arrays.values()):
        rule = f"must hold float32 arrays of the shapes {shapes(size)}"
        raise CheckpointError(problem("checkpoint arrays", found, rule, "Train and save with this release"))
    made = header.get("made")
    if not isinstance(made, dict):
        raise CheckpointError(problem("checkpoint made", made, "must say how it was made", "Train and save again"))
    return GruWeights(size, arrays, made)
