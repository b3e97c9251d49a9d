"""``when`` and ``what-if`` on the command line."""

import json

import pytest

from attribution_sched import System
from attribution_sched.cli.explain import show_alternatives
from attribution_sched.explain.decision_table import Alternative, DecisionTable
from attribution_sched.explain.played import Played
from attribution_sched.stats.interval import MeanInterval

from .helpers import invoke


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    path = tmp_path_factory.mktemp("questions") / "journal.sqlite"
    with System("cross-domain-easy", "rule", seed=3, journal=path) as system:
        while not len(queue := system.queue()):
            system.schedule_next_task()
        task, domain = str(queue["id"].iloc[0]), system.domains[0]
    return path, task, domain


def test_when(journal):
    path, task, _ = journal
    told = invoke("when", path, task, "--futures", "9", "--hours", "3")
    assert told.exit_code == 0, told.output
    assert task in told.stdout
    found = json.loads(invoke("when", path, task, "--futures", "9", "--hours", "3", "--json").stdout)
    every = json.loads(invoke("when", path, "--futures", "9", "--hours", "3", "--json").stdout)
    assert found in every
    assert found["futures"] == 9
    assert found["start"]["low_s"] >= found["now_s"]


def test_when_nothing_waits_that_is_said(tmp_path):
    path = tmp_path / "empty.sqlite"
    with System("testbed", "sjf", seed=3, queue="empty", journal=path):
        pass
    assert invoke("when", path).stdout.strip() == "Nothing waits."
    assert invoke("when", path, "--lang", "zh").stdout.strip() == "没有等待的任务。"
    assert json.loads(invoke("when", path, "--json").stdout) == []


def test_what_if(journal):
    path, _, domain = journal
    told = invoke("what-if", path, "--add", f"8@{domain}", "--futures", "3", "--hours", "2", "--lang", "zh")
    assert told.exit_code == 0, told.output
    assert "现状" in told.stdout
    found = json.loads(invoke("what-if", path, "--drop", domain, "--futures", "3", "--hours", "2", "--json").stdout)
    assert [each["quantity"] for each in found[0]["effects"]][:2] == ["wait", "completion"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("when", "nobody"), "nobody"),
        (("what-if", "--drop", "nowhere"), "does not exist"),
        (("what-if", "--task", "no.yaml"), "cannot be read"),
    ],
)  # fmt: skip
def test_mistakes(journal, arguments, words):
    name, *rest = arguments
    told = invoke(name, journal[0], *rest)
    assert told.exit_code == 2
    assert words in told.stderr


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_table_of_alternatives_shows_what_a_choice_is_worth_in_any_terminal(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    span = MeanInterval(-1.25, -1.5, -1.0, 16)
    played = Played(span, span, MeanInterval(0.0, -1e-16, 1e-16, 16), span, 600.0, -1.0, 2.0, 30.0, 16, 6.0)
    rows = (Alternative("west ×16", chosen=True), Alternative("wait", played=played))
    show_alternatives(DecisionTable("d000001", "It goes west.", rows), "en")
    told = capsys.readouterr().out
    # The error stands below its difference.
    value, error = (next(line for line in told.splitlines() if words in line) for words in ("−1.25", "± 0.25"))
    assert value.index("−1.25") == error.index("± 0.25") + 1
    assert "ΔR_util" not in told  # nothing differs there but rounding
    # What there is no room for stands in a table below; nothing is cut.
    assert "Δg" in told and "+30" in told
    assert told.count("Instead") == (1 if columns >= 80 else 2)
    assert max(map(len, told.splitlines())) <= columns
    assert all(len(line.rstrip()) <= columns for line in told.splitlines())
