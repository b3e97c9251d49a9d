"""A training run as a whole: what it leaves behind, how it goes on, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.config import load_settings, load_training_settings
from attribution_sched.errors import CheckpointError, SettingsError
from attribution_sched.scheduler import training
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, describe, load
from attribution_sched.scheduler.training import (
    BEST,
    METRICS,
    SETTINGS,
    STATE,
    helps,
    read_metrics,
    train,
    train_testbed,
)
from tests.small_world import small

COURSE = {
    "agents": {"worlds": {"small": 3}, "groups": 4, "members": 4, "every": 2},
    "ranker": {"worlds": {"small": 2}, "futures": 4, "updates": 2, "minibatch_size": 8, "judged": 2},
}


@pytest.fixture(autouse=True)
def _small_worlds(monkeypatch):
    world = replace(small().build_world(), horizon_s=600.0)
    monkeypatch.setattr(training, "training_world", lambda name: world)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs") / "whole"


@pytest.fixture
def whole(folder, _small_worlds):
    if not (folder / BEST).is_file():
        train(COURSE, folder)
    return folder


def test_a_run_leaves_weights_that_decide_and_says_how_they_were_made(whole):
    made = describe(whole / BEST)
    assert load(whole / BEST).theta.shape and made["settings"]["agents"]["groups"] == 4 and made["groups"] == 4
    kinds = [row["kind"] for row in read_metrics(whole / METRICS)]
    assert kinds == ["agents", "agents", "ranker"]
    assert sorted(whole.glob("forked-small-*.npz"))


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(whole, tmp_path):
    stops = iter([False] * 2 + [True] * 99)
    first = train(COURSE, tmp_path / "run", stop=lambda: next(stops))
    assert first.interrupted and first.groups < 4 and (tmp_path / "run" / STATE).is_file()
    second = train(COURSE, tmp_path / "run", resume=True)
    assert not second.interrupted and second.groups == 4
    assert np.array_equal(load(second.best).theta, load(whole / BEST).theta)


def test_a_run_that_was_stopped_at_once_goes_on_from_the_agents_it_was_given(tmp_path):
    course = {**COURSE, "agents": {**COURSE["agents"], "groups": 0}, "ranker": {**COURSE["ranker"], "rounds": 0}}
    train(course, tmp_path / "run", start=SHIPPED, stop=lambda: True)
    again = train(course, tmp_path / "run", resume=True)
    assert np.array_equal(load(again.best).theta, load(SHIPPED).theta)


def test_a_ranker_is_kept_if_it_helps_somewhere_and_harms_nowhere():
    assert helps({"a": (2.0, 1.0), "b": (-0.5, 1.0)})
    assert not helps({"a": (2.0, 1.0), "b": (-1.5, 1.0)}) and not helps({"a": (0.5, 1.0)}) and not helps({})


TWO_ROUNDS = {
    "agents": {**COURSE["agents"], "groups": 0}, "ranker": {**COURSE["ranker"], "updates": 3, "rounds": 2},
}  # fmt: skip


@pytest.fixture
def _helpful(monkeypatch):
    """Every round is said to help; days are judged as ever."""
    monkeypatch.setattr(training, "helps", lambda gains: all(np.isfinite(one).all() for one in gains.values()))


@pytest.fixture
def twice(folder, _small_worlds, _helpful):
    if not (folder.parent / "twice").is_dir():
        train(TWO_ROUNDS, folder.parent / "twice", start=SHIPPED)
    return folder.parent / "twice"


def test_the_second_round_forks_other_days_with_the_ranker_among_the_followers(twice):
    again = train(TWO_ROUNDS, twice, resume=True)
    assert [one.follower for one in again.rounds] == ["hi-ppo", "hi-ppo[ranked]"]
    assert again.rounds[1].forked > again.rounds[0].forked > 0 and all(one.kept for one in again.rounds)
    assert {file.stem.split("-")[-1] for file in twice.glob("forked-*.npz")} == {"510000", "510001", "520000", "520001"}
    first, second, best = (load(twice / name) for name in ("round-1.safetensors", "round-2.safetensors", BEST))
    assert not np.array_equal(first.ranker.arrays["policy_3"], second.ranker.arrays["policy_3"])
    assert np.array_equal(second.ranker.arrays["policy_3"], best.ranker.arrays["policy_3"])
    assert describe(twice / BEST)["rounds"][1]["follower"] == "hi-ppo[ranked]"


@pytest.mark.parametrize("asked", [1, 4, 8])
def test_rounds_that_were_stopped_go_on_to_the_same_rankers(twice, tmp_path, asked):
    """Stopped while forking for the first round, while judging it, and in the second."""
    stops = iter([False] * asked + [True] * 99)
    assert train(TWO_ROUNDS, tmp_path / "run", start=SHIPPED, stop=lambda: next(stops)).interrupted
    again = train(TWO_ROUNDS, tmp_path / "run", resume=True)
    assert len(again.rounds) == 2 and not again.interrupted
    for name in ("round-1.safetensors", "round-2.safetensors", BEST):
        one, other = load(twice / name).ranker.arrays, load(tmp_path / "run" / name).ranker.arrays
        assert all(np.array_equal(one[key], other[key]) for key in one)
    assert read_metrics(tmp_path / "run" / METRICS) == read_metrics(twice / METRICS)


def test_a_round_with_harmful_targets_is_undone_and_is_the_last(tmp_path, monkeypatch):
    from attribution_sched.scheduler.hi_ppo import fork_ppo

    world = replace(load_settings("testbed").build_world(), horizon_s=3600.0)
    monkeypatch.setattr(training, "training_world", lambda name: world)
    rightly = fork_ppo.expected_worth
    monkeypatch.setattr(fork_ppo, "expected_worth", lambda data: -10.0 * rightly(data))
    course = {**TWO_ROUNDS, "ranker": {**TWO_ROUNDS["ranker"], "updates": 20, "lr": 1e-2, "judged": 4}}
    found = train(course, tmp_path / "run", start=SHIPPED)
    (one,) = found.rounds
    assert one.gains["small"][0] < 0.0 and not one.kept
    assert load(found.best).ranker is None and not (tmp_path / "run" / "round-2.safetensors").exists()


def test_a_folder_that_is_not_fit_is_refused(whole, tmp_path):
    with pytest.raises(SettingsError, match="new or empty folder"):
        train(COURSE, whole)
    with pytest.raises(SettingsError, match="no training run to resume"):
        train(COURSE, tmp_path, resume=True)
    with pytest.raises(CheckpointError, match="the run that was stopped had"):
        train({**COURSE, "seed": 5}, whole, resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="must be a folder"):
        train(COURSE, tmp_path / "file")
    assert (whole / SETTINGS).is_file()


def test_a_damaged_state_is_refused(tmp_path):
    train({**COURSE, "ranker": {**COURSE["ranker"], "rounds": 0}}, tmp_path / "run")
    (tmp_path / "run" / STATE).write_bytes(b"no state")
    with pytest.raises(CheckpointError, match="is damaged"):
        train({**COURSE, "ranker": {**COURSE["ranker"], "rounds": 0}}, tmp_path / "run", resume=True)


@pytest.mark.parametrize(("change", "rule"), [
    ({"agents": {"members": 5}}, "must be even"), ({"agents": {"worlds": {}}}, "worlds"),
    ({"agents": {"worlds": {"ou30": 99_999}}}, "at most"), ({"ranker": {"clip": 0.0}}, "clip"),
    ({"ranker": {"rounds": 30}}, "30.*ranker.updates"), ({"ranker": {"worlds": {"ou30": 99_999}}}, "at most"),
])  # fmt: skip
def test_settings_out_of_range_are_refused(change, rule):
    with pytest.raises(SettingsError, match=rule):
        load_training_settings(change)


def test_the_testbed_is_learnt_by_flat_ppo(tmp_path):
    agent = train_testbed(64, clusters=4, preset=load_settings("testbed"), output=tmp_path / "flat.safetensors")
    assert (tmp_path / "flat.safetensors").is_file() and agent is not None
    with pytest.raises(SettingsError, match="decisions = 0"):
        train_testbed(0)
