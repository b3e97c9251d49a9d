"""Latency, throughput, first use and memory of this checkout beside another one, in one run on one machine.

    python benchmarks/side_by_side.py --against ../other --rounds 5
    python benchmarks/side_by_side.py --against ../other --rounds 1 --cold    first use with an empty cache too

Each round runs every measure in both checkouts, in turn, the order swapped from round to round, each in a process of
its own with one thread. What is told is the ratio here over there of every pair, its mean with the 95 % interval, and
the medians. A machine that does other things meanwhile moves both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from attribution_sched.stats.interval import mean_interval

ROOT = Path(__file__).resolve().parents[1]

MEASURES = {
    "placement, hi-ppo on cross-domain, CPU ms": """
from attribution_sched import System
system = System("cross-domain", "hi-ppo", seed=4)
for _ in range(5): system.schedule_next_task()
began = time.process_time()
for _ in range(40): system.schedule_next_task()
tell(1e3 * (time.process_time() - began) / 40)
""",
    "decision, rule on cross-domain, CPU ms": """
from attribution_sched import System
system = System("cross-domain", "rule", seed=4)
system.run(10); before = system.journal.count()
began = time.process_time()
system.run(150)
tell(1e3 * (time.process_time() - began) / (system.journal.count() - before))
""",
    "explanation, CPU ms": """
from attribution_sched import System
system = System("cross-domain", "hi-ppo", seed=4)
names = [system.schedule_next_task().id for _ in range(12)]
system.explain(names[0], rows=400)
began = time.process_time()
for name in names[1:]: system.explain(name, rows=400)
tell(1e3 * (time.process_time() - began) / 11)
""",
    "days followed by the rule, CPU ms a day": """
from dataclasses import replace
from attribution_sched.config import load_settings
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.policy_search import Days
world = replace(load_settings("cross-domain").build_world(), horizon_s=8 * 3600.0)
days = Days(world, 64, HiPpo().learnt)
days.returns(None, 5)
began = time.process_time()
for seed in range(10, 14): days.returns(None, seed)
tell(1e3 * (time.process_time() - began) / 256)
""",
    "first decision of a process, compiled before, CPU s": """
from attribution_sched import System
System(seed=4).schedule_next_task()
tell(time.process_time())
""",
    "most memory of it, MB": """
import resource
from attribution_sched import System
system = System(seed=4)
for _ in range(10): system.schedule_next_task()
tell(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
""",
}
"""What is measured → the code that tells one number."""

COLD = "first decision with nothing compiled, CPU s"


def measured(checkout: Path, code: str, cache: Path) -> float:
    """One number that code tells in a process of a checkout."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **threads, "PYTHONPATH": str(checkout), "NUMBA_CACHE_DIR": str(cache)}
    head = "import json, sys, time\ndef tell(x): print('TOLD', json.dumps(float(x)))\n"
    run = subprocess.run(
        [sys.executable, "-c", head + code], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    told = [line for line in run.stdout.splitlines() if line.startswith("TOLD ")]
    if not told:
        raise SystemExit(f"{checkout}: {(run.stderr or run.stdout)[-600:]}")
    return float(json.loads(told[-1][5:]))


def main() -> None:
    """Measure both in turn; print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    given = parser.parse_args()
    sites = {"here": ROOT, "there": given.against.resolve()}
    print("| measure | here | there | ratio, 95 % interval |\n|---|---:|---:|---|")
    with tempfile.TemporaryDirectory() as folder:
        caches = {name: Path(folder) / name for name in sites}
        first = MEASURES["first decision of a process, compiled before, CPU s"]
        cold = {name: measured(site, first, caches[name]) for name, site in sites.items()}
        if given.cold:
            print(f"| {COLD} | {cold['here']:.1f} | {cold['there']:.1f} | {cold['here'] / cold['there']:.2f}, once |")
        for what, code in MEASURES.items():
            for name, site in sites.items():
                measured(site, code, caches[name])  # what it compiles is compiled before it is timed
            rows = []
            for number in range(given.rounds):
                order = list(sites) if number % 2 else list(sites)[::-1]
                pair = {name: measured(sites[name], code, caches[name]) for name in order}
                rows.append((pair["here"], pair["there"]))
            values = np.array(rows)
            ratio = mean_interval(values[:, 0] / values[:, 1])
            here, there = np.median(values, axis=0)
            told = f"{ratio.mean:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
            print(f"| {what} | {here:.3g} | {there:.3g} | {told} |", flush=True)


if __name__ == "__main__":
    main()
