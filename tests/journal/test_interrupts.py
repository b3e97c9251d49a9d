"""Interrupts: whatever line one comes at, the journal goes on whole in the same process."""

import contextlib
import sys
from pathlib import Path

import pytest

from attribution_sched.journal import Journal, store
from tests.journal.journal_records import HEADER, decision, fill, outcome, task

ROOM = str(Path(store.__file__).parent)


class Interrupt(BaseException):
    """What Ctrl-C raises, told from it."""


def interrupted(work, at):
    """Do some work and raise at the n-th line of the journal's own code; return whether it got that far."""
    seen = 0

    def trace(frame, event, _):
        nonlocal seen
        if not frame.f_code.co_filename.startswith(ROOM):
            return None
        if event == "line":
            seen += 1
            if seen == at:
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def step(journal):
    """What the loop does: finish what is pending, then decide."""
    for made in journal.pending():
        journal.record_outcome(outcome(made.id))
    count = journal.count()
    made = journal.record_decision(decision(count, task_id=f"task-{count}", sequence=count), task=task(count))
    journal.record_outcome(outcome(made.id))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("stride", [7])
def test_an_interrupt_at_any_line_loses_and_doubles_nothing(tmp_path, grouped, stride):
    path = tmp_path / "run.journal"
    journal = Journal.create(path, HEADER)
    at, hits = 1, 0

    def work():
        if grouped:
            with journal.batch(3):
                step(journal)
                step(journal)
        else:
            step(journal)

    while interrupted(work, at):
        hits += 1
        at += stride
        # The same process goes on, twice, before the next interrupt.
        step(journal)
        step(journal)
        assert journal.pending() == []
    assert hits > 40
    count = journal.count()
    assert [each.sequence for each in journal.decisions()] == list(range(count))
    assert [each.id for each in journal.tasks()] == [f"task-{n}" for n in range(count)]
    journal.verify()
    journal.close()
    with Journal.open(path) as again:
        assert again.count() == count
        again.verify()


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("then_grouped", [False, True])
def test_a_second_interrupt_while_the_first_is_dealt_with_leaves_nothing_half_done(
    tmp_path, monkeypatch, grouped, then_grouped
):
    path = tmp_path / "run.journal"
    with Journal.create(path, HEADER) as journal:
        fill(journal, 2)

        def half(tail):
            tail.append("tasks", (tail.next["tasks"], "half", "kind", 1, 0.0, "{}", "{}"))
            raise Interrupt

        def again(_):
            monkeypatch.undo()
            raise Interrupt

        monkeypatch.setattr(store.Store, "_take_back", again)
        with pytest.raises(Interrupt), journal.batch() if grouped else contextlib.nullcontext():
            if grouped:
                monkeypatch.undo()
                fill(journal, 1)
                monkeypatch.setattr(store.Store, "_take_back", again)
            journal.write(half)
        with journal.batch() if then_grouped else contextlib.nullcontext():
            fill(journal, 2)
        assert [each.id for each in journal.tasks()] == [f"task-{n}" for n in range(4 + grouped)]
        journal.verify()
    with Journal.open(path) as again_opened:
        again_opened.verify()


def test_a_journal_closed_after_such_interrupts_keeps_no_half_record(tmp_path, monkeypatch):
    path = tmp_path / "run.journal"

    def half(tail):
        tail.append("tasks", (tail.next["tasks"], "half", "kind", 1, 0.0, "{}", "{}"))
        raise Interrupt

    def again(_):
        raise Interrupt

    for forgotten in (False, True):
        journal = Journal.create(path, HEADER) if not forgotten else Journal.open(path)
        with monkeypatch.context() as patched, pytest.raises(Interrupt):
            patched.setattr(store.Store, "_take_back", again)
            journal.write(half)
        if not forgotten:
            journal.close()
        del journal
        with Journal.open(path) as found:
            assert list(found.tasks()) == []
            found.verify()
