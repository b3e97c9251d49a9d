"""A pipeline as Chakra execution traces, and ASTRA-sim run on them: a second opinion on the step time.

A trace is a stream of protobuf messages, each after its length as a varint: one ``GlobalMetadata``, then ``Node`` after
``Node`` (Chakra's ``et_def.proto``, version 0.0.4), written here by hand, so that nothing need be installed. Each stage
is a rank: computing in the fixed order of its schedule, receives before, sends after.

ASTRA-sim's network has one bandwidth for all pairs; a link of its own is folded into the size of what is sent over it:
``size = reference bandwidth · (seconds of the send − reference latency)``. Its analytical backend has the same rules
as :mod:`~attribution_sched.cluster.pipeline`, so that agreement shows that both were written right, and nothing about a
real network.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.cost import (
    BYTES_PER_GBIT,
    PLAN_COLUMNS,
    SEGMENT_COLUMNS,
    _score,
    make_scratch,
)
from attribution_sched.cluster.pipeline import Schedule, pipeline_times
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.errors import ExecutorError, PlanError, SettingsError, problem
from attribution_sched.types import FloatArray

if TYPE_CHECKING:
    from attribution_sched.cluster.decision import Decision

VERSION = "0.0.4"
COMP, SEND, RECV = 4, 5, 6
"""Types of nodes."""
REFERENCE_GIB_PER_S, REFERENCE_LATENCY_NS = 16.0, 500
"""Of the network that ASTRA-sim is told; links differ in what is sent over them."""
RUN_S = 300.0
"""Longest that ASTRA-sim may take: 32 stages of 1,024 microbatches take it seconds."""
VARIABLE = "ATTRIBUTION_SCHED_ASTRA"
BINARIES = ("AstraSim_Analytical_Congestion_Unaware", "AstraSim_Analytical_Congestion_Aware")
FINISHED = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles")


@dataclass(frozen=True)
class PipelineProgram:
    """One pipeline, as traces tell it.

    Attributes:
        schedule: Order of forward and backward passes.
        microbatches: In a step.
        forward_us: Whole microseconds of a microbatch's forward pass, by stage.
        backward_us: The same of its backward pass.
        forward_bytes: What is sent to the next stage, by stage; the last sends nothing.
        backward_bytes: What is sent to the stage before; the first sends nothing.
    """

    schedule: Schedule
    microbatches: int
    forward_us: tuple[int, ...]
    backward_us: tuple[int, ...]
    forward_bytes: tuple[int, ...]
    backward_bytes: tuple[int, ...]

    @property
    def stages(self) -> int:
        """How many."""
        return len(self.forward_us)

    @property
    def step_s(self) -> float:
        """The step by our own recurrence, for these very whole numbers."""
        rate, latency_s = REFERENCE_GIB_PER_S * 2**30, 1e-9 * REFERENCE_LATENCY_NS

        def sends(sizes: Sequence[int]) -> FloatArray:
            return np.array([[latency_s + size / rate for size in sizes]])

        found = pipeline_times(
            self.schedule, np.array([self.stages]), np.array([self.microbatches]),
            1e-6 * np.array([self.forward_us], dtype=np.float64), 1e-6 * np.array([self.backward_us], dtype=np.float64),
            sends(self.forward_bytes), sends(self.backward_bytes),
        )  # fmt: skip
        return float(found.step_s[0])


def program(
    schedule: Schedule,
    microbatches: int,
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    send_forward_s: Sequence[float],
    send_backward_s: Sequence[float],
) -> PipelineProgram:
    """A pipeline in the whole numbers of a trace.

    Args:
        schedule: Order of passes.
        microbatches: In a step.
        forward_s: Seconds of a microbatch, by stage.
        backward_s: The same of the backward pass.
        send_forward_s: Seconds that a send to the next stage takes.
        send_backward_s: Seconds that a send to the stage before takes.
    """

    def sizes(seconds: Sequence[float]) -> tuple[int, ...]:
        spare = (each - 1e-9 * REFERENCE_LATENCY_NS for each in seconds)
        return tuple(max(1, round(each * REFERENCE_GIB_PER_S * 2**30)) for each in spare)

    def micros(seconds: Sequence[float]) -> tuple[int, ...]:
        return tuple(max(1, round(1e6 * each)) for each in seconds)

    return PipelineProgram(
        schedule, microbatches, micros(forward_s), micros(backward_s), sizes(send_forward_s), sizes(send_backward_s)
    )


def program_of(view: Decision, plan: Plan) -> PipelineProgram:
    """The pipeline of a plan at a decision, with its links as they are.

    Raises:
        PlanError: If the plan has several replicas or one stage, which is no pipeline.
    """
    stages = sum(segment.pp for segment in plan.segments)
    if len(plan.replicas) != 1 or stages < 2:
        rule = "must be one replica of two stages or more"
        found = f"{len(plan.replicas)} replicas, {stages} stages"
        raise PlanError(problem("plan", found, rule, "Give a plan that is cut"))
    seconds = _stage_seconds(view, plan, stages)
    return program(plan.schedule, plan.replicas[0].microbatches, *(row.tolist() for row in seconds))


def _stage_seconds(view: Decision, plan: Plan, stages: int) -> FloatArray:
    """Forward, backward, and the sends of both, by stage, as the cost model has them on the way, shape ``(4, S)``."""
    cost, batch, k = view.cost, PlanBatch.of([plan]), len(view.cost.cluster)
    scratch = make_scratch(stages, plan.replicas[0].microbatches)
    rows = [np.ascontiguousarray(a, dtype=np.int64) for a in (batch.segments, batch.counts, batch.schedules)]
    _score(
        cost.domains, cost.runtime, cost.power_law, cost.tables, view.kind_index, cost.training[view.kind_index],
        np.ones((1, 3)), BYTES_PER_GBIT * view.bandwidth_gbps[None], np.array(view.latency_s)[None], *rows,
        np.ones(batch.segments.shape[:2]), False, scratch, np.zeros((1, len(PLAN_COLUMNS))),
        np.zeros((*batch.segments.shape[:2], len(SEGMENT_COLUMNS))), np.zeros((1, k, k)),
    )  # fmt: skip
    return np.asarray(scratch.seconds[:4, :stages].copy())


# --- Protobuf by hand ---


def varint(value: int) -> bytes:
    """A number in base 128, the lowest digits first."""
    out = bytearray()
    while True:
        low, value = value & 0x7F, value >> 7
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def _attribute(name: str, value: int | bool) -> bytes:
    inside = _bytes(1, name.encode())
    # bool_val and uint64_val of AttributeProto.
    inside += _number(27, int(value)) if isinstance(value, bool) else _number(13, value)
    return _bytes(10, inside)


def _node(number: int, name: str, kind: int, after: Sequence[int], micros: int = 0, **attributes: int) -> bytes:
    body = _number(1, number) + _bytes(2, name.encode()) + _number(3, kind)
    if after:
        body += _bytes(5, b"".join(varint(each) for each in after))
    if micros:
        body += _number(7, micros)
    body += _attribute("is_cpu_op", False) + b"".join(_attribute(key, value) for key, value in attributes.items())
    return varint(len(body)) + body


def operations(schedule: Schedule, stage: int, stages: int, microbatches: int) -> list[int]:
    """Passes of a stage in order: ``m`` is the forward pass of microbatch m, ``−1 − m`` its backward pass."""
    if schedule == Schedule.GPIPE:
        return [*range(microbatches), *(-1 - m for m in range(microbatches))]
    warm = min(stages - stage - 1, microbatches)
    order = list(range(warm))
    for m in range(microbatches - warm):
        order += [warm + m, -1 - m]
    return [*order, *(-1 - m for m in range(microbatches - warm, microbatches))]


def traces(pipeline: PipelineProgram) -> list[bytes]:
    """One trace for each stage."""
    return [_trace(pipeline, stage) for stage in range(pipeline.stages)]


def _trace(pipeline: PipelineProgram, stage: int) -> bytes:
    head = _bytes(1, VERSION.encode())
    out = [varint(len(head)) + head]
    last, count, previous = pipeline.stages - 1, 0, None

    def add(name: str, kind: int, after: Sequence[int], micros: int = 0, **attributes: int) -> int:
        nonlocal count
        out.append(_node(count, name, kind, after, micros, **attributes))
        count += 1
        return count - 1

    def message(source: int, target: int, size: int, tag: int) -> dict[str, int]:
        return {"comm_src": source, "comm_dst": target, "comm_size": size, "comm_tag": tag}

    for pass_ in operations(pipeline.schedule, stage, pipeline.stages, pipeline.microbatches):
        forward = pass_ >= 0
        m = pass_ if forward else -1 - pass_
        tag, before = (m, stage - 1) if forward else (pipeline.microbatches + m, stage + 1)
        word = f"{'F' if forward else 'B'}{m}"
        needs = [] if previous is None else [previous]
        if 0 <= before <= last:
            size = pipeline.forward_bytes[before] if forward else pipeline.backward_bytes[before]
            needs.append(add(f"recv {word}", RECV, [], **message(before, stage, size, tag)))
        micros = pipeline.forward_us[stage] if forward else pipeline.backward_us[stage]
        previous = add(word, COMP, needs, micros)
        target = stage + 1 if forward else stage - 1
        if 0 <= target <= last:
            size = pipeline.forward_bytes[stage] if forward else pipeline.backward_bytes[stage]
            add(f"send {word}", SEND, [previous], **message(stage, target, size, tag))
    return b"".join(out)


# --- ASTRA-sim ---


def write(pipeline: PipelineProgram, folder: Path, name: str = "pipeline") -> Path:
    """Write traces and the three configurations; the path that all traces begin with."""
    for rank, trace in enumerate(traces(pipeline)):
        (folder / f"{name}.{rank}.et").write_bytes(trace)
    one = ["ring"]
    system = {
        "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1, "all-reduce-implementation": one, "all-gather-implementation": one,
        "reduce-scatter-implementation": one, "all-to-all-implementation": one,
        "collective-optimization": "localBWAware", "local-mem-bw": 1600, "boost-mode": 0, "roofline-enabled": 0,
        "peak-perf": 100, "trace-enabled": 0,
    }  # fmt: skip
    (folder / "system.json").write_text(json.dumps(system, indent=1))
    (folder / "memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    network = (
        f"topology: [ FullyConnected ]\nnpus_count: [ {pipeline.stages} ]\n"
        f"bandwidth: [ {REFERENCE_GIB_PER_S} ]\nlatency: [ {REFERENCE_LATENCY_NS} ]\n"
    )
    (folder / "network.yml").write_text(network)
    return folder / name


def find_binary(given: str | os.PathLike[str] | None = None) -> Path:
    """A user's own build of ASTRA-sim: as given, by the variable, or on the path.

    Raises:
        SettingsError: If there is none.
    """
    asked = given or os.environ.get(VARIABLE)
    candidates = [str(asked)] if asked else [found for name in BINARIES if (found := shutil.which(name))]
    for each in candidates:
        if Path(each).is_file() and os.access(each, os.X_OK):
            return Path(each).resolve()
    fix = f"Build ASTRA-sim's analytical backend and give --astra-binary PATH, or {VARIABLE}"
    raise SettingsError(
        problem("--astra-binary", str(asked) if asked else None, "is no programme that can be run", fix)
    )


def run_astra(binary: Path, pipeline: PipelineProgram, folder: Path) -> float:
    """The step in seconds, by ASTRA-sim.

    Raises:
        ExecutorError: If it fails, or does not say when every stage has finished.
    """
    prefix = write(pipeline, folder)
    command = [
        str(binary), f"--workload-configuration={prefix}", f"--system-configuration={folder / 'system.json'}",
        f"--remote-memory-configuration={folder / 'memory.json'}", f"--network-configuration={folder / 'network.yml'}",
        f"--logging-folder={folder}",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, cwd=folder, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        rule = f"cannot be run ({type(error).__name__})"
        raise ExecutorError(problem("astra-sim", str(binary), rule, "Try it by itself")) from error
    return finished_s(done.stdout, pipeline.stages, done.stderr)


def finished_s(said: str, stages: int, complained: str = "") -> float:
    """When the last stage finished, from what ASTRA-sim prints; a cycle is a nanosecond.

    Raises:
        ExecutorError: If not every stage has.
    """
    cycles = {int(rank): int(count) for rank, count in FINISHED.findall(said)}
    if set(cycles) != set(range(stages)):
        words = " ".join((complained or said).split())[-200:]
        rule = f"{len(cycles)} of {stages} stages finished ({words})"
        raise ExecutorError(problem("astra-sim", "output", rule, "Compare its version with Chakra 0.0.4"))
    return 1e-9 * max(cycles.values())
