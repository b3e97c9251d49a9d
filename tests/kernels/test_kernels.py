"""Compiled kernels: kept under the digest of their sources, announced once, off every clock."""

import ast
import copy
import gc
import itertools
import operator
import os
import pickle
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest

from attribution_sched import kernels
from attribution_sched.cluster.streams import integers, normal, uniform
from attribution_sched.errors import SettingsError

PACKAGE = Path(kernels.__file__).parents[1]
SCRIPT = """
import sys, time
import numpy as np
from attribution_sched import kernels
from attribution_sched.cluster import streams
state = np.arange(1, 5).astype(np.uint64)
began, ticked = time.perf_counter(), kernels.clock()
drawn = [streams.normal(state), streams.uniform(state)]
passed = time.perf_counter() - began, kernels.clock() - ticked
print(repr(drawn), *passed, streams.normal.digest(), kernels.folder(), sep="\\n")
"""


def run(package: Path, script: str = SCRIPT, **environment: str) -> tuple[list[str], str]:
    """Lines and stderr of a script in a process of its own, with the package at a place."""
    given = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=given | {"PYTHONPATH": str(package)} | environment, cwd=package,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A copy of what kernels need, as an installation of its own."""
    place = tmp_path / "installed"
    shutil.copytree(PACKAGE, place / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    return place


def test_compiling_is_said_once_counts_on_no_clock_and_a_reinstall_keeps_it(installed, tmp_path):
    first, said = run(installed, NUMBA_CACHE_DIR=str(tmp_path / "kept"))
    assert said.count("Compiling the simulation's kernels") == 1
    assert float(first[2]) < 0.2 * float(first[1])
    assert first[4].startswith(str(tmp_path / "kept"))
    moved = tmp_path / "moved"
    shutil.copytree(installed, moved)
    for path in moved.rglob("*.py"):
        os.utime(path, (1, 1))
    again, said = run(moved, NUMBA_CACHE_DIR=str(tmp_path / "kept"))
    assert said == ""
    assert (again[0], again[3]) == (first[0], first[3])


ARRIVAL = """
import numpy as np
from attribution_sched.cluster.arrivals import next_arrival
state = np.arange(1, 5).astype(np.uint64)
print(next_arrival(0, np.array([1.0, 0, 0, 1, 0, 0, 1]), np.zeros(0), 0, 0.0, state))
"""


def rewrite(path: Path, before: str, after: str) -> None:
    text = path.read_text("utf-8")
    assert before in text
    path.write_text(text.replace(before, after), "utf-8")


def test_a_kernel_is_not_stale_when_one_it_calls_changes_in_another_file(installed, tmp_path):
    before, _ = run(installed, ARRIVAL, NUMBA_CACHE_DIR=str(tmp_path))
    streams = installed / "attribution_sched" / "cluster" / "streams.py"
    rewrite(streams, "return -math.log(uniform(state))", "return -2.0 * math.log(uniform(state))")
    after, said = run(installed, ARRIVAL, NUMBA_CACHE_DIR=str(tmp_path))
    assert float(after[0]) == 2.0 * float(before[0])
    assert "Compiling" in said


def test_a_kernel_is_not_stale_when_a_constant_it_freezes_changes(installed, tmp_path):
    before, _ = run(installed, ARRIVAL, NUMBA_CACHE_DIR=str(tmp_path))
    rewrite(installed / "attribution_sched" / "cluster" / "streams.py", "_ULP = 2.0**-52", "_ULP = 2.0**-53")
    after, said = run(installed, ARRIVAL, NUMBA_CACHE_DIR=str(tmp_path))
    assert float(after[0]) > float(before[0])
    assert "Compiling" in said


def test_a_kernel_stays_when_other_kernels_words_and_lines_change(installed, tmp_path):
    before, _ = run(installed, ARRIVAL, NUMBA_CACHE_DIR=str(tmp_path))
    cluster = installed / "attribution_sched" / "cluster"
    rewrite(cluster / "arrivals.py", "\n@kernel\n", "\nUNUSED = 1\n\n\n@kernel\n")
    rewrite(cluster / "arrivals.py", "def next_arrival(", "def next_arrival(  # asked for\n    ")
    rewrite(installed / "attribution_sched" / "planning" / "local_search.py", "@kernel\n", "@kernel(fastmath=True)\n")
    after, said = run(installed, ARRIVAL, NUMBA_CACHE_DIR=str(tmp_path))
    assert after == before
    assert said == ""


SHARED = """
import numpy as np
from attribution_sched import kernels

@kernels.kernel(shared=True)
def below(x, n, unit=2.0):
    total = 0.0
    for i in range(n):
        total += unit * x[i % x.size] * i
    return total

@kernels.kernel
def one(x):
    return below(x, 10, 1.0) + 1.0

@kernels.kernel(allocates=True)
def two(x):
    return below(np.sqrt(x), 20, 1.0)

