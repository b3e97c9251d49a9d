"""What a placement costs while very many tasks wait: processor time and bytes of journal, by length of the queue.

    python benchmarks/long_queue.py [--policies sjf,greedy,hi-ppo] [--lengths 100,1000,10000] [--placements 60]

Targets: with 10,000 waiting below 50 ms of processor time and 5 kB per placement, and less than linear in the length.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from attribution_sched import System

KINDS = ("resnet-50", "bert-base", "efficientnet-b0", "vit-b-16")


def journal_bytes(system: System, folder: Path) -> int:
    """Bytes of the journal, its log worked in."""
    copy = folder / "copy.journal"
    copy.unlink(missing_ok=True)
    system.journal.copy_to(copy)
    return copy.stat().st_size


def measure(policy: str, length: int, placements: int) -> tuple[float, float, float, float]:
    """Milliseconds of processor time and kB per placement, decisions per placement, milliseconds per task handed in."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "queue.journal"
        with System("testbed", policy, queue="empty", journal=path) as system:
            began = time.process_time()
            with system.journal.batch():
                for number in range(length):
                    system.submit(KINDS[number % len(KINDS)], steps=1000)
            handed_in_ms = 1e3 * (time.process_time() - began) / length
            for _ in range(8):
                system.schedule_next_task()
            size, decided = journal_bytes(system, Path(folder)), system.journal.count()
            before = time.process_time()
            for _ in range(placements):
                result = system.schedule_next_task()
                if result is None or not result.placed:
                    raise SystemExit(f"{policy}, {length} waiting: nothing was placed")
            spent_ms = 1e3 * (time.process_time() - before) / placements
            decisions = (system.journal.count() - decided) / placements
            return spent_ms, (journal_bytes(system, Path(folder)) - size) / placements / 1e3, decisions, handed_in_ms


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", default="sjf,greedy,hi-ppo")
    parser.add_argument("--lengths", default="100,1000,10000")
    parser.add_argument("--placements", type=int, default=60)
    chosen = parser.parse_args()
    print("| policy | waiting | CPU ms per placement | kB per placement | decisions per placement | CPU ms to hand in |")
    print("|---|---|---|---|---|---|")
    for policy in chosen.policies.split(","):
        for length in map(int, chosen.lengths.split(",")):
            spent, size, decisions, handed_in = measure(policy, length, chosen.placements)
            print(f"| {policy} | {length:,} | {spent:.1f} | {size:.1f} | {decisions:.2f} | {handed_in:.2f} |", flush=True)


if __name__ == "__main__":
    main()
