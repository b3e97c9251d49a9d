"""Training: the loss is the score, it falls, and the same seed gives the same weights."""

from dataclasses import replace

import numpy as np
import torch

from attribution_sched.scheduler.predictor.gru import GruSize, GruWeights, answer, recur
from research.gru_training import GruTraining, draw_batch, first_arrays, loss_of, train
from research.link_score import crps_gaussian

SIZE = GruSize(hidden=8, window=8, longest_s=3600)
SHORT = GruTraining(steps=60, batch=96, origins=4)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    short = replace(SHORT, steps=5)
    first, second, other = train(SIZE, short), train(SIZE, short), train(SIZE, replace(short, seed=1))
    for name, array in first.arrays.items():
        assert np.array_equal(array, second.arrays[name])
        assert not np.array_equal(array, other.arrays[name])


def test_the_score_falls():
    held = draw_batch(np.random.default_rng(99), SIZE, replace(SHORT, batch=4000))

    def score(arrays):
        with torch.no_grad():
            return float(loss_of({name: torch.from_numpy(array) for name, array in arrays.items()}, held))

    before = score(first_arrays(SIZE, np.random.default_rng(SHORT.seed)))
    assert score(train(SIZE, SHORT).arrays) < 0.97 * before


def test_the_loss_is_the_score_of_what_the_predictor_would_say():
    batch = draw_batch(np.random.default_rng(3), SIZE, replace(SHORT, batch=6, origins=2))
    arrays = first_arrays(SIZE, np.random.default_rng(4))
    arrays["out.weight"] *= 10.0
    weights = GruWeights(SIZE, arrays, {})
    scores = []
    for path in range(6):
        for nth in range(2):
            at = int(batch.origin[nth, path])
            seen = batch.inputs[: at + 1, path : path + 1]
            state = recur(weights, seen, np.ones(seen.shape[:2], bool))
            ratio, std = answer(weights, state, seen[-1], float(batch.horizon_s[nth, path]))
            last, target = batch.last[nth, path], batch.target[nth, path]
            scores.append(crps_gaussian(last * ratio - target, last * std)[0])
    loss = loss_of({name: torch.from_numpy(array) for name, array in arrays.items()}, batch)
    np.testing.assert_allclose(float(loss), np.mean(scores), rtol=1e-4)


def test_training_leaves_the_number_of_threads_alone():
    before = torch.get_num_threads()
    seen = []
    train(SIZE, replace(SHORT, steps=100, batch=4), lambda step, loss: seen.append(torch.get_num_threads()))
    assert (seen, torch.get_num_threads()) == ([1], before)


def test_a_report_comes_every_hundred_updates():
    told = []
    train(SIZE, replace(SHORT, steps=200, batch=4), lambda step, loss: told.append((step, loss)))
    assert [step for step, _ in told] == [100, 200]
    assert all(np.isfinite(loss) for _, loss in told)


def test_horizons_and_origins_stay_in_range():
    batch = draw_batch(np.random.default_rng(5), SIZE, replace(SHORT, batch=500))
    assert batch.origin.min() >= 0
    assert batch.origin.max() < SIZE.window
    assert batch.horizon_s.min() >= 150.0
    assert batch.horizon_s.max() <= SIZE.longest_s
    assert (batch.target > 0).all()
