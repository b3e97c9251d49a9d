"""One Slurm for all tests of it; where it cannot be had, they skip and say why."""

import os

import pytest

from tests.engines.slurm_here import Unavailable, missing, slurm_here


@pytest.fixture(scope="session")
def slurm():
    # Installing packages is for whoever asked for it; elsewhere the tests use what is there.
    if missing() and not os.environ.get("ATTRIBUTION_SCHED_ENGINES"):
        pytest.skip(f"Slurm is not installed ({', '.join(missing())}); ATTRIBUTION_SCHED_ENGINES=1 installs it as root")
    try:
        with slurm_here() as found:
            yield found
    except Unavailable as error:
        pytest.skip(f"Slurm cannot be had here: {error}")
