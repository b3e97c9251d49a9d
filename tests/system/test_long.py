"""Long runs: memory stays flat."""

import gc
import os
from pathlib import Path

import pytest

from attribution_sched import System
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.plan import Plan, Replica, Segment
from benchmarks.long_resume import lengthen
from tests.small_world import small

PAGE = os.sysconf("SC_PAGE_SIZE")


def one_device(view):
    """The first free device; cheap enough to be asked a hundred thousand times."""
    if view.replanning or not view.free_devices.any():
        return None
    segment = Segment(int(view.free_devices.argmax()), 0, len(view.kind.model), precision=Precision.FP16)
    return Plan((Replica((segment,), 32, 1),))


def resident_mb():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6


def growth(path, decisions, warm):
    """Megabytes that memory grows by while so many decisions are taken, after some to fill what is bounded."""
    settings = small(arrivals={"kind": "poisson", "rate_per_hour": 400.0})
    with System(settings, one_device, journal=path) as system:
        taken = 0
        while taken < warm:
            taken += system.run(200).decisions
        before, taken = resident_mb(), 0
        while taken < decisions:
            # Commits in groups: what is measured is memory, not the disk.
            with system.journal.batch():
                taken += system.run(1000).decisions
        after = resident_mb()
        assert len(system.memory) == system.memory.most
        assert system.attribution_cache.kept <= system.attribution_cache.most
    return after - before, taken


def test_two_thousand_decisions_take_no_memory(tmp_path):
    grown, taken = growth(tmp_path / "run.journal", 2000, warm=1200)
    assert taken >= 2000
    assert grown < 8.0


@pytest.mark.slow
def test_twenty_thousand_decisions_take_no_memory(tmp_path):
    grown, taken = growth(tmp_path / "run.journal", 20_000, warm=2000)
    assert taken >= 20_000
    assert grown < 8.0


def test_a_placement_asks_the_journal_no_more_the_longer_it_is(tmp_path):
    """Counted in SQLite's own steps: each question is answered from the end of an index, none goes through all rows."""
    with System(small(), "sjf", seed=2, journal=tmp_path / "run.journal") as system:
        steps = [0]

        def step():
            steps[0] += 1

        def placed():
            connection, steps[0] = system.journal._connection, 0
            connection.set_progress_handler(step, 10)
            system.run(6)
            connection.set_progress_handler(None, 0)
            return steps[0]

        system.run(6)
        short = placed()
        lengthen(system, system.journal.count() + 4000)
        system.run(6)
        assert placed() < 2 * short
