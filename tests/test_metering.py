"""What a journal's tasks used adds up to the engine's own meters, and bills are written from it."""

from __future__ import annotations

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.billing.rules import RULES
from attribution_sched.config import load_settings
from attribution_sched.errors import JournalError
from attribution_sched.metering import usage_of


@pytest.fixture(scope="module", params=["testbed", "cross-domain"])
def system(request):
    made = System(request.param, policy="rule", seed=5)
    for _ in range(12):
        made.schedule_next_task()
    return made


def test_usage_is_what_the_meters_read(system):
    usage = usage_of(system.journal)
    totals = system.cluster.totals()
    # The journal ends with its last decision; so does the clock of its twin.
    assert usage.meter_j == pytest.approx(totals["meter_j"], rel=1e-12)
    assert usage.idle_j.sum() == pytest.approx(totals["idle_j"], rel=1e-9)
    assert (usage.span_dynamic_j.sum() + usage.span_static_j.sum()) == pytest.approx(totals["task_j"], rel=1e-9)
    assert usage.span_busy_s.sum() == pytest.approx(totals["busy_device_s"], rel=1e-9)
    assert usage.meter_egress_usd == pytest.approx(totals["bill_usd"], rel=1e-12)
    held = usage.held(np.zeros(len(usage.tasks), dtype=np.int64), 1)[0]
    assert (held <= usage.devices[:, None] + 1e-9).all()
    started = [task for task in usage.tasks if task.started_s is not None]
    assert started and all(task.started_s >= task.submitted_s for task in started)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("by", ["tenant", "task", "model", "domain"])
def test_every_bill_of_a_run_adds_up(system, rule, by):
    bill = system.bill(by, rule, electricity_usd_per_kwh=0.1)
    assert bill.gap() <= 1e-9
    assert bill.meter["electricity"] == pytest.approx(bill.meter["energy"] / 3.6e6 * 0.1)


def test_the_twin_reads_its_meters_without_moving_them(system):
    """A journal lived through with meters on comes out as recorded, or the replay itself would refuse it."""
    first, second = usage_of(system.journal), usage_of(system.journal)
    assert first.meter_j == second.meter_j and np.array_equal(first.span_dynamic_j, second.span_dynamic_j)


def test_an_archived_beginning_cannot_be_billed(tmp_path):
    path = tmp_path / "journal.sqlite"
    with System("testbed", policy="sjf", journal=path) as system:
        for _ in range(3):
            system.schedule_next_task()
        system.journal.archive(tmp_path / "old.sqlite", before=2, without_snapshot=True)
        with pytest.raises(JournalError, match="cannot be billed"):
            system.bill()


def test_of_a_shared_device_each_task_is_told_its_part():
    """Two tasks on one device hold half of it each, and together it works no more than all of the time."""
    settings = load_settings("shared").model_dump(mode="json")
    settings["domain_defaults"]["devices"] = 8
    settings["arrivals"]["rate_per_hour"] = 30.0
    settings["episode"] |= {"pool_size": 512, "queue_capacity": 8, "max_running": 16}
    made = System(load_settings(settings), policy="gavel-sharing", seed=1)
    shared = 0
    for _ in range(40):
        made.schedule_next_task()
        shared += bool((made.cluster.engine.state.occupant[0, :, :, 1] >= 0).any())
    assert shared > 0
    usage, totals = usage_of(made.journal), made.cluster.totals()
    assert usage.span_busy_s.sum() == pytest.approx(totals["busy_device_s"], rel=1e-9)
    assert usage.meter_j == pytest.approx(totals["meter_j"], rel=1e-12)
    held = usage.held(np.zeros(len(usage.tasks), dtype=np.int64), 1)[0]
    assert (held <= usage.devices[:, None] + 1e-9).all()
