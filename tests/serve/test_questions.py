"""Questions about a journal's tasks: asked of a copy, and nothing of a real cluster is touched."""

import json

import pytest

from attribution_sched import System
from attribution_sched.cli.console import Stages
from attribution_sched.cli.files import rebuild_system
from attribution_sched.executors.local import LocalExecutor
from attribution_sched.journal import Journal
from attribution_sched.serve.questions import JournalQuestions
from tests.campaigns.executor_kills import SETTINGS


@pytest.fixture
def cut_short(tmp_path, monkeypatch):
    """A local cluster's journal whose newest decision is recorded and was never launched; and who launches since."""
    path, launched = tmp_path / "j.sqlite", []

    def die(self, key, job):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(LocalExecutor, "launch", die)
        system = System(SETTINGS, "sjf", journal=path, queue="empty", cluster="local")
        for name in ("one", "two"):
            system.submit("bert-base", steps=20, id=name, command=["true"])
        with pytest.raises(KeyboardInterrupt):
            system.schedule_next_task()
        system.journal.close()
    with Journal.read(path) as journal:
        assert len(journal.pending()) == 1
    monkeypatch.setattr(LocalExecutor, "launch", lambda self, key, job: launched.append(key))
    return path, launched


def test_asking_launches_nothing_that_is_pending(cut_short):
    path, launched = cut_short
    before = path.read_bytes()
    questions = JournalQuestions(path)
    found = [questions.ask({"kind": "why", "task": name, "lang": "en"}) for name in ("one", "two")]
    assert all("words" in each or "runs already" in each["error"] for each in found)
    questions.close()
    assert launched == [] and path.read_bytes() == before


def test_the_command_line_launches_nothing_either(cut_short):
    path, launched = cut_short
    with Stages() as stages, rebuild_system(path, stages) as system:
        assert system.status().running
    assert launched == []


def test_a_second_question_is_asked_of_the_same_copy_until_the_journal_grows(written, monkeypatch):
    made = []
    kept = System.resume.__func__
    monkeypatch.setattr(System, "resume", classmethod(lambda cls, *a, **k: made.append(a) or kept(cls, *a, **k)))
    questions = JournalQuestions(written)
    first = questions.ask({"kind": "why", "task": "by-hand", "lang": "zh"})
    assert questions.ask({"kind": "why", "task": "by-hand", "lang": "zh"}) == first
    assert len(made) == 1 and "by-hand" in first["words"]
    questions.close()


@pytest.mark.parametrize(
    ("question", "words"),
    [({"kind": "what", "task": "a"}, "must be one of"), ({"kind": "why", "task": "nobody"}, "does not wait here"),
     ({"kind": "why-not", "task": "by-hand", "domain": "mars"}, "does not exist"), ({}, "must be one of")],
)  # fmt: skip
def test_a_wrong_question_is_told_what_is_wrong(written, question, words):
    questions = JournalQuestions(written)
    assert words in questions.ask(question)["error"]
    questions.close()


def test_when_and_what_if_are_asked_like_why(written):
    questions = JournalQuestions(written)
    told = questions.ask({"kind": "when", "task": "by-hand", "lang": "en"})
    assert "by-hand" in told["words"]
    assert told["start"]["low_s"] is None or told["start"]["low_s"] >= told["now_s"]
    json.dumps(told, allow_nan=False)
    found = questions.ask({"kind": "what-if", "change": "policy fcfs", "lang": "zh"})
    assert "fcfs" in found["words"]
    assert {each["quantity"] for each in found["effects"]} >= {"wait", "energy", "carbon"}
    assert "must be one of" in questions.ask({"kind": "what-if", "change": "paint it blue", "lang": "en"})["error"]
    assert "must be a number" in questions.ask({"kind": "what-if", "change": "carbon-price much"})["error"]
    questions.close()


def test_the_bill_is_told_whole_and_as_one_tenant_may_see_it(written):
    questions = JournalQuestions(written)
    whole = questions.ask({"kind": "bill", "lang": "zh"})
    payers = {line["payer"] for line in whole["bill"]["lines"]}
    assert whole["bill"]["gap"] < 1e-9 and whole["title"] == "账单" and len(payers) > 1
    mine = questions.ask({"kind": "bill", "payer": sorted(payers)[0], "lang": "en"})
    assert {line["payer"] for line in mine["bill"]["lines"]} == {sorted(payers)[0], "(others)"}
    told = json.dumps(mine)
    assert not any(f'"{other}"' in told for other in sorted(payers)[1:])
    assert "no line in this bill" in questions.ask({"kind": "bill", "payer": "nobody-here"})["error"]
    questions.close()
