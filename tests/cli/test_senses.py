"""What senses are worth: days are kept and not played again, differences are paired, wrong words are refused."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from attribution_sched.cli.senses import FIGURES, measure_senses, played, table, vector_reader
from attribution_sched.cluster.world import World, build_pool
from attribution_sched.config import load_settings
from attribution_sched.errors import SettingsError
from attribution_sched.rivals.arena.records import EpisodeStore
from attribution_sched.types import Task


def arm(worth, calls):
    def run(seed):
        calls.append(seed)
        return SimpleNamespace(**dict.fromkeys(FIGURES, worth + seed % 5))

    return run


def test_days_are_kept_and_differences_are_paired(tmp_path):
    calls = []
    arms = {"nothing": arm(1.0, calls), "pace": arm(3.0, calls)}
    found = played(tmp_path, "world", arms, range(10, 14), 60.0)
    assert len(calls) == 8
    played(tmp_path, "world", arms, range(10, 14), 60.0)
    assert len(calls) == 8
    told = table(found, "nothing")
    # Days differ by 1 to 4; the difference between arms is 2 on every one of them.
    assert "4 days of nothing" in told and "+2.00 [+2.00, +2.00]" in told
    assert played(tmp_path, "other", arms, range(2), -1.0) == {"nothing": {}, "pace": {}}
    assert "no two days are whole" in table({"nothing": {}, "pace": {}}, "nothing")


def test_a_vector_is_read_in_units_of_how_much_tasks_differ():
    world: World = load_settings("testbed").build_world()
    rng = np.random.default_rng(0)
    scale = np.array([1.0, 10.0, 0.1, 1.0, 1.0, 1.0, 1.0])

    def attribute(task):
        return SimpleNamespace(state=scale * rng.standard_normal(7))

    read = vector_reader(world, attribute)
    told = read(Task(attribution=SimpleNamespace(state=scale), samples_per_s=1.0))
    assert told[:7] == pytest.approx(1.5, rel=0.3) and told[7] == 0.0


def test_any_two_arms_are_compared_by_a_command(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from attribution_sched.cli import senses
    from attribution_sched.cli.app import app

    arms = {"pace + EmSHAP vector": arm(3.0, []), "pace": arm(1.0, []), "kind (model's name)": arm(7.0, [])}
    monkeypatch.setattr(senses, "shared_arms", lambda load: arms)
    asked = ["bench", "senses", "shared", "--days", "3", "--output", str(tmp_path)]
    usual = CliRunner().invoke(app, asked)
    assert "+4.00 [+4.00, +4.00]" in usual.output and "minus pace + EmSHAP vector" in usual.output
    other = CliRunner().invoke(app, [*asked, "--against", "kind (model's name)"])
    assert "minus kind (model's name)" in other.output and "-6.00 [-6.00, -6.00]" in other.output
    with pytest.raises(SettingsError, match=r"against.*'kind'.*must be one of pace \+ EmSHAP vector, pace, kind"):
        measure_senses("shared", 3, "0.9", 0, 1.0, tmp_path, against="kind")


def test_only_arms_of_several_beginnings_are_played(tmp_path, monkeypatch):
    from attribution_sched.cli import senses

    calls = {name: [] for name in ("kind", "pace", "pace + EmSHAP vector", "links unknown", "rule, links unknown")}
    monkeypatch.setattr(senses, "crossing_arms", lambda preset: {name: arm(1.0, seen) for name, seen in calls.items()})
    measure_senses("cross-domain", 2, "0.9", 5, 60.0, tmp_path, "pace +|links")
    assert [name for name, seen in calls.items() if seen] == ["pace + EmSHAP vector", "links unknown"]


def test_the_vector_is_read_as_shipped_policies_read_it(monkeypatch, tmp_path):
    """The arm and the coordinator's own belief: the same profile of the same task."""
    from attribution_sched.cli import senses
    from attribution_sched.scheduler.hi_ppo.rule import RuleFork

    seen = {}

    def play(world, policy, seed, *, attribute):
        coordinator = policy._policy._coordinator
        seen[seed] = coordinator.partners.belief.profile, attribute
        return SimpleNamespace(**dict.fromkeys(FIGURES, 0.0))

    monkeypatch.setattr(senses, "play", play)
    arms = senses.shared_arms("0.9")
    for at, name in enumerate(("pace + EmSHAP vector", "pace + raw counters", "pace + bounded vector")):
        arms[name](at)
    task = build_pool(senses.site("0.9")).task(0, senses.site("0.9").kinds)
    task = replace(task, attribution=seen[0][1](task))
    shipped = RuleFork()._coordinator.partners.belief.profile(task)
    assert np.array_equal(seen[0][0](task), shipped) and shipped.shape == (8,)
    assert seen[1][0](task).shape == (13,)
    assert not np.array_equal(seen[2][0](task), shipped)


@pytest.mark.parametrize(("load", "days"), [("7", 1), ("0.9", 0)])
def test_wrong_words_are_refused(tmp_path, load, days):
    with pytest.raises(SettingsError, match="must be"):
        measure_senses("shared", days, load, 0, 1.0, tmp_path)


def test_a_damaged_day_and_a_folder_that_cannot_be_made_are_one_clear_error_each(tmp_path):
    """They were a JSONDecodeError and a FileNotFoundError."""
    (tmp_path / "world.jsonl").write_text('{"arm": "nothing", "seed": 10}\n{"arm": "noth\n')
    with pytest.raises(SettingsError, match=r"world\.jsonl, line 2 = .*is no day that was played. Remove the line"):
        played(tmp_path, "world", {"nothing": arm(1.0, [])}, range(10, 12), 60.0)
    for make in (lambda folder: played(folder, "world", {}, range(1), 1.0), EpisodeStore):
        with pytest.raises(SettingsError, match=r"output = .*cannot be made .*Name a folder where you may write"):
            make(tmp_path / "world.jsonl" / "deeper")
