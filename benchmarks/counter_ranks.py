"""Ranks of the raw counters, a stand-in for attributions in comparisons: what a policy could see without any model."""

from __future__ import annotations

from attribution_sched.types import FloatArray


def counter_ranks(counters: FloatArray) -> FloatArray:
    """Ranks in [0, 1] of the seven counters among the rows of ``counters`` ``(n, 12)``, shape ``(n, 7)``."""
    seven = counters[:, :7]
    ranks: FloatArray = seven.argsort(axis=0).argsort(axis=0) / max(1, len(seven) - 1)
    return ranks
