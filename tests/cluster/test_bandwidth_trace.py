"""Reading and replaying recorded bandwidth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.bandwidth_trace import BandwidthTrace, trace_row
from attribution_sched.errors import TraceError

NAMES = ("a", "b", "c")
HEADER = "time_s,src,dst,gbps\n"


@pytest.fixture
def write(tmp_path):
    def make(text, encoding="utf-8"):
        path = tmp_path / "trace.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return make


def test_links_hold_their_last_value_and_absent_ones_keep_the_base(write):
    path = write(HEADER + "100,a,b,2.0\n110,b,a,7\n120,a,b,3.0\n")
    trace = BandwidthTrace.from_csv(path, NAMES)
    assert trace.times_s.tolist() == [0.0, 10.0, 20.0]
    ab, ba = trace.at([0, 9.9, 10, 20, 1e9])[:, 0, 1], trace.at([0, 9.9, 10, 20, 1e9])[:, 1, 0]
    assert ab.tolist() == [2.0, 2.0, 2.0, 3.0, 3.0]
    np.testing.assert_array_equal(ba, [np.nan, np.nan, 7.0, 7.0, 7.0])
    assert np.isnan(trace.at(20.0)[2]).all()
    assert trace.source == str(path)
    base = np.full((3, 3), 4.0)
    np.testing.assert_allclose(trace.multiplier(base)[2, :2, :2], [[1.0, 0.75], [1.75, 1.0]])


def test_wrap_repeats_with_a_last_row_as_long_as_the_one_before(write):
    path = write(HEADER + "0,a,b,1\n10,a,b,2\n30,a,b,3\n")
    trace = BandwidthTrace.from_csv(path, NAMES, at_end="wrap")
    assert trace.period_s == 50.0
    assert trace.at([0, 10, 30, 49, 50, 60, 130])[:, 0, 1].tolist() == [1, 2, 3, 3, 1, 2, 3]
    assert BandwidthTrace.from_csv(path, NAMES).period_s == 0.0


def test_one_row_is_a_constant(write):
    trace = BandwidthTrace.from_csv(write(HEADER + "5,a,b,1.5\n"), NAMES, at_end="wrap")
    assert trace.at([0.0, 1e6])[:, 0, 1].tolist() == [1.5, 1.5]


def test_column_order_spaces_extra_columns_and_byte_order_mark_do_not_matter(write):
    path = write("dst, gbps ,note,src,time_s\nb, 2.5,x,a,0\n", encoding="utf-8-sig")
    assert BandwidthTrace.from_csv(path, NAMES).at(0.0)[0, 1] == 2.5


def test_lookup_takes_any_shape(write):
    trace = BandwidthTrace.from_csv(write(HEADER + "0,a,b,1\n10,a,b,2\n"), NAMES)
    assert trace.at(3.0).shape == (3, 3)
    assert trace.at(np.zeros((4, 2))).shape == (4, 2, 3, 3)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(0.1, 1e3), min_size=1, max_size=20),
    st.lists(st.floats(0, 1e5), min_size=1, max_size=20),
)
def test_row_lookup_equals_searchsorted(gaps, wanted):
    times = np.concatenate([[0.0], np.cumsum(gaps)])
    expected = np.searchsorted(times, wanted, side="right") - 1
    assert [trace_row(times, t, 0.0) for t in wanted] == expected.tolist()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["line 1", "time_s"]),
        ("time_s,src,gbps\n0,a,1\n", ["line 1", "'dst'", "Add the column"]),
        (HEADER, ["at least one row"]),
        (HEADER + "0,a,b,nan\n", ["line 2", "gbps", "'nan'", "finite"]),
        (HEADER + "0,a,b,1\n1,a,b,-3\n", ["line 3", "gbps", "'-3'", "> 0"]),
        (HEADER + "0,a,b,0\n", ["line 2", "'0'", "outage"]),
        (HEADER + "0,a,b,fast\n", ["line 2", "'fast'", "finite number"]),
        (HEADER + "inf,a,b,1\n", ["line 2", "time_s", "'inf'"]),
        (HEADER + "0,a,bb,1\n", ["line 2", "dst", "'bb'", "Did you mean 'b'?"]),
        (HEADER + "0,a,a,1\n", ["line 2", "dst", "differ from src"]),
        (HEADER + "5,a,b,1\n5,a,b,2\n", ["line 3", "time_s", "later than 5.0"]),
        (HEADER + "5,a,b,1\n6,b,a,1\n4,a,b,2\n", ["line 4", "time_s", "Sort"]),
        (HEADER + "0,a,b\n", ["line 2", "4 fields"]),
        (HEADER + "0,a,b,1,9\n", ["line 2", "4 fields"]),
    ],
)
def test_malformed_file_names_file_line_value_rule_and_fix(write, text, words):
    path = write(text)
    with pytest.raises(TraceError) as caught:
        BandwidthTrace.from_csv(path, NAMES)
    for word in [str(path), *words]:
        assert word in str(caught.value)


def test_unreadable_files_are_trace_errors(write, tmp_path):
    with pytest.raises(TraceError, match="cannot be read"):
        BandwidthTrace.from_csv(tmp_path / "missing.csv", NAMES)
    with pytest.raises(TraceError, match="cannot be read"):
        BandwidthTrace.from_csv(write("time_s,ñ\n", encoding="latin-1"), NAMES)


def _grid(value=1.0):
    gbps = np.full((2, 3, 3), np.nan)
    gbps[:, 0, 1] = value
    return gbps


@pytest.mark.parametrize(
    ("times", "gbps", "at_end", "word"),
    [
        ([0.0, 1.0], _grid()[:, :2], "hold", "shape"),
        ([], np.empty((0, 3, 3)), "hold", "shape"),
        ([0.0, 0.0], _grid(), "hold", "increase"),
        ([1.0, 2.0], _grid(), "hold", "start at 0"),
        ([0.0, np.nan], _grid(), "hold", "increase"),
        ([0.0, 1.0], _grid(-1.0), "hold", "> 0"),
        ([0.0, 1.0], np.ones((2, 3, 3)), "hold", "diagonal"),
        ([0.0, 1.0], _grid(), "stop", "at_end"),
    ],
)
def test_arrays_are_checked_too(times, gbps, at_end, word):
    with pytest.raises(TraceError, match=word):
        BandwidthTrace(NAMES, times, gbps, at_end)
