"""Kill a real process that schedules, again and again: what it did in the end is what it does undisturbed."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from attribution_sched import System
from attribution_sched.journal import Journal
from tests.system_child import POLICY, SEED, SETTINGS, work
from tests.test_system import repeatable
from tests.test_system_resume import same_cluster

ROOT = Path(__file__).parents[1]


class Children:
    """Starts systems in processes of their own, and kills them."""

    def __init__(self):
        command = [sys.executable, "-m", "tests.system_child"]
        self.server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.line() == "warm"

    def line(self):
        return self.server.stdout.readline().strip()

    def start(self, path, count):
        self.server.stdin.write(f"{path} {count}\n")
        self.server.stdin.flush()

    def run_and_kill(self, path, count, delay_s, after):
        """Kill a system some time after it began (−1), was ready (0) or had placed so many tasks.

        Returns what it returned, and whether it was killed.
        """
        self.start(path, count)
        returned, timer = [], None
        while True:
            word, _, rest = self.line().partition(" ")
            if word == "pid":
                child = int(rest)
            if word == "R":
                returned.append(rest)
            if (word, after) in (("pid", -1), ("ready", 0)) or (word == "R" and len(returned) == after):
                timer = threading.Timer(delay_s, kill, (child,))
                timer.start()
            if word == "end":
                timer.cancel()
                timer.join()
                return returned, int(rest) == signal.SIGKILL

    def close(self):
        self.server.stdin.close()
        self.server.stdout.close()
        assert self.server.wait(timeout=30) == 0


def kill(child):
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


@pytest.fixture(scope="module")
def children():
    found = Children()
    yield found
    found.close()


def kill_again_and_again(children, path, kills, seed):
    """Kill a system so often, let it end, and compare with one that was left alone."""
    chance = random.Random(seed)
    count, told, busy, done = 0, [], 0, 0
    while done < kills:
        count += 12
        # Most die while they decide, some while the journal is made, or while they resume.
        after = -1 if chance.random() < 0.25 else chance.randrange(6)
        delay_s = chance.uniform(0.0, 0.4 if after < 0 else 0.02)
        returned, killed = children.run_and_kill(path, count, delay_s, after)
        told += returned
        done += killed
        busy += killed and len(returned) > 0
    children.start(path, count)
    while not (line := children.line()).startswith("end"):
        told += [line.removeprefix("R ")] if line.startswith("R ") else []
    assert line == "end 0"
    straight = System(SETTINGS, POLICY, seed=SEED)
    work(straight, count)
    with System.resume(path) as system:
        assert repeatable(system).equals(repeatable(straight))
        assert list(system.journal.tasks()) == list(straight.journal.tasks())
        same_cluster(system, straight)
        placed = list(system.history().query("code == 1")["decision_id"])
    assert len(told) == len(set(told))
    # What was returned is there; a placement under way when its process died was carried out but never returned.
    assert set(told) <= set(placed)
    assert len(placed) - len(told) <= done
    return busy, len(placed)


def test_some_kills_lose_and_double_nothing(children, tmp_path):
    busy, placed = kill_again_and_again(children, tmp_path / "run.journal", 9, seed=1)
    assert busy >= 2
    assert placed > 50


@pytest.mark.slow
def test_many_kills_lose_and_double_nothing(children, tmp_path):
    busy, placed = kill_again_and_again(children, tmp_path / "run.journal", 55, seed=2)
    assert busy > 15
    assert placed > 300


def test_a_killed_process_leaves_the_journal_to_the_next(children, tmp_path):
    path = tmp_path / "run.journal"
    children.start(path, 10_000)
    child = int(children.line().removeprefix("pid "))
    while not children.line().startswith("R "):
        pass
    os.kill(child, signal.SIGKILL)
    while not children.line().startswith("end"):
        pass
    with Journal.read(path) as journal:
        assert journal.count() >= 1
    with System.resume(path) as system:
        assert system.journal.pending() == []
        assert system.schedule_next_task().placed
