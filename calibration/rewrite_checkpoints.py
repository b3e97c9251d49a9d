"""Writes the weights that come with the package once more, in the format of this release; the numbers stay the same.

    python calibration/rewrite_checkpoints.py

Files of release 0.1 are read by the converter of ``attribution_sched.storage``; every array of the new file is compared
bit by bit with the old one before the JSON file that 0.1 kept beside it is removed.
"""

from __future__ import annotations

from pathlib import Path

from attribution_sched import storage
from attribution_sched.rivals.seq2seq import network as seq2seq
from attribution_sched.scheduler.hi_ppo import checkpoint as hi_ppo
from attribution_sched.scheduler.predictor import gru

SHIPPED = (
    (hi_ppo.SHIPPED, hi_ppo.KIND, hi_ppo.ATTRIBUTION_SCHEMA),
    (seq2seq.SHIPPED, seq2seq.KIND, None),
    (gru.SHIPPED, gru.KIND, None),
)


def rewrite(path: Path, schema: str, attribution_schema: str | None) -> None:
    """Read one file, write it, and see that nothing changed."""
    header, arrays = storage.read(path, schema, attribution_schema=attribution_schema)
    storage.write(path, schema, header, arrays, attribution_schema=attribution_schema)
    again, written = storage.read(path, schema, attribution_schema=attribution_schema)
    same = again == header and set(written) == set(arrays)
    if not same or any(written[n].tobytes() != a.tobytes() or written[n].dtype != a.dtype for n, a in arrays.items()):
        raise SystemExit(f"{path} did not come back as it was written")
    path.with_suffix(".json").unlink(missing_ok=True)


if __name__ == "__main__":
    for entry in SHIPPED:
        rewrite(*entry)
        print("rewritten", entry[0].name, "as", entry[1])
