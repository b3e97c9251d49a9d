"""Every layout that fits the largest domain is on the table, once."""

import numpy as np
import pytest

from attribution_sched.cluster.layouts import layout_table

from .engine_worlds import tiny_cluster


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 6, 16])
@pytest.mark.parametrize("sharing", [False, True])
def test_the_table_is_what_enumeration_gives(devices, sharing):
    cluster = tiny_cluster(2, devices, node_devices=4)
    table = {tuple(row) for row in layout_table(cluster, sharing).tolist()}
    assert len(table) == len(layout_table(cluster, sharing))
    powers = (1, 2, 4, 8, 16)
    wanted = {
        (dp, tp, pp, share)
        for dp in powers
        for tp in (1, 2, 4)
        for pp in (1, 2, 4, 8)
        for share in ((0, 1) if sharing else (0,))
        if dp * tp * pp <= devices
    }
    assert table == wanted


def test_tensor_parallelism_stays_inside_the_largest_node():
    table = layout_table(tiny_cluster(1, 16, node_devices=2), sharing=False)
    assert table[:, 1].max() == 2
    assert np.all(table[:, :3].prod(axis=1) <= 16)
