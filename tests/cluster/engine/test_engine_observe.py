"""What is seen of a cluster is right, stays in range, and never holds a latent demand."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.arrivals import Poisson
from attribution_sched.cluster.engine import engine as kernels_of
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import DOMAIN_FEATURES, EVENT_FEATURES, LINK_FEATURES, TASK_FEATURES
from attribution_sched.cluster.plan import Plan
from tests.cluster.engine_worlds import (
    BERT,
    GPT2,
    begun,
    chain,
    decide,
    random_actions,
    single,
    tiny_cluster,
    tiny_world,
    traced,
)

LONG = replace(BERT, steps=(100_000, 100_000), epoch_steps=1000)


def column(name):
    return DOMAIN_FEATURES.index(name)


def test_there_are_twenty_system_five_task_six_event_and_three_link_numbers():
    assert (len(DOMAIN_FEATURES), len(TASK_FEATURES), len(EVENT_FEATURES), len(LINK_FEATURES)) == (20, 5, 6, 3)
    assert len(set(DOMAIN_FEATURES)) == 20


def test_columns_are_where_their_names_are():
    per_group = ("GPU_UTILISATION", "MEMORY_UTILISATION", "MEMORY_BANDWIDTH", "PCIE_BANDWIDTH")
    for name in per_group:
        assert DOMAIN_FEATURES[getattr(kernels_of, name)] == f"{name.lower()}_0"
    for name in ("CPU_UTILISATION", "TOTAL_POWER", "QUEUE_LENGTH", "POWER_BUDGET"):
        assert DOMAIN_FEATURES[getattr(kernels_of, name)] == name.lower()
    assert [st.LOAD_COLUMNS[at] for at in (st.HOST, st.MEMORY_READ, st.PCIE_READ)] == ["host", "memory", "pcie"]
    assert st.LOAD_COLUMNS[st.DEMANDS] == "host_demand"


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 5, 6, 7, 8, 12])
def test_groups_of_devices_of_any_number_are_shares_of_their_own_size(devices):
    """All devices alike: every group that has a device reports the same figure, and groups have no others."""
    cluster = tiny_cluster(1, devices, node_devices=1, motion={"spread": 0.0})
    tasks = [(0, LONG)] * (devices + 1)
    engine = begun(traced(*tasks, kinds=(LONG,), cluster=cluster, max_segments=1, max_running=20, share_limit=1))
    for _ in range(devices):
        decide(engine, single(LONG))
    seen = engine.observe().domains[0, 0]
    assert np.isfinite(seen).all()
    groups = sorted({d * 4 // devices for d in range(devices)})
    busy = engine.state.loads[0, 0, 0, st.BUSY]
    memory = engine.state.loads[0, 0, 0, st.MEMORY] / cluster.domains[0].gpu.memory_bytes
    for g in range(4):
        expected = (busy, memory) if g in groups else (0.0, 0.0)
        assert (seen[column(f"gpu_utilisation_{g}")], seen[column(f"memory_utilisation_{g}")]) == pytest.approx(
            expected, rel=1e-6
        )


def test_system_numbers_of_a_domain_by_hand():
    cluster = tiny_cluster(2, 4, power_budget_w=1000.0, motion={"spread": 0.0})
    engine = begun(traced((0, LONG), (0, LONG), kinds=(LONG,), cluster=cluster, max_segments=2))
    decide(engine, single(LONG, 0, 2))
    seen, loads = engine.observe().domains[0], engine.state.loads[0, 0, 0]
    assert seen[0, :4] == pytest.approx([loads[st.BUSY]] * 2 + [0.0] * 2, rel=1e-6)
    assert seen[0, column("cpu_utilisation")] == pytest.approx(loads[st.HOST] * 2 / 4, rel=1e-6)
    assert seen[0, column("memory_bandwidth_0")] == pytest.approx(loads[st.HOST + 2], rel=1e-6)
    assert seen[0, column("pcie_bandwidth_1")] == pytest.approx(loads[st.HOST + 3], rel=1e-6)
    device = cluster.domains[0].gpu
    watts = 4 * device.idle_w + 2 * loads[st.DYNAMIC_W]
    assert seen[0, column("total_power")] == pytest.approx(watts / (4 * device.tdp_w), rel=1e-6)
    assert seen[1, column("total_power")] == pytest.approx(device.idle_w / device.tdp_w, rel=1e-6)
    assert seen[:, column("queue_length")].tolist() == pytest.approx([0.25, 0.25])
    assert seen[0, column("power_budget")] == pytest.approx(1000.0 / (4 * device.tdp_w), rel=1e-6)


def test_links_task_event_and_plan_by_hand():
    engine = begun(traced((0, LONG), kinds=(LONG,), horizon_s=90_000.0))
    decide(engine, Plan((chain(LONG, (2, 6, 2), (0, -1, 1, 2)),)))
    seen = engine.observe()
    off = ~np.eye(3, dtype=bool)
    assert seen.links[0, 0][off] == pytest.approx(5.0)
    assert (seen.links[0, 1][off] >= np.float32(0.02)).all()
    assert seen.links[0, 1][2, 0] > np.float32(0.02)
    assert seen.links[0, 2][off] == pytest.approx(0.08)
    assert (seen.links[0, 2][~off] == 0).all()
    assert seen.task[0] == pytest.approx(
        [1 / 3, np.log10(LONG.model.params) / 12, np.log2(LONG.model.input_size[0]) / 16,
         np.log2(LONG.model.input_size[1]) / 16, 5 / 16], rel=1e-5,
    )  # fmt: skip
    now = engine.state.clock[0, st.NOW]
    angle = 2 * np.pi * now / 86_400.0
    expected = [0, 1, np.sin(angle), np.cos(angle), np.log10(99_000) / 8, now / 86_400.0]
    assert seen.event[0] == pytest.approx(expected, rel=1e-5)
    assert seen.plan[0].tolist() == [[2, 6, 2, 1, 1, 1], [0, len(LONG.model), 1, 2, 1, 1], [-1] * 6]


def test_a_very_long_task_stays_in_range():
    endless = replace(LONG, steps=(10**12, 10**12))
    engine = begun(traced((0, endless), kinds=(endless,)))
    assert engine.observe().event[0, EVENT_FEATURES.index("steps_left")] == 1.0


def test_with_nothing_to_decide_nothing_is_said_of_a_task():
    seen = begun(tiny_world(arrivals=Poisson(1e-9))).observe()
    for part in (seen.task, seen.event, seen.counters):
        assert not part.any()
    assert (seen.plan == -1).all()


def test_latent_demands_are_in_no_observation_but_counters_are():
    world = tiny_world(kinds=(BERT, GPT2), pool_size=8)
    engine, rng = begun(world), np.random.default_rng(0)
    latent = np.concatenate([
        engine.pool.demands.factors.ravel(), engine.pool.demands.values.ravel(), engine.pool.demands.ratio.ravel(),
        engine.arrays.pool[:, st.P_PCIE],
    ])  # fmt: skip
    latent = np.unique(latent[(latent != 1.0) & (latent != 0.0)].astype(np.float32))
    for _ in range(40):
        if engine.state.event[0, st.DONE]:
            break
        seen = engine.observe()
        for name in ("domains", "links", "task", "event", "counters"):
            assert not np.isin(getattr(seen, name), latent).any(), name
        expected = engine.pool.counters.values[int(engine.pending_pool()[0])].astype(np.float32)
        assert np.array_equal(seen.counters[0], expected)
        engine.step(random_actions(engine, rng))
