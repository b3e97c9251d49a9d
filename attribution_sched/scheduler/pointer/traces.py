"""Traces of the teacher: random decisions and the plan the exact search gave each; one JSON line per decision."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.view import DecisionView
from attribution_sched.errors import TraceError, problem
from attribution_sched.scheduler.exact.problem import problem_of
from attribution_sched.scheduler.exact.solver import ExactSolver
from attribution_sched.scheduler.pointer.scenarios import (
    Decision,
    Range,
    WorldDraw,
    at,
    build_view,
    draw_decision,
    draw_world,
)

IntArray = NDArray[np.int64]

TEACHER_BUDGET = 50_000
"""Effort of the teacher's proof: as much as the policy that solves exactly spends on one decision."""

PER_WORLD = 16
"""Decisions drawn in one world before the next is drawn."""


@dataclass(frozen=True, eq=False)
class Trace:
    """What the teacher did at one decision.

    Attributes:
        world: The world.
        decision: The moment.
        rows: The teacher's plan as segment rows, shape ``(segments, 10)``.
        objective: What the teacher minimised, minus the reward up to a constant.
        step_s: Step time of its plan.
        proven: Whether no plan is better.
        seconds: Time it took.
    """

    world: WorldDraw
    decision: Decision
    rows: IntArray
    objective: float
    step_s: float
    proven: bool
    seconds: float


def teach(
    seed: int, among: Range | None = None, budget: int = TEACHER_BUDGET, per_world: int = PER_WORLD
) -> Iterator[Trace]:
    """Draw decisions without end and solve each; those where nothing fits are left out.

    Args:
        seed: The same seed gives the same decisions.
        among: From where to draw.
        budget: Effort of the teacher per decision.
        per_world: Decisions in one world.
    """
    rng = np.random.default_rng(seed)
    while True:
        world = draw_world(rng, among)
        view = build_view(world)
        teacher = ExactSolver(budget)
        for _ in range(per_world):
            decision = draw_decision(rng, world, view.bandwidth_gbps)
            began = time.perf_counter()
            found = teacher.try_solve(problem_of(at(view, decision)))
            if found is not None:
                batch = PlanBatch.of([found.plan])
                rows = batch.segments[0, : int(batch.counts[0])]
                spent_s = time.perf_counter() - began
                yield Trace(world, decision, rows, found.value, found.step_s, bool(found.proven), spent_s)


def to_line(trace: Trace) -> str:
    """Write a trace as one line of JSON."""
    decision = asdict(trace.decision)
    decision["bandwidth_gbps"] = trace.decision.bandwidth_gbps.tolist()
    record = {
        "world": asdict(trace.world),
        "decision": decision,
        "rows": trace.rows.tolist(),
        "objective": trace.objective,
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
            decision=Decision(
                int(decision["kind"]), tuple(decision["free"]),
                np.array(decision["bandwidth_gbps"], dtype=np.float64), tuple(decision["weights"]),
            ),
            rows=np.array(record["rows"], dtype=np.int64).reshape(-1, 10),
            objective=float(record["objective"]),
            step_s=float(record["step_s"]),
            proven=bool(record["proven"]),
            seconds=float(record["seconds"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        rule = f"is not a trace of the teacher ({type(error).__name__}: {error})"
        raise TraceError(problem("trace", line[:60], rule, "Write the traces again")) from error


def read_traces(path: str | Path) -> list[Trace]:
    """Read a file of traces."""
    file = Path(path)
    if not file.is_file():
        raise TraceError(problem("traces", str(path), "does not exist", "Write traces first"))
    return [from_line(line) for line in file.read_text(encoding="utf-8").splitlines()]


def views_of(traces: Iterable[Trace]) -> Iterator[tuple[Trace, DecisionView]]:
    """Pair each trace with its decision as a policy would see it; a world is built once per run of its traces."""
    last: WorldDraw | None = None
    view: DecisionView | None = None
    for trace in traces:
        if view is None or trace.world != last:
            view, last = build_view(trace.world), trace.world
        yield trace, at(view, trace.decision)
