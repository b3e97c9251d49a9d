"""Our own work on a real Ray: the same figures, weights and explanations as here, also when a worker is lost."""

import os
from pathlib import Path

import pytest

from attribution_sched import System, evaluate
from attribution_sched.errors import SettingsError
from attribution_sched.executors.workers import check_workers, spread
from tests.small_world import small
from tests.system.test_explain_many import HOW, run, stored

pytestmark = pytest.mark.slow


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


def test_whoever_explains_it_is_the_same(ray_nodes, tmp_path):
    for name in ("here", "there"):
        run(tmp_path / name)
        with System.resume(tmp_path / name) as system:
            found = system.explain_many(workers=None if name == "here" else ray_nodes.address, **HOW)
            assert found.explained and not found.failed
    assert stored(tmp_path / "there") == stored(tmp_path / "here")


def test_work_that_is_lost_with_its_worker_is_done_again(ray_nodes, tmp_path):
    def work(run, shared, job):
        once = Path(shared) / f"{job}.begun"
        if job % 3 == 0 and not once.exists():
            once.touch()
            os._exit(9)
        return run, job * job

    found = dict(spread(ray_nodes.address, work, str(tmp_path), range(7)))
    assert {number: square for number, (_, square) in found.items()} == {n: n * n for n in range(7)}
    assert len({run for run, _ in found.values()}) == 1 and len(list(tmp_path.iterdir())) == 3


def test_a_failure_is_the_failure_itself(ray_nodes):
    def work(run, shared, job):
        raise SettingsError(f"number {job}")

    with pytest.raises(SettingsError, match="number 0"):
        list(spread(ray_nodes.address, work, None, [0]))


def test_an_address_that_is_none():
    with pytest.raises(SettingsError, match="must be a number, 'ray' or the address"):
        evaluate(["sjf"], small(), 1, workers="many")
    assert (check_workers("ray"), check_workers("127.0.0.1:6379"), check_workers(3)) == ("auto", "127.0.0.1:6379", 3)
