"""A process that decides until it is killed, telling what is safely recorded.

Lines on its output: ``D id`` after a decision was recorded, ``O id`` after its outcome was.
"""

import os
import sys
from pathlib import Path

from attribution_sched.journal import DecisionRecord, Journal, JournalHeader, OutcomeRecord, TaskRecord

FILLER = "x" * 1500
CHECKPOINT_PAGES = 40
"""Copy the log into the file often, so that many a kill hits just then."""


def say(word: str) -> None:
    os.write(1, f"{word}\n".encode())


def effect(journal: Journal, made: DecisionRecord) -> None:
    journal.record_outcome(OutcomeRecord(made.id, 0.1, 0.2, 0.3, 0.4, 1.0, 0.0, 5.0, 1, "simulated"))
    say(f"O {made.id}")


def main(path: str, every: int) -> None:
    if Path(path).exists():
        journal = Journal.open(path)
    else:
        journal = Journal.create(path, JournalHeader("kill", "none", {}, {"cluster": 1}, "0"))
    journal.rows(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    say("ready")
    for made in journal.pending():
        effect(journal, made)
    if every:
        batch = journal.batch(every)
        batch.__enter__()
    while True:
        n = journal.count()
        asked = DecisionRecord(f"t{n}", float(n), "none", [n], {"filler": FILLER})
        made = journal.record_decision(asked, task=TaskRecord(f"t{n}", "kind", 1, 0.0))
        say(f"D {made.id}")
        effect(journal, made)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
