"""The batched twin of the environments: hundreds of clusters in one array operation.

Cluster ``i`` of ``reset(seed=s)`` follows exactly the path of a single environment with ``reset(seed=s + i)`` and
the same actions. A cluster whose episode ended is reset by the next call of ``step`` (its action is ignored and its
reward is 0), as Gymnasium's next-step autoreset has it.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from attribution_sched.cluster.codecs import Codec, CrossDomainCodec, TestbedCodec
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.engine.state import DECISION_COLUMNS
from attribution_sched.cluster.env import TERM_NAMES
from attribution_sched.cluster.reward import r_high
from attribution_sched.cluster.world import World
from attribution_sched.types import Attributor, BoolArray, FloatArray


class ClusterVectorEnv(gym.vector.VectorEnv[Any, Any, Any]):
    """Many clusters behind one codec.

    Args:
        codec: Its engine holds the clusters.
    """

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.engine = codec.engine
        self.num_envs = self.engine.clusters
        self.single_observation_space = codec.observation_space
        self.single_action_space = codec.action_space
        self.observation_space = gym.vector.utils.batch_space(codec.observation_space, self.num_envs)
        self.action_space = gym.vector.utils.batch_space(codec.action_space, self.num_envs)
        self.metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}
        self.engine.seed(range(self.num_envs))
        self._over = np.zeros(self.num_envs, dtype=np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode everywhere; an integer seed gives cluster i the seed ``seed + i``."""
        if isinstance(seed, int | np.integer):
            self.engine.seed([int(seed) + i for i in range(self.num_envs)])
        elif seed is not None:
            self.engine.seed(seed)
        self.engine.reset()
        self._over[:] = False
        _, terms = self.codec.settle(~self._over)
        state = self.engine.state
        return self.codec.observe(), self._info(terms, state.outcome[:, : st.INTEGRALS].copy(), state.r_low.copy())

    def step(self, actions: Any) -> tuple[Any, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Decide once in every cluster and run each to its next decision."""
        rows, devices = self.codec.decode(actions)
        active = ~self._over
        rewards, terms = self.engine.step(rows, devices, active)
        state = self.engine.state
        decision, r_low = state.outcome[:, : st.INTEGRALS].copy(), state.r_low.copy()
        if self._over.any():
            self.engine.reset(self._over)
        more, more_terms = self.codec.settle(np.ones(self.num_envs, dtype=np.bool_))
        rewards += np.where(active, more, 0.0)
        terms += np.where(active[:, None], more_terms, 0.0)
        # A cluster that was reset now reports its end with its next step, even if nothing arrives at all.
        truncated = active & (state.event[:, st.DONE] == 1)
        self._over = truncated.copy()
        info = self._info(terms, decision, r_low)
        return self.codec.observe(), rewards, np.zeros(self.num_envs, dtype=np.bool_), truncated, info

    def _info(self, terms: FloatArray, decision: FloatArray, r_low: FloatArray) -> dict[str, Any]:
        state = self.engine.state
        return {
            "action_mask": self.codec.masks(),
            "reward_terms": {name: terms[:, c] for c, name in enumerate(TERM_NAMES)},
            "decision": {name: decision[:, c] for c, name in enumerate(DECISION_COLUMNS)},
            "r_high": r_high(decision[:, st.D_EFF], decision[:, st.D_COST], *self.engine.weights[:, [0, 2]].T),
            "r_low": r_low,
            "time_s": state.clock[:, st.NOW].copy(),
            "totals": self.engine.totals(),
        }


class CrossDomainVectorEnv(ClusterVectorEnv):
    """Batched twin of ``CrossDomainEnv``.

    Args:
        world: The scheduling problem.
        num_envs: Number of clusters.
        attributor: Counters ``(n, 12)`` → attributions ``(n, 7)``; zeros without one.
            The registered environments have the default of ``System``.
    """

    def __init__(self, world: World, num_envs: int, attributor: Attributor | None = None) -> None:
        super().__init__(CrossDomainCodec(Engine(world, num_envs), attributor))


class TestbedVectorEnv(ClusterVectorEnv):
    """Batched twin of ``TestbedEnv``.

    Args:
        world: A world of one domain with four devices.
        num_envs: Number of clusters.
        attributor: Counters ``(n, 12)`` → attributions ``(n, 7)``; zeros without one.
            The registered environments have the default of ``System``.
    """

    __test__ = False

    def __init__(self, world: World, num_envs: int, attributor: Attributor | None = None) -> None:
        super().__init__(TestbedCodec(Engine(world, num_envs), attributor))
