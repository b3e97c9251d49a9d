"""Rollouts from a batched environment that resets a finished cluster at its next step.

After an episode's end the environment shows its final observation (often without any allowed action); the next step
only resets. That step is played like the others, so that arrays stay rectangular, and marked as not valid.

A batch of clusters begun together would show a learner one time of day at once. So cluster e of E is restarted once,
between two rollouts, when the share (e + ½)/E of its first episode has passed (``Stagger``). From then on every rollout
holds all phases of an episode. No step is wasted and nothing is mistaken for an end: the rollout before the restart
bootstraps from the last observation it saw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.envs.env import ClusterVectorEnv
from attribution_sched.errors import ModelFitError, SettingsError, problem
from attribution_sched.scheduler.ppo.policy import ActorCritic
from attribution_sched.types import BoolArray, FloatArray


class Stagger:
    """Which clusters of an environment still have to be restarted.

    Args:
        env: A vector environment; one that is not of ``cluster.vector_env`` is left alone.
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


@dataclass(frozen=True)
class Steps:
    """T steps of E environments.

    Attributes:
        obs: Shape ``(T, E, *observation)``.
        mask: Shape ``(T, E, n)``; all True where a step is not valid.
        action: Shape ``(T, E)``.
        log_prob: Shape ``(T, E)``.
        values: Values before every step and after the last, shape ``(T + 1, E, C)``, in the policy's units.
        rewards: Components, shape ``(T, E, C)``.
        ended: Shape ``(T, E)``.
        truncated: Ends by time only, shape ``(T, E)``.
        valid: False for a step that only reset an environment, shape ``(T, E)``.
        reward_mean: Mean total reward of the valid steps.
    """

    obs: NDArray[np.float32]
    mask: BoolArray
    action: NDArray[np.int64]
    log_prob: NDArray[np.float32]
    values: NDArray[np.float32]
    rewards: FloatArray
    ended: BoolArray
    truncated: BoolArray
    valid: BoolArray
    reward_mean: float


def reward_components(env: Any) -> dict[str, float]:
    """Signed weights of the reward terms of one of the cluster environments; empty for any other environment."""
    world = getattr(getattr(env.unwrapped, "engine", None), "world", None)
    if world is None:
        return {}
    reward = world.reward
    return {"r_eff": reward.w_eff, "r_util": reward.w_util, "r_cost": -reward.w_cost}


