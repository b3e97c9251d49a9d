"""Gymnasium names of the environments: ``attribution_sched/Testbed-v0``, ``attribution_sched/CrossDomain-v0``.

With one choice among candidate plans: ``attribution_sched/CrossDomainPlans-v0``, ``attribution_sched/SharedPlans-v0``,
``attribution_sched/TestbedPlans-v0`` (:mod:`attribution_sched.rivals.candidate_env`).

``import attribution_sched`` registers them, before or after ``import gymnasium``; then
``gym.make("attribution_sched/Testbed-v0")``. Without the import, name the package:
``gym.make("attribution_sched:attribution_sched/Testbed-v0")``. (Gymnasium 1 reads no entry points of plugins any more,
so a package that nobody imports cannot be found by name.)

Each takes ``preset`` (a preset name, a YAML path or ``Settings``), and ``attributor``, anything that ``System`` takes
there: by default what the shipped agents were trained with, the same as in ``System``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym

if TYPE_CHECKING:
    from attribution_sched.cluster.world import World
    from attribution_sched.types import Attributor


TESTBED = "attribution_sched/Testbed-v0"
CROSS_DOMAIN = "attribution_sched/CrossDomain-v0"


def _world(preset: Any, attributor: Any) -> tuple[World, Attributor]:
    from attribution_sched.attribution.attributor import state_of
    from attribution_sched.config import load_settings

    world = load_settings(preset).build_world()
    return world, state_of(attributor, world)


def make_testbed(preset: Any = "testbed", attributor: Any = None, **kwargs: Any) -> gym.Env[Any, Any]:
    """Build the four-device environment of a preset."""
    from attribution_sched.cluster.envs.env import TestbedEnv

    return TestbedEnv(*_world(preset, attributor), **kwargs)


def make_cross_domain(preset: Any = "cross-domain", attributor: Any = None, **kwargs: Any) -> gym.Env[Any, Any]:
    """Build the cross-domain environment of a preset."""
    from attribution_sched.cluster.envs.env import CrossDomainEnv

    return CrossDomainEnv(*_world(preset, attributor), **kwargs)


def make_testbed_vector(num_envs: int = 1, preset: Any = "testbed", attributor: Any = None, **kwargs: Any) -> Any:
    """Build the batched twin of the four-device environment."""
    from attribution_sched.cluster.envs.env import TestbedVectorEnv

    world, states = _world(preset, attributor)
    return TestbedVectorEnv(world, num_envs, states, **kwargs)


def make_cross_domain_vector(
    num_envs: int = 1, preset: Any = "cross-domain", attributor: Any = None, **kwargs: Any
) -> Any:
    """Build the batched twin of the cross-domain environment."""
    from attribution_sched.cluster.envs.env import CrossDomainVectorEnv

    world, states = _world(preset, attributor)
    return CrossDomainVectorEnv(world, num_envs, states, **kwargs)


PLANS = {
    "attribution_sched/CrossDomainPlans-v0": "cross-domain",
    "attribution_sched/SharedPlans-v0": "shared",
    "attribution_sched/TestbedPlans-v0": "testbed",
}
"""Environments whose actions are candidate plans → their preset."""


def make_plans(preset: Any, attributor: Any = None, **kwargs: Any) -> gym.Env[Any, Any]:
    """Build the environment of a preset whose actions are candidate plans."""
    from attribution_sched.rivals.candidate_env import CandidateEnv

    return CandidateEnv(*_world(preset, attributor), **kwargs)


AGENTS = "attribution_sched/Agents-v0"
"""Name of the environment of several agents in Ray's registry."""


def make_agents(config: Mapping[str, Any]) -> Any:
    """Build the environment of several agents for RLlib (extra ``ray``).

    Args:
        config: ``preset``, ``attributor``, ``game`` (``domains`` or ``levels``), ``seed`` of the first episode.
    """
    from attribution_sched.rivals.rllib import ClusterAgentsEnv

    asked = dict(config)
    return ClusterAgentsEnv(*_world(asked.pop("preset", "cross-domain"), asked.pop("attributor", None)), **asked)


def register_rllib() -> None:
    """Tell Ray the names of the environments: of several agents, and those with candidate plans."""
    from ray.tune.registry import register_env

    register_env(AGENTS, make_agents)
    for name, preset in PLANS.items():
        register_env(name, lambda config, preset=preset: make_plans(**({"preset": preset} | dict(config))))


def register() -> None:
    """Register the environments once."""
    for name, preset in PLANS.items():
        if name not in gym.registry:
            gym.register(name, entry_point=f"{__name__}:make_plans", kwargs={"preset": preset})
    for name, single, batched in (
        (TESTBED, make_testbed, make_testbed_vector),
        (CROSS_DOMAIN, make_cross_domain, make_cross_domain_vector),
    ):
        if name not in gym.registry:
            gym.register(
                name,
                entry_point=f"{__name__}:{single.__name__}",
                vector_entry_point=f"{__name__}:{batched.__name__}",
            )


register()
