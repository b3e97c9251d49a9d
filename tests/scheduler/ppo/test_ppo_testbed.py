"""The comparison with MaskablePPO runs, and says what to install where it cannot."""

import subprocess
import sys

import numpy as np
import pytest

from attribution_sched.cluster.envs.env import TestbedVectorEnv
from tests.cluster.engine_worlds import testbed_world


def test_the_quick_run_prints_every_table(capsys):
    pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    import ppo_testbed

    ppo_testbed.main(["--quick"])
    text = capsys.readouterr().out
    for row in (
        "| ours |",
        "| same settings |",
        "| same, staggered |",
        "| defaults |",
        "| flat PPO, simulator and updates |",
    ):
        assert text.count(row) >= 1
    assert "nan" not in text


def test_the_adapter_plays_the_same_clusters_and_resets_within_the_step():
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    from ppo_testbed import batched_for_sb3

    world = testbed_world(horizon_s=1500.0)
    own, adapted = TestbedVectorEnv(world, 6), batched_for_sb3(TestbedVectorEnv(world, 6))
    obs, info = own.reset(seed=5)
    adapted.seed(5)
    np.testing.assert_array_equal(obs, adapted.reset())
    rng, ends = np.random.default_rng(0), 0
    clusters = np.arange(6)
    for _ in range(60):
        mask = adapted.env_method("action_masks")
        np.testing.assert_array_equal(mask[clusters], info["action_mask"][clusters])
        action = (rng.random(mask.shape) * mask).argmax(axis=1)
        seen, reward, done, told = adapted.step(action)
        obs, own_reward, _, truncated, info = own.step(action)
        np.testing.assert_array_equal(done[clusters], truncated[clusters])
        np.testing.assert_allclose(reward[clusters], own_reward[clusters], rtol=1e-6)
        for i in np.flatnonzero(done):
            ends += 1
            assert told[i]["TimeLimit.truncated"]
            if i in clusters:
                np.testing.assert_array_equal(told[i]["terminal_observation"], obs[i])
        # A cluster that ended is one step ahead from here on: it is compared up to its first end.
        clusters = np.setdiff1d(clusters, np.flatnonzero(done))
        np.testing.assert_array_equal(seen[clusters], obs[clusters])
        if not len(clusters):
            break
    assert ends > 0


def test_missing_rivals_are_named_with_what_to_install(tmp_path):
    (tmp_path / "sb3_contrib.py").write_text("raise ImportError('No module named sb3_contrib')")
    command = "import sys; sys.path.insert(0, 'benchmarks'); import ppo_testbed; ppo_testbed.main([])"
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {command}"],
        capture_output=True, text=True, check=False, cwd=__file__.rsplit("/tests/", 1)[0],
    )  # fmt: skip
    assert run.returncode == 1
    assert "Install stable-baselines3 and sb3-contrib: pip install 'attribution-sched[baselines]'" in run.stderr
