"""Host power: concave in the load, bounded, and node facts that add up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.errors import SettingsError
from research.host_power import cpu_power_w, node, nodes


@given(st.floats(0, 1), st.floats(0, 1), st.floats(20, 400))
@settings(deadline=None, max_examples=50)
def test_power_rises_and_is_concave(a, b, max_w):
    low, high = sorted((a, b))
    assert 0 < cpu_power_w(low, max_w) <= cpu_power_w(high, max_w) <= max_w * (1 + 1e-12)
    middle = cpu_power_w((low + high) / 2, max_w)
    assert middle >= (cpu_power_w(low, max_w) + cpu_power_w(high, max_w)) / 2 - 1e-9


def test_half_load_costs_more_than_half_the_power():
    assert cpu_power_w(0.5, 100.0) > 60.0
    assert cpu_power_w(np.array([0.0, 1.0]), 100.0)[1] == pytest.approx(100.0)


@pytest.mark.parametrize("load", [-0.1, 1.5, float("nan")])
def test_bad_load_is_refused(load):
    with pytest.raises(SettingsError, match=r"cpu load .* \[0, 1\]"):
        cpu_power_w(load, 100.0)


def test_leaving_a_node_on_is_never_free():
    for found in nodes().values():
        assert 0.2 < found.idle_share < 0.5
        assert found.idle_wall_w < found.load_wall_w[0] < found.load_wall_w[1]
    assert node("DGX-A100").host_idle_w(55.0) == pytest.approx(1475.6 - 8 * 55)


def test_unknown_node_names_the_nearest():
    with pytest.raises(SettingsError, match="DGX-A100"):
        node("DGX-A10")
