"""Shared set-up: the scripts of ``benchmarks/`` are importable, compiled code stays in the checkout."""

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


# Compiled kernels of test runs stay in the checkout; the package keeps them apart by the content of their sources.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parent / "__pycache__" / "kernels"))


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
