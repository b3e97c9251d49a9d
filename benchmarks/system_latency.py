"""How long a user waits for ``System``: import, construction, first decision, every decision after, explanations.

    python benchmarks/system_latency.py                      # 1,000 decisions, 150 explained placements
    python benchmarks/system_latency.py --decisions 200 --explained 20

Three systems in processes of their own: journal in memory, journal on disk, and one that explains every placement.
"Decision" is the policy alone; "journal" the commits of decision and outcome; "effect" what the cluster does; "rest"
all else (the view, encoding, remembering what was seen). A call of ``schedule_next_task`` places one task and takes all
decisions on the way, re-planning included. Times are wall clock and, in brackets, processor time of the same spans: on
a machine that does other work too, the wall clock also counts the turns of others. Kernels are compiled beforehand.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Span = tuple[float, float]
"""Wall-clock and processor seconds."""

QUANTILES = (50.0, 95.0, 99.0)


def spans(action: Callable[[], Any]) -> tuple[Span, Any]:
    """Run something and say how long it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = action()
    return (time.perf_counter() - wall, time.process_time() - cpu), found


def measure(mode: str, decisions: int, explained: int, policy: str) -> dict[str, Any]:
    """Everything about one system, in this process."""
    told: dict[str, Any] = {}

    def load() -> Any:
        from attribution_sched import System

        return System

    told["import"], system_class = spans(load)
    with tempfile.TemporaryDirectory() as folder:
        given: dict[str, Any] = {"policy": policy, "explain": mode == "explained"}
        if mode == "on disk":
            given["journal"] = Path(folder) / "run.journal"
        told["construction"], system = spans(lambda: system_class(**given))
        told["first call"], _ = spans(system.schedule_next_task)
        parts: dict[str, list[Span]] = {"whole": [], "placing": []}
        decide = system.ring.decide

        def watched() -> Any:
            span, taken = spans(decide)
            parts["whole"].append(span)
            if taken.effect.code == 1 and not taken.asked.view.replanning:
                parts["placing"].append(span)
            for name, seconds in taken.latencies_s.items():
                parts.setdefault(name, []).append((seconds, 0.0))
            parts.setdefault("rest", []).append((span[0] - sum(taken.latencies_s.values()), 0.0))
            return taken

        system.ring.decide = watched
        calls: list[Span] = []
        explaining: list[Span] = []
        if mode == "explained":
            explain = system.explain

            def watched_explain(*args: Any, **options: Any) -> Any:
                span, found = spans(lambda: explain(*args, **options))
                explaining.append(span)
                return found

            system.explain = watched_explain
        while len(explaining) < explained if mode == "explained" else len(parts["whole"]) < decisions:
            span, _ = spans(system.schedule_next_task)
            calls.append(span)
        system.close()
    told["calls"], told["parts"], told["explaining"] = calls, parts, explaining
    return told


def row(name: str, measured: list[Span]) -> str:
    """One line of the table: quantiles in milliseconds."""
    import numpy as np

    wall, cpu = (1e3 * np.array([span[i] for span in measured]) for i in (0, 1))
    columns = []
    for values in (wall, cpu):
        columns += [f"{q:.1f}" for q in np.percentile(values, QUANTILES)] + [f"{values.max():.1f}"]
    told = [f"{w} ({c})" if cpu.any() else w for w, c in zip(columns[:4], columns[4:], strict=True)]
    return f"| {name} | {len(measured)} | {' | '.join(told)} |"


def report(found: dict[str, dict[str, Any]]) -> list[str]:
    """The tables as Markdown."""
    lines = ["| once, s: wall (processor) | import | construction | first call | all |", "|---|---|---|---|---|"]
    for mode, told in found.items():
        once = [told[name] for name in ("import", "construction", "first call")]
        once.append([sum(span[i] for span in once) for i in (0, 1)])
        lines.append(f"| {mode} | {' | '.join(f'{wall:.2f} ({cpu:.2f})' for wall, cpu in once)} |")
    lines += ["", "| ms: wall (processor) | n | p50 | p95 | p99 | max |", "|---|---|---|---|---|---|"]
    for mode in ("in memory", "on disk"):
        told = found[mode]
        names = {"whole": "decision, everything", "placing": "decision that places a task, everything"}
        for part in ("whole", "placing", "attribution", "decision", "journal", "effect", "rest"):
            lines.append(row(f"{mode}: {names.get(part, part)}", told["parts"][part]))
        lines.append(row(f"{mode}: call of schedule_next_task", told["calls"]))
    told = found["explained"]
    lines.append(row("explanation, journaled", told["explaining"]))
    placing = told["parts"]["placing"][-len(told["explaining"]) :]
    both = [tuple(a[i] + b[i] for i in (0, 1)) for a, b in zip(placing, told["explaining"], strict=True)]
    lines.append(row("decision that places a task and its explanation", both))
    lines.append(row("call with explanation", told["calls"]))
    return lines


def main() -> None:
    """Measure in fresh processes and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=1000)
    parser.add_argument("--explained", type=int, default=150)
    parser.add_argument("--policy", default="hi-ppo")
    parser.add_argument("--mode", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.mode:
        json.dump(measure(options.mode, options.decisions, options.explained, options.policy), sys.stdout)
        return
    sizes = ["--decisions", str(options.decisions), "--explained", str(options.explained), "--policy", options.policy]
    base = [sys.executable, __file__, *sizes, "--mode"]
    # Once for nothing: compiled kernels and files of the libraries are then at hand.
    subprocess.run([*base[:2], "--decisions", "60", "--explained", "2", "--mode", "explained"], check=True, stdout=-3)
    found = {}
    for mode in ("in memory", "on disk", "explained"):
        done = subprocess.run([*base, mode], check=True, stdout=subprocess.PIPE, text=True)
        found[mode] = json.loads(done.stdout)
    print("\n".join(report(found)))


if __name__ == "__main__":
    main()
