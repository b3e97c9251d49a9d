"""Linear (Gaussian) predictions of every hidden feature from every observed set, looked up by mask."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from attribution_sched.attribution.conditionals.algebra import condition
from attribution_sched.attribution.conditionals.base import BoolArray, FloatArray

LIMIT = 8192
"""Masks kept before the table starts afresh; all of them up to 13 features."""


class LinearTable:
    """Cache of conditional regressions for zero-mean, standardised features.

    Args:
        covariance: (d, d) covariance of the features.
    """

    def __init__(self, covariance: FloatArray) -> None:
        self.covariance = covariance
        d = len(covariance)
        self._index: dict[bytes, int] = {}
        self.gain = torch.empty((0, d, d))
        self.spread = torch.empty((0, d))

    def codes(self, masks: BoolArray) -> Tensor:
        """Positions of masks (n, d) in the table, which grows by those it has not met."""
        if len(self._index) > LIMIT:
            self._index, self.gain, self.spread = {}, self.gain[:0], self.spread[:0]
        keys = [row.tobytes() for row in np.ascontiguousarray(masks)]
        fresh = {key: mask for key, mask in zip(keys, masks, strict=True) if key not in self._index}
        if fresh:
            rows = np.stack(list(fresh.values()))
            parts = condition(self.covariance[None], rows)
            spread = np.sqrt(np.square(parts.factor[0]).sum(-1)) + rows
            for key in fresh:
                self._index[key] = len(self._index)
            self.gain = torch.cat([self.gain, torch.as_tensor(parts.gain[0], dtype=torch.float32)])
            self.spread = torch.cat([self.spread, torch.as_tensor(spread, dtype=torch.float32)])
        return torch.as_tensor([self._index[key] for key in keys])
