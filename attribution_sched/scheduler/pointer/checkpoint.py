"""Weights on disk: ``name.safetensors`` beside ``name.json`` with format, checksum and how they were made."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.errors import CheckpointError, problem

if TYPE_CHECKING:
    from attribution_sched.scheduler.pointer.network import PointerNetwork

FORMAT = 1
SHIPPED = Path(__file__).with_name("weights.safetensors")
"""The weights that come with the package."""

_FIELDS = {"format", "sha256", "size", "made"}


def save(network: PointerNetwork, path: str | Path, made: dict[str, Any]) -> None:
    """Write a network, complete or not at all.

    Args:
        network: What to write.
        path: Target, ``*.safetensors``; the JSON file goes beside it.
        made: How the weights were made, ready for JSON.
    """
    from safetensors.torch import save as pack

    target = Path(path)
    packed = pack({name: tensor.detach().contiguous() for name, tensor in network.state_dict().items()})
    about = {"format": FORMAT, "sha256": hashlib.sha256(packed).hexdigest(), "size": asdict(network.size), "made": made}
    text = json.dumps(about, indent=2, sort_keys=True) + "\n"
    for file, content in ((target, packed), (target.with_suffix(".json"), text.encode())):
        partial = file.with_name(file.name + ".partial")
        partial.write_bytes(content)
        partial.replace(file)


def describe(path: str | Path = SHIPPED) -> dict[str, Any]:
    """Read and check what the JSON file says of the weights.

    Raises:
        CheckpointError: If it is missing, malformed, of another version or has fields that are not known.
    """
    file = Path(path).with_suffix(".json")
    if not file.is_file():
        raise CheckpointError(problem("checkpoint", str(file), "does not exist", "Check the path, or train"))
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(problem("checkpoint", str(file), "is not JSON", "Save the network again")) from error
    given = set(about) if isinstance(about, dict) else set()
    if given != _FIELDS:
        rule = f"must have the fields {', '.join(sorted(_FIELDS))} and no other"
        raise CheckpointError(problem(f"{file.name} fields", sorted(given), rule, "Save the network again"))
    if about["format"] != FORMAT:
        rule = f"this release reads format {FORMAT}"
        raise CheckpointError(problem(f"{file.name} format", about["format"], rule, "Train and save with this release"))
    found: dict[str, Any] = about
    return found


def load(path: str | Path = SHIPPED) -> PointerNetwork:
    """Read a network back, refusing anything but exactly what was written.

    Raises:
        CheckpointError: If a file is missing, was changed, or is of another version or shape.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load as unpack

    from attribution_sched.scheduler.pointer.network import NetworkSize, PointerNetwork

    target = Path(path)
    about = describe(target)
    if not target.is_file():
        raise CheckpointError(problem("checkpoint", str(target), "does not exist", "Check the path, or train"))
    packed = target.read_bytes()
    if hashlib.sha256(packed).hexdigest() != about["sha256"]:
        rule = "was changed after it was written: its checksum does not match"
        raise CheckpointError(problem("checkpoint", str(target), rule, "Use an untouched copy"))
    size = about["size"]
    known = {field.name for field in fields(NetworkSize)}
    if not isinstance(size, dict) or set(size) != known or not all(isinstance(v, int) for v in size.values()):
        rule = f"must give {', '.join(sorted(known))} as integers"
        raise CheckpointError(problem("checkpoint size", size, rule, "Save the network again"))
    network = PointerNetwork(NetworkSize(**size))
    try:
        network.load_state_dict(unpack(packed))
    except (SafetensorError, RuntimeError) as error:
        rule = "holds other weights than a network of this release"
        raise CheckpointError(problem("checkpoint", str(target), rule, "Train and save again")) from error
    return network.eval()
