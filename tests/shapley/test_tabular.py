"""Games on flat vectors: masking, groups, both backends, refusals."""

import numpy as np
import pytest
import torch
from torch import nn

from attribution_sched.errors import ExplanationError
from attribution_sched.kernels import torch_threads
from attribution_sched.shapley.explain import estimate, estimate_many
from attribution_sched.shapley.tabular import TabularGame

RNG = np.random.default_rng(0)
X, BACKGROUND = RNG.normal(size=(5, 6)), RNG.normal(size=(9, 6))
WEIGHT = RNG.normal(size=(6, 2))


def model(rows):
    return np.tanh(rows @ WEIGHT)


def network(outputs=2, inputs=6):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(inputs, 32), nn.Tanh(), nn.Linear(32, outputs))


def masks(n, d=6):
    return np.random.default_rng(1).random((n, d)) < 0.5


def test_absent_inputs_come_from_the_background_state():
    coalitions, states = masks(3000), np.arange(3000) % 9
    want = model(np.where(coalitions, X[0], BACKGROUND[states]))
    got = TabularGame(model, X[0], BACKGROUND, outputs=("a", "b"), batch=256)(coalitions, states)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-15)
    decision = np.arange(3000) % 5
    want = model(np.where(coalitions, X[decision], BACKGROUND[states]))
    got = TabularGame(model, X, BACKGROUND, outputs=("a", "b"))(coalitions, states, decision)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-15)


def test_the_torch_backend_gives_the_networks_own_numbers():
    net = network()
    coalitions, states = masks(2500), np.arange(2500) % 9
    mixed = np.where(coalitions, X[0], BACKGROUND[states]).astype(np.float32)
    with torch.no_grad():
        want = net(torch.from_numpy(mixed)).numpy()
    got = TabularGame(net, X[0], BACKGROUND, outputs=("a", "b"))(coalitions, states)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)
    assert got.dtype == np.float64


def test_a_model_that_returns_its_input_is_not_overwritten():
    coalitions, states = masks(100), np.arange(100) % 9
    want = np.where(coalitions, X[0], BACKGROUND[states])
    names = tuple("abcdef")
    for identity in (lambda rows: rows, nn.Identity()):
        got = TabularGame(identity, X[0], BACKGROUND, outputs=names, batch=32)(coalitions, states)
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("budget", ["quick", "standard"])
def test_a_network_is_explained_with_the_same_bytes_in_any_chunk(budget):
    rng = np.random.default_rng(2)
    game = TabularGame(network(3, 20), rng.normal(size=20), rng.normal(size=(40, 20)), outputs=("a", "b", "c"))
    first = estimate(game, budget_rows=budget)
    for chunk in (16, 333, 100_000):
        again = estimate(game, budget_rows=budget, chunk=chunk)
        assert again.values.tobytes() == first.values.tobytes()
        assert again.standard_error.tobytes() == first.standard_error.tobytes()
    # Sums of float32 outputs are kept in float64.
    assert np.abs(first.efficiency_gap()).max() < 1e-12


def test_groups_are_players_of_their_own_game():
    groups = {"link": [0, 3], "load": [1], "task": [2, 4, 5]}
    game = TabularGame(model, X[0], BACKGROUND, groups, outputs=("a", "b"))
    assert game.players == ("link", "load", "task")
    inside = np.array([0, 1, 2, 0, 2, 2])
    coalitions, states = masks(50, 3), np.arange(50) % 9
    want = model(np.where(coalitions[:, inside], X[0], BACKGROUND[states]))
    np.testing.assert_allclose(game(coalitions, states), want, atol=1e-15)
    got = estimate(game, method="exact")
    np.testing.assert_allclose(got.base, model(BACKGROUND).mean(axis=0), atol=1e-12)


def test_many_decisions_in_one_call_equal_each_alone():
    game = TabularGame(network(), X, BACKGROUND, outputs=("a", "b"))
    together = estimate_many(game, method="exact")
    for i in range(5):
        alone = estimate(TabularGame(network(), X[i], BACKGROUND, outputs=("a", "b")), method="exact")
        np.testing.assert_allclose(together[i].values, alone.values, atol=1e-7)


def test_threads_and_training_mode_come_back():
    net = nn.Sequential(network(), nn.Dropout(0.5)).train()
    before = torch.get_num_threads()
    game = TabularGame(net, X[0], BACKGROUND, outputs=("a", "b"))
    first, second = game(masks(40), np.zeros(40, dtype=int)), game(masks(40), np.zeros(40, dtype=int))
    np.testing.assert_array_equal(first, second)
    assert net.training
    assert torch.get_num_threads() == before
    with torch_threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"background": np.empty((0, 6))}, "background = .*at least one state"),
        ({"background": np.zeros((4, 5))}, r"shape of the background = \(4, 5\): must be \(states, 6\)"),
        ({"background": np.zeros(6)}, r"shape of the background = \(6,\)"),
        ({"background": np.full((2, 6), np.nan)}, r"background\[0, 0\] = nan: inputs must be finite"),
        ({"x": np.array([0, 0, np.inf, 0, 0, 0])}, r"x\[0, 2\] = inf"),
        ({"x": np.zeros((2, 6))}, r"shape of x = \(2, 6\)"),
        ({"groups": {"a": [0, 1], "b": [1, 2]}}, "input 1 is in two groups"),
        ({"groups": {"a": [0, 9]}}, "input 9 does not exist"),
        ({"groups": {"a": [0, 1, 2]}}, r"groups = \[3, 4, 5\]: inputs without a player"),
        ({"names": ["a"]}, "6 inputs"),
    ],
)
def test_bad_input_is_one_clear_error(change, message):
    with pytest.raises(ExplanationError, match=message):
        estimate(TabularGame(model, **({"x": X[0], "background": BACKGROUND} | change)))
