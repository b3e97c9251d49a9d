"""The layouts a segment may have inside its domain: (dp, tp, pp) in powers of two, alone or sharing devices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.cluster.domains import Cluster

IntArray = NDArray[np.int64]

MAX_PP = 8
"""Most pipeline stages inside a domain."""


def layout_table(cluster: Cluster, sharing: bool, max_pp: int = MAX_PP) -> IntArray:
    """List every layout that fits the largest domain, shape ``(n_layouts, 4)``: dp, tp, pp, share.

    Args:
        cluster: The cluster.
        sharing: Whether devices may hold two tasks; adds a sharing twin of every layout.
        max_pp: Most pipeline stages inside a domain.
    """
    largest = max(domain.devices for domain in cluster.domains)
    node = max(domain.node_devices for domain in cluster.domains)
    powers = [2**i for i in range(int(np.log2(largest)) + 1)]
    rows = [
        (dp, tp, pp, share)
        for share in range(2 if sharing else 1)
        for tp in TP_DEGREES
        for pp in powers
        for dp in powers
        if dp * tp * pp <= largest and tp <= node and pp <= max_pp
    ]
    return np.array(rows, dtype=np.int64)
