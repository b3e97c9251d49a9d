"""Agreement of the pipeline recurrence with ASTRA-sim and with an event simulation, and its speed.

The reference cases are 40 pipelines with the step time of ASTRA-sim's analytical backend. The random ones
(1-8 uneven stages, 1-24 microbatches, sends from none to far longer than computing, both schedules, blocking
or not) are played out by the SimPy simulation. Two closed forms in common use are shown for comparison.

Run: ``python benchmarks/pipeline_agreement.py``
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.models import model
from attribution_sched.cluster.pipeline import Schedule, pipeline_times
from attribution_sched.cluster.plan import SEGMENT_FIELDS, PlanBatch
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain
from research.pipeline_events import simulate_pipeline

FloatArray = NDArray[np.float64]
CASES = Path(__file__).parents[1] / "tests" / "cases" / "astra_sim_pipelines.json"
GIB = 2.0**30
SCHEDULES = {"1f1b": Schedule.ONE_F_ONE_B, "gpipe": Schedule.GPIPE}
SEND_SCALES = (0.0, 0.1, 30.0, 1.0)
RANDOM_CASES, PLANS = 400, 10_000


class Pipeline(NamedTuple):
    """One pipeline: seconds per stage and, for sends, per boundary."""

    schedule: Schedule
    microbatches: int
    forward_s: FloatArray
    backward_s: FloatArray
    send_forward_s: FloatArray
    send_backward_s: FloatArray
    blocking: bool = False


def astra_sim_cases() -> list[tuple[Pipeline, float]]:
    """Reference pipelines and the step time ASTRA-sim gives them."""
    found = []
    for case in json.loads(CASES.read_text()):
        link = np.array(case["link_gib_per_s"]) * GIB
        send = np.array(case["link_latency_s"]) + np.array(case["boundary_bytes"]) / link
        pipeline = Pipeline(
            SCHEDULES[case["schedule"]], case["microbatches"], np.array(case["forward_s"]),
            np.array(case["backward_s"]), send, send,
        )  # fmt: skip
        found.append((pipeline, float(case["step_s"])))
    return found


def random_pipeline(seed: int) -> Pipeline:
    """A pipeline of its own for every seed; schedules, blocking and the scale of sends take turns."""
    rng = np.random.default_rng(seed)
    stages, microbatches = int(rng.integers(1, 9)), int(rng.integers(1, 25))
    sends = SEND_SCALES[seed % 4] * rng.uniform(0.0, 1.0, (2, stages - 1))
    if SEND_SCALES[seed % 4] == 1.0:
        sends *= rng.random(sends.shape) < 0.5
    return Pipeline(
        Schedule(seed // 4 % 2), microbatches, rng.uniform(0.05, 2.0, stages), rng.uniform(0.05, 3.0, stages),
        sends[0], sends[1], bool(seed // 8 % 2),
    )  # fmt: skip


def recurrence(pipeline: Pipeline) -> FloatArray:
    """Finish of every stage by the recurrence."""
    return pipeline_times(
        pipeline.schedule,
        np.array([len(pipeline.forward_s)]),
        np.array([pipeline.microbatches]),
        pipeline.forward_s[None],
        pipeline.backward_s[None],
        np.append(pipeline.send_forward_s, 0.0)[None],
        np.insert(pipeline.send_backward_s, 0, 0.0)[None],
        blocking=pipeline.blocking,
    ).finish_s[0]


def overlapped_form(pipeline: Pipeline) -> float:
    """Closed form with sends fully hidden: one pass through, then the slowest unit of any stage."""
    work = pipeline.forward_s + pipeline.backward_s
    interface = _interface(pipeline)
    return float(work.sum() + interface.sum() + (pipeline.microbatches - 1) * max(work.max(), interface.max()))


def blocking_form(pipeline: Pipeline) -> float:
    """Closed form with sends never hidden: one pass through, then the slowest stage with its sends."""
    work, interface = pipeline.forward_s + pipeline.backward_s, _interface(pipeline)
    return float(work.sum() + interface.sum() + (pipeline.microbatches - 1) * (work + interface).max())


def _interface(pipeline: Pipeline) -> FloatArray:
    """Seconds per microbatch that each stage's interface is busy."""
    return np.append(pipeline.send_forward_s, 0.0) + np.insert(pipeline.send_backward_s, 0, 0.0)


