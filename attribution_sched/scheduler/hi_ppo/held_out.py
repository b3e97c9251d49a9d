"""How good a network is: greedy decisions in episodes that nobody learns from, always the same ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import Attributor
from attribution_sched.cluster.world import World
from attribution_sched.errors import SettingsError, problem
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch, field_arrays, restore_field
from attribution_sched.scheduler.hi_ppo.decode import Actor
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork

FloatArray = NDArray[np.float64]

FIRST_SEED = 900_000
"""Episode i has this seed + i: above all seeds of training, below those of the arena, which begin at a million."""

MOST_EPISODES = 10_000


@dataclass(frozen=True)
class Measured:
    """Returns of the held-out episodes.

    Attributes:
        returns: One per episode, in order of their seeds.
    """

    returns: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def standard_error(self) -> float:
        """Of the mean; 0 with one episode, which says nothing about the spread."""
        n = len(self.returns)
        return float(np.std(self.returns, ddof=1) / np.sqrt(n)) if n > 1 else 0.0


class HeldOut:
    """Held-out episodes of a world, all played side by side.

    Args:
        world: The scheduling problem.
        episodes: How many.
        attributor: As :class:`~attribution_sched.scheduler.hi_ppo.cluster_batch.ClusterBatch` takes it.
        paces: Likewise.
    """

    def __init__(
        self, world: World, episodes: int, attributor: Attributor | None = None, paces: FloatArray | None = None
    ) -> None:
        if not 1 <= episodes <= MOST_EPISODES:
            rule = f"must lie in 1..{MOST_EPISODES}"
            raise SettingsError(problem("held-out episodes", episodes, rule, "Use for example 32"))
        self.episodes = episodes
        self._field = ClusterBatch(world, episodes, FIRST_SEED, attributor, "held-out", paces=paces)
        self._begin = field_arrays(self._field)

    def read_hours(self, network: HiPpoNetwork) -> None:
        """From now on, let attributions say how long tasks take, as a network reads them."""
        self._field.read_hours(network)

    def measure(self, network: HiPpoNetwork) -> Measured:
        """Play all episodes by the most probable choices of a network."""
        with one_thread():
            return self.play(NetworkActor(network, None))

    def play(self, chooser: Actor) -> Measured:
        """Play all episodes by whoever chooses."""
        field = self._field
        restore_field(field, self._begin)
        found = np.full(self.episodes, np.nan)
        while np.isnan(found).any():
            field.returns.clear()
            rows = np.flatnonzero(field.step(chooser).ended)
            # A cluster that is through before the others begins a second episode, which does not count.
            first = np.isnan(found[rows])
            found[rows[first]] = np.array(field.returns)[first]
        return Measured(tuple(float(value) for value in found))
