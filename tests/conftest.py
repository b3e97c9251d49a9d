"""Shared set-up: the scripts of ``benchmarks/`` are importable, and compiled code is never stale."""

import hashlib
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]

# The same examples in every run: what passed passes again, and a failure can be repeated.
settings.register_profile("repeatable", derandomize=True, print_blob=True)
settings.load_profile("repeatable")
sys.path.insert(0, str(ROOT / "benchmarks"))


def _compiled_sources_digest() -> str:
    """Hash the kernels and what they freeze: numba's own cache sees only the file a kernel stands in."""
    digest = hashlib.sha256()
    package = ROOT / "attribution_sched"
    rooms = ("cluster", "planning", "scheduler")
    compiled = [
        path for room in rooms for path in (package / room).rglob("*.py") if "numba.njit" in path.read_text("utf-8")
    ]
    for path in sorted({*(package / "cluster").rglob("*.py"), *compiled}):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if "numba" not in sys.modules:
    folder = Path(__file__).parent / "__pycache__" / f"numba-{_compiled_sources_digest()}"
    os.environ.setdefault("NUMBA_CACHE_DIR", str(folder))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of measured data; tests that need it are skipped where it is absent."""
    folder = os.environ.get("ATTRIBUTION_SCHED_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("ATTRIBUTION_SCHED_DATA does not point to a folder of measured data")
    return Path(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what joint tests measured: their values matter where they pass, too."""
    reports = [report for group in ("passed", "failed") for report in terminalreporter.stats.get(group, ())]
    told = [str(value) for report in reports for name, value in report.user_properties if name == "joint"]
    if told:
        terminalreporter.section("joints as measured")
        for line in sorted(told):
            terminalreporter.line(line)
