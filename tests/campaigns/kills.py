"""Kill a process that schedules (SIGKILL) at random moments, go on, and compare with one that was left alone.

    python -m tests.campaigns.kills --kills 1000                      # in every world, shared out
    python -m tests.campaigns.kills --kills 50 --world cross-domain-easy

Worlds: ``small`` (sjf; submit, decide), ``everything`` (the same, greedy; also explain, feedback, report, export),
``cross-domain-easy`` (the preset, Hi-PPO; all of it) and ``migration`` (a journal of release 0.1 brought up to date).
After every kill the journal has contiguous ids and at most one decision pending; at the end history, tasks,
explanations, weights and cluster are those of the undisturbed run to the bit. Feedback must have changed a weight.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from attribution_sched.journal import Journal
from attribution_sched.journal.schema import VERSION
from calibration.convert_journal import convert
from tests.campaigns.quick import thinking_little
from tests.campaigns.same import account, quick_folder
from tests.system_child import TRIALS

ROOT = Path(__file__).parents[2]
OLD_JOURNAL = ROOT / "tests" / "journal" / "journal_0_1.sqlite.gz"

LASTS_S = {
    "pid": 0.4, "ready": 0.02, "submit": 0.02, "decide": 0.05, "explain": 0.4, "feedback": 1.0, "report": 0.4,
    "export": 0.05, "migrate": 0.1,
}  # fmt: skip
"""About how long each lasts on a busy machine: when it is killed is drawn from there. ``pid``: while it resumes."""

WORK = {
    "small": ("pid", "ready", "submit", "decide", "decide"),
    "everything": ("pid", "submit", "decide", "explain", "feedback", "feedback", "report", "export"),
    "cross-domain-easy": ("pid", "submit", "decide", "explain", "feedback", "feedback", "report", "export"),
}
"""What is killed in which world."""

PER_LIFE = {"small": 25, "everything": 12, "cross-domain-easy": 6}
"""Kills of one journal: it is lived through again after each, so many short ones say as much as few long ones."""


class Children:
    """Starts systems in processes of their own, and kills them.

    Args:
        worlds: Names of the worlds they will work in.
    """

    def __init__(self, *worlds: str) -> None:
        command = [sys.executable, "-m", "tests.system_child", *worlds]
        self.server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.line() != "warm":
            raise RuntimeError("the process that starts the others did not come up")

    def line(self) -> str:
        """The next thing it says."""
        assert self.server.stdout is not None
        return self.server.stdout.readline().strip()

    def start(self, path: Path, count: int, world: str = "small") -> None:
        """Let a system work until so many tasks were placed."""
        assert self.server.stdin is not None
        self.server.stdin.write(f"{world} {path} {count}\n")
        self.server.stdin.flush()

    def run_and_kill(
        self, path: Path, count: int, delay_s: float, when: tuple[str, int], world: str = "small"
    ) -> tuple[list[str], str]:
        """Kill a system some time after something.

        Args:
            path: Its journal.
            count: Placements after which it ends by itself.
            delay_s: How long after.
            when: After what, and after how many of them: ``pid`` (it began), ``ready``, ``R`` (a placement was
                returned), or a word of its work. With a negative number it is left alone.
            world: Where.

        Returns:
            Placements that it returned, and what it was at when it was killed; empty if it ended by itself.

        Raises:
            RuntimeError: If it failed.
        """
        self.start(path, count, world)
        returned: list[str] = []
        seen: Counter[str] = Counter()
        timer, doing, failure = None, "pid", ""
        while True:
            word, _, rest = self.line().partition(" ")
            if word == "pid":
                child = int(rest)
            elif word == "R":
                returned.append(rest)
            elif word == "failed":
                failure = rest
            elif word == "end":
                if timer is not None:
                    timer.cancel()
                    timer.join()
                killed = int(rest) == signal.SIGKILL
                if not killed and int(rest) != 0:
                    raise RuntimeError(f"{world}: {failure or f'ended with {rest}'}")
                return returned, doing if killed else ""
            name = rest if word == "at" else word
            doing = name if word in ("at", "ready") else doing
            seen[name] += 1
            if name == when[0] and seen[name] == when[1]:
                timer = threading.Timer(delay_s, kill, (child,))
                timer.start()

    def close(self) -> None:
        """Let the process end."""
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.close()
        self.server.stdout.close()
        if self.server.wait(timeout=30) != 0:
            raise RuntimeError("the process that starts the others failed")


def kill(child: int) -> None:
    """End a process at once, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


