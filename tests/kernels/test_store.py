"""Compiled kernels on disk: kept under the digest of their sources, announced once, off every clock."""

import os
import shutil

from attribution_sched.kernels import store
from tests.kernels.installed import rewrite, run


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


RECORD = """
from typing import NamedTuple
import numpy as np
from attribution_sched.kernels import by_reference, kernel

@by_reference
class Pair(NamedTuple):
    first: np.ndarray
    second: np.ndarray

@kernel
def firsts(pair):
    return pair.first[0]

print(firsts(Pair(np.array([1.0]), np.array([2.0]))))
"""


def test_a_kernel_is_not_stale_when_a_field_of_a_record_it_reads_moves(installed, tmp_path):
    module = installed / "pairs.py"
    module.write_text(RECORD, "utf-8")
    cache = {"NUMBA_CACHE_DIR": str(tmp_path)}
    assert run(installed, "import pairs", **cache)[0] == ["1.0"]
    assert run(installed, "import pairs", **cache) == (["1.0"], "")
    fields = "    first: np.ndarray\n", "    second: np.ndarray\n"
    rewrite(module, "".join(fields), "".join(reversed(fields)))
    lines, said = run(installed, "import pairs", **cache)
    assert lines == ["2.0"] and "Compiling" in said


def test_what_nobody_can_write_to_is_no_fault(installed, tmp_path):
    (tmp_path / "file").touch()
    lines, said = run(installed, NUMBA_CACHE_DIR=str(tmp_path / "file"))
    assert "cannot be written" in said
    assert lines[0] == run(installed, NUMBA_CACHE_DIR=str(tmp_path / "kept"))[0][0]


def test_old_versions_of_a_kernel_are_swept_and_the_newest_few_stay(tmp_path):
    (tmp_path / "module").mkdir()
    for age in range(7):
        for ending in (".py311.nbi", ".py311.1.nbc"):
            for name in (f"f-{age}", *(["g-0"] if age == 6 else [])):
                path = tmp_path / "module" / f"{name}{ending}"
                path.touch()
                os.utime(path, (1e9 - age, 1e9 - age))
    store._sweep(tmp_path)
    kept = {f"{name}.py311.{ending}" for name in ("f-0", "f-1", "f-2", "f-3", "g-0") for ending in ("nbi", "1.nbc")}
    assert {place.name for place in tmp_path.rglob("*.nb*")} == kept


def test_what_others_still_use_is_not_swept_however_many_they_are(tmp_path):
    for number in range(9):
        (tmp_path / f"f-{number}.py311.nbi").touch()
    store._sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == 9
