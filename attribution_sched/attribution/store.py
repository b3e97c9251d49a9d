"""One file for fitted estimators: safetensors arrays, a JSON header and a checksum. Nothing in it is executed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.errors import CheckpointError, problem

FORMAT_VERSION = 1

Arrays = dict[str, NDArray[Any]]


def write(path: str | Path, kind: str, header: dict[str, Any], arrays: Arrays) -> None:
    """Write arrays and header to ``path``, complete or not at all.

    Args:
        path: Target file.
        kind: What the file holds; :func:`read` refuses another kind.
        header: JSON-ready settings.
        arrays: Named arrays.
    """
    from safetensors.numpy import save

    target = Path(path)
    text = json.dumps(header, sort_keys=True)
    packed = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    about = {"kind": kind, "version": FORMAT_VERSION, "header": text, "sha256": _digest(kind, text, packed)}
    # One key: safetensors writes several in no fixed order, and equal estimators should be equal files.
    metadata = {"estimator": json.dumps(about, sort_keys=True)}
    partial = target.with_name(target.name + ".partial")
    partial.write_bytes(save(packed, metadata=metadata))
    partial.replace(target)


def read(path: str | Path, kind: str) -> tuple[dict[str, Any], Arrays]:
    """Read header and arrays back, refusing anything that is not exactly what was written.

    Args:
        path: File written by :func:`write`.
        kind: What the file must hold.
    """
    from safetensors import SafetensorError, safe_open

    name = str(path)
    if not Path(path).is_file():
        raise CheckpointError(problem("file", name, "does not exist", "Check the path."))
    try:
        with safe_open(name, framework="numpy") as file:
            metadata = json.loads((file.metadata() or {}).get("estimator", "{}"))
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            problem("file", name, "is truncated or not a saved estimator", "Save it again.")
        ) from error
    if metadata.get("kind") != kind:
        raise CheckpointError(
            problem("file kind", metadata.get("kind"), f"must be {kind!r}", "Load it with the class that wrote it.")
        )
    if metadata.get("version") != FORMAT_VERSION:
        rule = f"this release reads version {FORMAT_VERSION}"
        raise CheckpointError(
            problem("file version", metadata.get("version"), rule, "Fit and save again with this release.")
        )
    text = metadata.get("header", "")
    if metadata.get("sha256") != _digest(kind, text, arrays):
        rule = "was changed after it was written: its checksum does not match"
        raise CheckpointError(problem("file", name, rule, "Use an untouched copy."))
    header: dict[str, Any] = json.loads(text)
    return header, arrays


def _digest(kind: str, text: str, arrays: Arrays) -> str:
    """Checksum over everything a reader relies on."""
    digest = hashlib.sha256(f"{kind}\n{FORMAT_VERSION}\n{text}\n".encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
