"""Importing the package is cheap: heavy libraries load on first use."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

LIMIT_S = 0.2
TRIES = 3
"""A busy machine can slow one interpreter; the cheapest of a few says what the import costs."""

PROBE = """
import json, sys, time
start = time.process_time()
import {module}
cost_s = time.process_time() - start
print(json.dumps([cost_s, sorted(name for name in sys.modules if "." not in name)]))
"""


def fresh_import(module: str) -> tuple[float, set[str]]:
    """CPU seconds that an import takes in a fresh interpreter, and the top-level modules it leaves loaded."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", PROBE.format(module=module)],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    cost_s, loaded = json.loads(run.stdout)
    return cost_s, set(loaded)


def test_importing_the_package_is_cheap():
    tries = [fresh_import("attribution_sched") for _ in range(TRIES)]
    assert min(cost_s for cost_s, _ in tries) < LIMIT_S
    heavy = {"torch", "matplotlib", "numba", "sklearn", "shap", "pandas", "scipy"}
    assert not heavy & tries[0][1]


@pytest.mark.parametrize("module", ["attribution_sched.config", "attribution_sched.errors"])
def test_settings_load_no_heavy_library(module):
    _, loaded = fresh_import(module)
    assert "attribution_sched" in loaded
    assert not {"torch", "matplotlib", "numba", "numpy"} & loaded


def test_loading_a_preset_compiles_nothing():
    _, loaded = fresh_import("attribution_sched.config as c; c.load_settings('cross-domain-easy')")
    assert not {"torch", "matplotlib", "numba"} & loaded


def test_the_probe_sees_what_is_loaded():
    assert "numba" in fresh_import("attribution_sched.cluster.wan")[1]
