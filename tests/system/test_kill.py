"""Kill a real process that schedules, again and again: what it did in the end is what it does undisturbed."""

import os
import signal

import pytest

from attribution_sched import System
from attribution_sched.journal import Journal
from tests.campaigns.kills import Children, campaign, kill_again_and_again, kill_migrations
from tests.system_child import TRIALS


@pytest.fixture(scope="module")
def children():
    found = Children("small", "everything")
    yield found
    found.close()


def test_some_kills_lose_and_double_nothing(children, tmp_path):
    (tmp_path / "straight").mkdir()
    tally = kill_again_and_again(children, "small", 9, 1, tmp_path, step=12)
    assert tally.wrong == []
    assert tally.kills["decide"] + tally.kills["submit"] >= 2
    assert tally.placed > 50


def test_kills_while_it_explains_learns_from_feedback_reports_and_exports(children, tmp_path):
    (tmp_path / "straight").mkdir()
    tally = kill_again_and_again(children, "everything", 5, 3, tmp_path)
    assert tally.wrong == []
    assert tally.changed >= 1


def test_kills_while_a_journal_is_brought_up_to_date(children, tmp_path):
    tally = kill_migrations(children, 6, 1, tmp_path)
    assert tally.wrong == []
    assert tally.kills.total() == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "kills"), [("small", 55), ("everything", 40), ("cross-domain-easy", 10), ("migration", 60)]
)
def test_many_kills_lose_and_double_nothing(world, kills):
    tally = campaign(world, kills, seed=2)
    assert tally.wrong == []
    assert tally.kills.total() == kills
    assert tally.changed >= (world in ("everything", "cross-domain-easy"))


def test_a_weight_that_moves_otherwise_is_found_out(children, tmp_path, monkeypatch):
    """The campaign can fail: an undisturbed run with other targets is not what the killed one did."""
    (tmp_path / "straight").mkdir()
    monkeypatch.setitem(TRIALS["everything"].targets, "step_ratio_at_most", 0.5)
    tally = kill_again_and_again(children, "everything", 3, 3, tmp_path)
    assert any("differ" in each for each in tally.wrong)


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
