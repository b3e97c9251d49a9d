"""One small run that the tests of the commands read."""

import pytest

from attribution_sched.system.system import System

TASKS = 6


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Path of a journal with six placements of the testbed, the first explained."""
    path = tmp_path_factory.mktemp("run") / "journal.sqlite"
    with System("testbed", "greedy", journal=path, seed=3, targets={"utilisation_at_least": 0.9}) as system:
        system.run(TASKS)
        system.explain("d000000", rows="quick")
    return path


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
