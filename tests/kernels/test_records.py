"""Records are read by reference, whatever is inside them, and given back."""

import sys
from typing import NamedTuple

import numba
import numpy as np
import pytest

from attribution_sched import kernels
from attribution_sched.kernels.records import Reference


@kernels.by_reference
class Inner(NamedTuple):
    values: np.ndarray
    count: int
    on: bool


@kernels.by_reference
class Outer(NamedTuple):
    inner: Inner
    sums: np.ndarray
    factor: float


@kernels.kernel
def add(given: Outer, at: int) -> bool:
    given.sums[at] += given.inner.values[at] * given.factor + given.inner.count
    return given.inner.on


@kernels.kernel
def add_all(given: Outer) -> int:
    told = 0
    for at in range(given.sums.size):
        told += add(given, at)
    return told


@kernels.kernel(allocates=True)
def added(given: Outer) -> float:
    before = given.sums.copy()
    add_all(given)
    return float((given.sums - before).sum())


def test_records_are_read_by_reference_also_inside_each_other():
    given = Outer(Inner(np.arange(4.0), 3, True), np.zeros(4), 2.0)
    assert add_all(given) == 4
    assert given.sums.tolist() == [3.0, 5.0, 7.0, 9.0]
    # Another record of the same types is another place, and the same code.
    other = Outer(Inner(np.ones(2), 0, False), np.zeros(2), 0.5)
    assert add_all(other) == 0 and other.sums.tolist() == [0.5, 0.5]
    assert added(given) == 24.0 and given.sums.tolist() == [6.0, 10.0, 14.0, 18.0]


def test_whoever_reads_a_record_gives_its_arrays_back():
    given = Outer(Inner(np.arange(4.0), 3, True), np.zeros(4), 2.0)
    added(given), add_all(given)
    before = sys.getrefcount(given.sums), sys.getrefcount(given.inner.values)
    for _ in range(50):
        added(given), add_all(given)
    assert (sys.getrefcount(given.sums), sys.getrefcount(given.inner.values)) == before


def test_a_field_of_another_type_is_other_code_and_a_wrong_one_an_error():
    given = Outer(Inner(np.arange(3), 1, True), np.zeros(3), 1.0)
    assert add_all(given) == 3 and given.sums.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(numba.TypingError, match="values"):
        add_all(Outer("no record", np.zeros(3), 1.0))  # type: ignore[arg-type]


def test_a_decision_shows_kernels_one_kind_of_each_record(monkeypatch):
    # A second kind (an array that may not be written to, say) compiles the whole engine once more.
    from attribution_sched import System

    kinds: dict[type, set[str]] = {}
    call = kernels.Kernel.__call__

    def noted(self, *args, **named):
        for each in args:
            if isinstance(kind := numba.typeof(each), Reference):
                kinds.setdefault(type(each), set()).add(kind.name)
        return call(self, *args, **named)

    monkeypatch.setattr(kernels.Kernel, "__call__", noted)
    System(explain=False).schedule_next_task()
    assert len(kinds) > 10
    assert {record.__name__: len(names) for record, names in kinds.items() if len(names) > 1} == {}
