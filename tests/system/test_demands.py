"""What a task truly demands, for studies."""

import pytest

from attribution_sched import System
from attribution_sched.errors import JournalError, TaskError


def test_demands_of_what_was_handed_in_and_of_nothing_else():
    with System.demo() as system:
        placed = system.schedule_next_task()
        assert (system.true_demands(placed.task.id).factors > 0.0).all()
        with pytest.raises(JournalError):
            system.true_demands("nobody")
    with System("testbed", policy="sjf", seed=1) as system, pytest.raises(TaskError, match="was not handed in"):
        system.true_demands(system.schedule_next_task().task.id)
