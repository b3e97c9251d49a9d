"""One Slurm and one Ray for all tests of them; where one cannot be had, they skip and say why."""

import os
import signal

import pytest

from tests.engines import ray_here as ray_cluster
from tests.engines.slurm_here import Unavailable, missing, slurm_here


@pytest.fixture(scope="session")
def slurm():
    # Installing packages is for whoever asked for it; elsewhere the tests use what is there.
    if missing() and not os.environ.get("ATTRIBUTION_SCHED_ENGINES"):
        pytest.skip(f"Slurm is not installed ({', '.join(missing())}); ATTRIBUTION_SCHED_ENGINES=1 installs it as root")
    # Whoever ends this run ends the daemons with it.
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.exit("ended from outside", returncode=124))
    try:
        with slurm_here() as found:
            yield found
    except Unavailable as error:
        pytest.skip(f"Slurm cannot be had here: {error}")
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def ray_nodes():
    try:
        with ray_cluster.ray_here() as found:
            yield found
    except ray_cluster.Unavailable as error:
        pytest.skip(f"Ray cannot be had here: {error}")
