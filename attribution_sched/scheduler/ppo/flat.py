"""A single-level agent: masked PPO on any batched Gymnasium environment with one discrete choice per step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from attribution_sched.errors import ModelFitError, SettingsError, problem
from attribution_sched.scheduler.ppo.collect import Collector, Steps, checked_observation, reward_components
from attribution_sched.scheduler.ppo.gae import gae
from attribution_sched.scheduler.ppo.policy import FlatPolicy
from attribution_sched.scheduler.ppo.scale import ReturnScale
from attribution_sched.scheduler.ppo.settings import PpoSettings
from attribution_sched.scheduler.ppo.update import Rollout, UpdateStats, update
from attribution_sched.threads import one_thread


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
        stagger: Keep the episodes of a cluster environment from running in step (``stagger``).
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
        """Write everything a later run needs to go on exactly as this one would; see ``flat_checkpoint``."""
        from attribution_sched.scheduler.ppo.flat_checkpoint import save_agent

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
        from attribution_sched.scheduler.ppo.flat_checkpoint import load_agent

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
