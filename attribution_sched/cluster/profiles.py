"""Measured layer profiles, shipped as fitted floor laws.

For each profiled (model, GPU, tensor-parallel degree) and layer class, forward and backward seconds of b
samples follow ``t(b) = sqrt(floor² + (b·slope)²)``, fitted to the measured microbatches. Tensor-parallel
communication was running while they were measured and is part of the figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.layers import Model
from attribution_sched.cluster.precision import Precision

FloatArray = NDArray[np.float64]
LayerLaws = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Forward slope and floor, backward slope and floor; seconds (per sample), each of shape ``(n_layers,)``."""


@dataclass(frozen=True)
class LayerProfile:
    """The measured laws of one model on one GPU type.

    Attributes:
        precision: Numeric format the profile was taken in.
        by_tp: Tensor-parallel degree → laws of every layer.
    """

    precision: Precision
    by_tp: dict[int, LayerLaws]

    def law(self, tp: int) -> LayerLaws | None:
        """Laws at a tensor-parallel degree; None where nothing near was measured.

        A degree that was not measured is scaled from the nearest measured one by the ratio of the degrees,
        which keeps a profile consistent over layouts.
        """
        if tp in self.by_tp:
            return self.by_tp[tp]
        near = min(self.by_tp, key=lambda t: abs(np.log2(t / tp)))
        ratio = near / tp
        slope_f, floor_f, slope_b, floor_b = self.by_tp[near]
        return slope_f * ratio, floor_f, slope_b * ratio, floor_b


def layer_profile(model: Model, gpu: str) -> LayerProfile | None:
    """Look up the shipped profile of a model on a GPU type; None where none was measured."""
    stored = load_constants("profiles")["models"].get(model.name, {}).get("gpus", {}).get(gpu)
    if stored is None:
        return None
    kinds = load_constants("profiles")["models"][model.name]["layer_classes"]
    index = np.array(kinds)
    by_tp: dict[int, LayerLaws] = {}
    for tp, rows in stored.items():
        laws: Any = np.array(rows, dtype=np.float64)[index].T
        by_tp[int(tp)] = (laws[0], laws[1], laws[2], laws[3])
    return LayerProfile(Precision.FP32, by_tp)
