"""Shapley values of decision trees: shap's interventional tree path, enumeration, and the axioms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from attribution_sched.explain.flat import FlatExplainer
from attribution_sched.shapley.explain import estimate_many
from attribution_sched.shapley.tabular import TabularGame
from attribution_sched.shapley.tree import FlatTree, explain_tree, tree_shapley


def grown(seed, inputs=6, leaves=12, rows=400):
    from sklearn.tree import DecisionTreeRegressor

    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, inputs)).astype(np.float32).astype(np.float64)
    y = x[:, 0] * (x[:, 1] > 0) + np.where(x[:, 2] > 0.3, 2.0, -1.0) * x[:, 3] + 0.1 * rng.normal(size=rows)
    tree = DecisionTreeRegressor(max_leaf_nodes=leaves, random_state=0).fit(x, y)
    nodes = tree.tree_
    leaf = nodes.feature < 0
    return tree, x, FlatTree(
        np.where(leaf, -1, nodes.feature), nodes.threshold, nodes.children_left, nodes.children_right,
        nodes.value[:, 0, 0],
    )  # fmt: skip


def test_it_says_what_the_grown_tree_says():
    tree, x, flat = grown(0)
    assert np.array_equal(flat(x), tree.predict(x))


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning", "ignore::FutureWarning")  # shap's own, on import
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_shares_are_those_of_shap(seed):
    import shap

    tree, x, flat = grown(seed, leaves=40)
    background = x[:60]
    theirs = shap.TreeExplainer(tree, background, feature_perturbation="interventional").shap_values(x[100:120])
    ours = explain_tree(flat, x[100:120], background, "abcdef", np.arange(6), "value")
    assert np.allclose([one.values[:, 0] for one in ours], theirs, atol=1e-6)
    assert max(np.abs(one.efficiency_gap()).max() for one in ours) < 1e-12


def test_groups_of_inputs_are_as_enumerated():
    _, x, flat = grown(4)
    groups = {"first": [0, 3], "second": [1], "rest": [2, 4, 5]}
    game = TabularGame(lambda rows: flat(rows), x[:5], x[50:70], groups)
    exact = estimate_many(game, method="exact")
    ours = explain_tree(flat, x[:5], x[50:70], game.players, game.member, "value")
    for one, other in zip(ours, exact, strict=True):
        assert np.allclose(one.values, other.values, atol=1e-12)


@given(seed=some.integers(0, 10_000), at=some.integers(0, 399))
def test_an_input_that_no_node_compares_has_no_share(seed, at):
    _, x, flat = _TREE
    unused = [i for i in range(x.shape[1]) if i not in set(flat.feature.tolist())]
    state = np.random.default_rng(seed).normal(size=(3, x.shape[1]))
    shares = tree_shapley(flat, x[at], state, np.arange(x.shape[1]), x.shape[1])
    assert np.allclose(shares.sum(axis=1), flat(x[at][None]) - flat(state))
    assert unused and not shares[:, unused].any()


_TREE = grown(5, leaves=5)


def test_the_explainer_of_flat_models_takes_the_tree_path():
    _, x, flat = grown(6)
    names = [f"x{i}" for i in range(6)]
    one = FlatExplainer(flat, x[:30], names, policy="tree").explain(x[40])
    sampled = FlatExplainer(lambda rows: flat(rows), x[:30], names).explain(x[40], method="exact")
    assert one.method == "exact" and not one.standard_error.any()
    assert np.allclose(one.values, sampled.values, atol=1e-12) and np.allclose(one.base, sampled.base)
