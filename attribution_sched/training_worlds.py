"""The worlds that Hi-PPO's agents learn in, by name: scenarios of ``cross-domain-easy``, presets, and mixed GPUs."""

from __future__ import annotations

from dataclasses import replace

from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.config.scenarios import build_scenario, scenario_names

MIXED: tuple[tuple[str, int], ...] = (("A100-80", 8), ("V100-32", 16), ("H100-80", 16), ("A100-40", 32))
"""GPUs and devices of the four domains of ``mixed``; other mixtures are left to judge by."""


def training_world(name: str) -> World:
    """A world by its name.

    Raises:
        SettingsError: If there is neither a scenario nor a preset of that name.
    """
    if name in scenario_names():
        return build_scenario("cross-domain-easy", name)
    if name != "mixed":
        return load_settings(name).build_world()
    world = load_settings("cross-domain-easy").build_world()
    domains = tuple(
        replace(domain, gpu=gpu(kind), devices=devices)
        for domain, (kind, devices) in zip(world.cluster.domains, MIXED, strict=True)
    )
    return replace(world, cluster=replace(world.cluster, domains=domains))