x = np.arange(3.0)
print(one(x), two(x), below(x, 10), len(list((kernels.folder() / "shared").iterdir())))
"""


def test_a_shared_kernel_is_emitted_once_kept_and_made_again_when_it_was_swept(installed, tmp_path):
    first, said = run(installed, SHARED, NUMBA_CACHE_DIR=str(tmp_path))
    x = np.arange(3.0)
    total = sum(x[i % 3] * i for i in range(10))
    expected = [total + 1.0, sum(np.sqrt(x[i % 3]) * i for i in range(20)), 2.0 * total]
    *values, files = map(float, first[0].split())
    assert np.allclose(values, expected) and files == 1
    assert "Compiling" in said
    assert run(installed, SHARED, NUMBA_CACHE_DIR=str(tmp_path)) == (first, "")
    (kept,) = tmp_path.rglob("shared/*")
    kept.unlink()
    again, said = run(installed, SHARED, NUMBA_CACHE_DIR=str(tmp_path))
    assert again == first and kept.exists()
    assert "Compiling" in said


def test_an_error_raised_below_reaches_python():
    @kernels.kernel
    def draw(state, n):
        return integers(state, n) + 1

    with pytest.raises(SettingsError, match="at least one outcome"):
        draw(np.arange(1, 5).astype(np.uint64), 0)


def test_what_nobody_can_write_to_is_no_fault(installed, tmp_path):
    (tmp_path / "file").touch()
    lines, said = run(installed, NUMBA_CACHE_DIR=str(tmp_path / "file"))
    assert "cannot be written" in said
    assert lines[0] == run(installed, NUMBA_CACHE_DIR=str(tmp_path / "kept"))[0][0]


def test_a_log_that_is_listened_to_gets_the_message_instead_of_stderr(installed, tmp_path):
    listening = "import logging; logging.basicConfig(stream=__import__('sys').stdout, format='log: %(message)s')\n"
    lines, said = run(installed, listening + SCRIPT, NUMBA_CACHE_DIR=str(tmp_path))
    assert said == ""
    assert lines[0].startswith("log: Compiling the simulation's kernels")


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
        digest_of(f"@kernel(fastmath=True)\n{text}", A=1),
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
    below = {each.py_func.__module__ for each in kernels._callees(engine.meter)}
    assert not [name for name in below if "scheduler" in name or "planning" in name]


def test_names_of_fields_are_part_of_a_type():
    one, other = namedtuple("one", "a b"), namedtuple("one", "b a")
    shapes = {kernels._shape(numba.typeof(each)) for each in (one(1, 2), other(1, 2), (1, 2), ((1, 2),))}
    assert len(shapes) == 4
    first, second = kernels.by_reference(one), kernels.by_reference(other)
    assert str(numba.typeof(first(1, 2))) != str(numba.typeof(second(1, 2)))


def test_old_versions_of_a_kernel_are_swept_and_the_newest_few_stay(tmp_path):
    (tmp_path / "module").mkdir()
    for age in range(7):
        for ending in (".py311.nbi", ".py311.1.nbc"):
            for name in (f"f-{age}", *(["g-0"] if age == 6 else [])):
                path = tmp_path / "module" / f"{name}{ending}"
                path.touch()
                os.utime(path, (1e9 - age, 1e9 - age))
    kernels._sweep(tmp_path)
    kept = {f"{name}.py311.{ending}" for name in ("f-0", "f-1", "f-2", "f-3", "g-0") for ending in ("nbi", "1.nbc")}
    assert {place.name for place in tmp_path.rglob("*.nb*")} == kept


def test_what_others_still_use_is_not_swept_however_many_they_are(tmp_path):
    for number in range(9):
        (tmp_path / f"f-{number}.py311.nbi").touch()
    kernels._sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == 9


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
                for resolve in (kernels._resolve, kernels._resolve_once):
                    try:
                        answers.append(resolve(function, context, given, {}))
                    except numba.TypingError:
                        answers.append(None)
                assert answers[0] == answers[1], (what, given)
    assert len(kernels._resolved) > 100


def test_compiling_leaves_numba_and_the_garbage_collector_as_they_were():
    @kernels.kernel
    def fails(x):
        return x.nothing

    before = kernels.types.BaseFunction.get_call_type
    with pytest.raises(numba.TypingError):
        fails(1.0)
    assert gc.isenabled()
    assert kernels.types.BaseFunction.get_call_type is before is kernels._resolve


def test_flags_that_a_profiler_sets_make_no_other_kernel():
    code = add.py_func.__code__
    assert kernels._told(code.replace(co_flags=2)) == kernels._told(code)


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
            if isinstance(kind := numba.typeof(each), kernels._Reference):
                kinds.setdefault(type(each), set()).add(kind.name)
        return call(self, *args, **named)

    monkeypatch.setattr(kernels.Kernel, "__call__", noted)
    System(explain=False).schedule_next_task()
    assert len(kinds) > 10
    assert {record.__name__: len(names) for record, names in kinds.items() if len(names) > 1} == {}


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
