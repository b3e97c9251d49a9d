"""The bytes of a snapshot: arrays as compressed safetensors, most of a cluster's state is zeros."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from attribution_sched.errors import CheckpointError
from attribution_sched.journal.faults import fault

MOST_SNAPSHOT_BYTES = 2**30
"""Bytes of a snapshot, unpacked: more is not a state of ours but an attack on the memory."""


def pack_arrays(arrays: Mapping[str, Any]) -> bytes:
    """Arrays as bytes.

    Raises:
        JournalError: If one of them has no such form.
    """
    import numpy as np

    from attribution_sched.storage import pack

    parts = {}
    for name, array in arrays.items():
        values = np.asarray(array, order="C")
        if values.dtype.kind not in "biuf" or values.dtype.itemsize > 8:
            raise fault(
                f"snapshot.arrays.{name}",
                f"shape {values.shape}",
                f"is an array of {values.dtype}",
                "Give booleans, whole or floating-point numbers; the rest belongs into the facts",
            )
        parts[str(name)] = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return zlib.compress(pack(parts), 1)


def unpack_arrays(data: bytes) -> dict[str, Any]:
    """The inverse of :func:`pack_arrays`.

    Raises:
        JournalError: If they cannot be read.
    """
    from attribution_sched.storage import unpack

    try:
        stream = zlib.decompressobj()
        plain = stream.decompress(data, MOST_SNAPSHOT_BYTES)
        if not stream.eof:
            raise ValueError(f"more than {MOST_SNAPSHOT_BYTES} bytes, or not all of them")
        return unpack(plain, "snapshot")
    except (zlib.error, CheckpointError, ValueError) as error:
        raise fault("snapshot", f"{len(data)} bytes", f"cannot be read ({error})") from error
