"""What a framework and a measured link change in the world."""

import numpy as np
import pytest

from attribution_sched.errors import SettingsError
from tests.small_world import SMALL, small


@pytest.mark.parametrize(("preset", "blocks"), [("torch-1f1b", True), ("torch-gpipe", False)])
def test_a_runtime_preset_says_whether_sends_block(preset, blocks):
    world = small(runtime={"preset": preset, "blocking_sends": not blocks}).build_world()
    assert world.cluster.runtime.blocking_sends is blocks
    with pytest.raises(SettingsError, match="preset"):
        small(runtime={"preset": "megatron"})


def test_links_are_priced_with_what_is_left_of_them_both_ways():
    whole = small().build_world().cluster.wan.bandwidth_gbps
    network = SMALL["network"] | {"duplex_efficiency": 0.6}
    shared = small(network=network).build_world().cluster.wan.bandwidth_gbps
    inside = np.eye(2, dtype=bool)
    np.testing.assert_allclose(shared[~inside], 0.6 * whole[~inside])
    np.testing.assert_array_equal(shared[inside], whole[inside])
    with pytest.raises(SettingsError, match="duplex_efficiency"):
        small(network=SMALL["network"] | {"duplex_efficiency": 1.5})
