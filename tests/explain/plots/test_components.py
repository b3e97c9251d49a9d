"""Stacked bars add up to the shares of R."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.plots import components
from attribution_sched.explain.plots.components import rows
from tests.explain.factory import explanation, full, log_odds, some
from tests.explain.strategies import explanations


@settings(deadline=None, max_examples=60)
@given(explanations().filter(lambda made: made.weights is not None), st.integers(2, 12))
def test_parts_add_up_to_the_share_of_r(made, most):
    stacks = rows(made, most)
    scale = max(np.abs(made.values).max(), 1e-300)
    for stack in stacks:
        assert stack.parts.sum() == pytest.approx(stack.total, abs=1e-9 * scale)
        if stack.player is not None:
            assert stack.total == pytest.approx(made.share(stack.player.name, "R"), abs=1e-9 * scale)
    whole = made.value[made.column("R")] - made.base[made.column("R")]
    assert sum(stack.total for stack in stacks) == pytest.approx(whole, abs=1e-6 * max(scale, 1.0))
    assert sum(stack.folded for stack in stacks) == len(made.players)


def test_cost_enters_with_a_minus():
    made = some(np.array([[0.0, 0.0, 0.4]]), np.full((1, 3), 0.01), weights=(1.0, 1.0, 0.5))
    assert rows(made)[0].parts == pytest.approx([0.0, 0.0, -0.2])


def test_drawn_stacks_do_not_overlap():
    ax = components(full())
    found = rows(full())
    for row, stack in enumerate(found):
        boxes = [p.get_bbox() for p in ax.patches if p.get_y() == pytest.approx(row - 0.3)]
        assert len(boxes) == 3
        right = max([0.0, *(max(box.x0, box.x1) for box in boxes)])
        left = min([0.0, *(min(box.x0, box.x1) for box in boxes)])
        assert right == pytest.approx(stack.parts.clip(0).sum())
        assert left == pytest.approx(stack.parts.clip(None, 0).sum())


def test_what_has_no_components_is_refused():
    with pytest.raises(ExplanationError, match="must hold R_eff, R_util, R_cost and weights"):
        components(log_odds())
    with pytest.raises(ExplanationError, match="most = 1"):
        components(explanation(), most=1)
