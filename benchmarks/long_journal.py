"""A long journal, written through the journal's own writer: to measure what resuming, verifying and archiving it take.

    python benchmarks/long_journal.py long.sqlite                         # 10⁶ decisions, a snapshot every 10,000
    python benchmarks/long_journal.py long.sqlite --decisions 100000

Records are of the size of real ones. ``write`` takes others, and what a snapshot holds, from whoever has a state to go
on from.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched.journal import DecisionRecord, Journal, JournalHeader, OutcomeRecord, TaskRecord

PLAN = {
    "words": "llama-2-7b over site-a and site-b, 16 devices each, bf16",
    "replicas": [{"microbatch": 4, "segments": [{"first": 0, "stop": 20, "dp": 2, "tp": 4, "domain": "site-a"}] * 2}],
}
HEADER = JournalHeader("cross-domain-easy", "sjf", {"queue": "preset"}, {"cluster": 0}, "benchmark")
STATE_NUMBERS = 20_000
"""Numbers in the state that a snapshot holds."""

Entry = tuple[DecisionRecord, TaskRecord | None, Callable[[str], OutcomeRecord]]
State = tuple[Mapping[str, Any], Mapping[str, Any]]


def entry(number: int) -> Entry:
    """One decision on one new task, and what it comes to."""
    task = TaskRecord(f"t{number:07d}", "llama-2-7b", 1000, 60.0 * number, {f"c{i}": 0.37 * i for i in range(12)})
    decision = DecisionRecord(
        task.id, 60.0 * number, "sjf", [[i, 20 * i, 3, 1, 2] for i in range(4)], PLAN, slot=1,
        attribution={"values": [0.123456789 * i for i in range(7)], "base": 12.5}, view_digest="ab" * 8,
        latencies_s={"attribution": 1e-5, "decision": 4.1e-3}, weights=(1.0, 0.5, 0.5),
        provenance={"counters": "simulated"}, sequence=number,
    )  # fmt: skip
    return decision, task, lambda name: OutcomeRecord(name, 0.1, 0.2, 0.3, 0.4, 1.25, 0.01, 1e3, 1, "simulated")


def state(number: int) -> State:
    """What a snapshot after so many decisions holds: arrays and facts."""
    return {"state": np.arange(STATE_NUMBERS) + float(number)}, {"decisions": number}


def write(
    path: Path,
    decisions: int,
    *,
    header: JournalHeader = HEADER,
    entry: Callable[[int], Entry] = entry,
    state: Callable[[int], State] = state,
    snapshot_every: int = 10_000,
) -> None:
    """Write a journal.

    Args:
        path: A new file.
        decisions: How many.
        header: Of the journal.
        entry: The n-th decision, its task, and what makes its outcome of its id.
        state: What a snapshot after n decisions holds.
        snapshot_every: Decisions between snapshots; 0 takes none.
    """
    with Journal.create(path, header) as journal, journal.batch(8192):
        for number in range(decisions):
            decision, task, outcome = entry(number)
            made = journal.record_decision(decision, task=task)
            journal.record_outcome(outcome(made.id))
            if snapshot_every and (number + 1) % snapshot_every == 0:
                journal.record_snapshot(number + 1, *state(number + 1))


def main() -> None:
    """Write one, and say what opening, resuming from the newest snapshot's rows and verifying take."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--every", type=int, default=10_000, help="decisions between snapshots")
    options = parser.parse_args()
    print(f"| {options.decisions:,} decisions | CPU-s |\n|---|---:|")

    def clock(name: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        found = work()
        print(f"| {name} | {time.process_time() - began:.2f} |", flush=True)
        return found

    if not options.path.exists():
        clock("written", lambda: write(options.path, options.decisions, snapshot_every=options.every))
    with clock(
        "opened for writing, chain checked from the newest snapshot on", lambda: Journal.open(options.path)
    ) as j:
        newest = clock("newest snapshot", j.newest_snapshot)
        clock("one old decision", lambda: j.decision("d000007"))
        if newest is not None:
            clock("entries since then", lambda: sum(1 for _ in j.entries(newest.sequence)))
        clock("pending", j.pending)
        rows = clock("verified: every row, page and snapshot", j.verify).rows
        print(f"| rows | {rows:,} |\n| bytes per decision | {options.path.stat().st_size / options.decisions:,.0f} |")


if __name__ == "__main__":
    main()
