"""A journal as it is now, copied whole, to be looked into while another process goes on writing it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from attribution_sched.journal import Journal


@contextlib.contextmanager
def snapshot(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Path of a copy, with the weights that were learnt beside it; both are gone when the block ends.

    The journal itself is opened for reading only: its writer is not held up.

    Raises:
        JournalError: If it is missing, damaged, foreign or of another version.
    """
    with Journal.read(path) as found:
        source = Path(path) if found.path is None else found.path
    with tempfile.TemporaryDirectory(prefix="attribution-sched-") as folder:
        copy = Path(folder) / source.name
        with Journal.read(source) as found:
            found.copy_to(copy)
        for weights in source.parent.glob(f"{source.name}.*.safetensors"):
            (Path(folder) / weights.name).symlink_to(weights)
        yield copy
