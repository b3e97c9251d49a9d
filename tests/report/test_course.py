"""What the cluster did over time: as much as the meters' record holds, in intervals that add up to it."""

import numpy as np
import pytest

from attribution_sched.billing.metering import usage_of
from attribution_sched.report.collect import gather as module
from attribution_sched.report.collect.gather import course
from attribution_sched.report.sections.summary import _picture
from tests.report.runs import SYSTEMS, report


@pytest.mark.parametrize("name", ["ruled", "learnt"])
def test_device_time_is_that_of_the_meters(name):
    usage = usage_of(SYSTEMS[name]().journal)
    told = course(usage)
    meter_s = float((usage.span_devices * usage.lengths_s[usage.span_interval]).sum())
    assert sum(one.devices * (one.end_s - one.start_s) for one in told.holdings) == pytest.approx(meter_s)
    busy_s = (np.array(told.busy) * np.diff(told.edges_s)).sum() * usage.devices.sum()
    assert busy_s == pytest.approx(meter_s)
    assert all(0.0 <= share <= 1.0 + 1e-9 for share in told.busy)


def test_waiting_adds_up_to_the_time_tasks_waited():
    usage = usage_of(SYSTEMS["ruled"]().journal)
    last = float(usage.edges_s[-1])
    waited_s = sum(
        max(0.0, (last if task.started_s is None else task.started_s) - task.submitted_s) for task in usage.tasks
    )
    told = course(usage)
    assert (np.array(told.waiting) * np.diff(told.edges_s)).sum() == pytest.approx(waited_s, abs=1e-6)


def test_of_too_many_holdings_the_newest_are_told(monkeypatch):
    usage = usage_of(SYSTEMS["ruled"]().journal)
    whole = course(usage)
    monkeypatch.setattr(module, "MOST_HOLDINGS", 2)
    few = course(usage)
    assert few.holdings == whole.holdings[-2:]
    assert few.left_out == len(whole.holdings) - 2


def test_a_run_without_decisions_has_none():
    assert report("empty").course is None


def test_the_picture_is_drawn_in_hours():
    told = report("ruled")
    picture = _picture(told, "en")
    bars, _, (edges_h, busy, _) = picture.draw.args
    assert edges_h == pytest.approx(np.array(told.course.edges_s) / 3600.0) and busy == told.course.busy
    assert [bar.start_h for bar in bars] == pytest.approx([one.start_s / 3600.0 for one in told.course.holdings])
