"""Small batched environments with known answers, next-step autoreset and strict masks."""

import gymnasium as gym
import numpy as np

from attribution_sched.scheduler.ppo.settings import PpoSettings

QUICK = PpoSettings(lr=3e-3, gamma=0.9, num_steps=512, update_epochs=4, minibatch_size=128, target_kl=None)


class Toy(gym.vector.VectorEnv):
    """Episodes of ``length`` steps; a subclass says what is seen, allowed and earned.

    After an end the mask forbids everything, as where there is nothing to decide, and the next step only resets.
    A forbidden action in a running episode is an error.
    """

    actions, inputs, length = 4, 4, 10

    def __init__(self, num_envs=16):
        self.num_envs = num_envs
        self.single_observation_space = gym.spaces.Box(-10.0, 10.0, (self.inputs,), np.float32)
        self.single_action_space = gym.spaces.Discrete(self.actions)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)
        self.metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}
        self.resets = 0

    def reset(self, *, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.clock = np.zeros(self.num_envs, dtype=np.int64)
        self.over = np.zeros(self.num_envs, dtype=bool)
        self.state = self.rng.integers(0, self.inputs, self.num_envs)
        return self.look(), {"action_mask": self.allowed()}

    def look(self):
        return np.eye(self.inputs, dtype=np.float32)[self.state]

    def allowed(self):
        self.mask = self.rng.random((self.num_envs, self.actions)) < 0.5
        self.mask[np.arange(self.num_envs), self.state % self.actions] = True
        self.mask[self.over] = False
        return self.mask.copy()

    def earn(self, action):
        return (action == self.state % self.actions).astype(np.float64)

    def ends(self, action):
        """Terminated and truncated."""
        return np.zeros(self.num_envs, dtype=bool), self.clock >= self.length

    def step(self, action):
        fresh = self.over.copy()
        if not self.mask[np.arange(self.num_envs), action][~fresh].all():
            raise AssertionError("a forbidden action was taken")
        self.resets += int(fresh.sum())
        reward = np.where(fresh, 0.0, self.earn(action))
        self.clock = np.where(fresh, 0, self.clock + 1)
        terminated, truncated = (flags & ~fresh for flags in self.ends(action))
        self.over = terminated | truncated
        self.state = self.rng.integers(0, self.inputs, self.num_envs)
        return self.look(), reward, terminated, truncated, {"action_mask": self.allowed()}


class Identity(Toy):
    """The right action is the number shown; worth 1, all others 0."""


class Cut(Toy):
    """Action 0 earns 1 and is followed by a cut in time; action 1 earns 0.5 and nothing is cut.

    The world goes on after a cut just as before, so action 0 is right; who takes the cut for the end of all rewards
    learns action 1.
    """

    actions, inputs = 2, 2

    def allowed(self):
        self.mask = np.repeat(~self.over[:, None], self.actions, axis=1)
        return self.mask.copy()

    def earn(self, action):
        return np.where(action == 0, 1.0, 0.5)

    def ends(self, action):
        return np.zeros(self.num_envs, dtype=bool), action == 0


class Counting(Toy):
    """Shows how many steps the episode has had; odd environments truly end, even ones are cut off."""

    actions, inputs, length = 2, 2, 3

    def look(self):
        return np.stack([self.clock, np.arange(self.num_envs) % 2], axis=1).astype(np.float32)

    def allowed(self):
        self.mask = np.repeat(~self.over[:, None], self.actions, axis=1)
        return self.mask.copy()

    def earn(self, action):
        return 1.0 + self.clock.astype(np.float64)

    def ends(self, action):
        done, odd = self.clock >= self.length, np.arange(self.num_envs) % 2 == 1
        return done & odd, done & ~odd


class Terms(Counting):
    """As ``Counting``, with the reward split in two terms, total = a − 2·b."""

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        b = np.where(reward > 0, self.rng.random(self.num_envs), 0.0)
        info["reward_terms"] = {"b": b, "a": reward + 2.0 * b}
        return obs, reward, terminated, truncated, info
