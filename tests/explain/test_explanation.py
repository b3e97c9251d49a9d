"""Explanations as records: they add up, know what is certain, and go into shap's own plots."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from attribution_sched.errors import ExplanationError, SettingsError
from attribution_sched.explain.explanation import COMPONENTS, SIGNS, TARGETS, Explanation
from attribution_sched.explain.findings import Player
from attribution_sched.words.catalogue import variants
from attribution_sched.words.say import say_all
from tests.explain.factory import PLAYERS, SHARES, WEIGHTS, explanation, some
from tests.explain.strategies import explanations

SHAPS_OWN = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning", "ignore::FutureWarning")
"""shap draws with what matplotlib and numpy are about to drop."""

MODULES = (
    "explanation", "findings", "digits", "wording", "facts", "reasoning",
    "stacking", "overview", "notebook", "plots",
)  # fmt: skip


def test_the_total_is_the_weighted_sum_of_components():
    made = explanation()
    np.testing.assert_allclose(made.values[:, 3], SHARES @ (np.array(WEIGHTS) * SIGNS), rtol=0, atol=1e-12)
    assert made.value[3] - made.base[3] == pytest.approx(made.values[:, 3].sum(), abs=1e-12)
    assert made.main == "R"


@settings(deadline=None, max_examples=40)
@given(explanations())
def test_shares_add_up_to_value_less_base(made):
    np.testing.assert_allclose(made.values.sum(axis=0), made.value - made.base, rtol=1e-9, atol=1e-9)
    assert (made.efficiency_gap() < 1e-6).all() or np.abs(made.values).max() < 1e-6


def test_the_gap_is_seen():
    made = explanation()
    assert made.efficiency_gap().max() < 1e-12
    broken = replace(made, value=made.value + 0.1)
    assert broken.efficiency_gap().min() > 0.1


def test_intervals_use_students_quantile_for_few_estimates():
    few, many = some([[1.0]], [[0.4]], **_one(3)), some([[1.0]], [[0.4]], **_one(0))
    assert not few.significant()[0]
    assert many.significant()[0]
    low, high = many.interval()
    assert (low[0, 0], high[0, 0]) == (pytest.approx(1 - 1.96 * 0.4, abs=1e-4), pytest.approx(1 + 1.96 * 0.4, abs=1e-4))


def test_drivers_are_sorted_and_only_the_certain_ones_if_asked():
    made = some(np.array([[0.1], [-3.0], [2.0]]), np.array([[0.01], [5.0], [0.1]]), **_one(0))
    assert made.drivers() == [1, 2, 0]
    assert made.drivers(sure=True) == [2, 0]
    assert made.drivers(most=1) == [1]


def test_a_frame_has_shares_and_limits():
    frame = explanation().to_frame()
    assert frame.loc["load us-east", "R_cost"] == pytest.approx(-0.058)
    assert frame.loc["load us-east", "R_cost low"] < -0.058 < frame.loc["load us-east", "R_cost high"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: explanation().share("load us-est"), "Did you mean 'load us-east'"),
        (lambda: explanation().share("queue", "R_coast"), "Did you mean 'R_cost'"),
        (lambda: explanation().interval(1.0), "must lie between 0 and 1"),
        (lambda: explanation(target="term"), "Did you mean 'terms'"),
        (lambda: explanation(value=np.zeros(4)), "value.shape"),
        (lambda: replace(explanation(), players=(PLAYERS[0],) * 11), "is there twice"),
    ],
)
def test_mistakes_are_told(call, said):
    with pytest.raises((ExplanationError, SettingsError), match=said):
        call()


def test_arrays_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        explanation().values[0, 0] = 1.0


def test_every_target_has_words():
    assert variants("target.explained") == TARGETS
    assert all(words[0].islower() for words in say_all("target.explained"))


@SHAPS_OWN
def test_to_shap_carries_everything():
    one = explanation().to_shap("R_eff")
    np.testing.assert_array_equal(one.values, SHARES[:, 0])
    assert one.base_values == pytest.approx(0.12)
    assert one.feature_names == [player.name for player in PLAYERS]
    every = explanation().to_shap()
    assert every.values.shape == (len(PLAYERS), len(COMPONENTS) + 1)
    assert every[..., "R_cost"].values == pytest.approx(SHARES[:, 2])


@SHAPS_OWN
@pytest.mark.parametrize("kind", ["waterfall", "bar"])
def test_shaps_own_plots_of_one_decision(kind):
    import matplotlib

    matplotlib.use("Agg")
    import shap
    from matplotlib import pyplot as plt

    nameless = replace(explanation(), players=(Player("bare", "input"), *PLAYERS[1:]))
    for made in (explanation(), nameless):
        getattr(shap.plots, kind)(made.to_shap("R"), show=False)
        figure = plt.gcf()
        figure.canvas.draw()
        text = " ".join(label.get_text() for ax in figure.axes for label in ax.get_yticklabels())
        assert "load us-east" in text
        plt.close(figure)


def test_importing_the_room_loads_no_plotting_library():
    code = "import sys\n" + "\n".join(f"import attribution_sched.explain.{name}" for name in MODULES)
    code += "\nprint(sorted({'matplotlib', 'seaborn', 'shap', 'pandas', 'torch', 'numba'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def _one(degrees: int) -> dict[str, object]:
    return {"outputs": ("log_odds",), "target": "log_odds", "weights": None, "degrees": degrees}


def test_the_callers_arrays_stay_writable_and_apart():
    values = np.array([[1.0], [2.0]])
    made = some(values, np.zeros((2, 1)), outputs=("log_odds",), target="log_odds", weights=None, against="b")
    values[0, 0] = 9.0
    assert made.values[0, 0] == 1.0 and not made.values.flags.writeable


def test_a_record_does_not_tell_how_long_it_took():
    """The same question has the same bytes on a loaded machine and in another process."""
    quick, slow = explanation(seconds=0.1), explanation(seconds=9.0)
    assert json.dumps(quick.to_dict()) == json.dumps(slow.to_dict())
    assert Explanation.from_dict(slow.to_dict() | {"seconds": 9.0}).seconds == 9.0  # journals of before are read
