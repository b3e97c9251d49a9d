import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.attribution.recorder import Recorder, ReplaySource, load_recorded
from attribution_sched.attribution.sources.process import ProcessSource
from attribution_sched.attribution.sources.reading import Provenance, ReadingBuilder
from attribution_sched.errors import CounterError, TraceError

SUFFIXES = ["csv", "parquet"]


def reading(t, a=1.5, b=None, note='why, "not"\nreally'):
    out = ReadingBuilder()
    out.add("a", a, "J", Provenance.MEASURED, cumulative=True)
    if b is None:
        out.missing("b [x]", "W", note)
    else:
        out.add("b [x]", b, "W", Provenance.ESTIMATED, "scaled")
    return out.build(t)


def same(left, right):
    values = np.array([list(r.values.values()) for r in (left, right)])
    assert np.array_equal(values[0], values[1], equal_nan=True)
    assert (left.units, left.provenance, left.notes) == (right.units, right.provenance, right.notes)
    assert (left.timestamp_s, left.cumulative) == (right.timestamp_s, right.cumulative)


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    st.lists(
        st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.none() | st.floats(0, 1e300)),
        min_size=1,
        max_size=5,
    )
)
def test_round_trip_is_exact(tmp_path_factory, suffix, rows):
    path = tmp_path_factory.mktemp("run") / f"run.{suffix}"
    written = [reading(1e9 + i / 3, a, b) for i, (a, b) in enumerate(rows)]
    with Recorder(path) as recorder:
        for one in written:
            recorder.write(one)
    replay = ReplaySource(path)
    for one in written:
        same(one, replay.read())
    assert len(replay) == len(written)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nothing_appears_before_the_end_and_no_part_stays(tmp_path, suffix):
    path = tmp_path / f"run.{suffix}"
    recorder = Recorder(path)
    recorder.write(reading(1.0))
    assert not path.exists()
    recorder.close()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_appending(tmp_path, suffix):
    path = tmp_path / f"run.{suffix}"
    for t in (1.0, 2.0, 3.0):
        with Recorder(path, append=True) as recorder:
            recorder.write(reading(t, a=t))
    assert load_recorded(path).column("a").tolist() == [1.0, 2.0, 3.0]


def test_a_crash_loses_only_the_line_being_written(tmp_path):
    path = tmp_path / "run.csv"
    with Recorder(path) as recorder:
        recorder.write(reading(1.0, a=1.0))
    crashed = Recorder(path, append=True)
    crashed.write(reading(2.0, a=2.0, b=4.0))
    crashed.write(reading(3.0, a=3.0, b=4.0))
    crashed._stream.close()
    part = tmp_path / "run.csv.part"
    part.write_bytes(part.read_bytes()[:-5])
    assert load_recorded(path).column("a").tolist() == [1.0]  # the old file is untouched
    with pytest.raises(TraceError, match="exists already"):
        Recorder(tmp_path / "run.csv")
    with Recorder(path, append=True) as again:
        again.write(reading(4.0, a=4.0))
    assert load_recorded(path).column("a").tolist() == [1.0, 2.0, 4.0]


def test_what_was_read_before_an_exception_is_kept(tmp_path):
    path = tmp_path / "run.csv"
    with pytest.raises(RuntimeError), Recorder(path) as recorder:
        recorder.write(reading(1.0))
        raise RuntimeError
    assert len(load_recorded(path)) == 1


def test_an_empty_recording_leaves_no_file(tmp_path):
    with Recorder(tmp_path / "run.csv"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_other_counters_and_old_times_are_refused(tmp_path):
    recorder = Recorder(tmp_path / "run.csv")
    recorder.write(reading(2.0))
    with pytest.raises(TraceError, match="must be after"):
        recorder.write(reading(2.0))
    with pytest.raises(TraceError, match="differ from the first"):
        recorder.write(ReadingBuilder().build(9.0))
    recorder.close()
    with pytest.raises(TraceError, match=r"\.csv or \.parquet"):
        Recorder(tmp_path / "run.txt")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("attribution-sched recording", "something", "not a recording of this package"),
        ('"version": 1', '"version": 2', "not a recording of this package"),
        ("# {", "# (", "not a recording of this package"),
        ("estimated", "guessed", "row 1 = 'guessed': must be one of"),
        (",2.5,", ",two,", "column 'a' row 1 = 'two': is not a number"),
        (",a,", ",c,", "do not fit the header"),
        (",2.5,", ",,", "NaN and marked unavailable"),
    ],
)
def test_edited_files(tmp_path, old, new, words):
    path = tmp_path / "run.csv"
    with Recorder(path) as recorder:
        recorder.write(reading(1.0, a=2.5, b=3.0))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(TraceError, match=words):
        load_recorded(path)


def test_replay_ends_or_loops(tmp_path):
    path = tmp_path / "run.csv"
    with Recorder(path) as recorder:
        recorder.write(reading(1.0))
    once, forever = ReplaySource(path), ReplaySource(load_recorded(path), loop=True)
    once.read()
    with pytest.raises(CounterError, match="ended after 1 readings"):
        once.read()
    for _ in range(3):
        assert forever.read().timestamp_s == 1.0
    assert [r.timestamp_s for r in once] == [1.0]


def test_a_live_source(tmp_path):
    path = tmp_path / "run.parquet"
    with Recorder(path) as recorder:
        assert recorder.record(ProcessSource(), seconds=0.1, interval_s=0.03) >= 2
    recording = load_recorded(path)
    assert recording.units[recording.names.index("cpu_time_s")] == "s"
    assert all(math.isfinite(v) for v in recording.column("cpu_time_s"))
