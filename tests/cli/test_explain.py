"""`attribution-sched explain`: why a decision of a journal was made."""

import hashlib
import json

import pytest

from attribution_sched.explain.explanation import Explanation
from attribution_sched.journal import Journal
from attribution_sched.system.system import System

from .helpers import command, invoke, refused


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A journal of the learnt policy, which can say how sure it was, and what it said live."""
    path = tmp_path_factory.mktemp("learnt") / "journal.sqlite"
    with System("testbed", "hi-ppo", journal=path, seed=5) as system:
        system.run(5)
        last = [each.id for each, outcome in system.journal.entries() if outcome is not None and outcome.code > 0][-1]
        return path, system.explain(last, tipping=True)


def test_it_prints_drivers_confidence_thresholds_and_reasons_at_80_columns(learnt):
    path, live = learnt
    done = invoke("explain", "last", "--journal", path, columns=80)
    assert done.exit_code == 0, done.stderr
    # Columns of differences are there if some alternative differs; this task could go nowhere else.
    heads = (live.outputs[0], "✔", "±", "Together", "Compared with")
    for words in (live.decision, "hi-ppo placed", *heads):
        assert words in done.stdout
    for words in ("How found", "Found with"):
        assert words in done.stdout
    if live.rules:
        assert "Holds while" in done.stdout
    if live.counterfactual is not None:
        assert "Smallest flip" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_json_says_the_same_as_the_live_system_and_the_journal_is_only_read(learnt):
    path, live = learnt
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    done = invoke("explain", live.decision, "-j", path, "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert live.decision in told.pop("reasoning")
    found = Explanation.from_dict(told)
    assert found.outputs == live.outputs
    assert found.names == live.names
    assert found.values == pytest.approx(live.values, abs=1e-12)
    assert found.subject == live.subject
    assert found.confidence.agreement == pytest.approx(live.confidence.agreement)
    assert found.background_ids == live.background_ids
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def test_what_was_recorded_is_shown_without_asking_anyone(written):
    done = invoke("explain", "d000000", "-j", written, "--recorded")
    assert done.exit_code == 0, done.stderr
    assert "living through" not in done.stderr
    assert "d000000" in done.stdout
    refused(invoke("explain", "d000001", "-j", written, "--recorded"), "d000001", "no recorded explanation")
    refused(invoke("explain", "0", "-j", written, "--recorded", "--target", "simulator"), "'simulator'", "decision")


def test_another_question_another_language_and_a_page(written, here):
    done = invoke(
        "explain", "0", "-j", written, "--target", "simulator", "--lang", "zh", "--no-tipping", "--html", "why.html"
    )
    assert done.exit_code == 0, done.stderr
    assert "驱动因素" in done.stdout
    page = (here / "why.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert '<html lang="zh">' in page
    assert "<script" not in page
    assert "http" not in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("d999999",), ("decision id = 'd999999'", "is not in the journal")),
        (("d",), ("fits", "decisions (d000000")),
        (("last", "--target", "term"), ("--target = 'term'", "Did you mean 'terms'?")),
        (("last", "--against", "nobody"), ("--against = 'nobody'", "nothing, runner-up")),
        (("last", "--lang", "de"), ("lang = 'de'",)),
        (("last", "--most", "0"), ("--most = 0", ">= 1")),
        (("last", "--html", "why.txt"), ("--html = 'why.txt'", ".html")),
        (("last", "--html", "no/why.html"), ("mkdir -p no",)),
    ],
)
def test_a_mistake_is_one_line_and_code_2(written, here, arguments, words):
    refused(invoke("explain", *arguments, "-j", written), *words)
    assert list(here.iterdir()) == []


def test_a_page_does_not_take_the_place_of_a_folder(written, here):
    (here / "why.html").mkdir()
    refused(invoke("explain", "last", "-j", written, "--html", "why.html"), "--html = 'why.html'", "is a folder")
    assert [each.name for each in here.iterdir()] == ["why.html"]


def test_a_journal_that_is_none_is_refused(here):
    refused(invoke("explain", "last", "-j", "none.sqlite"), "none.sqlite", "does not exist")
    (here / "text.sqlite").write_text("no journal")
    refused(invoke("explain", "last", "-j", "text.sqlite"), "text.sqlite")


def test_a_journal_of_other_code_points_to_what_was_recorded(written, tmp_path, monkeypatch):
    from attribution_sched.errors import JournalError

    def refuses(*_, **__):
        raise JournalError("journal = 'decision d000000': does not come out as recorded. Resume elsewhere")

    monkeypatch.setattr(System, "resume", refuses)
    done = invoke("explain", "d000000", "-j", written)
    assert done.exit_code == 2
    assert "--recorded" in done.stderr
    assert "--recorded" not in invoke("explain", "d000001", "-j", written).stderr


def test_it_explains_while_another_process_writes(tmp_path):
    path = tmp_path / "live.sqlite"
    with System("testbed", "greedy", journal=path, seed=4) as live:
        live.run(3)
        done = command("explain", "last", "--journal", path, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["decision"].startswith("d0")
        with Journal.read(path) as journal:
            assert journal.explanations(told["decision"]) == []
        live.run(1)
