"""Traces of a teacher kept in files, a line of JSON each; used by ``calibration/train_pointer.py`` and benchmarks."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched.cluster.plan import SEGMENT_FIELDS
from attribution_sched.errors import TraceError, problem
from attribution_sched.types import IntArray
from research.pointer_draws import PER_WORLD, DrawnDecision, Range, Trace, WorldDraw, teach


def to_line(trace: Trace) -> str:
    """Write a trace as one line of JSON."""
    decision = asdict(trace.decision)
    decision["bandwidth_gbps"] = trace.decision.bandwidth_gbps.tolist()
    record = {
        "world": asdict(trace.world),
        "decision": decision,
        "rows": trace.rows.tolist(),
        "reward": trace.reward,
        "step_s": trace.step_s,
        "proven": trace.proven,
        "seconds": round(trace.seconds, 4),
    }
    return json.dumps(record)


def from_line(line: str) -> Trace:
    """Read a trace back.

    Raises:
        TraceError: If the line is not a trace.
    """
    try:
        record: dict[str, Any] = json.loads(line)
        world, decision = record["world"], record["decision"]
        return Trace(
            world=WorldDraw(
                tuple(world["regions"]), tuple(world["gpus"]), tuple(world["devices"]),
                tuple((str(name), int(batch), int(micro)) for name, batch, micro in world["kinds"]),
                int(world["max_segments"]),
            ),
            decision=DrawnDecision(
                int(decision["kind"]), tuple(decision["free"]),
                np.array(decision["bandwidth_gbps"], dtype=np.float64), tuple(decision["weights"]),
            ),
            rows=_as_wide(np.array(record["rows"], dtype=np.int64)),
            reward=float(record["reward"]),
            step_s=float(record["step_s"]),
            proven=bool(record["proven"]),
            seconds=float(record["seconds"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        rule = f"is not a trace of the teacher ({type(error).__name__}: {error})"
        raise TraceError(problem("trace", line[:60], rule, "Write the traces again")) from error


def _as_wide(rows: IntArray) -> IntArray:
    """Rows of a plan as they are now: what was recorded before plans had caps has none."""
    return np.pad(rows, ((0, 0), (0, len(SEGMENT_FIELDS) - rows.shape[1])))


def read_traces(path: str | Path) -> list[Trace]:
    """Read a file of traces."""
    file = Path(path)
    if not file.is_file():
        raise TraceError(problem("traces", str(path), "does not exist", "Write traces first"))
    return [from_line(line) for line in file.read_text(encoding="utf-8").splitlines()]


def cached_traces(
    path: str | Path,
    count: int,
    seed: int,
    among: Range | None = None,
    per_world: int = PER_WORLD,
    teacher: str = "exact",
) -> list[Trace]:
    """Read the first ``count`` traces of a file; ask the teacher and write it first if it is missing or too short.

    Args:
        path: The file.
        count: Traces wanted.
        seed: Seed of the decisions.
        among: From where they are drawn.
        per_world: Decisions in one world.
        teacher: ``exact`` or ``search``.
    """
    file = Path(path)
    if file.is_file():
        known = read_traces(file)
        if len(known) >= count:
            return known[:count]
    file.parent.mkdir(parents=True, exist_ok=True)
    found = list(islice(teach(seed, among, per_world, teacher), count))
    partial = file.with_name(file.name + ".partial")
    partial.write_text("".join(to_line(trace) + "\n" for trace in found), encoding="utf-8")
    partial.replace(file)
    return found
