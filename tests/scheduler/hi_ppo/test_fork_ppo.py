"""PPO on the fork finds what is planted in forked decisions, at both levels, and nothing where there is only noise."""

from dataclasses import fields

import numpy as np
import pytest

from attribution_sched.scheduler.hi_ppo.candidate_features import EDGE, FEATURES, NODE
from attribution_sched.scheduler.hi_ppo.fork_ppo import ForkPpo, chosen, expected_worth, learn_ranker, shrunk
from attribution_sched.scheduler.hi_ppo.forked_decisions import ForkedDecisions

OWN, UPPER, DEVICES = (FEATURES.index(name) for name in ("own", "upper", "devices"))
QUICK = ForkPpo(rounds=25, epochs=2, batch=128, learning_rate=5e-3)


def planted(signal, seed=0, n=600, many=4, futures=8, world=0):
    """Candidates whose worth hangs on their devices; the first is the agents' own, which they clearly prefer."""
    rng = np.random.default_rng(seed)
    candidates = rng.normal(size=(n, many, len(FEATURES))).astype(np.float32) * 0.3
    candidates[:, :, OWN] = 0.0
    candidates[:, 0, OWN] = 1.0
    candidates[:, :, UPPER] = -3.0
    candidates[:, 0, UPPER] = 0.0
    devices = rng.normal(size=(n, many))
    candidates[:, :, DEVICES] = devices
    worth = signal * (devices - devices[:, :1])
    q = worth[:, :, None] + rng.normal(size=(n, many, futures)) * (np.arange(many) > 0)[None, :, None]
    group = np.tile([0, 0, 1, 2], (n, 1))
    return ForkedDecisions(
        candidates, group, np.zeros((n, many), dtype=np.int64), np.ones((n, many), dtype=np.float32),
        rng.random((n, 2, len(NODE)), dtype=np.float32), rng.random((n, 2, 2, len(EDGE)), dtype=np.float32),
        np.ones((n, 2), dtype=np.float32), q.astype(np.float32),
        np.repeat(q.mean(2)[..., None], 3, 2).astype(np.float32) / 3.0, np.arange(n) // 10,
        np.full(n, world),
    )  # fmt: skip


@pytest.mark.parametrize("settings", [QUICK, ForkPpo(rounds=8, epochs=4, batch=128, learning_rate=5e-3, expert=2.0)])
def test_what_is_planted_is_found_and_acts(settings):
    ranker = learn_ranker(planted(1.0), settings, 0)
    fresh = planted(1.0, seed=9)
    acts = chosen(ranker, fresh)
    gain, best = fresh.q.mean(2)[np.arange(len(acts)), acts].mean(), fresh.q.mean(2).max(1).mean()
    assert gain > 0.5 * best and (acts > 0).mean() > 0.3
    # Both levels: choices of the own upper choice (candidate 1) and of others.
    assert (acts == 1).mean() > 0.05 and (acts > 1).mean() > 0.1


def test_what_is_expected_of_one_world_does_not_hang_on_another():
    sure, noise = planted(4.0, n=200), planted(0.0, seed=1, n=200, world=1)
    both = ForkedDecisions(
        *(np.concatenate([getattr(sure, field.name), getattr(noise, field.name)]) for field in fields(sure))
    )
    np.testing.assert_array_equal(expected_worth(both)[200:], expected_worth(noise))
    pooled = shrunk(both.q, both.there)[200:]
    assert np.abs(expected_worth(noise)).mean() < 0.7 * np.abs(pooled).mean()


def test_noise_is_not_worth_leaving_the_agents_for():
    ranker = learn_ranker(planted(0.0), ForkPpo(rounds=5, batch=128), 0)
    assert (chosen(ranker, planted(0.0, seed=9)) > 0).mean() < 0.1


def test_noisy_worths_are_shrunk_more():
    data = planted(1.0)
    less = shrunk(data.q, data.there)
    noisy = shrunk(data.q + 5.0 * np.random.default_rng(1).normal(size=data.q.shape) * (data.q != 0), data.there)
    mean = data.q.mean(2)
    assert (np.abs(less) <= np.abs(mean) + 1e-6).all() and np.abs(noisy).mean() < 2.0 * np.abs(mean).mean()
    assert (less[:, 0] == 0.0).all()


def test_critics_say_what_candidates_earn():
    data = planted(1.0)
    ranker = learn_ranker(data, QUICK, 0)
    from attribution_sched.scheduler.hi_ppo.candidate_features import Described

    said, true = [], []
    for i in range(60):
        seen = Described(data.candidates[i], data.group[i], data.domain[i], data.nodes[i], data.edges[i])
        said.append(ranker.components(seen)[1:, 0])
        true.append(data.components[i, 1:, 0])
    assert np.corrcoef(np.concatenate(said), np.concatenate(true))[0, 1] > 0.7
