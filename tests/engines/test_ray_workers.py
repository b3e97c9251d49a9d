"""The arena on a real Ray: the same records as in this process, also when a node is lost on the way."""

import pytest

from attribution_sched import evaluate
from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.arena.ray_workers import RayWorkers
from tests.small_world import small


def returns(result):
    """Every figure of every policy but how long deciding took."""
    return [(row.policy, row.metrics, row.differences) for row in result.scenarios[0].rows]


def test_whoever_plays_the_records_are_the_same(ray_nodes, tmp_path):
    given = {"preset": small(), "episodes": 2, "seed": 5, "scenarios": ["steady"], "limit": "sjf"}
    here = evaluate(["sjf", "fcfs"], **given)
    there = evaluate(["sjf", "fcfs"], **given, workers=ray_nodes.address, folder=tmp_path / "played")
    assert returns(there) == returns(here)
    # What was played is kept: nobody is asked again.
    again = evaluate(["sjf", "fcfs"], **given, folder=tmp_path / "played")
    assert returns(again) == returns(here)


def test_an_address_that_is_none():
    with pytest.raises(SettingsError, match="must be a number, 'ray' or the address"):
        evaluate(["sjf"], small(), 1, workers="many")
    assert RayWorkers().address == "auto"
