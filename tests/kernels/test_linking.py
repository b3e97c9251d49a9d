"""Doors and parts: what Python calls is compiled with all it calls, and others are left alone."""

import numpy as np

from attribution_sched import kernels
from tests.kernels.installed import PACKAGE, run

CALLER = """
import numpy as np
from numba import njit
from attribution_sched.kernels import kernel

@kernel
def bottom(x):
    return max(x[0], x[1], 2.0)

@kernel
def middle(x):
    return bottom(x) + 1.0

@njit
def theirs(x):
    return middle(x) + bottom(x)

x = np.array([1.0, 3.0])
print(theirs(x), middle(x), theirs.py_func(x))
"""


def test_functions_that_others_compile_may_call_kernels(tmp_path):
    said, _ = run(PACKAGE.parent, CALLER, NUMBA_CACHE_DIR=str(tmp_path))
    assert said == ["7.0 4.0 7.0"]


THEIRS = """
import numpy as np
from numba import njit
from attribution_sched.kernels import kernel

def total(n):
    made = np.full(n, 2.0)
    return np.sort(made).sum() + max(1.0, float(n)) + np.median(made)

print(kernel(allocates=True)(total)(3), njit(total)(3), total(3))
"""


def test_code_of_others_may_call_what_kernels_had_compiled(tmp_path):
    # numba keeps its own implementations for all; those that kernels asked for wait to be linked with what they call.
    said, _ = run(PACKAGE.parent, THEIRS, NUMBA_CACHE_DIR=str(tmp_path))
    assert said == ["11.0 11.0 11.0"]


@kernels.kernel
def below(x, n, unit=2.0):
    total = 0.0
    for i in range(n):
        total += unit * x[i % x.size] * i
    return total


@kernels.kernel
def one(x):
    return below(x, 10, 1.0) + below(x, 3) + 1.0


@kernels.kernel(allocates=True)
def two(x):
    return below(np.sqrt(x), 20, 1.0) + one(x)


def test_a_kernel_that_several_lead_to_is_a_part_of_each_and_a_door_of_its_own():
    x = np.arange(3.0)

    def total(y, n, unit):
        return sum(unit * y[i % 3] * i for i in range(n))

    first = total(x, 10, 1.0) + total(x, 3, 2.0) + 1.0
    assert below(x, 10) == total(x, 10, 2.0)
    assert one(x) == first
    assert np.isclose(two(x), total(np.sqrt(x), 20, 1.0) + first)


def test_a_part_is_compiled_once_for_integers_of_any_size_and_for_constants(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    @kernels.kernel
    def twice(n):
        return 2 * n

    @kernels.kernel
    def all_of_them(x, y):
        return twice(1) + twice(2) + twice(x[0]) + twice(y[0]) + twice(x.size)

    assert all_of_them(np.ones(1, np.int32), np.ones(1, np.int64)) == 2 * (1 + 2 + 1 + 1 + 1)
    assert len(twice._part[0].signatures) == 1