class Collector:
    """Plays a policy in a batched environment and keeps its place between rollouts.

    Args:
        env: A Gymnasium vector environment with next-step autoreset and ``info["action_mask"]``.
        components: Signed weight of each entry of ``info["reward_terms"]`` in the reward; empty: the reward itself
            is the one component.
        seed: Seed of the environment's first reset.
        stagger: Keep the episodes of a cluster environment from running in step, see ``Stagger``.
    """

    def __init__(self, env: Any, components: Mapping[str, float], seed: int, stagger: bool = False) -> None:
        mode = env.metadata.get("autoreset_mode")
        if mode != gym.vector.AutoresetMode.NEXT_STEP:
            fix = "Build the vector environment with autoreset_mode=AutoresetMode.NEXT_STEP"
            raise SettingsError(problem("env autoreset_mode", mode, "must be next-step", fix))
        self.env = env
        self.stagger = Stagger(env, stagger)
        self.components = dict(components)
        self.weights: FloatArray = np.array(list(components.values()) or [1.0])
        self.obs: NDArray[np.float32]
        self.mask: BoolArray
        self.over: BoolArray
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Begin episodes anew in every environment."""
        obs, info = self.env.reset(seed=seed)
        self.obs = checked_observation(obs, self.env.observation_space.shape)
        self.mask = self._mask(info)
        self.over = np.zeros(self.env.num_envs, dtype=np.bool_)

    def _mask(self, info: Mapping[str, Any]) -> BoolArray:
        shape = (self.env.num_envs, int(self.env.single_action_space.n))
        mask = info.get("action_mask")
        if mask is None or np.shape(mask) != shape:
            given = None if mask is None else np.shape(mask)
            fix = "Have the environment put one flag per action there"
            raise SettingsError(problem('info["action_mask"] shape', given, f"must be {shape}", fix))
        return np.asarray(mask, dtype=np.bool_)

    def _terms(self, reward: FloatArray, info: Mapping[str, Any]) -> FloatArray:
        if not self.components:
            return reward[:, None]
        given = info.get("reward_terms", {})
        missing = [name for name in self.components if name not in given]
        if missing:
            fix = f"The environment offers: {', '.join(given) or 'none'}"
            raise SettingsError(problem("components", missing, 'must be entries of info["reward_terms"]', fix))
        return np.stack([given[name] for name in self.components], axis=-1)

    def collect(self, policy: ActorCritic, steps: int, generator: torch.Generator) -> Steps:
        """Play ``steps`` steps in every environment."""
        envs, actions = self.mask.shape
        obs = np.empty((steps, *self.obs.shape), dtype=np.float32)
        mask = np.empty((steps, envs, actions), dtype=np.bool_)
        action = np.empty((steps, envs), dtype=np.int64)
        log_prob = np.empty((steps, envs), dtype=np.float32)
        values = np.empty((steps + 1, envs, len(self.weights)), dtype=np.float32)
        rewards = np.empty((steps, envs, len(self.weights)))
        total = np.empty((steps, envs))
        ended, truncated, valid = (np.empty((steps, envs), dtype=np.bool_) for _ in range(3))
        device = generator.device
        for t in range(steps):
            obs[t], mask[t], valid[t] = self.obs, self.mask, ~self.over
            mask[t, self.over] = True
            with torch.inference_mode():
                decided = policy.sample(
                    torch.from_numpy(obs[t]).to(device), torch.from_numpy(mask[t]).to(device), generator
                )
            action[t] = decided.action.cpu().numpy()
            log_prob[t], values[t] = decided.log_prob.cpu().numpy(), decided.values.cpu().numpy()
            seen, total[t], terminated, truncated[t], info = self.env.step(action[t])
            rewards[t] = self._terms(total[t], info)
            ended[t] = terminated | truncated[t]
            self.obs = checked_observation(seen, self.obs.shape)
            self.mask, self.over = self._mask(info), ended[t].copy()
        with torch.inference_mode():
            values[steps] = policy.values(torch.from_numpy(self.obs).to(device)).cpu().numpy()
        if not np.allclose((rewards @ self.weights)[valid], total[valid], rtol=1e-6, atol=1e-6):
            worst = float(np.abs((rewards @ self.weights - total)[valid]).max())
            rule = f"must add up to the reward; they miss it by up to {worst:.3g}"
            fix = "Give the weights the environment uses"
            raise SettingsError(problem("components", self.components, rule, fix))
        mean = float(total[valid].mean()) if valid.any() else float("nan")
        restarted = self.stagger.restart_due(self.over)
        if restarted is not None:
            self.obs, self.mask = checked_observation(restarted[0], self.obs.shape), restarted[1]
        return Steps(obs, mask, action, log_prob, values, rewards, ended, truncated, valid, mean)


def checked_observation(obs: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Observations as float32, or a ``ModelFitError`` if they have another shape or are not finite."""
    array = np.asarray(obs, dtype=np.float32)
    if array.shape != tuple(shape):
        fix = "Use the environment (preset) this agent was made for"
        raise ModelFitError(problem("observation.shape", array.shape, f"must be {tuple(shape)}", fix))
    if not np.isfinite(array).all():
        at = np.argwhere(~np.isfinite(array))[0].tolist()
        value = float(array[tuple(at)])
        fix = "Check the counters and readings it is made of"
        raise ModelFitError(problem(f"observation{at}", value, "must be finite", fix))
    return array
