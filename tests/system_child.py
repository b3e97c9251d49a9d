"""A process that lets systems work until it is told to stop, each in a process of its own that can be killed.

Reads lines ``PATH COUNT``: resume the journal there, or make it, and go on until so many tasks were placed. Writes
``warm`` once, then per line ``pid N``, ``ready`` when the system is made, ``R id`` for every result that was returned
and ``end STATUS``. The systems start quickly because the kernels are loaded before the process forks.
"""

import os
import sys
from pathlib import Path

from attribution_sched import System
from tests.session.small import small

SETTINGS = small(arrivals={"kind": "poisson", "rate_per_hour": 500.0})
SEED, POLICY = 11, "sjf"


def say(words: str) -> None:
    os.write(1, f"{words}\n".encode())


def placements(system: System) -> int:
    return sum(outcome is not None and outcome.code == 1 for _, outcome in system.journal.entries())


def work(system: System, count: int, tell=lambda words: None) -> None:
    """Place tasks, handing in one's own before every fifth."""
    placed = placements(system)
    known = {task.id for task in system.journal.tasks()}
    while placed < count:
        if placed % 5 == 0 and f"own-{placed}" not in known and system.cluster.has_room:
            system.submit("resnet-50", steps=600 + placed, id=f"own-{placed}")
            known.add(f"own-{placed}")
        result = system.schedule_next_task()
        placed += 1
        tell(f"R {result.id}")


def main() -> None:
    System(SETTINGS, POLICY).run(3)
    say("warm")
    for line in sys.stdin:
        path, count = line.split()
        child = os.fork()
        if child == 0:
            old = Path(path).exists()
            system = System.resume(path) if old else System(SETTINGS, POLICY, seed=SEED, journal=path)
            say("ready")
            work(system, int(count), say)
            os._exit(0)
        say(f"pid {child}")
        say(f"end {os.waitpid(child, 0)[1]}")


if __name__ == "__main__":
    main()
