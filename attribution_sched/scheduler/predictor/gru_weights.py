"""Weights of the recurrent predictor on disk: ``link_gru.safetensors`` beside ``link_gru.json``.

Both are plain data, nothing is unpickled. The JSON file holds the format, the checksum of the weights, the size of the
network and how it was made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.errors import CheckpointError, problem

FORMAT = 1
SHIPPED = Path(__file__).with_name("link_gru.safetensors")
"""The weights that come with the package."""

INPUTS = 4
"""Numbers per reading, see :func:`attribution_sched.scheduler.predictor.gru.features`."""

HORIZON_INPUTS = 3
"""Numbers that tell the head how far ahead to look."""

_FIELDS = {"format", "sha256", "size", "made"}


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
    """Write weights, complete or not at all; the JSON file goes beside ``*.safetensors``."""
    from safetensors.numpy import save as pack

    target = Path(path)
    packed = pack({name: np.ascontiguousarray(array) for name, array in weights.arrays.items()})
    about = {
        "format": FORMAT,
        "sha256": hashlib.sha256(packed).hexdigest(),
        "size": asdict(weights.size),
        "made": dict(weights.made),
    }
    text = json.dumps(about, indent=2, sort_keys=True) + "\n"
    for file, content in ((target, packed), (target.with_suffix(".json"), text.encode())):
        partial = file.with_name(file.name + ".partial")
        partial.write_bytes(content)
        partial.replace(file)


def load(path: str | Path = SHIPPED) -> GruWeights:
    """Read weights back, refusing anything but exactly what was written.

    Raises:
        CheckpointError: If a file is missing, was changed, or is of another version or shape.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as unpack

    target = Path(path)
    about = _describe(target.with_suffix(".json"))
    if not target.is_file():
        raise CheckpointError(problem("checkpoint", str(target), "does not exist", "Check the path, or train"))
    packed = target.read_bytes()
    if hashlib.sha256(packed).hexdigest() != about["sha256"]:
        rule = "was changed after it was written: its checksum does not match"
        raise CheckpointError(problem("checkpoint", str(target), rule, "Use an untouched copy"))
    given = about["size"]
    known = {field.name for field in fields(GruSize)}
    if not isinstance(given, dict) or set(given) != known or not all(type(v) is int and v > 0 for v in given.values()):
        rule = f"must give {', '.join(sorted(known))} as positive integers"
        raise CheckpointError(problem("checkpoint size", given, rule, "Save the network again"))
    size = GruSize(**given)
    try:
        arrays = unpack(packed)
    except SafetensorError as error:
        rule = "is not a safetensors file"
        raise CheckpointError(problem("checkpoint", str(target), rule, "Train and save again")) from error
    found = {name: tuple(array.shape) for name, array in arrays.items()}
    sound = all(array.dtype == np.float32 and np.isfinite(array).all() for array in arrays.values())
    if found != shapes(size) or not sound:
        rule = f"must hold finite float32 arrays of the shapes {shapes(size)}"
        raise CheckpointError(problem("checkpoint arrays", found, rule, "Train and save with this release"))
    return GruWeights(size, arrays, about["made"])


def _describe(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise CheckpointError(problem("checkpoint", str(file), "does not exist", "Check the path, or train"))
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(problem("checkpoint", str(file), "is not JSON", "Save the network again")) from error
    given = set(about) if isinstance(about, dict) else set()
    if given != _FIELDS:
        rule = f"must have the fields {', '.join(sorted(_FIELDS))} and no other"
        raise CheckpointError(problem(f"{file.name} fields", sorted(given), rule, "Save the network again"))
    if about["format"] != FORMAT:
        rule = f"this release reads format {FORMAT}"
        raise CheckpointError(problem(f"{file.name} format", about["format"], rule, "Train and save with this release"))
    found: dict[str, Any] = about
    return found
