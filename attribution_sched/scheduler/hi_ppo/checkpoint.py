"""Hi-PPO on disk: the numbers of both agents, the ranker's if it has learnt, and how counters become attributions.

A safetensors file with a JSON header under one checksum (:mod:`attribution_sched.storage`): reading one executes
nothing. The header names everything the numbers stand for, so a file for other features is refused by the name of the
feature, not by a shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched.cluster.decision import ATTRIBUTIONS
from attribution_sched.errors import CheckpointError, ModelFitError, problem
from attribution_sched.scheduler.hi_ppo.candidate_features import EDGE, FEATURES, NODE
from attribution_sched.scheduler.hi_ppo.ranker import SHAPES, Ranker
from attribution_sched.scheduler.hi_ppo.upper_agent import HEADS, SIZE
from attribution_sched.storage import Arrays, read, write
from attribution_sched.types import ATTRIBUTION_SCHEMA, FloatArray

KIND = "hi-ppo"
SHIPPED = Path(__file__).with_name("weights.safetensors")
"""The weights that come with the package."""

COMMAND = "attribution-sched train --output DIR"
"""What makes a checkpoint."""

_RANKER = "ranker."
_FORM = {"unit": (ATTRIBUTIONS,), "weight": (ATTRIBUTIONS, ATTRIBUTIONS), "bias": (ATTRIBUTIONS,)}


@dataclass(frozen=True, eq=False)
class Weights:
    """Everything that Hi-PPO has learnt.

    Attributes:
        theta: Numbers of both agents, shape ``(SIZE,)``, names in ``upper_agent.HEADS``.
        unit: Units of the seven counters, shape ``(7,)``.
        weight: Shape ``(7, 7)``.
        bias: Shape ``(7,)``.
        ranker: What experience adds to the agents' log-odds; None if nothing that helped.
    """

    theta: FloatArray
    unit: FloatArray
    weight: FloatArray
    bias: FloatArray
    ranker: Ranker | None = None

    def __post_init__(self) -> None:
        for name, shape in {"theta": (SIZE,), **_FORM}.items():
            given = np.asarray(getattr(self, name), dtype=np.float64)
            if given.shape != shape or not np.isfinite(given).all():
                rule = f"must be finite numbers of shape {shape}"
                raise ModelFitError(problem(f"weights.{name}", given.shape, rule, f"Train: {COMMAND}"))
            object.__setattr__(self, name, given)

    def with_agents(self, theta: FloatArray) -> Weights:
        """The same with other numbers of the agents."""
        return replace(self, theta=np.array(theta, dtype=np.float64))

    def attributions(self, counters: FloatArray) -> FloatArray:
        """Attributions ``(n, 7)`` in [−1, 1] of counters ``(n, 12)``: ``tanh(weight · log1p(counters / unit) + bias)``.

        EmSHAP's closed form for a linear energy model of Gaussian log counters; the numbers have learnt from it.
        """
        seven = np.asarray(counters, dtype=np.float64)[:, : len(self.unit)]
        # A matrix product may round otherwise in another batch; sums row by row do not.
        found: FloatArray = np.tanh((np.log1p(seven / self.unit)[:, None, :] * self.weight).sum(axis=-1) + self.bias)
        return found


def save(path: str | Path, weights: Weights, about: Mapping[str, Any]) -> None:
    """Write weights, complete or not at all.

    Args:
        path: Target, ``*.safetensors``.
        weights: What to write.
        about: How it was made, ready for JSON.
    """
    arrays: Arrays = {name: np.ascontiguousarray(getattr(weights, name)) for name in ("theta", *_FORM)}
    if weights.ranker is not None:
        # Not ascontiguousarray: it makes a vector of a single number, which then does not load.
        arrays |= {_RANKER + name: np.asarray(array, order="C") for name, array in weights.ranker.arrays.items()}
    header = {"features": feature_names(), "about": dict(about)}
    write(path, KIND, header, arrays, attribution_schema=ATTRIBUTION_SCHEMA)


def load(path: str | Path = SHIPPED) -> Weights:
    """Read weights, refusing anything but exactly what was written for the features of this release.

    Raises:
        CheckpointError: If the file is missing, truncated, changed, of another version, made for other features, or
            holds other shapes or numbers than it must.
    """
    _, arrays = _read(path)
    named = {name: arrays.pop(name, None) for name in ("theta", *_FORM)}
    ranker = {name.removeprefix(_RANKER): array for name, array in arrays.items() if name.startswith(_RANKER)}
    odd = [name for name in arrays if not name.startswith(_RANKER) or name.removeprefix(_RANKER) not in SHAPES]
    missing = [name for name, array in named.items() if array is None]
    if odd or missing:
        rule = "is of an older release, or not of this one" if odd else "is missing"
        fix = f"Train and save again with this release: {COMMAND}"
        raise CheckpointError(problem("checkpoint weights", (odd or missing)[0], rule, fix))
    try:
        theta, unit, weight, bias = (np.asarray(array, dtype=np.float64) for array in named.values())
        return Weights(theta, unit, weight, bias, Ranker(ranker) if ranker else None)
    except ModelFitError as error:
        raise CheckpointError(str(error)) from error


def describe(path: str | Path = SHIPPED) -> dict[str, Any]:
    """How the weights of a file were made, as given to :func:`save`."""
    header, _ = _read(path)
    about = header.get("about")
    if not isinstance(about, dict):
        raise CheckpointError(problem("checkpoint about", about, "must say how it was made", f"Train: {COMMAND}"))
    return about


def feature_names() -> dict[str, list[str]]:
    """Everything the numbers stand for, by group: what a checkpoint is made for."""
    heads = [f"{head}.{name}" for head, names in HEADS.items() for name in names]
    return {"agents": heads, "candidate": list(FEATURES), "node": list(NODE), "edge": list(EDGE)}


def _read(path: str | Path) -> tuple[dict[str, Any], Arrays]:
    if not Path(path).is_file():
        raise CheckpointError(problem("weights", str(path), "does not exist", f"Check the path, or train: {COMMAND}"))
    header, arrays = read(path, KIND, attribution_schema=ATTRIBUTION_SCHEMA)
    given = header.get("features")
    for group, names in feature_names().items():
        theirs = given.get(group) if isinstance(given, dict) else None
        if theirs != names:
            theirs = theirs if isinstance(theirs, list) else []
            odd = [str(name) for name in theirs if name not in names] + [name for name in names if name not in theirs]
            rule = f"was made for other {group} features than this release has"
            fix = f"Train with this release: {COMMAND}"
            raise CheckpointError(problem("checkpoint features", odd[0] if odd else group, rule, fix))
    return header, dict(arrays)
