"""The journal as a data frame."""

import pandas as pd

from attribution_sched import System
from attribution_sched.journal import Journal
from tests.journal.journal_records import decision, fill


def test_history_has_one_row_per_decision():
    with Journal.memory() as journal:
        fill(journal, 3)
        journal.record_decision(decision(3, latencies_s={"explain": 0.1}, slot=None, weights=None, plan=None))
        found = journal.history()
        assert list(found.index) == [0, 1, 2, 3]
        assert found.index.name == "sequence"
        assert found.loc[1, "decision_id"] == "d000001"
        assert found.loc[1, "task_kind"] == "bert-base"
        assert found.loc[1, "r_util"] == 2 / 3
        assert found.loc[1, "latency_decide_s"] == 0.02
        assert found.loc[1, "plan"] == decision().plan
        assert found.loc[1, "action"] == decision(1).action
        assert found.loc[1, "code"] == 1
        assert found.loc[3, "latency_explain_s"] == 0.1
        missing = found.loc[3, ["task_id", "slot", "w_eff", "plan", "reward", "code", "outcome_provenance"]]
        assert pd.isna(missing).all()
        assert found["energy_j"].sum() == 3e4
        assert list(journal.history(1, 3).index) == [1, 2]
        assert found.dtypes.astype(str).loc[["r_eff", "code", "policy"]].tolist() == ["float64", "Int64", "string"]


def test_an_empty_history_has_the_same_columns():
    with Journal.memory() as journal:
        empty = journal.history()
        fill(journal, 1)
        full = journal.history()
    assert set(full.columns) - set(empty.columns) == {"latency_attribute_s", "latency_decide_s"}
    assert (full.dtypes[empty.columns] == empty.dtypes).all()


def test_history_says_what_tasks_asked_for():
    with System("testbed", "sjf", seed=1, queue="empty") as system:
        system.submit("bert-base", steps=200, tenant="ada", priority=3, deadline_s=7200.0, devices=1)
        system.schedule_next_task()
        row = system.history().iloc[0]
    asked = ["task_tenant", "task_priority", "task_deadline_s", "task_devices"]
    assert row[asked].tolist() == ["ada", 3, 7200.0, 1]
    with System("testbed", "sjf", seed=1) as system:
        system.schedule_next_task()
        assert system.history()[asked[1:]].isna().all(axis=None)
