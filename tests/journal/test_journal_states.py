"""Any order of recording, reopening and being killed: the journal and a plain list agree."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from attribution_sched.errors import JournalError
from attribution_sched.journal import EventRecord, ExplanationRecord, FeedbackRecord, Journal
from tests.journal.journal_records import HEADER, decision, killed, outcome, task

number = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | number | st.text(st.characters(codec="utf-8")), st.lists, max_leaves=5
)


class JournalMachine(RuleBasedStateMachine):
    """A journal beside lists of what was recorded; a list of what is on disk where a batch holds back."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "run.journal"
        self.journal = Journal.create(self.path, HEADER)
        self.decisions, self.outcomes, self.tasks, self.events, self.changes, self.reasons = [], {}, [], 0, [], {}
        self.copies = 0

    @rule(
        action=plain,
        known=st.booleans(),
        plan=st.none() | st.dictionaries(st.text("ab"), plain, max_size=2),
        time_s=number,
    )
    def decide(self, action, known, plan, time_s):
        new = task(len(self.tasks)) if known else None
        given = decision(action=action, plan=plan, cluster_time_s=time_s, task_id=new.id if new else None)
        made = self.journal.record_decision(given, task=new)
        expected = len(self.decisions)
        assert made == replace(given, id=f"d{expected:06d}", sequence=expected)
        self.decisions.append(made)
        if new:
            self.tasks.append(new)

    @rule(data=st.data(), reward=st.none() | number)
    @precondition(lambda self: self.decisions)
    def conclude(self, data, reward):
        chosen = data.draw(st.sampled_from(self.decisions)).id
        given = outcome(chosen, reward=reward)
        if chosen in self.outcomes:
            with pytest.raises(JournalError, match="has an outcome already"):
                self.journal.record_outcome(given)
        else:
            self.journal.record_outcome(given)
            self.outcomes[chosen] = given

    @rule(data=st.data(), again=st.booleans(), about=st.sampled_from(["terms", "choice"]), body=plain)
    @precondition(lambda self: self.decisions)
    def explain(self, data, again, about, body):
        given = ExplanationRecord(data.draw(st.sampled_from(self.decisions)).id, about, {"body": body})
        if (given.decision_id, about) in self.reasons and not again:
            with pytest.raises(JournalError, match="already"):
                self.journal.record_explanation(given)
        else:
            self.journal.record_explanation(given, replace=again)
            self.reasons[given.decision_id, about] = given

    @rule(data=st.data(), before=plain)
    def learn(self, data, before):
        free = [each.number for each in self.changes if not each.rolled_back]
        undoes = data.draw(st.none() | st.sampled_from(free)) if free else None
        made = self.journal.record_feedback(FeedbackRecord("w", before, 1.0, "why", undoes))
        assert made.number == len(self.changes)
        self.changes.append(made)
        if undoes is not None:
            self.changes[undoes] = replace(self.changes[undoes], rolled_back=True)

    @rule()
    def note(self):
        self.journal.record_event(EventRecord("note"))
        self.events += 1

    @rule(wrong=st.sampled_from([{"id": "d000000"}, {"sequence": 10**6}, {"task_id": "nobody"}, {"policy": ""}]))
    @precondition(lambda self: self.decisions)
    def refuse(self, wrong):
        with pytest.raises(JournalError):
            self.journal.record_decision(decision(**wrong), task=task("never"))

    @rule(every=st.integers(1, 4), steps=st.lists(st.booleans(), max_size=6))
    def several(self, every, steps):
        with self.journal.batch(every):
            for concluded in steps:
                self.decide([], False, None, 0.0)
                if concluded:
                    name = self.decisions[-1].id
                    self.journal.record_outcome(outcome(name))
                    self.outcomes[name] = outcome(name)

    @rule()
    def reopen(self):
        self.journal.close()
        self.journal = Journal.open(self.path)

    @rule()
    def kill(self):
        self.copies += 1
        self.path = killed(self.path, self.folder / str(self.copies))
        self.journal.close()
        self.journal = Journal.open(self.path)

    @invariant()
    def agrees(self):
        journal = self.journal
        assert list(journal.entries()) == [(each, self.outcomes.get(each.id)) for each in self.decisions]
        assert [each.id for each in journal.pending()] == [
            each.id for each in self.decisions if each.id not in self.outcomes
        ]
        assert journal.count() == len(self.decisions)
        assert journal.last() == (self.decisions[-1] if self.decisions else None)
        assert list(journal.tasks()) == self.tasks
        assert sum(1 for _ in journal.events()) == self.events
        assert journal.feedback() == self.changes
        found = {(name, each.target): each for name, _ in self.reasons for each in journal.explanations(name)}
        assert found == self.reasons

    def teardown(self):
        self.journal.close()
        shutil.rmtree(self.folder)


TestJournalStates = JournalMachine.TestCase
TestJournalStates.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
