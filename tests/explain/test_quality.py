"""Quality checks tell good explanations from bad ones."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.flat import FlatExplainer
from attribution_sched.explain.quality import agreement, deletion, insertion, randomised, rank_correlation, stability
from attribution_sched.shapley.tabular import TabularGame

BACKGROUND = np.random.default_rng(8).normal(size=(64, 8))
NAMES = [f"x{i}" for i in range(8)]
SLOPES = np.array([3.0, -2.0, 1.5, 1.0, 0.5, 0.2, 0.1, 0.0])


def model(x):
    return np.tanh(x @ SLOPES / 3.0) + 0.1 * x[:, 0] * x[:, 1]


def one(x=None):
    x = np.abs(np.random.default_rng(9).normal(size=8)) * np.sign(SLOPES + 1e-9) if x is None else x
    made = FlatExplainer(model, BACKGROUND, NAMES)
    return made.explain(x, rows=6000), TabularGame(model, x, BACKGROUND, names=NAMES), made, x


def test_taking_the_strongest_away_first_lets_the_output_fall_fastest():
    found, game, _, _ = one()
    shuffled = replace(found, values=found.values[np.random.default_rng(1).permutation(8)])
    reverse = replace(found, values=-found.values)
    assert deletion(game, found).area < deletion(game, shuffled).area < deletion(game, reverse).area
    assert insertion(game, found).area > insertion(game, shuffled).area > insertion(game, reverse).area


def test_curves_begin_and_end_at_the_decision_and_the_background_mean():
    found, game, _, _ = one()
    gone, given = deletion(game, found, states=64), insertion(game, found, states=64)
    assert gone.values[0] == pytest.approx(found.value[0]) and gone.values[-1] == pytest.approx(found.base[0], abs=1e-9)
    assert given.values[-1] == pytest.approx(found.value[0]) and given.values[0] == pytest.approx(
        found.base[0], abs=1e-9
    )
    assert len(gone.values) == 9 and set(gone.order) == set(NAMES)


def test_an_additive_model_has_the_area_that_its_shares_say():
    made = FlatExplainer(lambda x: x @ SLOPES, BACKGROUND, NAMES)
    x = np.ones(8)
    found = made.explain(x, method="exact")
    game = TabularGame(lambda v: v @ SLOPES, x, BACKGROUND, names=NAMES)
    share = np.sort(found.values[:, 0] * np.sign(found.value[0] - found.base[0]))[::-1]
    left = 1.0 - np.concatenate([[0.0], np.cumsum(share)]) / share.sum()
    assert deletion(game, found, states=64).area == pytest.approx(np.trapezoid(left, dx=1 / 8))


def test_where_nothing_happens_no_curve_is_drawn():
    found, _, _, x = one()
    flat = TabularGame(lambda v: np.zeros(len(v)), x, BACKGROUND, names=NAMES)
    with pytest.raises(ExplanationError, match="does not differ"):
        deletion(flat, found)


def test_more_rows_are_more_stable():
    _, _, made, x = one()
    rough = stability(lambda seed: made.explain(x, method="permutation", rows=40, seed=seed), range(6))
    fine = stability(lambda seed: made.explain(x, method="permutation", rows=8000, seed=seed), range(6))
    assert fine.rank_correlation > rough.rank_correlation and fine.overlap >= rough.overlap
    assert fine.rank_correlation > 0.9 and fine.seeds == 6
    with pytest.raises(ExplanationError, match="two"):
        stability(lambda seed: made.explain(x), [1])


def test_a_network_that_forgot_is_explained_otherwise():
    torch = pytest.importorskip("torch")
    torch_source = torch.Generator().manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    with torch.no_grad():
        network[0].weight.copy_(torch.randn(32, 8, generator=torch_source) * torch.tensor(SLOPES, dtype=torch.float32))
        network[2].weight.copy_(torch.rand(1, 32, generator=torch_source))
    before = [w.clone() for w in network.parameters()]
    forgot = randomised(network, torch.Generator().manual_seed(1))
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))
    xs = np.random.default_rng(10).normal(size=(12, 8))
    told, other = (
        [e.values[:, 0] for e in FlatExplainer(net, BACKGROUND, NAMES).explain_many(xs, rows=2000)]
        for net in (network, forgot)
    )
    likeness = np.mean([abs(rank_correlation(a, b)) for a, b in zip(told, other, strict=True)])
    same = FlatExplainer(network, BACKGROUND, NAMES).explain_many(xs, rows=2000, seed=9)
    assert likeness < 0.6
    assert np.mean([rank_correlation(a, e.values[:, 0]) for a, e in zip(told, same, strict=True)]) > 0.95
    last = randomised(network, torch.Generator().manual_seed(1), only="2")
    assert torch.equal(last[0].weight, network[0].weight) and not torch.equal(last[2].weight, network[2].weight)


def test_agreement_is_one_with_itself_and_minus_one_with_the_opposite():
    found, _, _, _ = one()
    same, opposite = agreement(found, found), agreement(found, replace(found, values=-found.values))
    assert same.rank_correlation == same.signed_correlation == (pytest.approx(1.0),)
    assert same.same_leader == (True,) and same.same_sign == (pytest.approx(1.0),)
    assert opposite.rank_correlation == (pytest.approx(1.0),) and opposite.signed_correlation == (pytest.approx(-1.0),)
    assert opposite.same_sign == (0.0,)
    with pytest.raises(ExplanationError, match="in common"):
        agreement(found, replace(found, outputs=("other",)))


def test_rank_correlation_is_scipys():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(11)
    for _ in range(5):
        a, b = rng.normal(size=12).round(1), rng.normal(size=12).round(1)
        assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert np.isnan(rank_correlation(np.zeros(4), np.arange(4.0)))


def test_players_without_a_share_in_either_are_left_out():
    """Rounding is no share, and whoever has none agrees with anything: neither may lift or lower the agreement."""
    found, _, _, _ = one()
    values = np.array([3.0, -2.0, 1.0, 1e-17, 0.0, -1e-17, 0.0, 0.0])[:, None]
    other = np.array([-2.0, 3.0, 1.0, 0.0, 1e-17, 0.0, 0.0, 0.0])[:, None]
    told = agreement(replace(found, values=values), replace(found, values=other))
    assert told.signed_correlation == (pytest.approx(rank_correlation(values[:3, 0], other[:3, 0])),)
    assert told.same_sign == (pytest.approx(1.0 / 6.0),) and told.same_leader == (False,)
    nothing = agreement(replace(found, values=values), replace(found, values=np.zeros((8, 1))))
    assert np.isnan(nothing.signed_correlation[0]) and not nothing.same_leader[0]
