"""What is remembered while compiling is right, and all is put back afterwards."""

import gc
import itertools
import operator

import numba
import pytest

from attribution_sched import kernels
from attribution_sched.kernels import resolving


def test_what_is_remembered_while_compiling_is_what_numba_answers():
    """Also after the same function was asked with other types, and for constants, which have types of their own."""
    from numba.core import types
    from numba.core.registry import cpu_target

    context = cpu_target.typing_context
    context.refresh()
    kinds = (types.int64, types.float64, types.boolean, types.uint64, types.IntegerLiteral(2), types.float64[:, ::1])
    for _ in range(2):
        for what in (operator.add, operator.mul, operator.pow, operator.lt, operator.floordiv):
            function = context.resolve_value_type(what)
            for given in itertools.product(kinds, kinds):
                answers = []
                for resolve in (resolving._resolve, resolving.resolve_once):
                    try:
                        answers.append(resolve(function, context, given, {}))
                    except numba.TypingError:
                        answers.append(None)
                assert answers[0] == answers[1], (what, given)
    assert len(resolving._answers) > 100


def test_compiling_leaves_numba_and_the_garbage_collector_as_they_were():
    @kernels.kernel
    def fails(x):
        return x.nothing

    before = resolving.types.BaseFunction.get_call_type
    with pytest.raises(numba.TypingError):
        fails(1.0)
    assert gc.isenabled()
    assert resolving.types.BaseFunction.get_call_type is before is resolving._resolve
