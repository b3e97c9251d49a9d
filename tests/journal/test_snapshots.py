"""Snapshots: arrays come back to the bit, damaged ones are passed over by name, old ones are dropped."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from attribution_sched.errors import JournalError
from attribution_sched.journal import Journal
from benchmarks.campaign_journal import edit
from tests.journal.journal_records import HEADER, fill

KINDS = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ">i4", ">f8")
ARRAYS = hn.arrays(st.sampled_from(KINDS).map(np.dtype), hn.array_shapes(min_dims=0, max_dims=3, min_side=0))


@given(st.dictionaries(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8), ARRAYS, max_size=3))
@settings(max_examples=60, deadline=None)
def test_arrays_come_back_to_the_bit(arrays):
    arrays.pop("__metadata__", None)
    with Journal.memory() as journal:
        journal.record_snapshot(0, arrays, {"n": 1})
        found = journal.newest_snapshot()
        assert set(found.arrays) == set(arrays)
        assert found.facts == {"n": 1}
        for name, array in arrays.items():
            same = array.astype(array.dtype.newbyteorder("<"))
            assert found.arrays[name].dtype == same.dtype
            assert found.arrays[name].shape == array.shape
            assert found.arrays[name].tobytes() == same.tobytes()


def test_views_that_are_not_contiguous_come_back(tmp_path):
    whole = np.arange(24.0).reshape(4, 6)
    with Journal.create(tmp_path / "run.journal", HEADER) as journal:
        journal.record_snapshot(0, {"turned": whole.T, "thinned": whole[::2, ::3]}, {})
        found = journal.newest_snapshot().arrays
    assert np.array_equal(found["turned"], whole.T)
    assert np.array_equal(found["thinned"], whole[::2, ::3])


def test_the_newest_of_those_that_are_early_enough(tmp_path):
    with Journal.create(tmp_path / "run.journal", HEADER) as journal:
        assert journal.newest_snapshot() is None
        for _ in range(4):
            fill(journal, 5)
            journal.record_snapshot(journal.count(), {"n": np.array(journal.count())}, {"n": journal.count()})
        assert journal.newest_snapshot().sequence == 20
        for at, expected in ((20, 20), (19, 15), (5, 5), (10**9, 20)):
            assert journal.newest_snapshot(at).sequence == expected
            assert journal.newest_snapshot(at).arrays["n"] == expected
        assert journal.newest_snapshot(4) is None
        journal.verify()


def test_damaged_ones_are_passed_over_by_name(tmp_path):
    path = tmp_path / "run.journal"
    with Journal.create(path, HEADER) as journal:
        for _ in range(3):
            fill(journal, 2)
            journal.record_snapshot(journal.count(), {"n": np.arange(100)}, {})
        positions = [position for position, _, _ in journal.chained("snapshots")]
    edit(path, f"UPDATE snapshot_data SET data = zeroblob(length(data)) WHERE position = {positions[2]}")
    with Journal.open(path) as journal:
        found = journal.newest_snapshot()
        assert (found.sequence, found.number) == (4, 1)
        assert len(found.skipped) == 1
        assert "snapshots[2] = " in found.skipped[0]
        with pytest.raises(JournalError, match=r"snapshots\[2\] = .*its SHA-256 does not fit"):
            journal.verify()
    edit(path, "UPDATE snapshot_data SET data = x'00'")
    with Journal.read(path) as journal, pytest.raises(JournalError, match=r"has no snapshot that is whole .snapshots"):
        journal.newest_snapshot()


def test_old_ones_are_dropped_but_for_every_so_many_th(tmp_path):
    with Journal.create(tmp_path / "run.journal", HEADER) as journal:
        for n in range(20):
            assert journal.record_snapshot(0, {"n": np.array(n)}, {"n": n}) == n
        journal.compact(keep_newest=3, keep_every=6)
        kept = "SELECT s.number FROM snapshots s JOIN snapshot_data d ON d.position = s.position ORDER BY s.number"
        assert [row[0] for row in journal.rows(kept)] == [0, 6, 12, 17, 18, 19]
        # That they were there stays in the chain.
        assert len(list(journal.chained("snapshots"))) == 20
        journal.verify()
        journal.compact(keep_newest=1, keep_every=0)
        assert [row[0] for row in journal.rows(kept)] == [19]
        journal.verify()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((3, {}, {}), "snapshot.sequence = 3: the journal has 2 decisions"),
        ((-1, {}, {}), "snapshot.sequence = -1: must be a whole number"),
        ((1, {"a": np.array(["x"])}, {}), "snapshot.arrays.a = .* is an array of <U1"),
        ((1, {"a": np.array([object()])}, {}), "snapshot.arrays.a = .* is an array of object"),
        ((1, {"a": np.array([1j])}, {}), "snapshot.arrays.a = .* is an array of complex128"),
        ((1, {}, {"x": float("nan")}), "snapshot.facts .* cannot be written as JSON"),
    ],
)
def test_what_cannot_be_kept_leaves_nothing_behind(given, words):
    with Journal.memory() as journal:
        fill(journal, 2)
        with pytest.raises(JournalError, match=words):
            journal.record_snapshot(*given)
        assert journal.newest_snapshot() is None
        journal.verify()
