"""Counters as an energy model sees them: as they are, on a log scale, and as ratios that physics cares about.

Power follows not only how many instructions retire but how: instructions per cycle and misses per instruction
tell a compute-bound second from a memory-bound one at equal cycle counts. The ratios are recognised by name
and are functions of the same row, so a prediction still depends on the user's counters alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attribution_sched.types import FloatArray

_RATIOS = (("instruction", "cycle"), ("miss", "instruction"), ("miss", "cycle"))


def ratio_pairs(names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Columns (numerator, denominator) worth dividing: IPC, misses per instruction, misses per cycle."""

    def find(word: str) -> int | None:
        hits = [j for j, name in enumerate(names) if word in name.lower()]
        return hits[0] if len(hits) == 1 else None

    pairs = ((find(top), find(bottom)) for top, bottom in _RATIOS)
    return tuple((a, b) for a, b in pairs if a is not None and b is not None and a != b)


@dataclass(frozen=True)
class CounterFeatures:
    """A fixed map from counters ``(n, d)`` to features; all its numbers come from the training rows.

    Attributes:
        pairs: Columns divided by one another.
        floor: Smallest denominator allowed per counter, ``(d,)``: a tiny share of its training mean.
        scale: Unit of each counter inside the logarithm, ``(d,)``: its training median.
        mean: Mean of each network feature over the training rows.
        spread: Standard deviation of each network feature, 1 where it is constant.
        low: Least standardised value seen in training; nothing is extrapolated below it.
        high: Greatest standardised value seen in training.
    """

    pairs: tuple[tuple[int, int], ...]
    floor: FloatArray
    scale: FloatArray
    mean: FloatArray
    spread: FloatArray
    low: FloatArray
    high: FloatArray

    @staticmethod
    def fit(x: FloatArray, names: Sequence[str]) -> CounterFeatures:
        """Learn scales from training rows.

        Args:
            x: Counters, ``(n, d)``.
            names: Counter names, from which ratios are recognised.
        """
        size = np.abs(x)
        middle = np.median(size, axis=0)
        scale = np.where(middle > 0, middle, np.maximum(size.mean(axis=0), 1e-12))
        floor = np.maximum(1e-6 * size.mean(axis=0), 1e-12)
        blank = np.zeros(0)
        raw = CounterFeatures(ratio_pairs(names), floor, scale, blank, blank, blank, blank)
        features = raw._wide(x)
        mean, spread = features.mean(axis=0), features.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        z = (features - mean) / spread
        return CounterFeatures(raw.pairs, floor, scale, mean, spread, z.min(axis=0), z.max(axis=0))

    def trees(self, x: FloatArray) -> FloatArray:
        """Features for trees, which ignore monotone scales: counters and ratios."""
        return np.column_stack([x, *self._ratios(x)])

    def network(self, x: FloatArray) -> FloatArray:
        """Standardised features for a network, held inside the range seen in training."""
        return np.asarray(np.clip((self._wide(x) - self.mean) / self.spread, self.low, self.high))

    def _ratios(self, x: FloatArray) -> list[FloatArray]:
        return [x[:, a] / np.maximum(x[:, b], self.floor[b]) for a, b in self.pairs]

    def _wide(self, x: FloatArray) -> FloatArray:
        logs = np.sign(x) * np.log1p(np.abs(x) / self.scale)
        ratios = self._ratios(x)
        return np.column_stack([x, logs, *ratios, *(np.log1p(1e3 * np.abs(r)) for r in ratios)])
