"""Small runs of the campaigns; ``make campaign`` has the large ones. Each has a test that sees it fail."""

import pytest

from attribution_sched.live_cluster import SimulatedCluster
from tests.campaigns import disturbed, energy, repeatable, soak
from tests.small_world import small


def test_joules_of_tasks_and_idle_devices_are_those_of_the_meters_in_random_worlds():
    lived, refused, wrong = energy.campaign(10, decisions=6)
    assert wrong == []
    assert lived >= 7 and lived + refused == 10


@pytest.mark.slow
def test_joules_are_conserved_in_many_random_worlds():
    lived, _, wrong = energy.campaign(100, seed=1)
    assert wrong == []
    assert lived >= 70


def test_a_joule_that_is_lost_is_found_out(monkeypatch):
    totals = SimulatedCluster.totals
    monkeypatch.setattr(
        SimulatedCluster, "totals", lambda self: {**totals(self), "idle_j": totals(self)["idle_j"] + 1.0}
    )
    assert "are not the meter's" in energy.live(small(), "sjf", 0, 5)


def test_memory_is_flat_while_it_decides_at_full_rate():
    found = soak.campaign(3.0, settled=300)
    assert found.readings >= 5
    # So short a run tells growth of caches and growth without end apart only roughly.
    assert found.queue <= soak.SETTINGS.episode.queue_capacity
    assert not found.low_mb >= 100.0


@pytest.mark.slow
def test_memory_is_flat_for_two_minutes():
    assert soak.campaign(120.0).problem() == ""


def test_memory_that_grows_is_found_out():
    decisions = list(range(0, 50_000, 1000))
    grown = soak.slope(decisions, [100.0 + 2e-4 * each + 0.01 * (each % 3) for each in decisions])
    assert grown[0] == pytest.approx(2.0, abs=0.01)
    assert grown[1] < grown[0] < grown[2]
    assert "grows" in soak.Soaked(50_000, *grown, 1, 50).problem()
    flat = soak.slope(decisions, [100.0 + 0.01 * (each % 3) for each in decisions])
    assert soak.Soaked(50_000, *flat, 1, 50).problem() == ""
    assert "waited" in soak.Soaked(50_000, *flat, 99, 50).problem()


def test_a_full_disk_is_one_clear_error_and_it_goes_on_when_there_is_room():
    with disturbed.small_disk(4000) as disk:
        if disk is None:
            pytest.skip("no right to mount a small disk")
        assert disturbed.full_disk(1, disk) == ""


def test_clocks_that_are_set_back_change_nothing(tmp_path):
    assert disturbed.clock_set_back(1, tmp_path) == ""


@pytest.mark.slow
def test_full_disks_and_clocks_set_back():
    _, clocks, wrong = disturbed.campaign(15)
    assert clocks == 15
    assert wrong == []


def test_a_loaded_process_with_other_threads_comes_to_the_same_journal():
    count, problem = repeatable.campaign("small")
    assert problem == "" and count > 150


def test_the_command_run_twice_gives_the_same_journal_but_for_clocks():
    count, problem = repeatable.campaign("command-small")
    assert problem == "" and count > 100


@pytest.mark.slow
@pytest.mark.parametrize("world", ["sjf", "thinking", "cross-domain", "command"])
def test_processes_that_share_nothing_but_a_seed_agree(world):
    assert repeatable.campaign(world)[1] == ""


def test_a_journal_that_differs_is_found_out():
    one = [{"a": 1, "b": [1.0, {"c": 2}]}]
    assert repeatable.differing(one, [{"a": 1, "b": [1.0, {"c": 3}]}]) == "[0].b[1].c: 2 | 3"
