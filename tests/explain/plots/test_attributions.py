"""The attribution heatmap."""

from __future__ import annotations

import numpy as np
import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.plots import attributions, style
from attribution_sched.explain.plots.attributions import COUNTERS
from attribution_sched.words.names import counter_name
from tests.explain.plots.gallery import ENERGY

LABELS = [f"task {i}" for i in range(9)]


def test_zero_is_white_and_sizes_are_symmetric():
    mesh = attributions(ENERGY, LABELS).collections[0]
    low, high = mesh.get_clim()
    assert high == -low == np.abs(ENERGY).max()
    assert mesh.cmap(0.5)[:3] == pytest.approx((1.0, 1.0, 1.0), abs=0.02)
    np.testing.assert_array_equal(np.asarray(mesh.get_array()).reshape(ENERGY.shape), ENERGY)


def test_shares_of_each_task_add_up_to_a_hundred():
    shown = np.asarray(attributions(ENERGY, LABELS, normalise=True).collections[0].get_array()).reshape(9, 7)
    np.testing.assert_allclose(np.abs(shown).sum(axis=1), 100.0)
    idle = attributions(np.zeros((2, 7)), ["a", "b"], normalise=True)
    assert not np.asarray(idle.collections[0].get_array()).any()


def test_counters_are_in_words():
    ax = attributions(ENERGY, LABELS)
    assert [label.get_text().replace("\n", " ") for label in ax.get_xticklabels()] == [
        counter_name(name, "en") for name in COUNTERS
    ]


def test_models_can_be_told_apart_on_a_telephone():
    names = ["llama-2-70b #59", "llama-2-7b #9"]
    with style.canvas(3.7):
        ax = attributions(ENERGY[:2], names)
    assert [label.get_text() for label in ax.get_yticklabels()] == names


def test_many_tasks_are_labelled_sparsely():
    n = 300
    ax = attributions(
        np.random.default_rng(0).normal(size=(n, 7)), [f"a very long task name, number {i}" for i in range(n)]
    )
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert 5 < len(labels) < 60
    assert len(set(labels)) == len(labels)
    assert not ax.texts


@pytest.mark.parametrize(
    ("values", "said"), [(np.zeros((9, 6)), "values.shape"), (np.full((9, 7), np.inf), "must be finite")]
)
def test_mistakes_are_told(values, said):
    with pytest.raises(ExplanationError, match=said):
        attributions(values, LABELS)
