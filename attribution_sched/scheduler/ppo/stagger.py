"""Episodes that do not run in step: a batch of clusters begun together would show a learner one time of day at once.

Cluster e of E is restarted once, between two rollouts, when the share (e + ½)/E of its first episode has passed.
From then on every rollout holds all phases of an episode. No step is wasted and nothing is mistaken for an end: the
rollout before the restart bootstraps from the last observation it saw.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.env import ClusterVectorEnv

BoolArray = NDArray[np.bool_]


class Stagger:
    """Which clusters of an environment still have to be restarted.

    Args:
        env: A vector environment; one that is not of ``cluster.env`` is left alone.
        wanted: False leaves every environment alone.
    """

    def __init__(self, env: Any, wanted: bool = True) -> None:
        inner = env.unwrapped
        self._env = inner if isinstance(inner, ClusterVectorEnv) else None
        self.waiting: BoolArray = np.full(env.num_envs, wanted and self._env is not None)
        self._share = (np.arange(env.num_envs) + 0.5) / env.num_envs

    def restart_due(self, over: BoolArray) -> tuple[Any, BoolArray] | None:
        """Restart the clusters whose time has come.

        Args:
            over: Clusters whose episode just ended, shape ``(E,)``: they begin anew by themselves.

        Returns:
            New observations and masks of all clusters, or None if nothing was restarted.
        """
        self.waiting &= ~over
        if self._env is None or not self.waiting.any():
            return None
        engine = self._env.engine
        passed = engine.state.clock[:, st.NOW] / engine.world.horizon_s
        due: BoolArray = self.waiting & (passed >= self._share)
        if not due.any():
            return None
        self.waiting &= ~due
        engine.reset(due)
        self._env.codec.settle(due)
        return self._env.codec.observe(), self._env.codec.masks()
