"""Traces of the teacher: random decisions and the plan the exact search gave each; one JSON line per decision."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import DecisionView
from attribution_sched.cluster.plan import DOMAIN, Plan, PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.errors import SettingsError, TraceError, nearest, problem
from attribution_sched.planning.exact.problem import problem_of
from attribution_sched.planning.exact.solver import ExactSolver
from attribution_sched.planning.exact.start import evaluate, improve
from attribution_sched.scheduler.pointer.scenarios import (
    Decision,
    Range,
    WorldDraw,
    at,
    build_view,
    draw_decision,
    draw_world,
)
from attribution_sched.scheduler.splits import SpeedProportional

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
        reward: What its plan is worth.
        step_s: Step time of its plan.
        proven: Whether no plan is better.
        seconds: Time it took.
    """

    world: WorldDraw
    decision: Decision
    rows: IntArray
    reward: float
    step_s: float
    proven: bool
    seconds: float


class Teacher(Protocol):
    """Solves decisions."""

    def solve(self, view: DecisionView) -> tuple[Plan, bool] | None:
        """Return a plan and whether no plan is better; None if nothing fits."""
        ...


class ExactTeacher:
    """The exact search.

    Args:
        budget: Effort of the proof.
    """

    def __init__(self, budget: int = TEACHER_BUDGET) -> None:
        self._solver = ExactSolver(budget)

    def solve(self, view: DecisionView) -> tuple[Plan, bool] | None:
        """Search everything."""
        found = self._solver.try_solve(problem_of(view))
        return None if found is None else (found.plan, bool(found.proven))


class SearchTeacher:
    """Speed-proportional plans improved by small changes: thirty times faster, and nearly always the same plan.

    Args:
        starts: Plans over different domains that are improved.
    """

    def __init__(self, starts: int = 4) -> None:
        self._starts = starts
        self._rule = SpeedProportional()

    def solve(self, view: DecisionView) -> tuple[Plan, bool] | None:
        """Improve the best plans of the rule and take the best."""
        task = problem_of(view)
        options = task.options()
        batch = self._rule.candidates(view)
        if len(batch) == 0:
            return None
        reward = value(view, batch).reward
        best: tuple[float, IntArray, int] | None = None
        seen: set[tuple[int, ...]] = set()
        for p in np.argsort(-reward, kind="stable"):
            if not np.isfinite(reward[p]) or len(seen) == self._starts:
                break
            count = int(batch.counts[p])
            key = tuple(int(d) for d in batch.segments[p, :count, DOMAIN])
            if key in seen:
                continue
            seen.add(key)
            rows = np.zeros((task.max_segments, batch.segments.shape[2]), dtype=np.int64)
            rows[:count] = batch.segments[p, :count]
            first = float(evaluate(task, rows[None], np.array([count]))[0])
            rows, count, reached = improve(task, options, rows, count, first)
            if best is None or reached < best[0]:
                best = reached, rows, count
        if best is None:
            return None
        plan = PlanBatch(best[1][None], np.array([best[2]]), np.zeros(1, dtype=np.int64)).plan(0)
        return plan, False


TEACHERS: dict[str, Callable[[], Teacher]] = {"exact": ExactTeacher, "search": SearchTeacher}


def teach(seed: int, among: Range | None = None, per_world: int = PER_WORLD, teacher: str = "exact") -> Iterator[Trace]:
    """Draw decisions without end and solve each; those where nothing fits are left out.

    Args:
        seed: The same seed gives the same decisions.
        among: From where to draw.
        per_world: Decisions in one world.
        teacher: ``exact`` or ``search``.
    """
    if teacher not in TEACHERS:
        raise SettingsError(problem("teacher", teacher, "is not known", nearest(teacher, TEACHERS)))
    rng = np.random.default_rng(seed)
    while True:
        world = draw_world(rng, among)
        view = build_view(world)
        solver = TEACHERS[teacher]()
        for _ in range(per_world):
            decision = draw_decision(rng, world, view.bandwidth_gbps)
            moment = at(view, decision)
            began = time.perf_counter()
            found = solver.solve(moment)
            if found is not None:
                spent_s = time.perf_counter() - began
                batch = PlanBatch.of([found[0]])
                worth = value(moment, batch)
                rows = batch.segments[0, : int(batch.counts[0])]
                reward, step_s = float(worth.reward[0]), float(worth.step_s[0])
                yield Trace(world, decision, rows, reward, step_s, found[1], spent_s)


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
            decision=Decision(
                int(decision["kind"]), tuple(decision["free"]),
                np.array(decision["bandwidth_gbps"], dtype=np.float64), tuple(decision["weights"]),
            ),
            rows=np.array(record["rows"], dtype=np.int64).reshape(-1, 10),
            reward=float(record["reward"]),
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


def views_of(traces: Iterable[Trace]) -> Iterator[tuple[Trace, DecisionView]]:
    """Pair each trace with its decision as a policy would see it; a world is built once per run of its traces."""
    last: WorldDraw | None = None
    view: DecisionView | None = None
    for trace in traces:
        if view is None or trace.world != last:
            view, last = build_view(trace.world), trace.world
        yield trace, at(view, trace.decision)
