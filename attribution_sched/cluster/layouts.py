"""The layouts a segment may have inside its domain: (dp, tp, pp) in powers of two, alone or sharing devices."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.cluster.domains import Cluster

IntArray = NDArray[np.int64]

MAX_PP = 8
"""Most pipeline stages inside a domain."""


@lru_cache(maxsize=256)
def layouts_within(devices: int, node: int) -> tuple[tuple[int, int, int], ...]:
    """All (dp, tp, pp) in powers of two that use at most ``devices``, with at most ``node`` tensor ranks."""
    powers = [2**i for i in range(devices.bit_length())]
    return tuple(
        (dp, tp, pp)
        for tp in TP_DEGREES
        for pp in powers
        for dp in powers
        if dp * tp * pp <= devices and tp <= node and pp <= MAX_PP
    )


def layout_table(cluster: Cluster, sharing: bool) -> IntArray:
    """List every layout that fits the largest domain, shape ``(n_layouts, 4)``: dp, tp, pp, share.

    Args:
        cluster: The cluster.
        sharing: Whether devices may hold two tasks; adds a sharing twin of every layout.
    """
    largest = max(domain.devices for domain in cluster.domains)
    node = max(domain.node_devices for domain in cluster.domains)
    rows = [(*layout, share) for share in range(2 if sharing else 1) for layout in layouts_within(largest, node)]
    return np.array(rows, dtype=np.int64)
