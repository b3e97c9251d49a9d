"""Rollouts of a training run on the workers of a Ray cluster: the same experience, to the bit, whoever collects it.

A task is given the network's weights, the state of one field and a seed, and gives back experience and the field's new
state. Nothing is left at a worker that the next round needs, so one that is lost is replaced by any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from attribution_sched.cluster.world import World
from attribution_sched.executors.workers import spread
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.field import Field
from attribution_sched.scheduler.hi_ppo.field_state import field_arrays, restore_field
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork, NetworkSize
from attribution_sched.scheduler.hi_ppo.rollout import Collecting, Experience, collect_in
from attribution_sched.storage import Arrays

Known = tuple[World, int, str, bool, bool, Any, Any]
"""World, clusters, name, whether weights are drawn and links forecast, attributions and paces: what a field is made of.
"""

Shared = tuple[NetworkSize, dict[str, Any], Collecting, Sequence[Known]]
Job = tuple[int, int, Arrays, list[float]]
"""Which field, its seed, its state and the returns of the episodes that ended in it."""


class RayRollouts:
    """Collects on a Ray cluster; fields are as many as work side by side.

    Args:
        address: Of the cluster; ``auto`` takes the one that this machine belongs to.
    """

    def __init__(self, address: str = "auto") -> None:
        self.address = address

    def __call__(
        self, network: HiPpoNetwork, fields: Sequence[Field], seeds: Sequence[int], how: Collecting
    ) -> list[Experience]:
        """Collect in all fields; each of them is where it was left afterwards."""
        known = [
            (field.engine.world, field.clusters, field.name, field.pareto, field.forecast is not None,
             field.attributions, field.planner.paces)
            for field in fields
        ]  # fmt: skip
        weights = {name: tensor.detach().cpu().numpy() for name, tensor in network.state_dict().items()}
        jobs: list[Job] = [
            (number, seed, field_arrays(field), list(field.returns))
            for number, (field, seed) in enumerate(zip(fields, seeds, strict=True))
        ]
        found: dict[int, Experience] = {}
        shared: Shared = (network.size, weights, how, known)
        for number, (experience, state, returns) in spread(self.address, _collect, shared, jobs):
            restore_field(fields[number], state)
            fields[number].returns[:] = returns
            found[number] = experience
        return [found[number] for number in range(len(fields))]


MOST_FIELDS = 8
_fields: dict[bytes, Field] = {}


def _collect(run: str, shared: Shared, job: Job) -> tuple[Experience, Arrays, list[float]]:
    import torch

    size, weights, how, known = shared
    number, seed, state, returns = job
    network = HiPpoNetwork(size, torch.Generator().manual_seed(0))
    network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    with one_thread():
        field = _field(known[number], state)
        field.returns[:] = returns
        experience = collect_in(network, field, seed, how)
    return experience, field_arrays(field), list(field.returns)


def _field(known: Known, state: Mapping[str, Any]) -> Field:
    """A field in a state; a worker keeps those of its last worlds, which are costly to make."""
    world, clusters, name, pareto, predict, attributions, paces = known
    mark = state["engine.world"].tobytes() + repr((clusters, name, pareto, predict)).encode()
    if mark not in _fields:
        while len(_fields) >= MOST_FIELDS:
            del _fields[next(iter(_fields))]
        _fields[mark] = Field(world, clusters, 0, None, name, predict=predict, pareto=pareto)
    field = _fields[mark]
    field.attributions, field.planner = attributions, replace(field.planner, paces=paces)
    restore_field(field, state)
    return field
