"""Work of the Philly log: drawn from constants, or a week of the log itself."""

import os
from pathlib import Path

import numpy as np
import pytest

from attribution_sched.cluster.interference import measured_jobs
from attribution_sched.cluster.philly import (
    LONGEST_S,
    TEST_WEEKS,
    TRAIN_WEEKS,
    Philly,
    PhillyWeek,
    believed_left_s,
    request_of,
)
from attribution_sched.cluster.world import build_pool
from attribution_sched.config import load_settings
from attribution_sched.errors import SettingsError, TaskError, TraceError

LOG = Path(os.environ.get("ATTRIBUTION_SCHED_DATA", "")) / "philly" / "philly.csv"
needs_log = pytest.mark.skipif(not LOG.is_file(), reason="needs philly/philly.csv in ATTRIBUTION_SCHED_DATA")


def test_the_preset_asks_for_most_of_its_devices():
    world = load_settings("shared").build_world()
    pool = build_pool(world)
    devices = np.array([kind.batch_size for kind in world.kinds])[pool.kinds]
    load = world.arrivals.rate_per_hour * (devices * pool.steps).mean() / 3600.0 / world.cluster.devices
    assert 0.8 <= load <= 0.95
    assert len(set(pool.tenants)) >= 10
    assert pool.steps.max() <= LONGEST_S


def test_arrivals_come_in_sessions_at_the_mean_rate():
    gaps = np.concatenate([np.diff(Philly(15.0).spec().times(30 * 86_400.0, seed)) for seed in range(4)])
    assert 3600.0 / gaps.mean() == pytest.approx(15.0, rel=0.1)
    assert (gaps < 60.0).mean() > 0.7
    assert gaps.std() > 2.0 * gaps.mean()


def test_a_job_is_one_that_was_run_on_so_many_devices():
    drawn = Philly(1.0).draw(2000, np.random.default_rng(0))
    column = np.searchsorted([1, 2, 4, 8], drawn.devices)
    assert np.isfinite(measured_jobs().steps_per_s[drawn.jobs, column]).all()
    assert len(set(drawn.jobs[drawn.devices == 1])) == len(measured_jobs().names)


def test_what_is_left_is_what_the_tenant_s_history_tells():
    drawn = Philly(1.0).draw(20_000, np.random.default_rng(1))
    tenant = max(set(drawn.tenants), key=drawn.tenants.count)
    own = drawn.durations_s[[t == tenant for t in drawn.tenants]]
    assert believed_left_s(tenant, 0.0) == pytest.approx(own.mean(), rel=0.15)
    older = own[own > 3600.0] - 3600.0
    assert believed_left_s(tenant, 3600.0) == pytest.approx(older.mean(), rel=0.3)
    assert believed_left_s("nobody", 10 * LONGEST_S) > 0.0


@pytest.mark.parametrize(("devices", "request_"), [(1, 1), (3, 2), (5, 4), (12, 8), (128, 8)])
def test_other_requests_are_rounded_down(devices, request_):
    assert request_of(devices) == request_


@needs_log
def test_a_week_of_the_log_keeps_its_order_sizes_and_tenants():
    assert not set(TRAIN_WEEKS) & set(TEST_WEEKS)
    week = PhillyWeek(str(LOG), TEST_WEEKS[0], keep=8)
    drawn, times = week.draw(), week.spec().times_s
    assert (np.diff(times) >= 0).all() and times[0] >= 0 and times[-1] < 7 * 86_400
    assert len(times) == len(drawn.tenants) > 100
    other = PhillyWeek(str(LOG), TEST_WEEKS[0], keep=8, seed=1).draw()
    assert not np.array_equal(drawn.jobs[:50], other.jobs[:50])


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ("timestamp,duration\n", "must have the columns"),
        ("timestamp,duration,num_gpus,cluster\n2017-11-06 01:00:00,-5,1,a\n", "duration must be >= 0"),
        ("timestamp,duration,num_gpus,cluster\nyesterday,5,1,a\n", "is no task"),
        ("timestamp,duration,num_gpus,cluster\n2018-11-06 01:00:00,5,1,a\n", "has no task"),
    ],
)
def test_a_bad_log_is_one_clear_error(tmp_path, rows, match):
    path = tmp_path / "philly.csv"
    path.write_text(rows)
    with pytest.raises(TraceError, match=match):
        PhillyWeek(str(path), "2017-11-06").draw()


def test_the_monday_of_a_week_is_written_as_people_write_it(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "extends: shared\narrivals: {kind: philly_week, path: philly.csv, monday: 2017-11-06}\n"
    )
    assert load_settings(tmp_path / "mine.yaml").arrivals.monday == "2017-11-06"


def test_bad_settings():
    with pytest.raises(SettingsError, match="rate_per_hour"):
        Philly(0.0)
    with pytest.raises(SettingsError, match="monday"):
        PhillyWeek("x.csv", "next week")
    with pytest.raises(SettingsError, match=r"monday = '2017-11-07': is a Tuesday\. One of 2017-10-02"):
        PhillyWeek("x.csv", "2017-11-07")
    with pytest.raises(TraceError, match="cannot be read"):
        PhillyWeek("/nowhere.csv", "2017-11-06").draw()
    settings = load_settings("shared").model_dump(mode="json")
    settings["kinds"] = settings["kinds"][:1]
    with pytest.raises(TaskError, match="opaque-2"):
        build_pool(load_settings(settings).build_world())
