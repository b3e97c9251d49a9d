"""A copy of the package as an installation of its own, and scripts run with it."""

import os
import subprocess
import sys
from pathlib import Path

import attribution_sched

PACKAGE = Path(attribution_sched.__file__).parent


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


def rewrite(path: Path, before: str, after: str) -> None:
    text = path.read_text("utf-8")
    assert before in text
    path.write_text(text.replace(before, after), "utf-8")
