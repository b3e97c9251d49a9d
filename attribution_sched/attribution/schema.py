"""How an attribution becomes the seven numbers in [−1, 1] of a policy's state: one normalisation, with a name.

    state = tanh(φ / spread)        φ: contributions to the logarithm of a task's joules, spread: their usual size

``spread`` is the root mean square of each contribution over the mix of tasks that the shipped agents learnt from. An
attribution in joules adds up to ``E − E0``; its parts are brought to the logarithm with the logarithmic mean of both,

    φ_log = φ_J · (ln E − ln E0) / (E − E0),

so that they add up to ``ln E − ln E0``. Only ratios of energies enter: joules, joules per sample and watts give the
same state. Weights belong to the schema they were trained on; :data:`ATTRIBUTION_SCHEMA` is its name.

:func:`closed_form` gives the state of counters directly, by the linear energy model over Gaussian log counters
(EmSHAP's closed form) whose coefficients the shipped agents were trained with.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from attribution_sched.errors import ModelFitError, problem
from attribution_sched.types import ATTRIBUTION_SCHEMA, Float32Array, FloatArray

__all__ = ["ATTRIBUTION_SCHEMA", "ClosedForm", "closed_form", "decode", "encode"]

SMALLEST_RATIO = 1e-9
"""Energies below this share of the typical one count as this share: a logarithm needs more than nothing."""


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """Counters to state in one formula: ``tanh(weight · log1p(counters / unit) + bias)``.

    Attributes:
        unit: Counter values that count as one under the logarithm, shape ``(7,)``.
        weight: Shape ``(7, 7)``.
        bias: Shape ``(7,)``.
        spread: Usual size of the contributions to log energy, shape ``(7,)``.
    """

    unit: FloatArray
    weight: FloatArray
    bias: FloatArray
    spread: FloatArray
    schema: str = ATTRIBUTION_SCHEMA

    def __call__(self, counters: FloatArray) -> FloatArray:
        """State ``(n, 7)`` of counters ``(n, 12)``; a row's numbers do not depend on the rows beside it."""
        seven = np.log1p(np.asarray(counters, dtype=np.float64)[:, : len(self.unit)] / self.unit)
        # A matrix product may round otherwise in another batch; sums row by row do not.
        vectors: FloatArray = np.tanh((seven[:, None, :] * self.weight).sum(axis=-1) + self.bias)
        return vectors


@cache
def closed_form() -> ClosedForm:
    """The coefficients that the shipped agents were trained with."""
    payload = json.loads(files("attribution_sched.attribution").joinpath("closed_form.json").read_text("utf-8"))
    arrays = {name: np.array(payload[name], dtype=np.float64) for name in ("unit", "weight", "bias", "spread")}
    for array in arrays.values():
        array.setflags(write=False)
    return ClosedForm(**arrays, schema=payload["schema"])


def encode(values: FloatArray, base: float) -> Float32Array:
    """The state ``(n, 7)`` of contributions ``(n, 7)`` that, with the base, add up to energies.

    Raises:
        ModelFitError: If the typical energy, the base, is not above zero.
    """
    if not base > 0.0:
        rule = "the typical energy must be > 0 for shares of it to mean anything"
        raise ModelFitError(problem("base", base, rule, "Fit the energy model on metered energies"))
    gap = values.sum(axis=-1) / base
    # A prediction of nothing has no logarithm; the smallest energy stands for it.
    logarithm = np.log(np.maximum(1.0 + gap, SMALLEST_RATIO))
    weight = np.divide(logarithm, gap, out=np.ones_like(gap), where=np.abs(gap) > 1e-12)
    state: Float32Array = np.tanh(values / base * weight[..., None] / closed_form().spread).astype(np.float32)
    return state


def decode(state: Float32Array, base: float) -> FloatArray:
    """Contributions ``(..., 7)`` whose :func:`encode` is the state; the inverse, as far as a tanh has one."""
    bounded = np.clip(np.asarray(state, dtype=np.float64), -1.0 + 1e-7, 1.0 - 1e-7)
    logarithm = np.arctanh(bounded) * closed_form().spread
    gap = logarithm.sum(axis=-1)
    weight = np.divide(np.expm1(gap), gap, out=np.ones_like(gap), where=np.abs(gap) > 1e-12)
    return np.asarray(base * logarithm * weight[..., None])
