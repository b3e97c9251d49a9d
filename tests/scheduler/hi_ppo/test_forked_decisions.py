"""Forked decisions: every candidate under the same futures, acted as it would have, and found again on disk."""

from dataclasses import fields, replace

import numpy as np
import pytest

from attribution_sched.config import load_settings
from attribution_sched.errors import CheckpointError
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.candidate_features import FEATURES
from attribution_sched.scheduler.hi_ppo.checkpoint import load
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.forked_decisions import (
    ROW_SHAPES,
    ForkedDecisions,
    ForkingHiPpo,
    collect,
    collect_by,
)
from attribution_sched.scheduler.ranked_follower import RankedFollower
from attribution_sched.scheduler.registry import RANKED
from tests.small_world import small


def world():
    return replace(small().build_world(), horizon_s=3600.0)


def test_candidates_are_described_by_name_and_forked(tmp_path):
    data = collect(world(), range(2), 4)
    assert len(data) > 3 and set(np.unique(data.day)) == {0, 1}
    own = data.candidates[:, 0, FEATURES.index("own")]
    assert (own == 1.0).all() and (data.candidates[:, 1:, FEATURES.index("own")] == 0.0).all()
    assert (data.q[:, 0] == 0.0).all() and np.isfinite(data.q).all()
    assert (np.abs(data.q).max(axis=(1, 2)) > 0.0).any()
    # The EmSHAP vector is among the numbers.
    assert np.abs(data.candidates[..., FEATURES.index("memory_bandwidth")]).max() > 0.0
    data.save(tmp_path / "a.npz")
    again = ForkedDecisions.load(tmp_path / "a.npz", tmp_path / "a.npz")
    assert len(again) == 2 * len(data)
    for field in fields(data):
        assert np.array_equal(getattr(again.take(np.arange(len(data))), field.name), getattr(data, field.name))


@pytest.mark.parametrize("change", ["fewer", "narrower", "truncated", "not there"])
def test_days_that_another_version_forked_are_refused_with_their_name(tmp_path, change):
    file = tmp_path / "forked-small-0.npz"
    many = {name: np.zeros((1, *shape)) for name, shape in ROW_SHAPES.items()}
    if change == "fewer":
        del many["components"]
    if change == "narrower":
        many["candidates"] = many["candidates"][..., :-1]
    if change != "not there":
        np.savez_compressed(file, **many)
    if change == "truncated":
        file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(CheckpointError, match=r"forked-small-0\.npz"):
        ForkedDecisions.load(file)


def test_forking_changes_nothing_that_is_done():
    assert play(world(), ForkingHiPpo(4), 5).reward == play(world(), HiPpo(deadline_s=np.inf), 5).reward
    # Where tasks may share devices, too, which the agents leave to thinking.
    sharing = replace(load_settings("testbed").build_world(), horizon_s=1800.0)
    assert play(sharing, ForkingHiPpo(4), 5).reward == play(sharing, HiPpo(deadline_s=np.inf), 5).reward


def test_with_a_ranker_copies_are_played_on_by_it_and_days_as_it_decides():
    ranked = load(RANKED)
    policy, agents = ForkingHiPpo(4, weights=ranked), ForkingHiPpo(4, weights=replace(ranked, ranker=None))
    data, plain = collect_by(policy, world(), range(5, 6)), collect_by(agents, world(), range(5, 6))
    assert isinstance(next(iter(policy.thinker()._followers.values())), RankedFollower)
    assert play(world(), policy, 5).reward == play(world(), HiPpo(ranked, deadline_s=np.inf), 5).reward
    # The first decision is the same, told from the agents' own choice, and its copies are played on otherwise.
    assert np.array_equal(data.candidates[0], plain.candidates[0]) and not np.array_equal(data.q[0], plain.q[0])
    assert policy.thinker().followed > len(data) * 4
