"""Models on flat vectors: closed forms, groups, components, and clear refusals."""

import numpy as np
import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.explanation import COMPONENTS, SIGNS
from attribution_sched.explain.flat import FlatExplainer

RNG = np.random.default_rng(5)
BACKGROUND = RNG.normal(size=(40, 6))
NAMES = [f"x{i}" for i in range(6)]
SLOPES = RNG.normal(size=(6, 3))


def linear(x):
    return x @ SLOPES + 0.5


def test_a_linear_model_is_explained_in_closed_form():
    made = FlatExplainer(linear, BACKGROUND, NAMES, outputs=COMPONENTS, weights=(1.0, 0.5, 0.25), policy="linear")
    x = RNG.normal(size=6)
    found = made.explain(x, method="exact")
    expected = (x - BACKGROUND.mean(axis=0))[:, None] * SLOPES
    assert np.allclose(found.values[:, :3], expected, atol=1e-12)
    assert np.allclose(found.values[:, 3], expected @ (np.array(SIGNS) * (1.0, 0.5, 0.25)), atol=1e-12)
    assert found.outputs == (*COMPONENTS, "R") and found.target == "model" and found.policy == "linear"


def test_groups_are_played_as_groups():
    groups = {"first": [0, 1, 2], "rest": [3, 4, 5]}

    def product(x):
        return x[:, 0] * x[:, 3]

    made = FlatExplainer(product, BACKGROUND, NAMES, groups=groups)
    x = RNG.normal(size=6)
    found = made.explain(x, method="exact")
    a, b, mean = x[0], x[3], BACKGROUND[:, [0, 3]]
    empty, first, rest = (mean[:, 0] * mean[:, 1]).mean(), a * mean[:, 1].mean(), mean[:, 0].mean() * b
    share = 0.5 * (first - empty) + 0.5 * (a * b - rest)
    assert found.share("first") == pytest.approx(share) and found.names == ["first", "rest"]


def test_many_inputs_are_explained_in_one_call():
    made = FlatExplainer(linear, BACKGROUND, NAMES, outputs=COMPONENTS)
    x = RNG.normal(size=(9, 6))
    together = made.explain_many(x, rows=900)
    for row, found in zip(x, together, strict=True):
        assert np.allclose(found.values, made.explain(row, rows=900).values, atol=1e-12)


def test_a_torch_module_is_a_model_too():
    torch = pytest.importorskip("torch")
    network = torch.nn.Linear(6, 2)
    made = FlatExplainer(network, BACKGROUND, NAMES, outputs=("a", "b"))
    x = RNG.normal(size=6)
    found = made.explain(x, rows=2000)
    slopes = network.weight.detach().numpy().T
    assert np.allclose(
        found.values, (x - BACKGROUND.mean(axis=0))[:, None] * slopes, atol=4 * found.standard_error + 1e-5
    )


@pytest.mark.parametrize(
    ("background", "names", "options", "words"),
    [
        (np.zeros((0, 6)), NAMES, {}, "at least one state"),
        (np.zeros(6), NAMES, {}, "states, inputs"),
        (BACKGROUND, NAMES[:5], {}, "one column per name"),
        (BACKGROUND, NAMES, {"outputs": ("a",), "weights": (1.0, 1.0, 1.0)}, "Leave the weights out"),
    ],
)
def test_what_does_not_go_together_is_refused(background, names, options, words):
    with pytest.raises(ExplanationError, match=words):
        FlatExplainer(linear, background, names, **options)


def test_an_input_of_another_length_is_refused():
    with pytest.raises(ExplanationError, match="5"):
        FlatExplainer(linear, BACKGROUND, NAMES, outputs=COMPONENTS).explain(np.zeros(5))
