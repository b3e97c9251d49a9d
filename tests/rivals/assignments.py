"""Assignment problems for tests: small arbitrary ones, and the truth by enumeration."""

from itertools import product

import numpy as np
from hypothesis import strategies as st

from attribution_sched.rivals.assignment import NONE, Assignment


@st.composite
def small_problems(draw):
    """Up to five tasks and three columns over one to three pools; whole numbers, so that sums are exact."""
    n, m = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    pools = draw(st.integers(1, m))
    utility = st.one_of(st.integers(-3, 20).map(float), st.just(-np.inf))
    grid = lambda each: np.array(draw(st.lists(each, min_size=n * m, max_size=n * m))).reshape(n, m)  # noqa: E731
    capacity = draw(st.lists(st.integers(0, 15), min_size=pools, max_size=pools))
    pool = draw(st.lists(st.integers(0, pools - 1), min_size=m, max_size=m))
    return Assignment(grid(utility), grid(st.integers(0, 10)), np.array(capacity), np.array(pool))


def brute_force(programme):
    """The best value of any choice, by trying all."""
    n, m = programme.shape
    choices = (np.array(choice) for choice in product(range(NONE, m), repeat=n))
    return max(programme.value(choice) for choice in choices if programme.feasible(choice))
