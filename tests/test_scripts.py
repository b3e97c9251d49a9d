"""Scripts beside the package import what is there: a module that moved takes along those who use it."""

import ast
import importlib
import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "calibration", "research", "docs", "examples", "tests/campaigns")
SCRIPTS = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def imported(path):
    """Names that a script takes from modules of the package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attribution_sched"):
            yield from ((node.module, alias.name) for alias in node.names)


EXTRAS = {"ray"}
"""What an extra of the package brings: without it, a module that needs it is read instead of imported."""


def exists(module, name):
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name not in EXTRAS:
            raise
        return name in defined(importlib.util.find_spec(module).origin)
    if hasattr(importlib.import_module(module), name):
        return True
    return (
        hasattr(importlib.import_module(module), "__path__")
        and importlib.util.find_spec(f"{module}.{name}") is not None
    )


def defined(origin):
    """Functions, classes and variables at the top of a file."""
    top = ast.parse(Path(origin).read_text(encoding="utf-8")).body
    return {getattr(node, "name", None) for node in top} | {
        target.id for node in top if isinstance(node, ast.Assign) for target in node.targets
    }


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_script_imports_of_the_package_exists(path):
    assert [each for each in imported(path) if not exists(*each)] == []


PRETENDING = """
make() { :; }; id() { echo 0; }; apt-get() { :; }
timeout() { return "$STATUS"; }
export -f make id apt-get timeout
bash .ci/run
"""
"""CI with its commands pretended: every one that has a time limit ends as it is told."""


@pytest.mark.parametrize(("status", "ends"), [("0", 0), ("1", 1), ("124", 124), ("137", 137)])
def test_an_engine_run_that_hangs_or_fails_is_never_green(status, ends):
    """It was said to be skipped, and CI was green."""
    run = subprocess.run(
        ["bash", "-c", PRETENDING], cwd=ROOT, env={**os.environ, "STATUS": status}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert run.returncode == ends, run.stdout + run.stderr
    assert ("a test hangs" in run.stderr) == (ends in (124, 137))