@dataclass
class Tally:
    """What a campaign did and found.

    Attributes:
        kills: By what was killed.
        placed: Tasks placed in the end.
        changed: Steps of feedback that changed a weight.
        wrong: What is not as it should be.
    """

    kills: Counter[str] = field(default_factory=Counter)
    placed: int = 0
    changed: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count another one in."""
        self.kills += other.kills
        self.placed += other.placed
        self.changed += other.changed
        self.wrong += other.wrong


def look(path: Path) -> str:
    """What is wrong with a journal whose writer was killed; nothing: empty."""
    if not path.exists():
        return ""
    with Journal.read(path) as journal:
        sequences = [decision.sequence for decision in journal.decisions()]
        if sequences != list(range(len(sequences))):
            return f"ids are not contiguous: {sequences}"
        if len(journal.pending()) > 1:
            return f"{len(journal.pending())} decisions are pending"
    return ""


def kill_again_and_again(children: Children, world: str, kills: int, seed: int, folder: Path, step: int = 4) -> Tally:
    """Kill a system so often, let it end, and compare with one that was left alone.

    Args:
        children: Where systems live.
        world: Which.
        kills: How often.
        seed: Of when.
        folder: For its files.
        step: Placements that each life is given.
    """
    chance, tally, trial = random.Random(seed), Tally(), TRIALS[world]
    path, told = folder / "run.journal", list[str]()
    count = 0
    while sum(tally.kills.values()) < kills:
        count += step
        word = chance.choice(WORK[world])
        when = word, chance.randrange(1, 1 + step) if word in ("decide", "submit") else 1
        returned, doing = children.run_and_kill(path, count, chance.uniform(0.0, LASTS_S[word]), when, world)
        told += returned
        if doing:
            tally.kills[doing] += 1
            problem = look(path)
            if problem:
                tally.wrong.append(f"after kill {sum(tally.kills.values())} at {doing}: {problem}")
    told += children.run_and_kill(path, count, 0.0, ("pid", -1), world)[0]
    with thinking_little(), trial.new(folder / "straight" / path.name) as straight:
        trial.work(straight, count)
        expected = account(straight)
    with thinking_little(), trial.resumed(path) as system:
        problem = expected.difference(account(system))
        if problem:
            tally.wrong.append(problem)
        placed = [row[0] for row in expected.parts["decisions"] if row[-1] is not None and row[-1][0] == 1]
        system.journal.verify()
    tally.placed = len(placed)
    # What was returned is there, once; a placement under way when its process died was carried out, never returned.
    if len(told) != len(set(told)) or not set(told) <= set(placed):
        tally.wrong.append("a placement was returned twice, or is not in the journal")
    if len(placed) - len(told) > sum(tally.kills.values()):
        tally.wrong.append(f"{len(placed) - len(told)} placements were never returned")
    tally.changed = sum(kind == "feedback" and told["kind"] == "changed" for kind, told in expected.parts["events"])
    return tally


def kill_migrations(children: Children, kills: int, seed: int, folder: Path) -> Tally:
    """Kill a process that brings a journal of release 0.1 up to date: it is old or new, and whole."""
    chance, tally = random.Random(seed), Tally()
    whole = gzip.decompress(OLD_JOURNAL.read_bytes())
    while sum(tally.kills.values()) < kills:
        path = folder / "old.sqlite"
        for stale in folder.glob("old.sqlite*"):
            stale.unlink()
        path.write_bytes(whole)
        when = chance.choice(["ready", "migrate"]), 1
        _, doing = children.run_and_kill(path, 0, chance.uniform(0.0, LASTS_S["migrate"]), when, "migration")
        if not doing:
            continue
        connection = sqlite3.connect(path)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        connection.close()
        tally.kills[f"migrate, left at version {version}"] += 1
        if version not in (2, VERSION):
            tally.wrong.append(f"version {version} is neither the old one nor the new one")
        if version == 2:
            convert(path)
        with Journal.open(path) as journal:
            if journal.count() != 7 or len(list(journal.tasks())) != 7:
                tally.wrong.append(f"{journal.count()} decisions of 7 are left")
            journal.verify()
    return tally


def campaign(world: str, kills: int, seed: int) -> Tally:
    """Kill so often in one world."""
    children = Children(world)
    try:
        with tempfile.TemporaryDirectory(dir=quick_folder()) as name:
            folder = Path(name)
            (folder / "straight").mkdir()
            if world == "migration":
                return kill_migrations(children, kills, seed, folder)
            tally = Tally()
            lives = max(1, kills // PER_LIFE[world])
            for life in range(lives):
                share = kills // lives + (life < kills % lives)
                place = folder / f"life-{life}"
                (place / "straight").mkdir(parents=True)
                found = kill_again_and_again(children, world, share, seed + life, place)
                tally.add(found)
                # What was done by then is told if it is stopped, and goes on from the next seed.
                told = f"{sum(tally.kills.values())} kills, {tally.changed} changed weights, {len(tally.wrong)} wrong"
                sys.stdout.write("".join(f"{world}: {each}\n" for each in found.wrong))
                sys.stdout.write(f"{world}, seeds {seed} to {seed + life}: {told}\n")
                sys.stdout.flush()
            if world != "small" and tally.placed > 20 and not tally.changed:
                tally.wrong.append("no step of feedback changed a weight")
            return tally
    finally:
        children.close()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="in all worlds together")
    parser.add_argument("--world", choices=[*WORK, "migration"], action="append")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    worlds = chosen.world or [*WORK, "migration"]
    wrong = 0
    for number, world in enumerate(worlds):
        share = chosen.kills // len(worlds) + (number < chosen.kills % len(worlds))
        tally = campaign(world, share, chosen.seed)
        by_work = ", ".join(f"{name} {count}" for name, count in sorted(tally.kills.items()))
        told = f"{sum(tally.kills.values())} kills ({by_work}), {tally.placed} placements, {tally.changed} steps of "
        sys.stdout.write("".join(f"{world}: {each}\n" for each in tally.wrong[:20]))
        sys.stdout.write(f"kills ({world}): {told}feedback changed weights, {len(tally.wrong)} wrong\n")
        sys.stdout.flush()
        wrong += len(tally.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
