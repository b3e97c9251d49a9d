"""How long a placement takes while another process explains decisions of the same journal, against alone.

    python benchmarks/explain_beside.py                   Hi-PPO on the testbed, 6 pairs of 40 placements

One process decides into a journal on disk. A second one takes a copy of that journal as it is, resumes the copy and
explains its newest decisions, over and over, as ``attribution-sched explain`` does: it holds no lock that deciding
needs. Blocks of placements with and without it alternate, so that whatever else the machine does falls on both. Printed
are medians of a placement, by the clock and in CPU time of the deciding process, and their ratio; at most 1.3 is asked
for where the second process has a core of its own. On a busy machine the ratio by the clock says how busy it is, so
three things are printed that do not depend on who else uses the cores: the clock without what the kernel counts as
waiting for a core (Linux, ``schedstat``; the disk is in it), CPU time, and how long deciding waited for a lock.
``--thread`` explains in a thread of the deciding process instead, where locks could be shared.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import multiprocessing
import tempfile
import threading
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

LIMIT = 1.3


def explain_on(path: str, working: Event, stop: Event, count: Any) -> None:
    """Explain the newest decisions of a journal that another process writes, while it is told to."""
    from attribution_sched import System
    from attribution_sched.journal.journal import temporary_copy

    while not stop.is_set():
        if not working.wait(0.05):
            continue
        with temporary_copy(path) as copy, System.resume(copy) as system:
            names = [decision.id for decision, outcome in system.journal.entries() if outcome and outcome.code == 1]
            for name in names[-8:]:
                if not working.is_set():
                    break
                system.explain(name, rows=1600)
                count.value += 1


def waited_for_core_s() -> float:
    """Seconds this thread could have run and had no core, since it began; 0 where the kernel does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) * 1e-9
    except (OSError, IndexError):
        return 0.0


class Waited:
    """A lock that counts how long one thread waits for others to give it back."""

    seconds = 0.0
    longest_s = 0.0
    times = 0

    def __init__(self, lock: Any) -> None:
        self._lock, self._thread = lock, threading.get_ident()

    def __enter__(self) -> Any:
        if self._lock.acquire(blocking=False):
            return self
        began = time.perf_counter()
        self._lock.acquire()
        if threading.get_ident() == self._thread:
            spent_s = time.perf_counter() - began
            Waited.seconds, Waited.times = Waited.seconds + spent_s, Waited.times + 1
            Waited.longest_s = max(Waited.longest_s, spent_s)
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def watch_locks(system: Any) -> None:
    """Count waiting for every lock that deciding takes."""
    system.lock = Waited(system.lock)
    system.memory._lock = Waited(system.memory._lock)
    system.journal._turn = Waited(system.journal._turn)


def explain_here(system: Any, working: Any, stop: Any, count: Any) -> None:
    """Explain the newest placements in a thread, while it is told to."""
    while not stop.is_set():
        if not working.wait(0.05):
            continue
        names = [decision.id for decision, outcome in system.journal.entries() if outcome and outcome.code == 1]
        for name in names[-8:]:
            if not working.is_set():
                break
            system.explain(name, rows=1600)
            count.value += 1


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="testbed")
    parser.add_argument("--policy", default="hi-ppo")
    parser.add_argument("--pairs", type=int, default=6, help="of blocks")
    parser.add_argument("--placements", type=int, default=40, help="of a block")
    parser.add_argument("--thread", action="store_true", help="explain in a thread of the deciding process")
    args = parser.parse_args()
    from attribution_sched import System

    spawn = multiprocessing.get_context("spawn")
    working, stop, count = spawn.Event(), spawn.Event(), spawn.Value("i", 0)
    taken: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.sqlite"
        with System(args.preset, args.policy, journal=path, seed=1) as system:
            system.run(20)
            watch_locks(system)
            worker: Any = (
                threading.Thread(target=explain_here, args=(system, working, stop, count))
                if args.thread
                else spawn.Process(target=explain_on, args=(str(path), working, stop, count))
            )
            worker.start()
            try:
                # The worker's own first explanation compiles and loads: it is none of the measured ones.
                working.set()
                while count.value == 0 and worker.is_alive():
                    time.sleep(0.1)
                for block in range(2 * args.pairs):
                    beside = block % 2 == 1
                    (working.set if beside else working.clear)()
                    time.sleep(0.5)
                    for _ in range(args.placements):
                        wall_s, core_s, cpu_s = time.perf_counter(), waited_for_core_s(), time.process_time()
                        system.schedule_next_task()
                        cpu_s, core_s = time.process_time() - cpu_s, waited_for_core_s() - core_s
                        wall_s = time.perf_counter() - wall_s
                        taken[beside].append((wall_s, wall_s - core_s, cpu_s))
            finally:
                stop.set()
                worker.join(60)
                if not args.thread:
                    worker.kill()
    alone, beside_ = (np.median(np.array(taken[each]), axis=0) * 1e3 for each in (False, True))
    print(f"{len(taken[False])} placements alone, {len(taken[True])} beside {count.value} explanations")
    for name, a, b in zip(("by the clock", "with a core", "CPU"), alone, beside_, strict=True):
        met = "met" if b <= LIMIT * a else "missed"
        print(f"p50 {name:12} alone {a:7.2f} ms, beside {b:7.2f} ms: {b / a:.2f} (at most {LIMIT}: {met})")
    told = f"{1e3 * Waited.seconds:.2f} ms in all, {Waited.times} times, at most {1e3 * Waited.longest_s:.2f} ms"
    print(f"deciding waited for a lock that somebody held: {told}")


if __name__ == "__main__":
    main()
