import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attribution_sched.attribution.recordings import Column, ColumnMap, Recording, load_recording
from attribution_sched.attribution.sources.reading import Provenance
from attribution_sched.errors import CounterError, TraceError

MAP = ColumnMap(
    counters={
        "energy_j": Column("energy_mj", "J", scale=1e-3),
        "cycles": Column("cycles", "cycles", missing_ok=True, provenance=Provenance.ESTIMATED),
    },
    timestamp="t",
    labels=("job",),
)
GOOD = "t,job,energy_mj,cycles,unused\n1,a,1000,5,x\n2,b,2500,,y\n"


def csv_file(tmp_path, text, name="run.csv"):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def check(recording):
    assert recording.names == ("energy_j", "cycles")
    assert recording.units == ("J", "cycles")
    assert recording.values[:, 0].tolist() == [1.0, 2.5]
    assert recording.column("cycles")[0] == 5.0
    assert math.isnan(recording.column("cycles")[1])
    assert recording.provenance.tolist() == [["measured", "estimated"], ["measured", "unavailable"]]
    assert recording.timestamps_s.tolist() == [1.0, 2.0]
    assert recording.labels["job"] == ("a", "b")


def test_csv(tmp_path):
    check(load_recording(csv_file(tmp_path, GOOD), MAP))


def test_csv_with_byte_order_mark_alone(tmp_path):
    check(load_recording(csv_file(tmp_path, "\ufeff" + GOOD), MAP))


def test_csv_with_byte_order_mark_comment_and_windows_lines(tmp_path):
    check(load_recording(csv_file(tmp_path, "\ufeff# made by x, 3\r\n" + GOOD.replace("\n", "\r\n")), MAP))


def test_parquet(tmp_path):
    path = tmp_path / "run.parquet"
    columns = {"t": [1, 2], "job": ["a", "b"], "energy_mj": [1000, 2500], "cycles": [5.0, None]}
    pq.write_table(pa.table(columns), path)
    check(load_recording(path, MAP))


def test_rows_are_readings_and_nothing_can_be_changed(tmp_path):
    recording = load_recording(csv_file(tmp_path, GOOD), MAP)
    reading = recording.reading(1)
    assert reading.values["energy_j"] == 2.5
    assert reading.timestamp_s == 2.0
    assert reading.provenance["cycles"] is Provenance.UNAVAILABLE
    assert "run.csv" in reading.notes["cycles"]
    with pytest.raises(ValueError, match="read-only"):
        recording.values[0, 0] = 1.0
    with pytest.raises(CounterError, match="Did you mean 'cycles'"):
        recording.column("cycle")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("t,job,energy_mj,cycles\n", "no rows"),
        (GOOD.replace("energy_mj", "energy_m"), "Did you mean 'energy_m'"),
        (GOOD.replace("unused", "t"), "appear twice"),
        (GOOD.replace("2500", "lots"), r"run.csv: column 'energy_mj' row 2 = 'lots': is not a number"),
        (GOOD.replace("2500", ""), "row 2 = '': is empty"),
        (GOOD.replace("2500", "inf"), "must be finite"),
        (GOOD.replace("2500", "-1"), "at least 0.0 J"),
        (GOOD.replace("\n2,", "\n1,"), r"column 't' row 2 = '1': must rise"),
        (GOOD.replace(",y", ""), "row 2 = '4 fields'"),
        (b"t,job\n\xff\xfe\x00,1\n", "not a UTF-8 CSV"),
        (GOOD.replace(",a,", ',"a,'), "CSV"),
    ],
)
def test_bad_csv_names_file_column_row_rule_and_fix(tmp_path, text, words):
    with pytest.raises(TraceError, match=words) as caught:
        load_recording(csv_file(tmp_path, text), MAP)
    assert "run.csv" in str(caught.value)


def test_bad_files(tmp_path):
    with pytest.raises(TraceError, match="not a file"):
        load_recording(tmp_path / "none.csv", MAP)
    with pytest.raises(TraceError, match=r"neither \.csv nor \.parquet"):
        load_recording(csv_file(tmp_path, GOOD, "run.txt"), MAP)
    with pytest.raises(TraceError, match="not a whole Parquet"):
        load_recording(csv_file(tmp_path, GOOD, "run.parquet"), MAP)
    path = tmp_path / "cut.parquet"
    pq.write_table(pa.table({"t": [1.0]}), path)
    path.write_bytes(path.read_bytes()[:-6])
    with pytest.raises(TraceError, match="not a whole Parquet"):
        load_recording(path, MAP)


def test_arrays_must_agree():
    with pytest.raises(TraceError, match="differ"):
        Recording(("a",), ("J", "W"), np.zeros((2, 1)), np.full((2, 1), "measured"))
    with pytest.raises(TraceError, match="marked unavailable"):
        Recording(("a",), ("J",), np.full((1, 1), np.nan), np.full((1, 1), "measured"))
    with pytest.raises(TraceError, match="marked unavailable"):
        Recording(("a",), ("J",), np.full((1, 1), np.inf), np.full((1, 1), "measured"))


@pytest.mark.parametrize(
    ("columns", "names", "words"),
    [
        ([[1.0], ["a"], [1.0], [1.0]], ["t", "job", "cycles", "cycles"], r"columns = \['cycles'\]: appear twice"),
        ([[1.0], ["a"], pa.array([2**45], pa.timestamp("s")), [1]], ["t", "job", "energy_mj", "cycles"], "cells that"),
        ([[1.0], ["a"], [[1.0]], [1]], ["t", "job", "energy_mj", "cycles"], r"\[1\.0\]: is not a number"),
    ],
    ids=["a column twice", "a date beyond the calendar", "a list for a number"],
)
def test_a_whole_parquet_file_of_odd_columns_is_one_error(tmp_path, columns, names, words):
    path = tmp_path / "odd.parquet"
    pq.write_table(
        pa.table([pa.array(each) if isinstance(each, list) else each for each in columns], names=names), path
    )
    with pytest.raises(TraceError, match=words):
        load_recording(path, MAP)


def test_text_of_a_parquet_file_that_is_no_utf8_is_one_error(tmp_path):
    path = tmp_path / "odd.parquet"
    text = pa.array([b"\xff\xfe"]).view(pa.string())
    table = pa.table({"t": [1.0], "job": text, "energy_mj": [1.0], "cycles": [1.0]})
    pq.write_table(table, path)
    with pytest.raises(TraceError, match="cells that cannot be read"):
        load_recording(path, MAP)


def test_many_columns_are_looked_at_once(tmp_path):
    path = csv_file(tmp_path, ",".join(f"c{n}" for n in range(50_000)) + "\n")
    with pytest.raises(TraceError, match="is not in the file"):
        load_recording(path, MAP)


def test_a_parquet_file_whose_column_names_are_no_utf8_is_one_error(tmp_path):
    path = tmp_path / "odd.parquet"
    pq.write_table(pa.table({"t": [1.0], "job": ["a"], "energy_mj": [1.0], "cycles": [1.0]}), path)
    path.write_bytes(path.read_bytes().replace(b"energy_mj", b"\xeanergy_m\xf2"))
    with pytest.raises(TraceError, match="is not a whole Parquet file"):
        load_recording(path, MAP)
