"""Models written down as layers, and models with adapters."""

import numpy as np
import pytest

from attribution_sched.cluster.arrivals import Poisson
from attribution_sched.cluster.compute import PARAMS_SHARDED, build_tables
from attribution_sched.cluster.cost import moved_bytes
from attribution_sched.cluster.engine.engine import Engine, migration
from attribution_sched.cluster.gpus import Precision, gpu
from attribution_sched.cluster.models import model
from attribution_sched.cluster.models.declared import LayerFigures, declared_model, with_adapters
from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Runtime, TaskKind, World
from attribution_sched.errors import TaskError


def test_layers_add_up_or_are_refused():
    parts = [LayerFigures(1, 0.0, 1e6, 1e5, kind="embedding"), LayerFigures(10, 2e9, 5e6, 1e5)]
    chain = declared_model("own", parts, total_params=51e6)
    assert (len(chain), chain.params, chain.forward_flops) == (11, 51e6, 2e10)
    with pytest.raises(TaskError, match=r"add up to 5.1e\+07"):
        declared_model("own", parts, total_params=60e6)


def test_adapters_train_few_weights_and_remember_all():
    base = model("llama-2-7b@2048")
    tuned = with_adapters(base, 16)
    added = tuned.params - base.params
    # Peft's count at rank 16 on every linear product of LLaMA-2 7B is 40.0e6.
    assert added == pytest.approx(40.0e6, rel=0.35)
    times = {
        name: build_tables([chain], [gpu("A100-80")], Runtime(zero_stage=0))
        for name, chain in (("full", base), ("lora", tuned))
    }
    half = Precision.FP16.index
    full, lora = (times[name].times_s[0, 0, half, 0] for name in ("full", "lora"))
    assert lora[4, -1] / lora[0, -1] == pytest.approx(1.0, abs=0.05)  # no gradients of frozen weights
    assert full[4, -1] / full[0, -1] == pytest.approx(2.0)
    states = {name: tables.sizes[0, PARAMS_SHARDED, -1] for name, tables in times.items()}
    assert states["lora"] < 0.2 * states["full"]
    assert lora[2, -1] >= full[2, -1]  # all weights are still read
    with pytest.raises(TaskError, match="lora_rank"):
        with_adapters(base, 0)


def test_frozen_weights_take_two_of_sixteen_bytes_wherever_states_are_counted():
    """A 70B model under adapters was refused on eight H100, and its moves were priced as if all of it were trained."""
    here, there = Domain("here", gpu("H100-80"), 8, 8), Domain("there", gpu("H100-80"), 8, 8)
    cluster = Cluster(
        (here, there), Wan.uniform(("here", "there"), gbps=10.0, latency_s=0.01, usd_per_gb=0.0), Runtime()
    )
    base = model("llama-2-70b")
    full, tuned = (TaskKind(each, 32, (4, 8, 16, 32), (10, 50), 50) for each in (base, with_adapters(base, 16)))
    with pytest.raises(TaskError, match="larger than the cluster"):
        World(cluster, (full,), Poisson(1.0), max_segments=1)
    world = World(cluster, (tuned,), Poisson(1.0), max_segments=1)
    old, new = (
        Plan((Replica((Segment(at, 0, len(base), 8, 1, 1, Precision.FP16),), 8, 4),)) for at in range(2)
    )  # fmt: skip
    engine = Engine(world)
    moved = np.zeros((2, 2))
    rows = [PlanBatch.of([plan], 1) for plan in (old, new)]
    bandwidth = engine.world.cluster.wan.bandwidth_gbps * 1.25e8
    migration(engine.arrays, bandwidth, 0, rows[0].segments[0], 1, rows[1].segments[0], 1, moved)
    assert moved_bytes(tuned, old, new, 2) == pytest.approx(moved)
    assert moved[0, 1] < 0.15 * moved_bytes(full, old, new, 2)[0, 1]
