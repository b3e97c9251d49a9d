"""The yardstick itself: exact conditionals must obey the tower rule, E[f - E[f | x_S] | x_S] = 0."""

import numpy as np
import pytest
from scipy.stats import qmc

from benchmarks.conditional_truth import Cube, CurvedWorld, KindsWorld, StudentWorld, seven_counter_energy

WORLDS = {
    "student": lambda: StudentWorld(3),
    "student copula": lambda: StudentWorld(3, "mixed"),
    "curved": lambda: CurvedWorld(3),
    "kinds": lambda: KindsWorld(3),
}


@pytest.mark.parametrize("name", WORLDS)
def test_what_a_conditional_mean_leaves_is_uncorrelated_with_what_was_seen(name):
    world = WORLDS[name]()
    rows = world.sample(150, np.random.default_rng(5))
    centre, spread = rows.mean(0), rows.std(0)
    points = qmc.Sobol(8, scramble=True, rng=np.random.default_rng(1)).random_base2(7)
    cube = Cube(np.clip(points, 1e-12, 1 - 1e-12))

    def f(x):
        return np.tanh(seven_counter_energy((x - centre) / spread) / 3)

    for code in (0b0101010, 0b0010101):
        seen = ((code >> np.arange(7)) & 1).astype(bool)
        values = []
        for row in rows:
            draws, weights = world.conditional(row, seen, cube)
            assert (draws[:, seen] == row[seen]).all()
            assert weights.sum() == pytest.approx(1.0)
            values.append(weights @ f(draws))
        left = f(rows) - np.array(values)
        z = (rows - centre) / spread
        for probe in (np.ones(len(rows)), *(np.sign(z[:, j]) for j in np.flatnonzero(seen))):
            product = left * probe
            assert abs(product.mean()) < 4.0 * product.std() / np.sqrt(len(rows))
        assert left.var() < 0.95 * f(rows).var()
