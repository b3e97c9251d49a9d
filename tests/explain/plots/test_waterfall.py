"""The waterfall leads from base to value, in bars that are the shares."""

from __future__ import annotations

import itertools

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.plots import style, waterfall
from attribution_sched.explain.plots.waterfall import steps
from tests.explain.factory import contrast, explanation, full, some
from tests.explain.strategies import explanations


@settings(deadline=None, max_examples=60)
@given(explanations(), st.integers(2, 12))
def test_segments_add_up_to_value_less_base(made, most):
    for output in made.outputs:
        bars, c = steps(made, output, most), made.column(output)
        scale = max(np.abs(made.value).max(), np.abs(made.base).max(), np.abs(made.values).max())
        assert bars[0].start == made.base[c]
        for one, other in itertools.pairwise(bars):
            assert one.start + one.share == pytest.approx(other.start, abs=1e-12 * scale)
        assert bars[-1].start + bars[-1].share == pytest.approx(made.value[c], abs=1e-9 * scale)
        assert sum(bar.folded for bar in bars) == len(made.players)
        assert len(bars) <= most


def test_drawn_bars_are_the_steps_in_the_right_colours():
    ax = waterfall(full(), output="R_cost", most=6)
    bars = steps(full(), "R_cost", 6)
    drawn = [patch for patch in ax.patches if patch.get_height() == pytest.approx(0.58)]
    assert [patch.get_width() for patch in drawn] == pytest.approx([bar.share for bar in bars])
    for patch, bar in zip(drawn, bars, strict=True):
        # More cost speaks against the choice.
        tone = style.UNSURE if not bar.certain else style.BAD if bar.share > 0 else style.GOOD
        assert matplotlib.colors.to_hex(patch.get_facecolor()).upper() == tone


def test_uncertain_inputs_and_the_rest_are_grey():
    made = some(np.array([[0.5, 0, 0], [0.4, 0, 0], [0.1, 0, 0]]), np.array([[0.01] * 3, [1.0] * 3, [0.01] * 3]))
    bars = steps(made, "R_eff", 2)
    assert [bar.certain for bar in bars] == [True, False]
    assert bars[1].player is None
    assert bars[1].folded == 2
    assert bars[1].share == pytest.approx(0.5)


def test_a_gap_in_the_sum_is_not_hidden_as_a_break():
    broken = explanation(value=np.array([1.0, 1.0, 1.0]))
    bars = steps(broken, "R_eff", 4)
    assert bars[-1].start + bars[-1].share == pytest.approx(1.0)


def test_a_contrast_tells_the_other_plan():
    ax = waterfall(contrast())
    assert "rather than" in ax.get_title(loc="left").replace("\n", " ")
    with pytest.raises(ExplanationError, match="most = 1"):
        waterfall(full(), most=1)
