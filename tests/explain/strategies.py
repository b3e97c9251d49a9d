"""Random explanations for property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from attribution_sched.explain.explanation import COMPONENTS, Explanation
from tests.explain.factory import some

weights = st.tuples(*[st.sampled_from([0.0, 0.3, 1.0, 2.5])] * 3)


@st.composite
def explanations(draw, most: int = 9) -> Explanation:
    """Components with their total, or one behaviour output; some shares are certain and some are not."""
    n = draw(st.integers(1, most))
    behaviour = draw(st.booleans())
    columns = 1 if behaviour else 3
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = 10.0 ** draw(st.integers(-6, 5))
    values = scale * rng.normal(size=(n, columns)) * rng.choice([0.0, 0.01, 1.0], size=(n, columns))
    errors = scale * rng.choice([0.0, 0.1, 0.5, 2.0], size=(n, columns))
    how = {
        "degrees": draw(st.sampled_from([0, 2, 30])),
        "converged": draw(st.booleans()),
        "method": draw(st.sampled_from(["exact", "permutation", "kernel"])),
        "rows": draw(st.integers(0, 10**6)),
    }
    if behaviour:
        return some(values, errors, outputs=("log_odds",), target="log_odds", weights=None, against="b", **how)
    return some(values, errors, outputs=COMPONENTS, weights=draw(weights), **how)
