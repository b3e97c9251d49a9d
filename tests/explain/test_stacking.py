"""Many explanations side by side, and in shap's own plots."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.stacking import stack, stack_shap
from tests.explain.factory import PLAYERS, episode, explanation, log_odds

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning", "ignore::FutureWarning")
"""shap draws with what matplotlib and numpy are about to drop."""


def test_players_are_the_union_and_gaps_are_nan():
    found = stack(episode(6))
    assert {player.name for player in found.players} == {player.name for player in PLAYERS}
    queue = [player.name for player in found.players].index("queue")
    np.testing.assert_array_equal(np.isnan(found.shares[:, queue]), [True, False, False, True, False, False])
    assert np.isfinite(np.delete(found.shares, queue, axis=1)).all()
    assert not found.certain[~found.present].any()


def test_rows_are_the_decisions_shares():
    listed = episode(4)
    found = stack(listed, "R_cost")
    for row, one in enumerate(listed):
        for player in one.players:
            at = [other.name for other in found.players].index(player.name)
            assert found.shares[row, at] == one.share(player.name, "R_cost")
            assert found.numbers[row, at] == player.number
    assert found.decisions == ("d-0000", "d-0001", "d-0002", "d-0003")


def test_order_is_by_mean_size_over_decisions_that_have_the_player():
    found = stack(episode(12))
    sizes = found.mean_size()
    queue = [player.name for player in found.players].index("queue")
    assert sizes[queue] == pytest.approx(np.nanmean(np.abs(found.shares[:, queue])))
    assert (np.diff(sizes[found.order()]) <= 0).all()
    assert len(found.order(3)) == 3
    still = explanation()
    assert "reward weights" not in [still.names[i] for i in stack([still]).order()]
    assert len(stack([explanation(values=np.zeros((11, 3)))]).order()) == 11


def test_mistakes_are_told():
    with pytest.raises(ExplanationError, match="at least one"):
        stack([])
    with pytest.raises(ExplanationError, match="is not explained here"):
        stack([explanation(), log_odds()])


def test_shap_values_still_add_up():
    listed = episode(8)
    found = stack_shap(listed, "R_eff")
    values = np.array([one.value[0] for one in listed])
    np.testing.assert_allclose(found.base_values + found.values.sum(axis=1), values, atol=1e-12)


@pytest.mark.parametrize("kind", ["beeswarm", "bar", "heatmap", "waterfall"])
def test_shaps_own_plots_of_many_decisions(kind):
    matplotlib.use("Agg")
    import shap
    from matplotlib import pyplot as plt

    stacked = stack_shap(episode(20))
    getattr(shap.plots, kind)(stacked[3] if kind == "waterfall" else stacked, show=False)
    figure = plt.gcf()
    figure.canvas.draw()
    text = " ".join(label.get_text() for ax in figure.axes for label in ax.get_yticklabels())
    assert "load us-east" in text
    plt.close("all")
