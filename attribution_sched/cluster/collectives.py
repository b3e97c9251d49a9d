"""Collectives: ring all-reduce inside a domain and across domains.

A ring all-reduce of V bytes over n ranks moves ``2·(n−1)/n·V`` bytes through every rank's link in
``2·(n−1)`` rounds::

    T = 2·(n−1)/n · V / bandwidth + 2·(n−1) · latency
"""

from __future__ import annotations

from attribution_sched.kernels import kernel


@kernel
def ring_all_reduce_s(ranks: float, volume_bytes: float, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Seconds of a ring all-reduce; 0 for a single rank."""
    if ranks <= 1:
        return 0.0
    return float(2.0 * (ranks - 1.0) / ranks * volume_bytes / bandwidth_bytes_per_s + 2.0 * (ranks - 1.0) * latency_s)


@kernel
def ring_sent_bytes(ranks: float, volume_bytes: float) -> float:
    """Bytes each rank sends to its successor in a ring all-reduce."""
    if ranks <= 1:
        return 0.0
    return float(2.0 * (ranks - 1.0) / ranks * volume_bytes)
