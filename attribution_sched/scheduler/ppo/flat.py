"""A single-level agent: masked PPO on any batched Gymnasium environment with one discrete choice per step.

Saved are weights, Adam, generator, scale, counters and the state of its clusters: an agent on a cluster environment
goes on bit by bit as if it had never stopped. The state of any other environment is not known: such a run goes on in
episodes begun anew from a seed made of the agent's seed and its rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from attribution_sched.errors import CheckpointError, ModelFitError, SettingsError, problem
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.ppo.collect import Collector, Steps, checked_observation, reward_components
from attribution_sched.scheduler.ppo.policy import FlatPolicy
from attribution_sched.scheduler.ppo.ppo import ReturnScale, Rollout, UpdateStats, gae, update
from attribution_sched.scheduler.ppo.run_state import (
    env_arrays,
    generator_array,
    module_arrays,
    optimiser_arrays,
    restore_env,
    restore_generator,
    restore_module,
    restore_optimiser,
)
from attribution_sched.scheduler.ppo.settings import PpoSettings
from attribution_sched.storage import Arrays, read, rebuilding, take, write


@dataclass(frozen=True)
class Progress:
    """One rollout and its update.

    Attributes:
        steps: Environment steps so far, over all environments.
        reward_mean: Mean reward per decision of the rollout.
        stats: What the update did.
    """

    steps: int
    reward_mean: float
    stats: UpdateStats


class FlatAgent:
    """Masked PPO with one value per reward component.

    Args:
        env: Gymnasium vector environment with next-step autoreset, a Box observation, Discrete actions and
            ``info["action_mask"]``.
        settings: Hyper-parameters; ``num_steps`` is shared out over the environments.
        seed: Decides weights, draws, minibatches and the environment's episodes.
        components: Signed weights of ``info["reward_terms"]``; read off the cluster environments, elsewhere the
            reward is the one component.
        policy: Any module with ``sample``, ``evaluate`` and ``values`` (``policy.ActorCritic``); the default is
            ``FlatPolicy``.
        device: Where the network lives.
        bootstrap: False treats every end of an episode as a true one (for comparison only).
        stagger: Keep the episodes of a cluster environment from running in step (``collect.Stagger``).
    """

    def __init__(
        self,
        env: Any,
        settings: PpoSettings | None = None,
        seed: int = 0,
        components: Mapping[str, float] | None = None,
        policy: nn.Module | None = None,
        device: str = "cpu",
        bootstrap: bool = True,
        stagger: bool = True,
    ) -> None:
        self.settings = settings or PpoSettings()
        self.seed = seed
        self.bootstrap = bootstrap
        self.steps = 0
        self.rollouts = 0
        self.observation_shape, self.actions = _spaces(env)
        if self.settings.num_steps % env.num_envs:
            rule = f"must be a multiple of the {env.num_envs} environments"
            raise SettingsError(problem("ppo.num_steps", self.settings.num_steps, rule, "Change one of the two"))
        self.generator = torch.Generator(device).manual_seed(seed)
        weights = reward_components(env) if components is None else dict(components)
        self.collector = Collector(env, weights, seed, stagger)
        count = len(self.collector.weights)
        if policy is None:
            start = torch.Generator().manual_seed(seed)
            policy = FlatPolicy(int(np.prod(self.observation_shape)), self.actions, count, start)
        self.policy: Any = policy.to(device)
        self.scale = ReturnScale(count)
        self.optimiser = torch.optim.Adam(self.policy.parameters(), lr=self.settings.lr, eps=1e-5, fused=True)

    @one_thread()
    def train(self, total_steps: int, progress: Callable[[Progress], bool | None] | None = None) -> None:
        """Learn until ``total_steps`` environment steps have been played in all.

        Args:
            total_steps: Over all environments and since the agent was made; the last rollout is played whole.
            progress: Called after every rollout; returning True ends the training.
        """
        each = self.settings.num_steps // self.collector.env.num_envs
        while self.steps < total_steps:
            played = self.collector.collect(self.policy, each, self.generator)
            stats = self._learn(played)
            self.steps += self.settings.num_steps
            self.rollouts += 1
            if progress is not None and progress(Progress(self.steps, played.reward_mean, stats)):
                return

    def _learn(self, played: Steps) -> UpdateStats:
        settings = self.settings
        values = self.scale.to_units(played.values)
        # The observation after the last step of an episode is its final one: its value stands for what was cut off.
        final = values[1:] * played.truncated[:, :, None] if self.bootstrap else None
        advantages, returns = gae(
            played.rewards, values, played.ended, final, settings.gamma, settings.gae_lambda, valid=played.valid
        )
        kept = played.valid
        self.scale.add(returns[kept])
        device = self.generator.device

        def tensor(array: NDArray[Any]) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        obs, mask, action = (tensor(array[kept]) for array in (played.obs, played.mask, played.action))
        rollout = Rollout(
            tensor(played.log_prob[kept]),
            tensor((advantages[kept] @ self.collector.weights).astype(np.float32)),
            tensor(self.scale.from_units(returns[kept]).astype(np.float32)),
            tensor(self.scale.from_units(values[:-1][kept]).astype(np.float32)),
        )
        return update(
            lambda rows: self.policy.evaluate(*(part.index_select(0, rows) for part in (obs, mask, action))),
            rollout,
            self.policy.parameters(),
            self.optimiser,
            settings,
            self.generator,
        )

    @one_thread()
    def act(self, obs: Any, mask: Any, deterministic: bool = True) -> NDArray[np.int64]:
        """Decide for one observation or a batch of them.

        Args:
            obs: Shape ``(*observation)`` or ``(b, *observation)``.
            mask: True where an action is allowed, shape ``(n,)`` or ``(b, n)``.
            deterministic: Take the most probable action instead of drawing one.

        Returns:
            Actions, shape ``()`` or ``(b,)``.
        """
        flags = np.asarray(mask, dtype=np.bool_)
        lead = flags.shape[:-1]
        if len(lead) > 1 or flags.shape[-1:] != (self.actions,):
            rule = f"must end in the {self.actions} actions"
            raise ModelFitError(problem("mask.shape", flags.shape, rule, "Give one flag per action"))
        seen = checked_observation(obs, (*lead, *self.observation_shape))
        device = self.generator.device
        with torch.inference_mode():
            decided = self.policy.sample(
                torch.from_numpy(seen.reshape(-1, *self.observation_shape)).to(device),
                torch.from_numpy(flags.reshape(-1, self.actions)).to(device),
                None if deterministic else self.generator,
            )
        action: NDArray[np.int64] = decided.action.cpu().numpy().reshape(lead)
        return action

    def save(self, path: str | Path) -> None:
        """Write everything a later run needs to go on exactly as this one would."""
        save_agent(self, path)

    @classmethod
    def load(cls, path: str | Path, env: Any, policy: nn.Module | None = None, device: str = "cpu") -> Self:
        """Read an agent back.

        Args:
            path: File written by ``save``.
            env: An environment like the one it was saved with.
            policy: A module like the one it was saved with; not needed for ``FlatPolicy``.
            device: Where the network lives.
        """
        return load_agent(cls, path, env, policy, device)


def _spaces(env: Any) -> tuple[tuple[int, ...], int]:
    """Shape of an observation and number of actions; other kinds of spaces are refused."""
    seen, done = env.single_observation_space, env.single_action_space
    if not isinstance(seen, gym.spaces.Box):
        raise SettingsError(problem("env.observation_space", seen, "must be a Box", "Wrap it with FlattenObservation"))
    if not isinstance(done, gym.spaces.Discrete) or done.start != 0:
        fix = "Use an agent made for this action space"
        raise SettingsError(problem("env.action_space", done, "must be Discrete and begin at 0", fix))
    return tuple(seen.shape), int(done.n)


KIND = "flat-ppo"

PLACE = ("env.", "place.")
"""Where the clusters stand: their clocks may well be infinite or not yet set, weights may not."""

Agent = TypeVar("Agent", bound="FlatAgent")


def save_agent(agent: FlatAgent, path: str | Path) -> None:
    """Write an agent, complete or not at all."""
    collector, clusters = agent.collector, env_arrays(agent.collector.env)
    header = {
        "actions": agent.actions,
        "bootstrap": agent.bootstrap,
        "clusters": clusters is not None,
        "components": list(collector.components.items()),  # a list: the order is that of the value heads
        "hidden": agent.policy.hidden if isinstance(agent.policy, FlatPolicy) else None,
        "num_envs": collector.env.num_envs,
        "observation_shape": agent.observation_shape,
        "policy": type(agent.policy).__name__,
        "rollouts": agent.rollouts,
        "scale_rollouts": agent.scale.rollouts,
        "seed": agent.seed,
        "settings": asdict(agent.settings),
        "steps": agent.steps,
    }
    arrays: Arrays = {
        **module_arrays(agent.policy, "policy."),
        **optimiser_arrays(agent.optimiser, "adam."),
        "generator": generator_array(agent.generator),
        "scale.mean": agent.scale.mean,
        "scale.deviation": agent.scale.deviation,
        "place.obs": collector.obs,
        "place.mask": collector.mask,
        "place.over": collector.over,
        "place.waiting": collector.stagger.waiting,
        **{f"env.{name}": array for name, array in (clusters or {}).items()},
    }
    write(path, KIND, header, arrays, any_number=PLACE)


def load_agent(kind: type[Agent], path: str | Path, env: Any, policy: nn.Module | None, device: str) -> Agent:
    """Read an agent back; see ``FlatAgent.load``."""
    header, arrays = read(path, KIND, any_number=PLACE)
    with rebuilding(path, "flat agent"):
        _fits(header, env, policy)
        settings = PpoSettings(**header["settings"])
        if policy is None:
            inputs, components = int(np.prod(header["observation_shape"])), max(1, len(header["components"]))
            start = torch.Generator().manual_seed(0)
            policy = FlatPolicy(inputs, header["actions"], components, start, tuple(header["hidden"]))
        agent = kind(env, settings, header["seed"], dict(header["components"]), policy, device, header["bootstrap"])
        restore_module(agent.policy, take(arrays, "policy."))
        restore_optimiser(agent.optimiser, take(arrays, "adam."))
        restore_generator(agent.generator, arrays["generator"])
        agent.scale.mean, agent.scale.deviation = arrays["scale.mean"].copy(), arrays["scale.deviation"].copy()
        agent.scale.rollouts = header["scale_rollouts"]
        agent.steps, agent.rollouts = header["steps"], header["rollouts"]
        if header["clusters"]:
            restore_env(env, take(arrays, "env."))
            place = take(arrays, "place.")
            agent.collector.obs, agent.collector.mask = place["obs"].copy(), place["mask"].copy()
            agent.collector.over, agent.collector.stagger.waiting = place["over"].copy(), place["waiting"].copy()
        else:
            words = np.random.SeedSequence([agent.seed, agent.rollouts]).generate_state(1)
            agent.collector.begin(int(words[0]))
    return agent


def _fits(header: dict[str, Any], env: Any, policy: nn.Module | None) -> None:
    """The environment and the module offered are like those the agent was saved with."""
    shape = tuple(header["observation_shape"])
    offered = {
        "observation_shape": (tuple(env.single_observation_space.shape or ()), shape),
        "actions": (int(getattr(env.single_action_space, "n", 0)), header["actions"]),
        "num_envs": (env.num_envs, header["num_envs"]),
        "policy": (FlatPolicy.__name__ if policy is None else type(policy).__name__, header["policy"]),
    }
    for name, (given, stored) in offered.items():
        if given != stored:
            fix = "Load it with the environment and policy it was saved with"
            raise CheckpointError(problem(f"{name}", given, f"the checkpoint has {stored!r}", fix))
