"""Signals: a value at a moment, a forecast with its error; gaps and NaN are errors."""

import math
import os
from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.signals import (
    DAY,
    Constant,
    Grid,
    Live,
    Series,
    Signal,
    by_hour,
    grid_names,
    mean_over,
    possible,
    usual,
)
from attribution_sched.cluster.world import hourly_ratios
from attribution_sched.config import load_settings
from attribution_sched.errors import SettingsError, TraceError

HOUR = 3600.0


def test_every_kind_keeps_the_protocol():
    for signal in (Constant(1.0), Series.hourly([1.0, 2.0]), Live(lambda: 3.0), Grid("PJM")):
        assert isinstance(signal, Signal)
        value, error = signal.forecast(0.0, 0.0)
        assert value == signal.at(0.0) and error == 0.0


def test_a_series_holds_each_value_and_begins_again():
    series = Series.hourly([10.0, 20.0, 30.0])
    assert [series.at(t * HOUR) for t in (0, 0.99, 1, 2.5, 3, 4)] == [10, 10, 20, 30, 10, 20]


def test_a_forecast_of_a_series_knows_the_past_only():
    rng = np.random.default_rng(0)
    values = 100 + 20 * np.sin(np.arange(240) * math.tau / 24) + rng.normal(0, 3, 240)
    series = Series.hourly(values)
    changed = Series.hourly([*values[:121], *(values[121:] + 1000)])
    assert series.forecast(120 * HOUR, 6 * HOUR) == changed.forecast(120 * HOUR, 6 * HOUR)
    found = series.forecast(120 * HOUR, 6 * HOUR)
    assert found.value == values[102] and found.error == pytest.approx(3 * math.sqrt(2), rel=0.4)


def test_a_day_that_repeats_is_known_ahead():
    values = [float(hour) for hour in range(24)]
    tariff, recording = Series.hourly(values, DAY), Series.hourly(values)
    for hour, ahead in ((0, 5), (3, 30), (23, 2)):
        assert tariff.forecast(hour * HOUR, ahead * HOUR) == ((hour + ahead) % 24, 0.0)
    # A recording of one day says nothing of the hours that have not been.
    assert recording.forecast(0.0, 5 * HOUR).value == 0.0
    futures = possible(tariff, 2 * HOUR, np.random.default_rng(0).standard_normal((3, 30)))
    assert np.array_equal(futures, np.tile([(2 + h) % 24 for h in range(30)], (3, 1)))


@pytest.mark.parametrize("name", grid_names())
def test_a_grid_has_its_mean_and_its_forecast_error_is_honest(name):
    plain, noisy = Grid(name), Grid(name, seed=3)
    year = 8760 * HOUR
    assert mean_over(plain, 0.0, year) == pytest.approx(plain.annual_mean, rel=0.03)
    starts = np.arange(0, 8700, 37) * HOUR
    off = []
    for start in starts:
        value, error = noisy.forecast(start, 6 * HOUR)
        off.append((noisy.at(start + 6 * HOUR) - value) / error)
    assert np.std(off) == pytest.approx(1.0, abs=0.2)
    assert noisy.forecast(0.0, HOUR).error < noisy.forecast(0.0, 24 * HOUR).error


def test_grids_differ_as_measured():
    """2022: BPAT 55, CISO 256, ERCO 347, PJM 363 g/kWh; California has its duck curve, PJM hardly moves."""
    means = {name: Grid(name).annual_mean for name in grid_names()}
    assert means == pytest.approx({"BPAT": 55, "CISO": 256, "ERCO": 347, "PJM": 363}, rel=0.01)
    day = {name: [Grid(name).at(t * HOUR) for t in range(24)] for name in ("CISO", "PJM")}
    swing = {name: max(values) / min(values) for name, values in day.items()}
    assert swing["CISO"] > 1.4 > 1.2 > swing["PJM"]


def test_a_live_source_is_asked_once_for_each_moment():
    asked = iter([1.0, 2.0, 4.0, 3.0])
    live = Live(lambda: next(asked))
    assert [live.at(t) for t in (0.0, 0.0, HOUR, 2 * HOUR, HOUR)] == [1.0, 1.0, 2.0, 4.0, 2.0]
    assert live.forecast(2 * HOUR, HOUR).error > 0
    for wrong in (math.nan, -1.0, 1e300):
        with pytest.raises(SettingsError, match=r"must be a number from 0 to 1e\+15"):
            Live(lambda wrong=wrong: wrong).at(0.0)


