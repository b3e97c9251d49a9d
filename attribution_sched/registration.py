"""Gymnasium names of the environments: ``attribution_sched/Testbed-v0``, ``attribution_sched/CrossDomain-v0``.

Importing this module registers them, and so does importing the package after Gymnasium;
``gym.make("attribution_sched.registration:attribution_sched/Testbed-v0")`` does both at once.

Each takes ``preset`` (a preset name, a YAML path or ``Settings``), and ``attributor``, anything that ``System`` takes
there: by default what the shipped networks were trained with, the same as in ``System``.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from attribution_sched.attributor import state_of
from attribution_sched.config import load_settings

TESTBED = "attribution_sched/Testbed-v0"
CROSS_DOMAIN = "attribution_sched/CrossDomain-v0"


def make_testbed(preset: Any = "testbed", attributor: Any = None, **kwargs: Any) -> gym.Env[Any, Any]:
    """Build the four-device environment of a preset."""
    from attribution_sched.cluster.env import TestbedEnv

    world = load_settings(preset).build_world()
    return TestbedEnv(world, state_of(attributor, world), **kwargs)


def make_cross_domain(preset: Any = "cross-domain", attributor: Any = None, **kwargs: Any) -> gym.Env[Any, Any]:
    """Build the cross-domain environment of a preset."""
    from attribution_sched.cluster.env import CrossDomainEnv

    world = load_settings(preset).build_world()
    return CrossDomainEnv(world, state_of(attributor, world), **kwargs)


def make_testbed_vector(num_envs: int = 1, preset: Any = "testbed", attributor: Any = None, **kwargs: Any) -> Any:
    """Build the batched twin of the four-device environment."""
    from attribution_sched.cluster.vector_env import TestbedVectorEnv

    world = load_settings(preset).build_world()
    return TestbedVectorEnv(world, num_envs, state_of(attributor, world), **kwargs)


def make_cross_domain_vector(
    num_envs: int = 1, preset: Any = "cross-domain", attributor: Any = None, **kwargs: Any
) -> Any:
    """Build the batched twin of the cross-domain environment."""
    from attribution_sched.cluster.vector_env import CrossDomainVectorEnv

    world = load_settings(preset).build_world()
    return CrossDomainVectorEnv(world, num_envs, state_of(attributor, world), **kwargs)


def register() -> None:
    """Register the environments once."""
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
