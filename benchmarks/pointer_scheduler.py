"""The sequence-to-sequence scheduler against the exact search and the rules, inside and outside its training range.

    python benchmarks/pointer_scheduler.py --traces DIR              # gaps on all sets of decisions
    python benchmarks/pointer_scheduler.py --traces DIR --latency    # also seconds per decision at 4 to 64 domains
    python benchmarks/pointer_scheduler.py --traces DIR --output F   # also writes the figures as JSON

Decisions and the plans of the exact search are kept in DIR (see ``calibration/train_pointer.py`` for the training set;
none of these worlds is in it). The gap of a decision is the reward lost against the best plan anybody found, which is
nearly always that of the exact search; the gap in step time is relative and counts decisions alone whose only wish is
speed. A policy that finds no plan where there is one loses as much as the worst of the others on that decision; how
often that happens is listed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attribution_sched.cluster.decision import Decision, view
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.config import load_settings
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.rivals.seq2seq.policy import SupervisedPointer
from attribution_sched.rivals.splits import SpeedProportional, StaticUniform
from attribution_sched.scheduler.policy import Policy
from attribution_sched.scheduler.rules import GreedyBandwidth
from research.pointer_draws import (
    Range,
    SearchTeacher,
    Trace,
    at,
    build_view,
    draw_decision,
    draw_world,
    views_of,
)
from research.pointer_traces import cached_traces

DEEP = Range(
    models=("stretched:llama-2-70b:110", "stretched:opt-66b:98", "stretched:opt-30b:98", "stretched:gpt3-13b:128"),
    large=2,
)
GPT3 = Range(models=("gpt3-175b", "stretched:llama-2-70b:110"), large=2, sizes=(32, 64), size_odds=(0.5, 0.5))
EIGHT, TWELVE, SIXTEEN = (Range(domains=(k, k), max_segments=(4,)) for k in (8, 12, 16))
SETS: dict[str, tuple[str, int, int, Range, int, str]] = {
    "held": ("3-6 domains, 26-82 layers (as trained, other worlds)", 58, 2, Range(), 6, "exact"),
    "k8": ("8 domains", 21, 3, EIGHT, 8, "exact"),
    "k12": ("12 domains", 12, 4, TWELVE, 8, "exact"),
    "k16": ("16 domains", 10, 5, SIXTEEN, 8, "exact"),
    "deep": ("98-128 layers", 4, 6, DEEP, 8, "exact"),
    "held-search": ("3-6 domains, 26-82 layers (as trained, other worlds)", 100, 12, Range(), 5, "search"),
    "k8-search": ("8 domains", 40, 13, EIGHT, 5, "search"),
    "k12-search": ("12 domains", 40, 14, TWELVE, 5, "search"),
    "k16-search": ("16 domains", 40, 15, SIXTEEN, 5, "search"),
    "deep-search": ("98-128 layers", 40, 16, DEEP, 5, "search"),
    "gpt3-search": ("98 and 110 layers on 32 or 64 devices", 20, 17, GPT3, 5, "search"),
}
"""Name → title, decisions, seed, from where they are drawn, decisions per world, who planned them first."""

SIZES = (4, 8, 16, 64)
Row = dict[str, Any]


class LocalSearch:
    """Speed-proportional plans improved by small changes: the quick teacher as a policy."""

    name = "local-search"

    def decide(self, view: Decision) -> Plan | None:
        """Place by search."""
        found = SearchTeacher().solve(view)
        return None if found is None else found[0]


def players() -> dict[str, Policy]:
    """Make the policies that are compared."""
    found: dict[str, Policy] = {
        "seq2seq": SupervisedPointer(),
        "seq2seq greedy": SupervisedPointer(width=1, move_cuts=False),
        "local-search": LocalSearch(),
        "speed-proportional": SpeedProportional(),
        "greedy": Greedy(),
        "greedy-bandwidth": GreedyBandwidth(),
        "static-uniform": StaticUniform(),
    }
    return found


def compare(traces: list[Trace], teacher: str) -> Row:
    """Ask every policy at every decision."""
    policies = {name: policy for name, policy in players().items() if (name, teacher) != ("local-search", "search")}
    rewards = {name: [] for name in (teacher, *policies)}
    steps = {name: [] for name in (teacher, *policies)}
    sources: dict[str, list[tuple[bool, bool]]] = {"seq2seq": [], "seq2seq greedy": []}
    speed_only, several, proven = [], [], []
    for trace, seen in views_of(traces):
        count = len(trace.rows)
        plans = {teacher: PlanBatch(trace.rows[None], np.array([count]), np.zeros(1, dtype=np.int64)).plan(0)}
        for name, policy in policies.items():
            plans[name] = policy.decide(seen)
            if isinstance(policy, SupervisedPointer) and policy.last is not None and name in sources:
                sources[name].append((policy.last.source == "network", policy.last.likeliest_fits))
        for name, plan in plans.items():
            found = value(seen, PlanBatch.of([plan])) if plan is not None else None
            rewards[name].append(float(found.reward[0]) if found else -np.inf)
            steps[name].append(float(found.step_s[0]) if found else np.inf)
        speed_only.append(trace.decision.weights[1] == trace.decision.weights[2] == 0.0)
        several.append(count > 1)
        proven.append(trace.proven)
    return summary(rewards, steps, np.array(speed_only), np.array(several), np.array(proven), sources)


def summary(
    rewards: dict[str, list[float]], steps: dict[str, list[float]], speed_only: np.ndarray, several: np.ndarray,
    proven: np.ndarray, sources: dict[str, list[tuple[bool, bool]]],
) -> Row:  # fmt: skip
    """Reduce the rewards and step times to figures per policy."""
    table = np.array(list(rewards.values()))
    times = np.array(list(steps.values()))
    best, worst = table.max(axis=0), np.where(np.isfinite(table), table, np.inf).min(axis=0)
    fastest, slowest = times.min(axis=0), np.where(np.isfinite(times), times, -np.inf).max(axis=0)
    rows: Row = {}
    for name, reward, step in zip(rewards, table, times, strict=True):
        gap = best - np.where(np.isfinite(reward), reward, worst)
        slow = (np.where(np.isfinite(step), step, slowest) / fastest - 1.0)[speed_only]
        rows[name] = {
            "gap_mean": float(gap.mean()),
            "gap_median": float(np.median(gap)),
            "gap_p90": float(np.quantile(gap, 0.9)),
            "gap_several_domains": float(gap[several].mean()) if several.any() else 0.0,
            "best_share": float((gap <= 1e-6).mean()),
            "step_gap_mean": float(slow.mean()) if slow.size else 0.0,
            "step_gap_median": float(np.median(slow)) if slow.size else 0.0,
            "no_plan": int((~np.isfinite(reward)).sum()),
        }
        if name in sources:
            rows[name]["without_repair"] = float(np.mean([own for own, _ in sources[name]]))
            rows[name]["likeliest_fits"] = float(np.mean([fits for _, fits in sources[name]]))
    return {
        "decisions": table.shape[1], "several_domains": int(several.sum()), "speed_only": int(speed_only.sum()),
        "proven": int(proven.sum()), "policies": rows,
    }  # fmt: skip


def show(title: str, row: Row) -> None:
    """Print one set."""
    print(
        f"\n{title}: {row['decisions']} decisions, {row['several_domains']} over several domains, "
        f"{row['speed_only']} by speed alone, {row['proven']} proven"
    )
    print(f"  {'':20s} {'gap of R':>9s} {'median':>8s} {'p90':>7s} {'several':>8s} {'best':>6s} {'step':>7s} "
          f"{'median':>7s} {'none':>5s} {'own':>6s} {'likeliest':>9s}")  # fmt: skip
    for name, r in row["policies"].items():
        own = f"{r['without_repair']:6.1%} {r['likeliest_fits']:9.1%}" if "without_repair" in r else ""
        print(
            f"  {name:20s} {r['gap_mean']:9.4f} {r['gap_median']:8.4f} {r['gap_p90']:7.3f} "
            f"{r['gap_several_domains']:8.4f} {r['best_share']:6.1%} {r['step_gap_mean']:7.1%} "
            f"{r['step_gap_median']:7.1%} {r['no_plan']:5d} {own}", flush=True,
        )  # fmt: skip


def latencies(decisions: int = 150) -> Row:
    """Milliseconds of one decision of the policy, by number of domains: on the clock and of the processor."""
    found: Row = {}
    policy = SupervisedPointer()
    for k in SIZES:
        moments = _moments(k, decisions)
        policy.decide(moments[0])
        wall_ms, cpu_ms = [], []
        for seen in moments:
            began, worked = time.perf_counter(), time.thread_time()
            policy.decide(seen)
            wall_ms.append(1e3 * (time.perf_counter() - began))
            cpu_ms.append(1e3 * (time.thread_time() - worked))
        row = {
            f"{name}_{q}_ms": float(np.quantile(spent, share))
            for name, spent in (("wall", wall_ms), ("cpu", cpu_ms))
            for q, share in (("p50", 0.5), ("p99", 0.99))
        }
        found[str(k)] = row
        print(f"{k:3d} domains: " + ", ".join(f"{name} {ms:.0f}" for name, ms in row.items()), flush=True)
    return found


def _moments(k: int, decisions: int) -> list[Decision]:
    rng = np.random.default_rng([17, k])
    presets: dict[int, str] = {4: "cross-domain-easy", 64: "large"}
    if k not in presets:
        drawn = draw_world(rng, Range(domains=(k, k), max_segments=(4,)))
        built = build_view(drawn)
        return [at(built, draw_decision(rng, drawn, built.bandwidth_gbps)) for _ in range(decisions)]
    engine = Engine(load_settings(presets[k]).build_world())
    engine.seed([0])
    engine.reset()
    seen = view(engine)
    assert seen is not None
    rooms = np.array([domain.devices for domain in seen.cost.cluster.domains])
    moments = []
    for _ in range(decisions):
        kind = int(rng.integers(len(seen.kinds)))
        free = rng.integers(0, rooms + 1)
        free[0] = max(1, free[0])
        links = seen.bandwidth_gbps * rng.uniform(0.7, 1.3, seen.bandwidth_gbps.shape)
        moments.append(replace(seen, kind=seen.kinds[kind], kind_index=kind, free_devices=free, bandwidth_gbps=links))
    return moments


def main() -> None:
    """Compare on every set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, help="folder of decisions and exact plans")
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--latency", action="store_true")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    results: Row = {}
    for name in args.sets:
        title, count, *how = SETS[name]
        traces = cached_traces(args.traces / f"{name}.jsonl", count, *how)
        results[name] = compare(traces, how[-1])
        show(f"{title}, planned first by {how[-1]}", results[name])
    if args.latency:
        results["latency"] = latencies()
    if args.output:
        args.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
