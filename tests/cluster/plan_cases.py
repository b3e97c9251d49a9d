"""A small cluster of four GPU types and random well-formed plans for it, shared by the cost tests."""

import math
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.gpus import PRECISIONS, Precision, gpu
from attribution_sched.cluster.models import model
from attribution_sched.cluster.pipeline import Schedule
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Runtime

CARDS = ("A100-80", "H100-80", "V100-32", "A100-40")
NAMES = ("east", "west", "north", "south")
DEVICES = 64


def network() -> Wan:
    """Links that differ by direction, so that a mistaken order shows."""
    rng = np.random.default_rng(7)
    gbps, latency, price = rng.uniform(1, 10, (4, 4)), rng.uniform(0.01, 0.1, (4, 4)), rng.uniform(0.01, 0.1, (4, 4))
    inside = np.eye(4, dtype=bool)
    return Wan(
        NAMES,
        bandwidth_gbps=np.where(inside, 100.0, gbps),
        latency_s=np.where(inside, 1e-4, latency),
        price_usd_per_gb=np.where(inside, 0.0, price),
    )


def cluster(runtime: Runtime | None = None) -> Cluster:
    domains = tuple(
        Domain(name, gpu(card), DEVICES, carbon_g_per_kwh=100.0 * (i + 1))
        for i, (name, card) in enumerate(zip(NAMES, CARDS, strict=True))
    )
    return Cluster(domains, network(), runtime or Runtime())


def cost_model(name: str = "gpt2-medium", *, training: bool = True, **runtime: object) -> CostModel:
    return CostModel(cluster(Runtime(**runtime)), [model(name)], [training])  # type: ignore[arg-type]


@st.composite
def plans(draw, layers: int, *, precisions: tuple[Precision, ...] = PRECISIONS[:3]):
    """Cut, replicated and mixed plans with any layout; a precision the card lacks becomes fp16."""
    order = draw(st.permutations(range(len(CARDS))))
    shape = draw(st.sampled_from([(1,), (2,), (3,), (4,), (1, 1), (2, 1), (1, 1, 1), (2, 2), (1, 1, 1, 1)]))
    replicas = []
    for segments in shape:
        cuts = draw(st.lists(st.integers(1, layers - 1), min_size=segments - 1, max_size=segments - 1, unique=True))
        edges = [0, *sorted(cuts), layers]
        chain = []
        for first, stop in pairwise(edges):
            domain = order.pop()
            precision = draw(st.sampled_from(precisions))
            if not gpu(CARDS[domain]).supports(precision):
                precision = Precision.FP16
            dp, tp = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 4, 8]))
            pp = draw(st.integers(1, min(2, stop - first)))
            chain.append(Segment(domain, first, stop, dp, tp, pp, precision))
        microbatch = math.lcm(*(segment.dp for segment in chain)) * draw(st.integers(1, 2))
        replicas.append(Replica(tuple(chain), microbatch, draw(st.integers(1, 8))))
    return Plan(tuple(replicas), draw(st.sampled_from(list(Schedule))))
