"""Values: whatever is accepted comes back exactly."""

import math
import re
import sqlite3
import tempfile
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.errors import JournalError
from attribution_sched.journal import kinds, records, rows, schema
from benchmarks import campaign_journal

words = st.text(st.characters(codec="utf-8"))
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words
plain = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(words, inner), max_leaves=20)


@given(plain)
def test_json_comes_back_exactly(value):
    written = kinds.dump(value)
    assert kinds.load(written) == value
    assert kinds.dump(kinds.load(written)) == written


@given(st.floats())
def test_numbers_are_finite_or_refused(value):
    if math.isfinite(value):
        assert kinds.checked("x", kinds.number, value) == value
        assert kinds.load(kinds.dump(value)) == value
    else:
        with pytest.raises(JournalError, match=r"x = .*must be finite"):
            kinds.checked("x", kinds.number, value)
        with pytest.raises(JournalError, match=r"x = .*cannot be written as JSON"):
            kinds.checked("x", kinds.dump, {"deep": [value]})


@given(st.integers(), st.integers(-5, 5))
def test_whole_numbers_have_bounds(value, least):
    if least <= value < 2**63:
        assert kinds.whole("x", value, least=least) == value
    else:
        with pytest.raises(JournalError, match=f"x = {value}: must be a whole number of at least {least}"):
            kinds.whole("x", value, least=least)


def test_arrays_and_views_are_plain():
    given = MappingProxyType({"a": np.arange(3), "b": np.float32(0.5), "c": (1, np.int8(2)), "d": np.array(True)})
    assert kinds.KINDS["mapping"].write(given) == '{"a":[0,1,2],"b":0.5,"c":[1,2],"d":true}'


@pytest.mark.parametrize("value", [True, "1", [1.0], object(), 1j])
def test_what_is_no_number(value):
    with pytest.raises(JournalError, match="x = "):
        kinds.checked("x", kinds.number, value)


def test_a_long_value_is_shortened_in_the_message():
    with pytest.raises(JournalError) as caught:
        kinds.checked("x", kinds.KINDS["mapping"].write, [0] * 10_000)
    assert len(str(caught.value)) < 300


def test_what_refers_to_itself_is_refused():
    ring = []
    ring.append(ring)
    with pytest.raises(JournalError, match="cannot be written as JSON"):
        kinds.checked("x", kinds.dump, ring)


SQLITE = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"))
    | st.sampled_from(["{}", "[]", "null", '{"a":NaN}', '{"a":1e999}', "[" * 100_000, "9" * 5000, '{"a":1,"a":"b"}'])
    | st.binary(max_size=9)
)


def genuine():
    """A row of each table, as a journal of every kind of record has it, and what makes a record of it."""
    readers = {
        "header": partial(rows.read, records.JournalHeader),
        "tasks": partial(rows.read, records.TaskRecord),
        "decisions": partial(rows.read, records.DecisionRecord),
        "outcomes": partial(rows.read, records.OutcomeRecord, decision_id="d"),
        "explanations": partial(rows.read, records.ExplanationRecord, decision_id="d"),
        "waits": partial(rows.read, records.WaitRecord),
    }
    with tempfile.TemporaryDirectory() as folder:
        campaign_journal.build(Path(folder) / "x", 6)
        connection = sqlite3.connect(Path(folder) / "x")
        for table in schema.TABLES:
            row = connection.execute(f"SELECT * FROM {table} ORDER BY position DESC").fetchone()
            if row is not None:
                yield table, row, readers.get(table, partial(rows.decode, table))
        connection.close()


ROWS = list(genuine())


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_a_row_of_any_values_is_read_or_refused_by_name(data):
    """Also where the digest fits: whoever wrote it, types, ranges and shapes are checked."""
    table, row, read = data.draw(st.sampled_from(ROWS))
    at = data.draw(st.integers(1, len(row) - 3))
    changed = (*row[:at], data.draw(SQLITE), *row[at + 1 : -2])
    # Zero has no sign in SQLite.
    changed = tuple(each + 0.0 if type(each) is float else each for each in changed)
    fitting = (*changed, rows.check_of(rows.digest_of(table, changed)), row[-1])
    name = schema.columns(table)[at]
    try:
        read(fitting)
    except JournalError as error:
        assert re.match(rf"{table}\[.*\]\.({name}|weights|{name}\..*) = ", str(error), re.DOTALL), str(error)[:200]
    if changed[at] != row[at] or type(changed[at]) is not type(row[at]):
        with pytest.raises(JournalError):
            read((*changed, *row[-2:]))


def test_every_table_has_a_row_to_be_changed():
    assert {table for table, _, _ in ROWS} == set(schema.TABLES) - {"archives"}
