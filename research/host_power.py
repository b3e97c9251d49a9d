"""Power of the host: CPU package against load, and what a whole node draws at the wall.

    P(load) / P_max = i + (1 − i) · (1 − e^{−k·load}) / (1 − e^{−k})

concave in the load: the first busy cores cost most. Idle share ``i`` and curvature ``k`` are fitted to
five machines (``constants/host.json``); a node's idle power at the wall is a measured fact per system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attribution_sched.cluster.constants import load_constants
from attribution_sched.errors import SettingsError, nearest, problem


def load_curve(load: Any, idle_share: Any, curvature: Any) -> Any:
    """Package power over its maximum at a load in [0, 1]."""
    return idle_share + (1.0 - idle_share) * (1.0 - np.exp(-curvature * load)) / (1.0 - np.exp(-curvature))


def cpu_power_w(load: Any, max_w: Any) -> Any:
    """Package power in watts; broadcasts over arrays.

    Args:
        load: Share of the cores that are busy, in [0, 1].
        max_w: Package power with all cores busy (its TDP, unless measured).
    """
    if not (np.isfinite(load).all() and (np.asarray(load) >= 0).all() and (np.asarray(load) <= 1).all()):
        raise SettingsError(problem("cpu load", load, "must lie in [0, 1]", "Divide busy cores by cores"))
    law = load_constants("host")["cpu_power"]
    return max_w * load_curve(load, law["idle_share"], law["curvature"])


@dataclass(frozen=True)
class NodeFacts:
    """Measured wall power of one server.

    Attributes:
        name: System.
        gpus: GPUs in it.
        idle_wall_w: Lowest wall watts before a run; an upper bound of idle.
        load_wall_w: Lowest and highest mean wall watts over its benchmark runs.
    """

    name: str
    gpus: int
    idle_wall_w: float
    load_wall_w: tuple[float, float]

    @property
    def idle_share(self) -> float:
        """Idle over the highest load: what leaving the node on costs."""
        return self.idle_wall_w / self.load_wall_w[1]

    def host_idle_w(self, gpu_idle_w: float) -> float:
        """Idle watts of everything but the GPUs."""
        return max(0.0, self.idle_wall_w - self.gpus * gpu_idle_w)


def nodes() -> Mapping[str, NodeFacts]:
    """Every measured server by name."""
    rows = load_constants("host")["nodes"]["nodes"]
    return {
        name: NodeFacts(name, row["gpus"], row["idle_wall_w"], (row["load_wall_w_min"], row["load_wall_w_max"]))
        for name, row in rows.items()
    }


def node(name: str) -> NodeFacts:
    """Look a measured server up by name."""
    known = nodes()
    if name not in known:
        raise SettingsError(problem("node", name, "was not measured", nearest(name, known)))
    return known[name]
