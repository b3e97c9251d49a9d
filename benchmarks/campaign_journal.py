"""Bits flipped in the file of a journal and rows edited behind its back: is each noticed, as one clear error?

    python benchmarks/campaign_journal.py               # 300 of each
    python benchmarks/campaign_journal.py --runs 5000

A small journal with every kind of record is damaged in one place, then all of it is read, verified and opened for
writing. It is *noticed* by reading alone, or by ``verify`` (``attribution-sched doctor --verify``) only; *harmless*: no
value, row, index or table of the file differs (bytes that SQLite does not use: free room in pages, reserved fields);
*unnoticed*: something else is read; *traceback*: an error that is not ours. The last two must not occur.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched.errors import JournalError
from attribution_sched.journal import (
    DecisionRecord,
    EventRecord,
    ExplanationRecord,
    FeedbackRecord,
    HandleRecord,
    Journal,
    JournalHeader,
    OutcomeRecord,
    TaskRecord,
    WaitRecord,
)
from attribution_sched.journal.schema import TABLES, guards

HEADER = JournalHeader("campaign", "sjf", {"queue": "preset"}, {"cluster": 7}, "0", "2026-01-02T03:04:05+00:00")

VALUES: tuple[Any, ...] = (
    None, -1, 0, 1, 7, 2**62, -(2**63), 0.5, 1e308, float("inf"), "", "x", "{", "[]", "{}", '{"a":NaN}', '{"a":1}',
    "null",
    "[" * 100_000, "d000001", "task-2", "\ud7ff\x00", b"", b"\x00\xff", "1e999", "9" * 5000,
)  # fmt: skip
"""What a column is set to."""


def build(path: Path, decisions: int = 40) -> None:
    """A journal with every kind of record."""
    with Journal.create(path, HEADER) as journal, journal.batch():
        for n in range(decisions):
            task = TaskRecord(f"task-{n}", "bert-base", 400, 0.5 * n, {"power_w": 250.1 + n}, {"tier": n % 2})
            decision = DecisionRecord(
                task.id, 1.0 + n, "sjf", [[n, 12, 3], [1, 0, 0]], {"domain": "北京", "replicas": [n]}, slot=n % 3,
                attribution={"values": [0.1, 1 / 3]}, view_digest="ab12", latencies_s={"decide": 0.02},
                weights=(1.0, 0.5, 0.5), provenance={"counters": "simulated"}, sequence=n,
            )  # fmt: skip
            wait = WaitRecord(1.0 + n, n, {"memory": n}, (n, n + 1))
            made = journal.record_decision(decision, task=task, waits=wait)
            journal.record_handle(HandleRecord(journal.key(made.id), "local", {"pid": 100 + n}))
            if n < decisions - 1:
                journal.record_outcome(
                    OutcomeRecord(made.id, 0.1, 0.2, 0.3, 0.4, 1.5, 0.0, 1e4, 1, "simulated", {"move_s": 0.5})
                )
            if n % 3 == 0:
                for about in ("terms", "choice", "terms"):
                    journal.record_explanation(ExplanationRecord(made.id, about, {"values": [[n]]}), replace=True)
                journal.record_feedback(FeedbackRecord("w_cost", 0.2, 0.25, "the bill", reason_zh="账单"))
                journal.record_event(EventRecord("note", {"n": n}, 1.0))
                number = journal.record_intent("submit", {"task": n})
                if n:
                    journal.record_effect(number, {"done": True})
            if n % 5 == 4:
                journal.record_snapshot(n + 1, {"queue": np.arange(6), "clock": np.float64(n)}, {"n": n})


def everything(journal: Journal) -> list[Any]:
    """All that can be asked of a journal."""
    found: list[Any] = [journal.header, journal.header.journal_id, journal.count(), journal.first(), journal.last()]
    entries = list(journal.entries())
    for decision, outcome in entries:
        assert decision == journal.decision(decision.id)
        found += [decision, decision.recorded_at, outcome, journal.outcome(decision.id)]
        found += [journal.explanations(decision.id), journal.task(str(decision.task_id))]
        found.append(journal.handle(journal.key(decision.id)))
    found += [journal.pending(), list(journal.tasks()), journal.feedback(), list(journal.events()), journal.handles()]
    found += [list(journal.waits()), journal.open_intents(), journal.archives()]
    found += [list(journal.chained(table)) for table in TABLES]
    snapshot = journal.newest_snapshot()
    if snapshot is not None:
        arrays = {name: (array.dtype.str, array.tolist()) for name, array in snapshot.arrays.items()}
        found += [snapshot.sequence, snapshot.facts, snapshot.skipped, sorted(arrays.items())]
    return found


def flip(path: Path, chance: random.Random) -> str:
    """Flip one bit of the file; say which."""
    with path.open("r+b") as file:
        at, bit = chance.randrange(path.stat().st_size), chance.randrange(8)
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ 1 << bit]))
    return f"bit {bit} of byte {at}"


def edit(path: Path, *statements: str | tuple[str, Sequence[Any]]) -> None:
    """Change rows with SQL as somebody would who takes the triggers out and puts them back."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("BEGIN")
        for table in TABLES:
            for event in ("update", "delete"):
                connection.execute(f"DROP TRIGGER {table}_no_{event}")
        for statement in statements:
            connection.execute(*((statement,) if isinstance(statement, str) else statement))
        for table in TABLES:
            for guard in guards(table):
                connection.execute(guard)
        connection.execute("COMMIT")
    finally:
        connection.close()


