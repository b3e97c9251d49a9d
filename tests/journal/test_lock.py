"""One writer: the second is told who the first is; a dead one is no obstacle."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from attribution_sched.errors import JournalError
from attribution_sched.journal import Journal
from attribution_sched.journal.lock import WriterLock
from tests.journal.journal_records import HEADER, decision, fill

ROOT = Path(__file__).parents[2]

HOLD = """
import sys, time
from attribution_sched.journal import DecisionRecord, Journal
journal = Journal.open(sys.argv[1])
journal.record_decision(DecisionRecord(None, 1.0, "child", []))
print("ready", flush=True)
time.sleep(60)
"""


def holder(path):
    """A process that has opened a journal for writing."""
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, cwd=ROOT, text=True)
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run.journal"
    Journal.create(path, HEADER).close()
    return path


def test_a_second_process_is_refused_by_name_and_let_in_after_a_kill(path):
    with holder(path) as child:
        try:
            for attempt in (Journal.open, lambda given: Journal.create(given, HEADER)):
                with pytest.raises(
                    JournalError, match=f"is being written by process {child.pid} on .* since 20.*End that"
                ):
                    attempt(path)
            link = path.with_name("link")
            link.symlink_to(path)
            with pytest.raises(JournalError, match=f"process {child.pid}"):
                Journal.open(link)
            with Journal.read(path) as reader:
                assert reader.last().policy == "child"
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
    assert path.with_name("run.journal.lock").exists()
    with Journal.open(path) as journal:
        fill(journal, 1)
        assert journal.count() == 2
    assert not path.with_name("run.journal.lock").exists()


def test_the_same_process_is_refused_too(path):
    with Journal.open(path), pytest.raises(JournalError, match="is being written by this process"):
        Journal.open(path)
    Journal.open(path).close()


def test_one_that_was_refused_does_not_take_the_lock_along(path):
    with Journal.open(path):
        for _ in range(3):
            with pytest.raises(JournalError):
                Journal.open(path)
        with pytest.raises(JournalError):
            Journal.create(path, HEADER)


def test_a_journal_nobody_refers_to_any_more_is_free(path):
    journal = Journal.open(path)
    del journal
    Journal.open(path).close()


def test_a_forked_child_neither_writes_nor_keeps_the_lock(path):
    journal = Journal.open(path)
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            with journal:
                journal.record_decision(decision())
            said = b"recorded"
        except BaseException as error:
            said = str(error).encode()
        os.write(write, said)
        signal.pause()
    try:
        assert b"is a fork of it" in os.read(read, 1000)
        journal.record_decision(decision())
        assert path.with_name("run.journal.lock").exists()
        with pytest.raises(JournalError, match="this process"):
            Journal.open(path)
        journal.close()
        # The child is still alive.
        with Journal.open(path) as again:
            assert again.count() == 1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


FORK = """
import os, sys, time
from attribution_sched.journal import Journal
journal = Journal.open(sys.argv[1])
if os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(60)
"""


def test_a_forked_child_does_not_keep_the_lock_of_a_parent_that_was_killed(path):
    command = [sys.executable, "-c", FORK, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as parent:
        child = int(parent.stdout.readline())
        try:
            parent.kill()
            parent.wait()
            os.kill(child, 0)
            Journal.open(path).close()
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_none(tmp_path, monkeypatch):
    """Between opening the file and locking it, its holder may remove it and another make it anew."""
    first, real, others = WriterLock(tmp_path / "x"), fcntl.flock, []

    def late(file, how):
        monkeypatch.setattr(fcntl, "flock", real)
        first.release()
        others.append(WriterLock(tmp_path / "x"))
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(JournalError, match="is being written by this process"):
        WriterLock(tmp_path / "x")
    others[0].release()
    WriterLock(tmp_path / "x").release()


def test_never_two_holders_while_the_file_comes_and_goes(tmp_path):
    inside, most, taken, problems = [], [], [], []

    def work():
        try:
            while len(taken) < 300:
                try:
                    lock = WriterLock(tmp_path / "x")
                except JournalError:
                    continue
                inside.append(1)
                most.append(len(inside))
                taken.append(1)
                inside.pop()
                lock.release()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert max(most) == 1


def test_reading_in_the_same_process_does_not_weaken_the_writer(path):
    """Another tool that looks at the file must not believe to be the last one and remove the log."""
    look = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT count(*) FROM decisions').fetchone()"
    )
    with Journal.open(path) as journal:
        fill(journal, 1)
        Journal.read(path).close()
        with pytest.raises(JournalError):
            Journal.open(path)
        subprocess.run([sys.executable, "-c", look + "; c.close()", str(path)], check=True)
        fill(journal, 1)
        with Journal.read(path) as reader:
            assert reader.count() == 2
