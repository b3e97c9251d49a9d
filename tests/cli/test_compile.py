"""`attribution-sched compile`: what the first run would compile, ahead."""

import subprocess
import sys

import pytest

from attribution_sched import kernels

from .helpers import invoke


def test_what_is_compiled_is_counted_and_progress_goes_to_stderr():
    done = invoke("compile")
    assert done.exit_code == 0, done.output
    count, _, place = done.stdout.strip().partition(" kernels in ")
    assert place == str(kernels.folder())
    assert kernels.compiled() == int(count) >= 40
    assert "the world and the rule" in done.stderr
    assert invoke("compile", "--quiet").stderr == ""


@pytest.mark.slow
def test_after_it_the_first_decision_compiles_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    ahead = subprocess.run([sys.executable, "-m", "attribution_sched.cli", "compile"], capture_output=True, text=True)
    assert ahead.returncode == 0 and ahead.stderr.count("Compiling the simulation's kernels") == 1
    script = "from attribution_sched import System; print(System().schedule_next_task().placed)"
    first = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert first.stdout == "True\n" and first.stderr == ""
