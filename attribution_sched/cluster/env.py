"""Gymnasium environments of the world: one cluster, one decision per step.

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
``device·16 + precision·4 + batch level``; every action that the mask allows is carried out.

Reward: ``w_eff·R_eff + w_util·R_util − w_cost·R_cost``. CrossDomain pays it for work: every step of a
running task pays R times the baseline's step time in hours (and −1 of R_eff per hour while a task waits or moves), so
that finishing sooner never pays less; Testbed pays a decision's own R at once. ``info`` has
``action_mask``, ``reward_terms``, ``decision`` (the decision's own terms and its code), ``r_high``, ``r_low`` and
``totals``.

Start: an empty cluster; the first decision is the first arrival. End: never by itself; truncated at the horizon.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from attribution_sched.cluster.codecs import Codec, CrossDomainCodec, TestbedCodec
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.engine.state import CODES, DECISION_COLUMNS, TOTAL_COLUMNS
from attribution_sched.cluster.reward import r_high
from attribution_sched.cluster.world import World
from attribution_sched.types import Attributor, FloatArray

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
        named["outcome"] = CODES[int(decision[-1])]
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
