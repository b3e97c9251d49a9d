"""Futures of a recorded log: only its past comes again, and lengths are what ended and what still runs say."""

import numpy as np
import pytest

from attribution_sched.cluster import recorded
from attribution_sched.cluster.fork import with_history
from attribution_sched.cluster.philly import BELIEVED_AT_S, PhillyWeek, believed_by_age_s, believed_left_s
from attribution_sched.cluster.recorded import BLOCK_S, Lengths, Recorded, lengths_before
from attribution_sched.config import load_settings

TENANT = "6214e9"
LEVELS = (np.arange(1000) + 0.5) / 1000


@pytest.fixture
def no_history(monkeypatch):
    """Tenants without a past: all that is known of lengths is given."""
    monkeypatch.setattr(recorded, "PRIOR_TASKS", 1e-12)


def log(path, rows):
    lines = [f"2017-11-06 {h:02d}:{m:02d}:00,{seconds},{gpus},0,{who}" for h, m, seconds, gpus, who in rows]
    path.write_text("\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *lines]) + "\n")
    return PhillyWeek(str(path), "2017-11-06", keep=1)


def test_the_product_limit_estimate_by_hand(no_history):
    # Of three at risk one ends after 10 s, one is still running after 20 s, the last ends after 30 s.
    found = Lengths(TENANT, False, [10.0, 30.0], [20.0]).left_s(0.0, LEVELS)
    assert (found == 10.0).mean() == pytest.approx(1 / 3, abs=0.01)
    assert (found == 30.0).mean() == pytest.approx(2 / 3, abs=0.01)


def test_what_still_runs_makes_all_look_longer(no_history):
    ended = [60.0] * 5 + [3600.0] * 5
    alone = Lengths(TENANT, False, ended).left_s(0.0, LEVELS).mean()
    assert Lengths(TENANT, False, ended, [1800.0] * 10).left_s(0.0, LEVELS).mean() > 1.3 * alone


def test_what_is_left_is_of_those_that_took_longer(no_history):
    lengths = Lengths(TENANT, False, [100.0, 200.0, 400.0])
    assert set(lengths.left_s(150.0, LEVELS)) == {50.0, 250.0}
    assert set(lengths.left_s(90_000.0, LEVELS)) == {9_000.0}


def test_what_ended_outweighs_what_was_known_before():
    before = np.median(lengths_before(TENANT, False).left_s(0.0, LEVELS))
    assert before > 1000.0
    since = Lengths(TENANT, False, [60.0] * 40)
    assert np.median(since.left_s(0.0, LEVELS)) == 60.0
    # But what was known before is not forgotten.
    assert since.left_s(0.0, LEVELS).max() > 1000.0


def test_tasks_on_several_devices_take_longer_than_a_tenant_s_others():
    one, wide = (lengths_before("b436b2", large).left_s(0.0, LEVELS) for large in (False, True))
    assert np.median(wide) > 10.0 * np.median(one)


def test_the_table_that_followers_read_is_what_policies_believe():
    told = believed_by_age_s(TENANT)
    assert told.tolist() == [believed_left_s(TENANT, age_s) for age_s in BELIEVED_AT_S]


def test_a_future_in_which_nobody_comes_is_a_future():
    """Found on a quiet night of a test week: thinking raised a ValueError."""
    world = load_settings("shared").build_world()
    assert with_history(np.zeros((0, 4)), world, ()).shape == (0, 4 + len(BELIEVED_AT_S))
    assert with_history(np.zeros((2, 4)), world, ("6214e9", "who")).shape == (2, 4 + len(BELIEVED_AT_S))


def test_only_the_past_comes_again(tmp_path):
    early = [(0, m, 600, 1 + 7 * (m % 2), TENANT) for m in range(0, 50, 5)]
    one = log(tmp_path / "a.csv", [*early, (9, 0, 60, 1, "11cb48")])
    other = log(tmp_path / "b.csv", [*early, *((10, m, 86_000, 8, "ee9e8c") for m in range(40))])
    past, now_s = one.spec().times_s[:10], 3600.0
    drawn = [
        Recorded(week, past, {}, ()).coming(now_s, now_s + 86_400.0, 4096, np.random.default_rng(3))
        for week in (one, other)
    ]
    for name in ("times_s", "devices", "lasts_s"):
        assert np.array_equal(getattr(drawn[0], name), getattr(drawn[1], name))
    assert set(drawn[0].tenants) == {TENANT}
    assert (np.diff(drawn[0].times_s) >= 0.0).all()
    assert drawn[0].times_s[0] >= now_s and drawn[0].times_s[-1] < now_s + 86_400.0


def test_bursts_stay_bursts_at_the_rate_of_the_past(tmp_path):
    rows = [(h, m, 600, 1, TENANT) for h in (2, 14) for m in range(40)]
    week = log(tmp_path / "a.csv", rows)
    past, now_s = week.spec().times_s, 86_400.0
    counts, gaps = [], []
    for seed in range(40):
        found = Recorded(week, past, {}, ()).coming(now_s, 2 * now_s, 4096, np.random.default_rng(seed)).times_s
        counts.append(len(found))
        gaps.append(np.diff(found))
    assert np.mean(counts) == pytest.approx(len(rows), rel=0.15)
    assert (np.concatenate(gaps) <= 61.0).mean() > 0.9
    assert now_s > BLOCK_S


def test_tasks_of_one_session_take_about_as_long_as_each_other(tmp_path):
    week = log(tmp_path / "a.csv", [(1, m, 600, 1, TENANT) for m in range(40)])
    futures = [
        Recorded(week, week.spec().times_s, {}, ()).coming(7200.0, 9600.0, 4096, np.random.default_rng(seed)).lasts_s
        for seed in range(60)
    ]
    means = np.array([np.log(each).mean() for each in futures if len(each) > 5])
    within = np.mean([np.log(each).std() / np.sqrt(len(each)) for each in futures if len(each) > 5])
    # Independent lengths would make the futures' means differ by chance alone.
    assert means.std() > 1.5 * within
