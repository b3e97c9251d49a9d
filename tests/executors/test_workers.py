"""Workers of our own: jobs come back with their numbers, and nobody is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from attribution_sched.executors.workers import spread

PARENT = """
import sys
from attribution_sched.executors.workers import spread
from tests.executors.test_workers import tell_and_double

if __name__ == "__main__":
    list(spread(2, tell_and_double, sys.argv[1], range(2000)))
"""


def tell_and_double(run, folder, job):
    """Leave a note of which process this is."""
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(0.02)
    return 2 * job


def test_jobs_come_back_with_their_numbers(tmp_path):
    assert sorted(spread(2, tell_and_double, str(tmp_path), range(5))) == [(n, 2 * n) for n in range(5)]
    assert 1 <= len(list(tmp_path.iterdir())) <= 2


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def until(said, seconds=40.0):
    ends = time.monotonic() + seconds
    while not said() and time.monotonic() < ends:
        time.sleep(0.05)
    return said()


def test_workers_end_when_whoever_started_them_was_killed(tmp_path):
    script, notes = tmp_path / "parent.py", tmp_path / "notes"
    script.write_text(PARENT)
    notes.mkdir()
    root = Path(__file__).parents[2]
    parent = subprocess.Popen(
        [sys.executable, str(script), str(notes)], cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert until(lambda: len(list(notes.iterdir())) == 2)
    workers = [int(note.name) for note in notes.iterdir()]
    assert all(map(alive, workers))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert until(lambda: not any(map(alive, workers)), 10.0)