def test_a_live_source_with_a_usual_value_is_read_as_it_was_noted_and_never_asked_by_a_reader(tmp_path):
    path = tmp_path / "carbon.txt"
    live = Live.from_file(path, 300.0)
    # Nothing is there yet, and nobody minds: readers do not ask.
    assert (live.at(0.0), usual(live), by_hour(live, 2).tolist()) == (300.0, 300.0, [300.0, 300.0])
    path.write_text("2026-11-18T22:00,410\n2026-11-18T23:00,395.5\n")
    assert live.ask() == 395.5
    live.note(HOUR, 395.5)
    live.note(2 * HOUR, 1.0)
    # The clock of a cluster stands while nothing runs: the last word counts. What was before it stays as it was.
    live.note(2 * HOUR, 200.0)
    live.note(HOUR, 1.0)
    assert [live.at(t) for t in (0.0, HOUR, 1.5 * HOUR, 9 * HOUR)] == [300.0, 395.5, 395.5, 200.0]
    # What came later is not known at a moment, nor how far it wandered.
    assert live.forecast(HOUR, HOUR).value == 395.5
    assert usual(live) == 300.0


def test_a_pipe_in_the_place_of_a_file_blocks_nobody(tmp_path):
    os.mkfifo(tmp_path / "carbon.txt")
    with pytest.raises(OSError, match="no regular file"):
        Live.from_file(tmp_path / "carbon.txt", 300.0).ask()


def test_two_readings_a_second_apart_do_not_make_a_live_source_wild():
    """As when a run is resumed: the error is about what it wandered in all, over the time that took."""
    live = Live(lambda: 0.0, usual=300.0)
    for hour, value in enumerate((300.0, 310.0, 300.0, 310.0)):
        live.note(hour * HOUR, value)
    calm = live.forecast(3 * HOUR, HOUR).error
    assert calm == pytest.approx(10.0)
    live.note(3 * HOUR + 1.0, 320.0)
    assert live.forecast(3 * HOUR + 1.0, HOUR).error < 2.0 * calm


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("time_s,value\n0,1\n3600,nan\n", "line 3: value.*finite"),
        ("time_s,value\n0,1\n3600,-2\n", "line 3: value = -2.*>= 0"),
        ("time_s,value\n0,1\n3600,\n", "line 3: value.*finite"),
        ("time_s,value\n0,1\n90000,2\n", "leaves a gap of 90000 s"),
        ("time_s,value\n0,1\n3600,2\n10800,3\n", "line 4: time_s = 10800.0: leaves a gap of 7200 s, longer than 5400"),
        ("time_s,value\n0,1\n300,2\n600,2\n1500,3\n", "leaves a gap of 900 s, .* rows are usually 300 s apart"),
        ("time_s,value\n-3600,1\n0,2\n", "line 2: time_s = -3600.*>= 0"),
        ("time_s,value\n0,1\n0,2\n", "must lie after the row before it"),
        ("time_s,price\n0,1\n", "must name the column 'value'"),
        ("time_s,value\n", "at least one row"),
    ],
)
def test_a_bad_file_is_one_clear_error(tmp_path, text, match):
    path = tmp_path / "signal.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=match):
        Series.from_csv(path)
    with pytest.raises(TraceError, match="cannot be read"):
        Series.from_csv(tmp_path / "none.csv")


def test_times_before_the_run_and_unknown_grids_are_refused():
    with pytest.raises(SettingsError, match="time_s"):
        Constant(1.0).at(-1.0)
    with pytest.raises(SettingsError, match="no fitted profile"):
        Grid("MISO")


def test_the_hours_of_a_grid_are_worked_out_once_and_those_of_a_live_signal_every_time():
    grid, reads = Grid(grid_names()[0], seed=4), []
    found = by_hour(grid, 48)
    assert found.tolist() == [grid.at(3600.0 * h) for h in range(48)]
    assert by_hour(Grid(grid_names()[0], seed=4), 48) is found and not found.flags.writeable
    assert by_hour(replace(grid, seed=5), 48).tolist() != found.tolist()

    class Read(Constant):
        def at(self, time_s):
            reads.append(time_s)
            return super().at(time_s)

    by_hour(Read(1.0), 3)
    by_hour(Read(1.0), 3)
    assert len(reads) == 6


def test_a_world_asks_a_live_source_once_and_not_for_every_hour_of_the_year():
    asked = []
    live = Live(lambda: asked.append(1) or 240.0 + len(asked))
    world = load_settings("shared").build_world()
    domains = tuple(replace(domain, carbon=live) for domain in world.cluster.domains)
    ratios = hourly_ratios(replace(world, cluster=replace(world.cluster, domains=domains)))
    assert len(asked) == 1
    assert ratios[1, :, 0].tolist() == [241.0 / domains[0].carbon_g_per_kwh] * 8760


def test_rows_may_be_six_hours_apart(tmp_path):
    path = tmp_path / "slow.csv"
    path.write_text("time_s,value\n" + "".join(f"{21_600 * i},{i}\n" for i in range(5)))
    assert Series.from_csv(path).at(50_000.0) == 2.0
