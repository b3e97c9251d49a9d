"""The benchmark of feedback: its task is sound, and its smoke test ends in all tables."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.slow
def test_every_choice_the_mask_allows_is_accepted():
    from feedback_task import ChoiceEnv, build_world

    env = ChoiceEnv(build_world((1.0, 0.5, 0.5)), 16)
    _, info = env.reset(seed=0)
    rng, over = np.random.default_rng(0), np.zeros(16, dtype=np.bool_)
    for _ in range(25):
        mask = info["action_mask"] | over[:, None]
        *_, over_now, info = env.step((rng.random(mask.shape) * mask).argmax(axis=1))
        assert (info["decision"]["code"][~over] == 1).all()
        over = over_now
    groups = env.codec.players()
    size = env.single_observation_space.shape[0] + env.codec.plan_features(np.zeros(1, dtype=np.int64)).shape[1]
    assert sorted(i for at in groups.values() for i in at) == list(range(size))


@pytest.mark.slow
def test_the_smoke_test_prints_every_table(capsys, tmp_path):
    import feedback_loop

    feedback_loop.main(["--quick", "--output", str(tmp_path / "runs.json")])
    said = capsys.readouterr().out
    for arm in feedback_loop.ARMS:
        assert f"| {arm} |" in said
    for lie in feedback_loop.LIES:
        assert f"| {lie} |" in said
