"""The world for Ray's RLlib: several agents, masks, and what was learnt as a scheduler (extra ``ray``).

    from ray.rllib.algorithms.ppo import PPOConfig
    from attribution_sched.cluster.envs.registration import make_agents, register_rllib
    from attribution_sched.rivals.rllib import masked, trained

    register_rllib()
    asked = {"preset": "cross-domain", "game": "levels"}
    config = masked(PPOConfig().environment("attribution_sched/Agents-v0", env_config=asked), "levels")
    algorithm = config.build_algo()
    algorithm.train()
    System("cross-domain", policy=trained(algorithm, make_agents(asked).game))

Games are those of :mod:`~attribution_sched.rivals.multi_agent`. ``masked`` gives every agent a network of its own
(all domains of the game ``domains`` share one) whose forbidden actions have no probability; it does the same for the
single agent of ``attribution_sched/CrossDomainPlans-v0`` and the like.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from attribution_sched.cluster.world import World
from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.rivals.candidate_env import PLAN_FEATURES, AgentPolicy, CandidateCluster
from attribution_sched.rivals.multi_agent import GAMES, MOST, AgentsGame, AgentsPolicy, Dialogue
from attribution_sched.types import Attributor, Float32Array

Shown = dict[str, Float32Array]


class ClusterAgentsEnv(MultiAgentEnv):
    """A cluster whose decisions are made by several agents.

    Args:
        world: The scheduling problem.
        attributor: Counters ``(n, 12)`` → attributions ``(n, 7)``; zeros without one.
        game: ``domains`` or ``levels``.
        seed: Of the first episode; the random streams of the cluster go on from there.
    """

    def __init__(
        self, world: World, attributor: Attributor | None = None, game: str = "levels", seed: int | None = None
    ) -> None:
        if game not in GAMES:
            raise SettingsError(problem("game", game, "is not one that is known", nearest(game, GAMES)))
        super().__init__()
        self.game: AgentsGame = GAMES[game](len(world.cluster), attributor)
        self.cluster = CandidateCluster(world, MOST)
        self.possible_agents = list(self.game.agents)
        self.agents = list(self.game.agents)
        box = gym.spaces.Box(-10.0, 10.0, (self.game.size,), np.float32)
        self.observation_spaces = dict.fromkeys(self.possible_agents, box)
        self.action_spaces = {agent: gym.spaces.Discrete(self.game.choices) for agent in self.possible_agents}
        self._seed = seed
        self._dialogue: Dialogue | None = None
        self._owed: dict[str, float] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Shown, dict[str, dict[str, Any]]]:
        """Begin an episode; without a seed the cluster's random streams go on."""
        seed, self._seed = (self._seed if seed is None else seed), None
        self.cluster.reset(seed)
        self._owed = dict.fromkeys(self.possible_agents, 0.0)
        shown, _ = self._next(self._open())
        return shown, {}

    def step(
        self, action_dict: dict[str, Any]
    ) -> tuple[Shown, dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Tell the agents' actions; who is asked next sees something, and is paid what has been earned meanwhile."""
        dialogue = self._dialogue
        if dialogue is None:
            return {}, {}, {"__all__": False}, {"__all__": True}, {}
        try:
            shown, over = dialogue.send({agent: int(action) for agent, action in action_dict.items()}), False
        except StopIteration as end:
            shown, over = self._next(self._carry_out(end.value))
        asked = self.possible_agents if over else list(shown)
        if over:
            # An episode that is cut off ends for all of them, with nothing to see.
            shown = {agent: np.zeros(self.game.size, dtype=np.float32) for agent in asked}
        rewards = {agent: self._owed[agent] for agent in asked}
        self._owed |= dict.fromkeys(asked, 0.0)
        return shown, rewards, {"__all__": False}, {"__all__": over}, {}

    def _open(self) -> bool:
        seen, plans = self.cluster.look()
        self._dialogue = None if seen is None else self.game.ask(seen, plans)
        return seen is None

    def _carry_out(self, plan: Any) -> bool:
        step = self.cluster.carry_out(plan)
        for agent in self.possible_agents:
            self._owed[agent] += step.reward
        return step.done or self._open()

    def _next(self, over: bool) -> tuple[Shown, bool]:
        """Go on to where an agent has something to choose."""
        while not over and self._dialogue is not None:
            try:
                return next(self._dialogue), False
            except StopIteration as end:
                over = self._carry_out(end.value)
        self._dialogue = None
        return {}, True


class MaskedModule(DefaultPPOTorchRLModule):  # type: ignore[misc, unused-ignore]
    """RLlib's own network of PPO; actions that the observation calls forbidden have no probability."""

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._masked(batch, super()._forward(batch, **kwargs))

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._masked(batch, super()._forward_train(batch, **kwargs))

    def _masked(self, batch: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
        logits = told[Columns.ACTION_DIST_INPUTS]
        features, choices = len(PLAN_FEATURES), logits.shape[-1]
        rows = batch[Columns.OBS][..., -choices * features :]
        allowed = rows[..., features - 1 :: features] > 0.5
        # Where nothing is allowed (the end of an episode) nothing is forbidden.
        allowed = allowed | ~allowed.any(-1, keepdim=True)
        told[Columns.ACTION_DIST_INPUTS] = torch.where(allowed, logits, torch.full_like(logits, -1e9))
        return told


def module_of(agent: str, *_: Any, **__: Any) -> str:
    """Which network plays an agent: all domains share one."""
    return "domains" if agent.startswith("domain_") else agent


def masked(config: Any, game: str | None = None) -> Any:
    """A PPO configuration whose networks respect masks.

    Args:
        config: Of :class:`ClusterAgentsEnv`, or of one of the environments with candidate plans.
        game: The game of the environment; None for a single agent.
    """
    if game is None:
        return config.rl_module(rl_module_spec=RLModuleSpec(module_class=MaskedModule))
    names = {"domains"} if game == "domains" else {"upper", "lower"}
    specs = {name: RLModuleSpec(module_class=MaskedModule) for name in names}
    return config.multi_agent(policies=names, policy_mapping_fn=module_of).rl_module(
        rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs)
    )


class _Greedy:
    """The most likely action of networks that were learnt."""

    def __init__(self, modules: Mapping[str, Any]) -> None:
        self.modules = modules

    def __call__(self, name: str, observation: Float32Array) -> int:
        with torch.no_grad():
            told = self.modules[name].forward_inference({Columns.OBS: torch.from_numpy(observation[None])})
        return int(told[Columns.ACTION_DIST_INPUTS][0].argmax())


def trained(
    algorithm: Any, game: AgentsGame | None = None, attributor: Attributor | None = None, name: str = "rllib"
) -> Any:
    """What an RLlib algorithm learnt, as a scheduler for ``System``, the arena and ``explain``.

    Args:
        algorithm: As built from :func:`masked`, trained.
        game: The game it learnt; None for a single agent.
        attributor: As in training, for a single agent.
        name: What tables call it.
    """
    if game is None:
        module = algorithm.get_module()
        choose, choices = _Greedy({"": module}), int(module.action_space.n)
        size = int(module.observation_space.shape[0])
        return AgentPolicy(lambda seen, _: choose("", seen), choices, attributor, name, size)
    choose = _Greedy({each: algorithm.get_module(each) for each in {module_of(agent) for agent in game.agents}})
    return AgentsPolicy(game, lambda agent, seen: choose(module_of(agent), seen), name)
