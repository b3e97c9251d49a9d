"""Processor time to go on with a long journal, and to look at an old decision of it again.

    python benchmarks/long_resume.py [--decisions 1000000] [--policy sjf]

A real run of some hundred decisions stands at the end; before it, copies of its first decision, its task and its
outcome, written through the journal's own writer, so that the file is as long as after a million decisions. Targets:
resumed in less than 5 s, a decision recalled in less than 0.1 s, whatever the length.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from attribution_sched import System
from attribution_sched.system.recovery import snapshot

REAL = 1500
"""Decisions at the end that were really taken."""

OLD = (549, 310, 384, 420, 473, 635, 699, 702, 748, 861)
"""Which of them are looked at again; one that ends a block of fifty takes longest."""


def lengthen(system: System, decisions: int) -> None:
    """Write copies of the first decision until there are so many."""
    journal = system.journal
    while system.schedule_next_task() is None or journal.count() < 1:
        pass
    decision, outcome = next(iter(journal.entries()))
    task = journal.task(str(decision.task_id))
    with journal.batch():
        for number in range(journal.count(), decisions):
            copied = replace(decision, id="", sequence=number, task_id=f"copy-{number}", recorded_at="")
            made = journal.record_decision(copied, task=replace(task, id=f"copy-{number}"))
            if outcome is not None:
                journal.record_outcome(replace(outcome, decision_id=made.id))
    snapshot(system, 1)


def main() -> None:
    """Print what it takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=100_000)
    parser.add_argument("--policy", default="sjf")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.journal"
        began = time.process_time()
        with System("testbed", chosen.policy, journal=path) as system:
            lengthen(system, chosen.decisions)
            written = time.process_time() - began
            with system.journal.batch():
                while system.journal.count() < chosen.decisions + REAL:
                    system.schedule_next_task()
        began = time.process_time()
        system = System.resume(path)
        resumed = time.process_time() - began
        event = list(system.journal.events())[-1].details
        recalled = []
        for number in OLD:
            # Nothing of its day is known any more, as after a week: neither decisions nor attributions.
            system.memory._kept.clear()
            system.memory._recalled.clear()
            system.attribute._kept.clear()
            began = time.process_time()
            system.questions.recall(f"d{chosen.decisions + number:06d}")
            recalled.append(time.process_time() - began)
        system.close()
        print(f"{chosen.decisions + REAL:,} decisions, {path.stat().st_size / 1e6:.0f} MB, written in {written:.0f} s")
        print(f"resumed in {resumed:.2f} s of processor time, {event['lived_through']} decisions lived through again")
        told = f"the first {recalled[0]:.3f}, median {statistics.median(recalled):.3f}, worst {max(recalled):.3f} s"
        print(f"old decisions recalled, {len(OLD)} of them: {told}")


if __name__ == "__main__":
    main()
