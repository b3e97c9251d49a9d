"""The journal: how fast decisions become durable, are read and exported, and what they take, beside JSON lines.

    python benchmarks/journal.py                       # 2,000 durable decisions, 20,000 in groups
    python benchmarks/journal.py --durable 200 --grouped 2000
    PYTHONPATH=<a checkout of release 0.1> python benchmarks/journal.py    # the same of another version

The rival is what one would write by hand: one JSON object per line, appended, flushed and synced to disk. It keeps the
same records. Both run in turns in one process, in the same folder, so the ratio counts, not the disk. The rival has no
schema, no check that ids and tasks belong together, and looking up one decision reads the file. The records are alike,
so Parquet makes less of them than of real ones.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attribution_sched.journal import DecisionRecord, Journal, JournalHeader, OutcomeRecord, TaskRecord

SEGMENT = {"first": 0, "stop": 20, "dp": 2, "tp": 4, "pp": 2, "precision": "bf16"}
PLAN = {
    "words": "llama-2-7b over site-a, site-b and site-c, 16 devices each, bf16",
    "schedule": "1f1b",
    "replicas": [
        {"microbatch": 4, "microbatches": 16, "segments": [SEGMENT | {"domain": f"site-{i}"} for i in "abc"]},
    ],
}
NAMES = ("compute", "memory", "bandwidth", "pcie", "sm", "clock", "temperature")
HEADER = JournalHeader("cross-domain-easy", "hi-ppo", {"queue": "preset"}, {"cluster": 0}, "benchmark")


def task(i: int) -> TaskRecord:
    """The i-th task."""
    return TaskRecord(f"t{i:06d}", "llama-2-7b", 1000, 60.0 * i, {f"counter_{j}": 0.37 * j for j in range(12)})


def decision(i: int) -> DecisionRecord:
    """The i-th decision, as large as real ones are."""
    vector = {"values": [0.123456789 * j for j in range(7)], "names": NAMES, "base": 12.5, "units": "J/sample"}
    return DecisionRecord(
        f"t{i:06d}", 60.0 * i, "hi-ppo", [[j, 20 * j, 3, 1, 2] for j in range(4)], PLAN, slot=1, attribution=vector,
        view_digest="ab" * 8, latencies_s={"attribution": 1e-5, "decision": 4.1e-3}, weights=(1.0, 0.5, 0.5),
        provenance={"counters": "simulated", "outcome": "simulated"},
    )  # fmt: skip


def outcome(name: str, i: int) -> OutcomeRecord:
    """What the i-th decision came to."""
    return OutcomeRecord(name, 0.1, 0.2, 0.3, 0.4, 1.25 + i, 0.01, 1e3, 1, "simulated", {"move_s": 0.0})


class Lines:
    """The rival: a record per line, on disk before it returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def add(self, record: Any, *, durable: bool = True) -> None:
        """Append a record."""
        self._file.write(json.dumps(asdict(record), default=list) + "\n")
        if durable:
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def clock(action: Any, count: int) -> float:
    """How many per second."""
    began = time.perf_counter()
    action()
    return count / (time.perf_counter() - began)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--durable", type=int, default=2000)
    parser.add_argument("--grouped", type=int, default=20_000)
    options = parser.parse_args()
    durable, total = options.durable, options.durable + options.grouped
    found: list[tuple[str, float, float]] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        ours, theirs = Path(folder) / "run.journal", Path(folder) / "run.jsonl"
        journal, lines = Journal.create(ours, HEADER), Lines(theirs)
        spent, cpu = [0.0, 0.0], [0.0, 0.0]
        for i in range(durable):
            # In turns, so that both meet the same disk.
            began, worked = time.perf_counter(), time.process_time()
            made = journal.record_decision(decision(i), task=task(i))
            journal.record_outcome(outcome(made.id, i))
            middle = time.perf_counter()
            cpu[0] += time.process_time() - worked
            for record in (task(i), decision(i), outcome(f"d{i:06d}", i)):
                lines.add(record, durable=not isinstance(record, TaskRecord))
            spent[0] += middle - began
            spent[1] += time.perf_counter() - middle
        found.append(("durable decisions with outcome / s", durable / spent[0], durable / spent[1]))

        def grouped() -> None:
            with journal.batch():
                for i in range(durable, total):
                    made = journal.record_decision(decision(i), task=task(i))
                    journal.record_outcome(outcome(made.id, i))

        worked = time.process_time()

        def unsynced() -> None:
            for i in range(durable, total):
                for record in (task(i), decision(i), outcome(f"d{i:06d}", i)):
                    lines.add(record, durable=False)

        rate = clock(grouped, total - durable)
        cpu[1] = time.process_time() - worked
        found.append(("committed in groups / s", rate, clock(unsynced, total - durable)))
        journal.close()
        lines.close()
        sizes = [path.stat().st_size / total for path in (ours, theirs)]
        with Journal.read(ours) as reader:

            def read_lines() -> None:
                with theirs.open(encoding="utf-8") as file:
                    for line in file:
                        json.loads(line)

            found.append(("read / s", clock(lambda: sum(1 for _ in reader.entries()), total), clock(read_lines, total)))
            wanted = [f"d{i:06d}" for i in range(0, total, max(1, total // 50))]

            def look_up_line(name: str) -> None:
                with theirs.open(encoding="utf-8") as file:
                    next(line for line in file if f'"decision_id": "{name}"' in line)

            found.append((
                "one decision looked up / s",
                clock(lambda: [reader.decision(name) for name in wanted], len(wanted)),
                clock(lambda: [look_up_line(name) for name in wanted], len(wanted)),
            ))  # fmt: skip
            verified = None
            if hasattr(reader, "verify"):
                began = time.perf_counter()
                rows = reader.verify().rows
                verified = rows / (time.perf_counter() - began), rows
            exported = []
            for ending in ("csv", "jsonl", "parquet"):
                target = Path(folder) / f"export.{ending}"
                rate = clock(lambda target=target: reader.export(target), total)
                exported.append((ending, rate, target.stat().st_size / total))
    costs = [1e6 * cpu[0] / durable, 1e6 * cpu[1] / max(1, total - durable)]
    print(f"| {durable} durable and {total - durable} grouped decisions | journal | JSON lines | ratio |")
    print("|---|---:|---:|---:|")
    for name, mine, rival in found:
        print(f"| {name} | {mine:,.0f} | {rival:,.0f} | {mine / rival:.2f} |")
    ours_b, theirs_b = sizes
    print(f"| bytes per decision, task and outcome | {ours_b:,.0f} | {theirs_b:,.0f} | {ours_b / theirs_b:.2f} |")
    print(f"| CPU-µs per decision, task and outcome: durable, in groups | {costs[0]:,.0f}, {costs[1]:,.0f} | | |")
    if verified is not None:
        print(f"| verified: rows / s, rows | {verified[0]:,.0f}, {verified[1]:,} | | |")
    for ending, rate, size in exported:
        print(f"| exported to {ending}: decisions / s, bytes per decision | {rate:,.0f}, {size:,.0f} | | |")


if __name__ == "__main__":
    main()
