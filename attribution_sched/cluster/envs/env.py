"""Gymnasium environments of the world, one decision per step: one cluster, or hundreds in one array operation.

``attribution_sched/CrossDomain-v0`` (K domains, P = most segments of a plan)

| observation | shape | range | content |
|---|---|---|---|
| domains | (K, 20) | [0, 1] | 4 groups × GPU, memory use; CPU; 4 × memory, 4 × PCIe rate; power, queue, budget |
| links | (3, K, K) | ≥ 0 | bandwidth Gb/s, latency s, price USD/GB |
| task | (5,) | [0, 2] | type, log size, two input sizes, batch |
| event | (6,) | [−1, 1] | place?, re-plan?, sine and cosine of the hour, log steps left, waited |
| plan | (P, 6) | ≥ −1 | plan in force: domain, stop, dp, tp, pp, precision |
| counters | (12,) | ≥ 0 | what was measured of the task |
| attribution | (7,) | [−1, 1] | its seven attributions, the very numbers that `System` gives a policy |

Action: ``MultiDiscrete`` of P × (domain or K = end, one past the last layer, layout, precision, batch level). A
segment that stops at the last layer closes a replica; the next one opens another. Ending at once defers the
task, or keeps the plan in force.

``attribution_sched/Testbed-v0``: observation of 32 numbers (20 system, 5 task, 7 attributions), 64 actions:
``device·16 + precision·4 + batch level``; a device in use is shared. Every action that the mask allows is carried out.

Reward: ``w_eff·R_eff + w_util·R_util − w_cost·R_cost``, paid for work: every step of a running task pays R times the
baseline's step time in hours (minutes on the testbed), and −1 of R_eff per hour while a task waits or moves, so that
finishing sooner never pays less and harm to a neighbour is paid for. ``info`` has
``action_mask``, ``reward_terms``, ``decision`` (the decision's own terms and its code), ``r_high``, ``r_low`` and
``totals``.

Start: an empty cluster; the first decision is the first arrival. End: never by itself; truncated at the horizon.

The batched twin: cluster ``i`` of ``reset(seed=s)`` follows exactly the path of a single environment with
``reset(seed=s + i)`` and the same actions. A cluster whose episode ended is reset by the next call of ``step``
(its action is ignored and its reward is 0), as Gymnasium's next-step autoreset has it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from attribution_sched.cluster.codecs import Codec, CrossDomainCodec, TestbedCodec
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.engine.state import CODES, D_CODE, DECISION_COLUMNS, TOTAL_COLUMNS
from attribution_sched.cluster.reward import r_high
from attribution_sched.cluster.world import World
from attribution_sched.types import Attributor, BoolArray, FloatArray

TERM_NAMES: tuple[str, ...] = ("r_eff", "r_util", "r_cost")
"""Reward terms, before weighting."""


class ClusterEnv(gym.Env[Any, Any]):
    """One cluster behind a codec; see the module for what is observed, done and rewarded."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.engine = codec.engine
        self.observation_space = codec.observation_space
        self.action_space = codec.action_space
        self._everything = np.ones(1, dtype=np.bool_)
        self.engine.seed([0])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; a seed restarts the cluster's random streams, none lets them go on."""
        super().reset(seed=seed)
        self.engine.seed([seed])
        self.engine.reset()
        _, terms = self.codec.settle(self._everything)
        state = self.engine.state
        info = self._info(terms[0], state.outcome[0, : st.INTEGRALS].copy(), state.r_low[0].copy())
        return self._observation(), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Decide once and run to the next decision."""
        actions, devices = self.codec.decode(np.asarray(action)[None])
        rewards, terms = self.engine.step(actions, devices)
        state = self.engine.state
        decision, r_low = state.outcome[0, : st.INTEGRALS].copy(), state.r_low[0].copy()
        more, more_terms = self.codec.settle(self._everything)
        info = self._info(terms[0] + more_terms[0], decision, r_low)
        return self._observation(), float(rewards[0] + more[0]), False, bool(state.event[0, st.DONE]), info

    def _observation(self) -> Any:
        seen = self.codec.observe()
        if isinstance(seen, dict):
            return {name: value[0] for name, value in seen.items()}
        return seen[0]

    def _info(self, terms: FloatArray, decision: FloatArray, r_low: FloatArray) -> dict[str, Any]:
        state = self.engine.state
        named: dict[str, Any] = {name: float(decision[c]) for c, name in enumerate(DECISION_COLUMNS)}
        named["outcome"] = CODES[int(decision[D_CODE])]
        return {
            "action_mask": self.codec.masks()[0],
            "reward_terms": {name: float(terms[c]) for c, name in enumerate(TERM_NAMES)},
            "decision": named,
            "r_high": float(r_high(decision[st.D_EFF], decision[st.D_COST], *self.engine.weights[0, [0, 2]])),
            "r_low": r_low,
            "time_s": float(state.clock[0, st.NOW]),
            "totals": {name: float(state.totals[0, c]) for c, name in enumerate(TOTAL_COLUMNS)},
        }


class CrossDomainEnv(ClusterEnv):
    """A cross-domain cluster.

    Args:
        world: The scheduling problem.
        attributor: Counters ``(n, 12)`` → attributions ``(n, 7)``; zeros without one.
            The registered environments have the default of ``System``.
    """

    def __init__(self, world: World, attributor: Attributor | None = None) -> None:
        super().__init__(CrossDomainCodec(Engine(world), attributor))


class TestbedEnv(ClusterEnv):
    """One node of four devices.

    Args:
        world: A world of one domain with four devices.
        attributor: Counters ``(n, 12)`` → attributions ``(n, 7)``; zeros without one.
            The registered environments have the default of ``System``.
    """

    __test__ = False

    def __init__(self, world: World, attributor: Attributor | None = None) -> None:
        super().__init__(TestbedCodec(Engine(world), attributor))


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
