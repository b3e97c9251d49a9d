"""Placement of parts of GPUs: fragmentation by hand, what policies do on two nodes, and how a trace is inflated."""

import numpy as np
import pytest

from research.fragmentation import POLICIES, Nodes, Requests, fragmentation, inflated, place, typical

SHAPES = np.array([[4000, 1, 500, 0], [2000, 2, 1000, 0], [1000, 0, 0, 0]])
WEIGHTS = np.array([0.5, 0.3, 0.2])


def devices(*free):
    return np.array([*free, *[-1] * (8 - len(free))])


def test_fragmentation_is_what_typical_requests_cannot_use():
    # 1,300 are free. A half fits one device, so 300 are too little; two whole ones do not fit; CPU alone uses none.
    assert fragmentation(8000.0, devices(1000, 300), 0, SHAPES, WEIGHTS) == pytest.approx(
        0.5 * 300 + 0.3 * 1300 + 0.2 * 1300
    )
    # Without the CPU of the first request all of it is lost to it.
    assert fragmentation(3999.0, devices(1000, 300), 0, SHAPES, WEIGHTS) == pytest.approx(1300)
    assert fragmentation(8000.0, devices(0, 0), 0, SHAPES, WEIGHTS) == 0.0
    picky = np.array([[4000, 1, 500, 0b10]])
    one = np.ones(1)
    assert fragmentation(8000.0, devices(1000), 0, picky, one) == 1000.0
    assert fragmentation(8000.0, devices(1000), 1, picky, one) == 0.0


def put(policy, wants, gpu, cpu=(64_000.0, 64_000.0), settings=(1.0, 5.0), shapes=SHAPES, weights=WEIGHTS):
    gpu, cpu = np.array(gpu), np.array(cpu)
    memory, model = np.full(len(cpu), 1e6), np.zeros(len(cpu), dtype=np.int64)
    wants = np.array(wants, dtype=np.int64)
    rng = np.random.default_rng(0)
    where = place(cpu, memory, gpu, model, wants, shapes, weights, POLICIES[policy], np.array(settings), rng, False)
    return where.tolist(), gpu, cpu


@pytest.mark.parametrize("policy", ["fgd", "ours"])
def test_a_part_goes_where_a_part_is_already(policy):
    where, gpu, _ = put(policy, [[1000, 100, 1, 500, 0]], [devices(1000, 1000), devices(500, 0)])
    assert where == [1]
    assert gpu[1, 0] == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_given_twice_and_who_does_not_fit_is_turned_away(policy):
    wants = [[1000, 100, 1, 600, 0]] * 4 + [[1000, 100, 2, 1000, 0]] * 3 + [[99_000, 1, 0, 0, 0]]
    where, gpu, cpu = put(policy, wants, [devices(1000, 1000), devices(1000, 1000)])
    placed = [want for want, node in zip(wants, where, strict=True) if node >= 0]
    assert gpu[gpu >= 0].sum() == 4000 - sum(want[2] * want[3] for want in placed)
    assert gpu.min() == -1 and (gpu[:, :2] >= 0).all() and (gpu[:, 2:] == -1).all()
    assert cpu.sum() == 128_000 - sum(want[0] for want in placed)
    assert where[-1] == -1


def test_ours_keeps_cpu_with_the_gpus_that_will_need_it():
    """Both nodes leave the same fragmentation; one has CPU to spare, the other would strand its devices."""
    shapes, weights = np.array([[8000, 1, 1000, 0]]), np.ones(1)
    wants = [[30_000, 100, 0, 0, 0]]
    gpu, cpu = [devices(1000, 1000, 1000, 1000)] * 2, (62_000.0, 128_000.0)
    assert put("ours", wants, gpu, cpu, (1.0, 0.0), shapes, weights)[0] == [0]
    cpu = (60_000.0, 128_000.0)
    # Thirty of sixty thousand would leave CPU for three devices of four.
    assert put("ours", wants, gpu, cpu, (1.0, 0.0), shapes, weights)[0] == [1]
    assert put("fgd", wants, gpu, cpu, shapes=shapes, weights=weights)[0] == [0]


def test_typical_requests_are_the_commonest():
    five = np.array([1, 1, 1, 2, 3])
    shapes, weights = typical(Requests(five, five, five, five, five), share=0.7)
    assert shapes.tolist() == [[1, 1, 1, 1], [2, 2, 2, 2]]
    assert weights.tolist() == [0.75, 0.25]


def test_an_inflated_trace_has_all_requests_first_and_asks_for_the_ratio():
    rng = np.random.default_rng(1)
    n = 50
    requests = Requests(np.arange(n), np.ones(n), np.ones(n, dtype=int), rng.integers(100, 900, n), np.zeros(n))
    nodes = Nodes(np.ones(1), np.ones(1), np.full((40, 8), -1), np.zeros(1))
    assert nodes.capacity == 0
    stream = inflated(requests, 40_000, 1.3, rng)
    assert sorted(stream.cpu[:n].tolist()) == list(range(n))
    assert 52_000 - 900 < stream.demand.sum() <= 52_000
