"""``play``, compiled days and copies give what they gave before the rooms were rebuilt."""

from __future__ import annotations

import numpy as np
import pytest

from tests.golden.doors import DOORS, FILE


@pytest.mark.parametrize("name", DOORS)
def test_a_door_gives_what_it_gave(name: str) -> None:
    with np.load(FILE) as golden:
        np.testing.assert_allclose(DOORS[name](), golden[name], rtol=1e-12, atol=1e-12)
