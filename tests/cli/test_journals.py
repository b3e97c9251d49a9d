"""Finding a decision, and a system as it was."""

import hashlib

import pytest

from attribution_sched.cli.console import Stages
from attribution_sched.cli.journals import decision_of, rebuilt
from attribution_sched.errors import JournalError
from attribution_sched.journal import DecisionRecord, Journal, OutcomeRecord
from attribution_sched.system import System


@pytest.fixture
def journal():
    with Journal.memory() as made:
        for number, name in enumerate(("abc", "abd", "x1", "x2")):
            made.record_decision(DecisionRecord(None, float(number), "sjf", [0], id=name))
            code = 1 if name == "x1" else 0
            made.record_outcome(OutcomeRecord(name, None, None, None, None, None, None, None, code, "simulated"))
        yield made


@pytest.mark.parametrize(
    ("wanted", "found"), [("abc", "abc"), ("abd", "abd"), ("x2", "x2"), ("2", "x1"), ("0", "abc"), ("last", "x1")]
)
def test_a_decision_is_found_by_id_number_or_last(journal, wanted, found):
    assert decision_of(journal, wanted) == found


def test_a_prefix_that_only_one_has_is_enough(written):
    with Journal.read(written) as journal:
        ids = [each.id for each in journal.decisions()]
        for name in ids[:3]:
            shortest = next(name[:n] for n in range(1, 9) if sum(each.startswith(name[:n]) for each in ids) == 1)
            assert decision_of(journal, shortest) == name


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("ab", "fits 2 decisions (abc, abd). Give more"),
        ("abx", "Did you mean 'ab"),
        ("", "is not in"),
        ("9", "9"),
    ],
)
def test_an_id_that_none_or_several_have_is_refused(journal, wanted, words):
    with pytest.raises(JournalError) as caught:
        decision_of(journal, wanted)
    assert words in str(caught.value)


def test_last_without_any_plan_in_force_is_the_newest():
    with Journal.memory() as empty:
        with pytest.raises(JournalError, match="no decisions yet"):
            decision_of(empty, "last")
        empty.record_decision(DecisionRecord(None, 0.0, "sjf", [0], id="only"))
        assert decision_of(empty, "last") == "only"


def test_a_system_is_built_again_without_touching_the_journal(written):
    before = hashlib.sha256(written.read_bytes()).hexdigest()
    with rebuilt(written, Stages(quiet=True)) as system:
        assert system.policy.name == "greedy"
        count = system.journal.count()
        system.run(1)
        assert system.journal.count() > count
    assert hashlib.sha256(written.read_bytes()).hexdigest() == before


def test_it_is_built_again_while_another_writes(tmp_path):
    path = tmp_path / "live.sqlite"
    with System("testbed", "greedy", journal=path, seed=4) as live:
        live.run(3)
        with rebuilt(path, Stages(quiet=True)) as copy:
            assert copy.journal.count() == live.journal.count()
            assert copy.now_s == live.now_s
            live.run(2)
        assert live.journal.count() > copy_count(path, 3)


def copy_count(path, at_least):
    with Journal.read(path) as journal:
        assert journal.count() >= at_least
    return 3
