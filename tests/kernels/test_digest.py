"""The digest: of code, options, constants, callees and records, and of nothing else."""

from collections import namedtuple

import numba
import numpy as np
import pytest

from attribution_sched import kernels
from attribution_sched.cluster.streams import normal
from attribution_sched.kernels.digest import callees, text_of, type_text


def digest_of(text: str, **constants: object) -> str:
    """Digest of a kernel with this text that sees these globals."""
    names = {"__name__": "here", "kernel": kernels.kernel, "np": np, **constants}
    exec(text, names)
    return names["f"].digest()


def test_the_digest_is_of_code_options_constants_and_callees_whatever_they_are():
    text = "def f(x):\n    return x + A"
    plain = digest_of(f"@kernel\n{text}", A=1)
    assert plain == digest_of(f"\n\n@kernel\n{text}", A=1) == digest_of(f"@kernel\n{text}  # why", A=1, B=3)
    others = [
        digest_of(f"@kernel\n{text}", A=value) for value in (2, 1.0, True, (1,), (1, 2.0), np.arange(3), np.ones(3))
    ]
    others += [
        digest_of(f"@kernel(allocates=True)\n{text}", A=1),
        digest_of("@kernel\ndef f(x):\n    return x - A", A=1),
    ]
    others += [
        digest_of("@kernel\ndef f(x, y=1):\n    return x + A", A=1),
        digest_of("@kernel\ndef f(x, y=2):\n    return x + A", A=1),
    ]
    called = "@kernel\ndef A(x):\n    return {}\n@kernel\ndef f(x):\n    return A(x)"
    others += [digest_of(called.format(each)) for each in ("1", "2", "B")]
    assert len({plain, *others}) == 1 + len(others)
    assert digest_of('@kernel\ndef f(x):\n    "One."\n    return x + A', A=1) == digest_of(
        '@kernel\ndef f(x):\n    "Two."\n    return x + A', A=1
    )


def test_what_no_digest_can_tell_apart_is_refused():
    @numba.njit
    def outside(x):
        return x

    for value in (outside, {}, [1]):
        with pytest.raises(TypeError, match="nothing a kernel can be kept with"):
            digest_of("@kernel\ndef f(x):\n    return x + A", A=value)


def test_every_kernel_of_the_package_has_a_digest_and_rests_on_few_others():
    """Whoever edits the rules' kernel must not wait for the engine's, nor the other way round."""
    from attribution_sched.cluster.engine import engine
    from attribution_sched.planning import local_search
    from attribution_sched.scheduler import rule_follower

    for module in (engine, local_search, rule_follower):
        found = [each for each in vars(module).values() if isinstance(each, kernels.Kernel)]
        assert found and all(each.digest() for each in found)
    below = {each.py_func.__module__ for each in callees(engine.meter)}
    assert not [name for name in below if "scheduler" in name or "planning" in name]


def test_names_of_fields_are_part_of_a_type():
    one, other = namedtuple("one", "a b"), namedtuple("one", "b a")
    shapes = {type_text(numba.typeof(each)) for each in (one(1, 2), other(1, 2), (1, 2), ((1, 2),))}
    assert len(shapes) == 4
    first, second = kernels.by_reference(one), kernels.by_reference(other)
    assert str(numba.typeof(first(1, 2))) != str(numba.typeof(second(1, 2)))


def test_flags_that_a_profiler_sets_make_no_other_kernel():
    code = normal.py_func.__code__
    assert text_of(code.replace(co_flags=2)) == text_of(code)
