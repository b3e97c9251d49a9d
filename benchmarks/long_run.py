"""Memory of a long run: many decisions with a journal on disk, resident memory as it goes.

    python benchmarks/long_run.py                                       # 100,000 decisions of a fast rule
    python benchmarks/long_run.py --policy hi-ppo --decisions 20000     # the shipped network

Memory is read after a garbage collection. What is bounded by design (1,000 remembered decisions, 2,048 attributions,
tables of what fits, compiled kernels) fills up first: the slope counts from ``--settled`` decisions on. Decisions are
committed one by one as in use; ``--grouped`` commits in groups, which is quicker and changes nothing about memory.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import contextlib
import gc
import tempfile
import time
from pathlib import Path

import numpy as np

from attribution_sched import System

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_mb() -> float:
    """Megabytes of this process that are in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES / 1e6


def main() -> None:
    """Print the table and the slope."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="greedy")
    parser.add_argument("--preset", default="cross-domain-easy")
    parser.add_argument("--decisions", type=int, default=100_000)
    parser.add_argument("--every", type=int, default=5_000, help="decisions between two readings")
    parser.add_argument("--settled", type=int, default=10_000, help="decisions after which the slope counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grouped", action="store_true", help="commit in groups")
    options = parser.parse_args()
    readings: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.journal"
        with System(options.preset, options.policy, journal=path, seed=options.seed) as system:
            print(f"{options.policy}, {options.preset}, seed {options.seed}")
            print("decisions  resident MB  journal MB  cluster days  seconds", flush=True)
            began = time.perf_counter()
            while True:
                taken = system.journal.count()
                readings.append((taken, resident_mb()))
                on_disk = sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6
                spent = time.perf_counter() - began
                days = system.now_s / 86_400
                print(f"{taken:9d} {readings[-1][1]:12.1f} {on_disk:11.1f} {days:13.1f} {spent:8.0f}", flush=True)
                if taken >= options.decisions:
                    break
                goal = min(options.decisions, (taken // options.every + 1) * options.every)
                with system.journal.batch() if options.grouped else contextlib.nullcontext():
                    while system.journal.count() < goal:
                        system.run(20)
            entries = system.journal.count()
            size = path.stat().st_size / entries
    late = np.array([reading for reading in readings if reading[0] >= options.settled])
    if len(late) > 2:
        slope = np.polyfit(late[:, 0], late[:, 1], 1)[0]
        grown = late[-1, 1] - late[0, 1]
        print(
            f"from {late[0, 0]:.0f} decisions on: {grown:+.2f} MB in {late[-1, 0] - late[0, 0]:.0f} decisions, slope "
            f"{1e6 * slope:+.1f} bytes per decision, least {late[:, 1].min():.1f} MB, most {late[:, 1].max():.1f} MB"
        )
    print(f"journal: {size:.0f} bytes per decision")


if __name__ == "__main__":
    main()
