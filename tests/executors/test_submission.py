"""The forced orphan: a submission that outlives whoever made it must not slip in behind the next one's look."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from attribution_sched.errors import ExecutorError, JournalError
from attribution_sched.executors.submission import submit
from attribution_sched.journal import Journal, JournalHeader

SCHEDULER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from attribution_sched.executors.submission import submit
    from attribution_sched.journal import Journal, HandleRecord

    # Stands for sbatch: an engine without keys of its own, and slow: it submits when the next scheduler has looked, or
    # after some seconds.
    SLOW = "i=0; while [ ! -e %s/looked-2 ] && [ $i -lt 40 ]; do sleep 0.1; i=$((i+1)); done; echo job >> %s/queue"

    folder, lock, wait_s, number = Path(sys.argv[1]), sys.argv[2] == "lock", float(sys.argv[3]), sys.argv[4]
    with Journal.open(folder / "j.sqlite", wait_s=wait_s) as journal:
        print("open", flush=True)
        queue = folder / "queue"
        known = queue.exists()      # find(key)
        (folder / ("looked-" + number)).touch()
        if not known:
            submit(["sh", "-c", SLOW % (folder, folder)], lock_file=journal.lock_file if lock else None)
    """
)


def scheduler(folder, lock, wait_s, number):
    command = [sys.executable, "-c", SCHEDULER, str(folder), "lock" if lock else "free", str(wait_s), str(number)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def jobs_after_an_orphan(folder, *, lock):
    Journal.create(folder / "j.sqlite", JournalHeader("p", "q", {}, {}, "1")).close()
    first = scheduler(folder, lock, 0.0, 1)
    assert first.stdout.readline() == "open\n"
    while not (folder / "looked-1").exists():
        time.sleep(0.01)
    time.sleep(0.5)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    with scheduler(folder, lock, 60.0, 2) as second:
        second.wait(timeout=90)
    time.sleep(0.5)
    return (folder / "queue").read_text().count("job")


def test_a_submission_that_outlives_its_scheduler_is_waited_for(tmp_path):
    assert jobs_after_an_orphan(tmp_path, lock=True) == 1


def test_without_the_lock_the_orphan_slips_in(tmp_path):
    """What the test above would see if the lock were not inherited."""
    assert jobs_after_an_orphan(tmp_path, lock=False) == 2


def test_the_next_writer_is_told_who_holds_the_lock_if_it_will_not_wait(tmp_path):
    with Journal.create(tmp_path / "j.sqlite", JournalHeader("p", "q", {}, {}, "1")) as journal:
        assert journal.lock_file is not None
        began = time.monotonic()
        with pytest.raises(JournalError, match="is being written by"):
            Journal.open(tmp_path / "j.sqlite", wait_s=0.3)
        assert time.monotonic() - began >= 0.3
    assert journal.lock_file == -1
    assert Journal.memory().lock_file is None


def test_a_submission_that_does_not_end_is_given_up():
    with pytest.raises(ExecutorError, match="did not end within"):
        submit(["sleep", "5"], lock_file=None, timeout_s=0.1)


def test_an_engine_that_is_not_installed_is_one_clear_error():
    with pytest.raises(ExecutorError, match="no-such-sbatch"):
        submit(["no-such-sbatch"], lock_file=None)
