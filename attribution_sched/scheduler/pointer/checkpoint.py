"""Weights of the attention network on disk, in the one file format of :mod:`attribution_sched.storage`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched import storage
from attribution_sched.errors import CheckpointError, problem

if TYPE_CHECKING:
    from attribution_sched.scheduler.pointer.network import PointerNetwork

KIND = "pointer"
SHIPPED = Path(__file__).with_name("weights.safetensors")
"""The weights that come with the package."""

LIMITS = {"width": 1024, "rounds": 16}
"""Larger networks are not read: a file of a few bytes must not be able to ask for all memory."""


def save(network: PointerNetwork, path: str | Path, made: dict[str, Any]) -> None:
    """Write a network, complete or not at all.

    Args:
        network: What to write.
        path: Target, ``*.safetensors``.
        made: How the weights were made, ready for JSON.
    """
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in network.state_dict().items()}
    storage.write(path, KIND, {"size": asdict(network.size), "made": made}, arrays)


def describe(path: str | Path = SHIPPED) -> dict[str, Any]:
    """What a file says of its weights: their size, and how they were made.

    Raises:
        CheckpointError: If it is missing, damaged, of another version or holds something else.
    """
    header, _ = storage.read(path, KIND)
    return header


def load(path: str | Path = SHIPPED) -> PointerNetwork:
    """Read a network back, refusing anything but exactly what was written.

    Raises:
        CheckpointError: If a file is missing, was changed, or is of another version or shape.
    """
    import torch

    from attribution_sched.scheduler.pointer.network import NetworkSize, PointerNetwork

    header, arrays = storage.read(path, KIND)
    network = PointerNetwork(NetworkSize(**storage.expected_sizes(path, header.get("size"), LIMITS)))
    own = network.state_dict()
    expected = {name: (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for name, tensor in own.items()}
    given = {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}
    if given != expected:
        odd = sorted(name for name in {*given, *expected} if given.get(name) != expected.get(name))[0]
        rule = f"{odd!r} is {given.get(odd)}, a network of this size has {expected.get(odd)}"
        raise CheckpointError(problem("checkpoint weights", str(path), rule, "Train and save again"))
    network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
    return network.eval()