def edit_anything(path: Path, chance: random.Random) -> str:
    """Edit one row of one table; say how."""
    while True:
        table = chance.choice([*TABLES, "bounds", "snapshot_data"])
        connection = sqlite3.connect(path)
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        keys = [row[0] for row in connection.execute(f"SELECT rowid FROM {table}")]
        connection.close()
        if not keys:
            continue
        key, column, value = chance.choice(keys), chance.choice(columns), chance.choice(VALUES)
        asked: tuple[str, Sequence[Any]]
        match chance.randrange(10):
            case 0:
                asked = f"DELETE FROM {table} WHERE rowid = ?", (key,)
            case 1:
                asked = f"UPDATE {table} SET {column} = CAST(X'66ff80' AS TEXT) WHERE rowid = ?", (key,)
            case 2:
                other = chance.choice(keys)
                asked = (
                    f"UPDATE {table} SET {column} = (SELECT {column} FROM {table} WHERE rowid = ?) WHERE rowid = ?",
                    (
                        other,
                        key,
                    ),
                )
            case _:
                asked = f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, key)
        try:
            edit(path, asked)
        except (sqlite3.Error, UnicodeEncodeError):
            continue
        return f"{asked[0]} {str(asked[1])[:60]}"


def judge(path: Path, whole: list[Any]) -> tuple[str, str]:
    """What becomes of a damaged journal: a verdict and the message."""
    try:
        with Journal.read(path) as journal:
            found = everything(journal)
            journal.verify()
        with Journal.open(path, claim=False):
            pass
        if found != whole:
            return "unnoticed", "other data is read"
    except JournalError as error:
        return ("noticed by verify" if "found" in locals() else "noticed when read"), str(error)
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error}"
    return "harmless", ""


def campaign(
    damage: Callable[[Path, random.Random], str], runs: int, seed: int, folder: Path
) -> tuple[Counter[str], list[tuple[str, str, str]]]:
    """Damage a journal again and again.

    Returns:
        How often each verdict was given, and of the bad ones what was done and what came of it.
    """
    chance, original = random.Random(seed), folder / "whole.sqlite"
    if not original.exists():
        build(original)
    with Journal.read(original) as journal:
        whole = everything(journal)
        journal.verify()
    counts: Counter[str] = Counter()
    bad = []
    for run in range(runs):
        copy = folder / f"copy{run}.sqlite"
        shutil.copy(original, copy)
        done = damage(copy, chance)
        verdict, message = judge(copy, whole)
        counts[verdict] += 1
        if verdict in ("unnoticed", "traceback"):
            bad.append((done, verdict, message))
        for left in folder.glob(f"{copy.name}*"):
            left.unlink()
    return counts, bad


def main() -> int:
    """Print a table; the number of bad verdicts ends up in the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    verdicts = ("noticed when read", "noticed by verify", "harmless", "unnoticed", "traceback")
    print("| damage | tried | " + " | ".join(verdicts) + " |")
    print("|---|---:|" + "---:|" * len(verdicts))
    worst = []
    with tempfile.TemporaryDirectory() as folder:
        for name, damage in (("a bit flipped", flip), ("a row edited by SQL", edit_anything)):
            counts, bad = campaign(damage, options.runs, options.seed, Path(folder))
            print(f"| {name} | {options.runs} | " + " | ".join(str(counts[verdict]) for verdict in verdicts) + " |")
            worst += bad
    for done, verdict, message in worst[:20]:
        print(f"{verdict}: {done}: {message}", file=sys.stderr)
    return int(bool(worst))


if __name__ == "__main__":
    sys.exit(main())
