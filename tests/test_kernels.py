"""Compiled kernels: kept under the digest of their sources, announced once, off every clock."""

import ast
import copy
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest

from attribution_sched import kernels
from attribution_sched.cluster.streams import integers, normal, uniform
from attribution_sched.errors import SettingsError

SCRIPT = """
import sys, time
import numpy as np
from attribution_sched import kernels
from attribution_sched.cluster import streams
state = np.arange(1, 5).astype(np.uint64)
began, ticked = time.perf_counter(), kernels.clock()
drawn = [streams.normal(state), streams.uniform(state)]
print(repr(drawn), time.perf_counter() - began, kernels.clock() - ticked, kernels.digest(), kernels.folder(), sep="\\n")
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
    here = kernels.PACKAGE.parent
    for path in {*kernels.sources(), kernels.PACKAGE / "__init__.py", *kernels.PACKAGE.glob("*/__init__.py")}:
        target = place / path.relative_to(here)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
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


def test_a_kernel_is_not_stale_when_another_file_changes(installed, tmp_path):
    script = """
import numpy as np
from attribution_sched.cluster.arrivals import next_arrival
state = np.arange(1, 5).astype(np.uint64)
print(next_arrival(0, np.array([1.0, 0, 0, 1, 0, 0, 1]), np.zeros(0), 0, 0.0, state))
"""
    before, _ = run(installed, script, NUMBA_CACHE_DIR=str(tmp_path))
    streams = installed / "attribution_sched" / "cluster" / "streams.py"
    changed = streams.read_text().replace("return -math.log(uniform(state))", "return -2.0 * math.log(uniform(state))")
    assert changed != streams.read_text()
    streams.write_text(changed)
    after, said = run(installed, script, NUMBA_CACHE_DIR=str(tmp_path))
    assert float(after[0]) == 2.0 * float(before[0])
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


def test_the_digest_covers_kernels_what_they_import_and_tables():
    names = {path.relative_to(kernels.PACKAGE).as_posix() for path in kernels.sources()}
    assert {"cluster/engine/state.py", "cluster/plan.py", "planning/local_search.py", "kernels.py"} <= names
    assert "cluster/constants/power.json" in names
    assert not {name for name in names if name.startswith(("explain/", "report/", "journal/", "cli/"))}
    for path in kernels.PACKAGE.rglob("*.py"):
        if "@kernel" in path.read_text("utf-8") and path != Path(kernels.__file__):
            assert path.relative_to(kernels.PACKAGE).as_posix() in names


def test_old_digests_are_swept_and_the_newest_few_stay(tmp_path):
    for age in range(7):
        place = tmp_path / f"kernels-{age}"
        place.mkdir()
        os.utime(place, (1e9 - age, 1e9 - age))
    kernels._sweep(tmp_path / "kernels-6")
    assert {place.name for place in tmp_path.iterdir()} == {"kernels-6", "kernels-0", "kernels-1", "kernels-2"}


def test_what_others_still_use_is_not_swept_however_many_they_are(tmp_path):
    for number in range(9):
        (tmp_path / f"kernels-{number}").mkdir()
    kernels._sweep(tmp_path / "kernels-new")
    assert len(list(tmp_path.iterdir())) == 10


def test_copies_and_pickles_are_the_kernel_itself():
    assert copy.deepcopy(normal) is normal
    assert pickle.loads(pickle.dumps(uniform)) is uniform  # noqa: S301


def test_a_kernel_that_gets_an_array_from_another_counts_its_references():
    """Without ``allocates`` nobody would let go of the array: each call would leak it."""
    found = {}
    for path in kernels.PACKAGE.rglob("*.py"):
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
