"""A flat agent on disk: weights, Adam, generator, scale, counters and the state of its clusters.

An agent on a cluster environment goes on bit by bit as if it had never stopped. The state of any other environment
is not known: such a run goes on in episodes begun anew from a seed made of the agent's seed and its rollouts.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import nn

from attribution_sched.errors import CheckpointError, problem
from attribution_sched.scheduler.ppo.learner_state import (
    generator_array,
    module_arrays,
    optimiser_arrays,
    restore_generator,
    restore_module,
    restore_optimiser,
)
from attribution_sched.scheduler.ppo.policy import FlatPolicy
from attribution_sched.scheduler.ppo.settings import PpoSettings
from attribution_sched.scheduler.ppo.snapshot import env_arrays, restore_env
from attribution_sched.storage import Arrays, read, rebuilding, take, write

if TYPE_CHECKING:
    from attribution_sched.scheduler.ppo.flat import FlatAgent

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
