"""Kernels as functions: errors, copies, references."""

import ast
import copy
import pickle

import numpy as np
import pytest

from attribution_sched import kernels
from attribution_sched.cluster.streams import integers, normal, uniform
from attribution_sched.errors import SettingsError
from tests.kernels.installed import PACKAGE


def test_an_error_raised_below_reaches_python():
    @kernels.kernel
    def draw(state, n):
        return integers(state, n) + 1

    with pytest.raises(SettingsError, match="at least one outcome"):
        draw(np.arange(1, 5).astype(np.uint64), 0)


def test_copies_and_pickles_are_the_kernel_itself():
    assert copy.deepcopy(normal) is normal
    assert pickle.loads(pickle.dumps(uniform)) is uniform  # noqa: S301


def test_a_kernel_that_gets_an_array_from_another_counts_its_references():
    """Without ``allocates`` nobody would let go of the array: each call would leak it."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                marks = [ast.unparse(mark) for mark in node.decorator_list if ast.unparse(mark).startswith("kernel")]
                if marks:
                    found[path, node.name] = (node, "allocates=True" in marks[0])
    makers = {name for (_, name), (node, _) in found.items() if "Array" in ast.unparse(node.returns)}
    assert "effective_latency" in makers
    for (path, name), (node, allocates) in found.items():
        called = {each.func.id for each in ast.walk(node) if isinstance(each, ast.Call) and hasattr(each.func, "id")}
        assert allocates or not (called | {name}) & makers, f"{path}: {name}"
