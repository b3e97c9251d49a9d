"""Where a run writes, finding a decision, and a system as it was."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from attribution_sched.cli import files
from attribution_sched.cli.console import Stages
from attribution_sched.cli.files import find_decision, rebuild_system
from attribution_sched.errors import JournalError, SettingsError
from attribution_sched.journal import DecisionRecord, Journal, OutcomeRecord
from attribution_sched.system.system import System


def test_a_folder_of_its_own_is_never_one_that_is_there(here):
    first, second = (files.make_run_files("short", 3, None, None) for _ in range(2))
    assert first.folder == Path("runs/short-3-1")
    assert second.folder == Path("runs/short-3-2")
    assert first.journal == Path("runs/short-3-1/journal.sqlite")
    assert first.report == Path("runs/short-3-1/report.html")
    assert first.folder.is_dir()


def test_what_the_user_names_needs_no_folder(here):
    found = files.make_run_files("short", 3, Path("a.sqlite"), None)
    assert (found.journal, found.report, found.folder) == (Path("a.sqlite"), Path("a.html"), None)
    assert list(here.iterdir()) == []
    Path("a.html").touch()
    assert files.make_run_files("short", 3, Path("a.sqlite"), None).report == Path("a-2.html")


def test_an_empty_folder_is_taken_away_again_and_a_full_one_is_kept(here):
    found = files.make_run_files("short", 3, None, None)
    found.discard()
    assert list(here.iterdir()) == []
    found = files.make_run_files("short", 3, None, None)
    found.journal.touch()
    found.discard()
    assert found.journal.exists()


def test_a_file_where_the_folder_should_be_is_said(here):
    Path("runs").touch()
    with pytest.raises(SettingsError, match="'runs'"):
        files.make_run_files("short", 3, None, None)


@pytest.mark.parametrize(
    ("journal", "report", "words"),
    [
        ("old.sqlite", None, "is there already"),
        (None, "old.html", "is there already"),
        ("no/where.sqlite", None, "mkdir -p no"),
        (None, "report.pdf", "must end in .html, .json, .md"),
    ],
)
def test_paths_are_looked_at_first(here, journal, report, words):
    for name in ("old.sqlite", "old.html"):
        Path(name).touch()
    with pytest.raises(SettingsError) as caught:
        files.check_new_files(journal and Path(journal), report and Path(report))
    assert words in str(caught.value)


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
    assert find_decision(journal, wanted) == found


def test_a_prefix_that_only_one_has_is_enough(written):
    with Journal.read(written) as journal:
        ids = [each.id for each in journal.decisions()]
        for name in ids[:3]:
            shortest = next(name[:n] for n in range(1, 9) if sum(each.startswith(name[:n]) for each in ids) == 1)
            assert find_decision(journal, shortest) == name


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
        find_decision(journal, wanted)
    assert words in str(caught.value)


def test_last_without_any_plan_in_force_is_the_newest():
    with Journal.memory() as empty:
        with pytest.raises(JournalError, match="no decisions yet"):
            find_decision(empty, "last")
        empty.record_decision(DecisionRecord(None, 0.0, "sjf", [0], id="only"))
        assert find_decision(empty, "last") == "only"


def test_a_system_is_built_again_without_touching_the_journal(written):
    before = hashlib.sha256(written.read_bytes()).hexdigest()
    with rebuild_system(written, Stages(quiet=True)) as system:
        assert system.policy.name == "greedy"
        count = system.journal.count()
        system.run(1)
        assert system.journal.count() > count
    assert hashlib.sha256(written.read_bytes()).hexdigest() == before


def test_it_is_built_again_while_another_writes(tmp_path):
    path = tmp_path / "live.sqlite"
    with System("testbed", "greedy", journal=path, seed=4) as live:
        live.run(3)
        with rebuild_system(path, Stages(quiet=True)) as copy:
            assert copy.journal.count() == live.journal.count()
            assert copy.now_s == live.now_s
            live.run(2)
        assert live.journal.count() > copy_count(path, 3)


def copy_count(path, at_least):
    with Journal.read(path) as journal:
        assert journal.count() >= at_least
    return 3
