"""One file for the state of a training run: safetensors arrays and a JSON header under one checksum.

Nothing in it is executed, a file appears complete or not at all, and anything that is not exactly what was written is
refused with one error.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.errors import CheckpointError, problem

SCHEMA = 1
"""Version of the layout; raised whenever a reader of the old one would go wrong."""

Arrays = dict[str, NDArray[Any]]


def write(path: str | Path, kind: str, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a checkpoint.

    Args:
        path: Target file, ``*.safetensors``.
        kind: What it holds; :func:`read` refuses another kind.
        header: Settings and counters, ready for JSON.
        arrays: Named arrays.
    """
    from safetensors.numpy import save

    target = Path(path)
    text = json.dumps(header, sort_keys=True, allow_nan=False)
    packed = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    about = {"kind": kind, "schema": SCHEMA, "header": text, "sha256": _digest(kind, text, packed)}
    # One key: safetensors writes several in no fixed order, and equal states should be equal files.
    content = save(packed, metadata={"checkpoint": json.dumps(about, sort_keys=True)})
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def read(path: str | Path, kind: str) -> tuple[dict[str, Any], Arrays]:
    """Read header and arrays back.

    Args:
        path: File written by :func:`write`.
        kind: What the file must hold.

    Raises:
        CheckpointError: If the file is missing, truncated, changed, or of another kind or version.
    """
    from safetensors import SafetensorError, safe_open

    name = str(path)
    if not Path(path).is_file():
        raise CheckpointError(problem("checkpoint", name, "does not exist", "Check the path, or train"))
    try:
        with safe_open(name, framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get("checkpoint", "{}"))
            arrays: Arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        rule = "is truncated or not a checkpoint"
        raise CheckpointError(problem("checkpoint", name, rule, "Use an untouched copy")) from error
    about = about if isinstance(about, dict) else {}
    if about.get("kind") != kind:
        fix = "Load it with the class that wrote it"
        raise CheckpointError(problem("checkpoint kind", about.get("kind"), f"must be {kind!r}", fix))
    if about.get("schema") != SCHEMA:
        rule = f"this release reads version {SCHEMA}"
        fix = "Train and save again with this release"
        raise CheckpointError(problem("checkpoint version", about.get("schema"), rule, fix))
    text = str(about.get("header", ""))
    if about.get("sha256") != _digest(kind, text, arrays):
        rule = "was changed after it was written: its checksum does not match"
        raise CheckpointError(problem("checkpoint", name, rule, "Use an untouched copy"))
    header: dict[str, Any] = json.loads(text)
    return header, arrays


def take(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _digest(kind: str, text: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Checksum over everything a reader relies on."""
    digest = hashlib.sha256(f"{kind}\n{SCHEMA}\n{text}\n".encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.asarray(array, order="C").data)
    return digest.hexdigest()
