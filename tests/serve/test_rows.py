"""Rows of a journal in plain words and numbers."""

import json

from attribution_sched.journal import Journal
from attribution_sched.serve.rows import decision_row, measured_of, observed_figures, side_by_side
from attribution_sched.words.catalogue import variants


def test_a_decision_with_its_outcome(written):
    with Journal.read(written) as journal:
        rows = [decision_row(decision, outcome, journal.key(decision.id)) for decision, outcome in journal.entries()]
        placed = next(row for row in rows if row["result"] == "placed")
        record = journal.outcome(placed["id"])
        assert measured_of(journal, placed["key"]) == {}
    assert (placed["step_s"], placed["reward"]) == (record.step_s, record.reward)
    sizes = [abs(part["value"]) for part in placed["attribution"]]
    assert sizes == sorted(sizes, reverse=True) and placed["units"] == "J/sample"
    json.dumps(rows, allow_nan=False)


def test_a_pending_decision_says_so(written):
    with Journal.read(written) as journal:
        decision, _ = next(journal.entries())
        row = decision_row(decision, None, "key")
    assert row["pending"] and row["result"] == "pending" and "step_s" not in row


def test_figures_of_a_report():
    told = {"key": "k", "name": "t", "came": 1, "deciding": False, "step_s": 0.5, "done": None}
    assert observed_figures("measured", told) == {"step_s": 0.5, "state": "measured"}


def test_predicted_and_measured_stand_side_by_side(written):
    with Journal.read(written) as journal:
        rows = [decision_row(decision, outcome, journal.key(decision.id)) for decision, outcome in journal.entries()]
    placed = next(row for row in rows if row["result"] == "placed") | {"measured": {"step_s": 0.5, "cpu_s": 0.2}}
    told = {name: (predicted, measured) for name, predicted, measured in side_by_side(placed)}
    assert told["step"] == (placed["step_s"], 0.5) and told["cpu"] == (None, 0.2)
    assert "end" not in told and set(told) <= set(variants("serve.figure"))
