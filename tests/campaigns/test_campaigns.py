"""Small runs of the campaigns; ``make campaign`` has the large ones. Each has a test that sees it fail."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from attribution_sched import System
from attribution_sched.cli import app
from attribution_sched.cluster.live import SimulatedCluster
from tests.campaigns import disturbed, energy, large, repeatable, soak
from tests.campaigns.same import rows
from tests.small_world import SMALL, small


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


def test_a_busy_neighbour_changes_nothing_that_is_kept():
    found = large.campaign(3, preset=small())
    assert found.problem == "" and found.decisions >= 8 and found.fallbacks == 0


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["sjf", "hi-ppo"])
def test_sixty_four_domains_of_sixty_four_devices_under_load(policy):
    assert large.campaign(10, policy).problem == ""


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
    assert problem == "" and count > 100


def test_the_command_run_twice_gives_the_same_journal_but_for_clocks(tmp_path, monkeypatch):
    """All of ``attribution-sched run`` but the report, which does not touch the journal and takes most of the time."""
    preset = tmp_path / "small.yaml"
    preset.write_text(json.dumps(SMALL))
    monkeypatch.setattr(System, "report", lambda self, path, **_: Path(path))
    found = []
    for turn in ("one", "other"):
        path = tmp_path / f"{turn}.sqlite"
        asked = ["run", "--preset", str(preset), "--policy", "greedy", "--tasks", "16", "--journal", str(path)]
        asked += ["--target", "step_ratio_at_most=0.05", "--report", str(tmp_path / f"{turn}.md")]
        done = CliRunner().invoke(app, asked)
        assert done.exit_code == 0, done.output
        found.append(rows(path))
    one, other = found
    assert one["feedback"] and one["explanations"] and len(one["decisions"]) >= 16
    assert one == other
    other["decisions"][3]["cluster_time_s"] += 1e-9
    assert one != other


@pytest.mark.slow
@pytest.mark.parametrize("world", ["sjf", "thinking", "cross-domain-easy", *repeatable.COMMANDS])
def test_processes_that_share_nothing_but_a_seed_agree(world):
    assert repeatable.campaign(world)[1] == ""


def test_a_journal_that_differs_is_found_out():
    one = [{"a": 1, "b": [1.0, {"c": 2}]}]
    assert repeatable.differing(one, [{"a": 1, "b": [1.0, {"c": 3}]}]) == "[0].b[1].c: 2 | 3"
