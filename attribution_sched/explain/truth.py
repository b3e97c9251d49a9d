"""What really follows: the simulator's own answer for a plan when inputs change."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.demands import DEMAND_NAMES, Demands, nominal_demands
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import TaskPool, World, build_pool
from attribution_sched.explain.background import Background
from attribution_sched.explain.players import Lineup
from attribution_sched.explain.targets import Simulated
from attribution_sched.types import FloatArray


class Simulator:
    """Knows what no policy may know of a simulated world: its tasks' latent demands.

    Args:
        world: The world.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._told: dict[bytes, FloatArray] = {}

    def know(self, counters: FloatArray, ratio: FloatArray) -> None:
        """Be told of a task that is not one of the world's own, such as one that was handed in.

        Args:
            counters: What was measured of it, shape ``(12,)``.
            ratio: Its demands over the nominal ones, shape ``(7,)``.
        """
        self._told[_key(counters)] = np.array(ratio, dtype=np.float64)

    @cached_property
    def pool(self) -> TaskPool:
        """The world's tasks."""
        return build_pool(self.world)

    def ratios(self, counters: FloatArray) -> FloatArray:
        """Demands over nominal demands ``(n, 7)`` of tasks known by their counters ``(n, 12)``; 1 for unknown ones."""
        known = dict(zip(map(_key, self.pool.counters.values), self.pool.demands.ratio, strict=True)) | self._told
        found = np.ones((len(counters), len(DEMAND_NAMES)))
        for row, values in enumerate(counters):
            found[row] = known.get(_key(values), found[row])
        return found

    def target(
        self,
        view: Decision,
        plans: tuple[Plan | None, ...],
        weights: FloatArray,
        cast: Lineup,
        background: Background,
    ) -> Simulated:
        """The plan's own terms in this world."""
        nominal, seconds = nominal_demands(view.kind.model, training=view.kind.training)

        def factors(ratio: FloatArray) -> FloatArray:
            n = len(ratio)
            return Demands(nominal * ratio, np.tile(nominal, (n, 1)), np.tile(seconds, (n, 1))).factors

        at = {name: i for i, name in enumerate(cast.names)}
        players = np.array([at.get(f"attribution {name}", -1) for name in DEMAND_NAMES])
        own, others = self.ratios(view.counters[None])[0], self.ratios(background.counters)
        return Simulated(view, plans, weights, factors, own, others, players)


def _key(counters: FloatArray) -> bytes:
    return np.ascontiguousarray(counters, dtype=np.float64).tobytes()