def random_plans(count: int, layers: int, domains: int, seed: int = 0) -> PlanBatch:
    """Well-formed plans with one to three cuts over random domains."""
    rng = np.random.default_rng(seed)
    segments = np.zeros((count, domains, len(SEGMENT_FIELDS)), dtype=np.int64)
    counts = rng.integers(1, domains + 1, count)
    for p in range(count):
        n = int(counts[p])
        cuts = np.sort(rng.choice(np.arange(1, layers), n - 1, replace=False))
        edges = [0, *cuts.tolist(), layers]
        order = rng.permutation(domains)
        micro, m = 8, int(rng.integers(4, 33))
        for s in range(n):
            dp, tp = 2 ** rng.integers(0, 3), 2 ** rng.integers(0, 3)
            pp = int(rng.integers(1, min(2, edges[s + 1] - edges[s]) + 1))
            segments[p, s] = (order[s], edges[s], edges[s + 1], dp, tp, pp, 1, 0, micro, m, 0)
    return PlanBatch(segments, counts, rng.integers(0, 2, count))


def cost_model() -> CostModel:
    """LLaMA-3 8B on four domains."""
    names = ["a", "b", "c", "d"]
    wan = Wan.uniform(names, gbps=5.0, latency_s=0.03, usd_per_gb=0.05)
    cards = [gpu("A100-80"), gpu("H100-80"), gpu("A100-40"), gpu("V100-32")]
    domains = tuple(Domain(name, card, 32) for name, card in zip(names, cards, strict=True))
    return CostModel(Cluster(domains, wan), [model("llama-3-8b")])


def throughput(count: int = PLANS, alone: int = 1000) -> tuple[float, float, float]:
    """Plans per second in one call and one by one, and the largest difference of any step time."""
    cost = cost_model()
    batch = random_plans(count, len(cost.models[0]), len(cost.cluster))
    singles = [
        PlanBatch(batch.segments[p : p + 1], batch.counts[p : p + 1], batch.schedules[p : p + 1]) for p in range(alone)
    ]
    cost.score(singles[0])
    began = time.perf_counter()
    together = cost.score(batch)
    middle = time.perf_counter()
    steps = [float(cost.score(single).step_s[0]) for single in singles]
    ended = time.perf_counter()
    difference = float(np.max(np.abs(together.step_s[:alone] - steps)))
    return count / (middle - began), alone / (ended - middle), difference


def _row(name: str, errors: Any) -> str:
    absolute = np.abs(np.asarray(errors))
    return f"{name:<58} {len(absolute):>5} {absolute.mean():>12.2e} {absolute.max():>12.2e}"


def main() -> None:
    """Print the tables."""
    cases = astra_sim_cases()
    truth = np.array([step for _, step in cases])
    pipelines = [pipeline for pipeline, _ in cases]
    print(f"{'relative error of the step time':<58} {'cases':>5} {'mean':>12} {'worst':>12}")
    print(_row("recurrence against ASTRA-sim", [recurrence(p).max() for p in pipelines] / truth - 1))
    print(_row("event simulation against ASTRA-sim", [simulate_pipeline(*p).max() for p in pipelines] / truth - 1))
    print(_row("closed form, sends hidden, against ASTRA-sim", [overlapped_form(p) for p in pipelines] / truth - 1))
    print(_row("closed form, sends blocking, against ASTRA-sim", [blocking_form(p) for p in pipelines] / truth - 1))
    errors = []
    for seed in range(RANDOM_CASES):
        case = random_pipeline(seed)
        errors.append(np.max(np.abs(recurrence(case) / simulate_pipeline(*case) - 1)))
    print(_row("recurrence against event simulation, every stage's finish", errors))
    batched, single, difference = throughput()
    print(f"\n{PLANS:,} plans of LLaMA-3 8B over up to four domains, step time split into its three terms:")
    print(f"  one call: {batched:,.0f} plans/s    one by one: {single:,.0f} plans/s    ratio {batched / single:.1f}")
    print(f"  largest difference of a step time between the two: {difference:g} s")


if __name__ == "__main__":
    main()
