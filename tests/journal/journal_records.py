"""Records for the tests, and the files a journal leaves behind."""

import shutil
from pathlib import Path

from attribution_sched.journal import DecisionRecord, JournalHeader, OutcomeRecord, TaskRecord

HEADER = JournalHeader(
    preset="cross-domain-easy",
    policy="hi-ppo",
    settings={"domains": 3, "link": {"gbps": 5.5}},
    seeds={"cluster": 7, "policy": 2**100},
    package_version="0.1.0",
    created_at="2026-01-02T03:04:05+00:00",
)


def task(number=0, **changes):
    given = {
        "kind": "bert-base",
        "steps": 400,
        "submitted_s": 12.5,
        "counters": {"power_w": 250.1},
        "meta": {"tier": 1},
    }
    return TaskRecord(id=f"task-{number}", **(given | changes))


def decision(number=0, **changes):
    given = {
        "task_id": None,
        "cluster_time_s": 0.1 + number,
        "policy": "hi-ppo",
        "action": [[number, 12, 3, 0, 1], [3, 0, 0, 0, 0]],
        "plan": {"schedule": "1f1b", "replicas": [{"microbatch": 4, "domain": "北京"}]},
        "slot": 2,
        "attribution": {"values": [0.1, 1 / 3, 1e-300], "base": 3.0},
        "view_digest": "ab12",
        "latencies_s": {"attribute": 0.001, "decide": 0.02},
        "weights": (0.5, 0.3, 0.2),
        "provenance": {"counters": "simulated"},
    }
    return DecisionRecord(**(given | changes))


def outcome(decision_id, **changes):
    given = {
        "r_eff": 0.1,
        "r_util": 2 / 3,
        "r_cost": 0.25,
        "reward": -0.125,
        "step_s": 1.5,
        "bill_usd": 0.0,
        "energy_j": 1e4,
        "code": 1,
        "provenance": "simulated",
        "details": {"move_s": 0.5},
    }
    return OutcomeRecord(decision_id, **(given | changes))


def fill(journal, number, outcomes=True):
    """Record decisions, one per new task, and what they came to."""
    for n in range(journal.count(), journal.count() + number):
        made = journal.record_decision(decision(n, task_id=f"task-{n}"), task=task(n))
        if outcomes:
            journal.record_outcome(outcome(made.id))


def killed(path, folder):
    """A copy of the files of an open journal as they stand: what a killed process would leave."""
    folder.mkdir(exist_ok=True)
    copy = Path(folder) / path.name
    for ending in ("", "-wal"):
        if path.with_name(path.name + ending).exists():
            shutil.copy(path.with_name(path.name + ending), copy.with_name(copy.name + ending))
    return copy
