"""Tiny worlds and random actions for the tests of the batched engine and its environments."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from attribution_sched.cluster.arrivals import ArrivalRow, Poisson, TraceArrivals
from attribution_sched.cluster.decision import encode
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.gpus import Precision, gpu
from attribution_sched.cluster.models import model
from attribution_sched.cluster.plan import ANYBODY, Plan, Replica, Segment
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Runtime, TaskKind, World

BERT = TaskKind(model("bert-base"), 32, (4, 8, 16, 32), (400, 1200), 500)
GPT2 = TaskKind(model("gpt2-small"), 32, (2, 4, 8, 16), (200, 600), 300, priority=1)
SERVE = TaskKind(model("resnet-50"), 64, (8, 16, 32, 64), (500, 1500), 2000, training=False)

FP16 = Precision.FP16


def tiny_cluster(domains=3, devices=4, motion=None, **figures):
    names = tuple(f"d{k}" for k in range(domains))
    wan = Wan.uniform(names, gbps=5.0, latency_s=0.02, usd_per_gb=0.08, **(motion or {}))
    given = {"node_devices": 2, "carbon_g_per_kwh": 200.0, **figures}
    return Cluster(tuple(Domain(name, gpu("A100-80"), devices, **given) for name in names), wan, Runtime())


def restless(**figures):
    return tiny_cluster(motion={"spread": 0.2, "congestion": 0.3}, **figures)


def tiny_world(cluster=None, kinds=(BERT, GPT2, SERVE), arrivals=None, **changes):
    chosen = {"horizon_s": 3600.0, "pool_size": 32, "max_running": 6, "queue_capacity": 4, "max_segments": 3}
    return World(cluster or tiny_cluster(), kinds, arrivals or Poisson(60.0), **(chosen | changes))


def traced(*tasks, **changes):
    """A world in which tasks of ``(arrival_s, kind)`` arrive; nominal tasks unless told otherwise."""
    rows = [
        ArrivalRow(float(at), k.model.name, k.steps[0], k.batch_size, k.priority, k.tenant,
                   "training" if k.training else "inference")
        for at, k in tasks
    ]  # fmt: skip
    still = tiny_cluster(motion={"spread": 0.0})
    return tiny_world(**({"cluster": still, "arrivals": TraceArrivals(tuple(rows)), "idiosyncrasy": 0.0} | changes))


def testbed_world(**changes):
    cluster = changes.pop("cluster", None) or tiny_cluster(1, node_devices=4, motion={"spread": 0.0})
    return tiny_world(cluster, **({"max_segments": 1, "max_running": 8} | changes))


testbed_world.__test__ = False


def begun(world, seed=0, clusters=1):
    engine = Engine(world, clusters)
    engine.seed([seed + e for e in range(clusters)])
    engine.reset()
    return engine


def chain(kind, *parts, micro=None):
    """One replica: parts are ``(domain, layers)`` or ``(domain, layers, dp, tp, pp)``; −1 layers is the rest."""
    segments, at = [], 0
    for domain, layers, *layout in parts:
        stop = len(kind.model) if layers < 0 else at + layers
        segments.append(Segment(domain, at, stop, *layout, precision=FP16))
        at = stop
    micro = micro or kind.microbatches[-1]
    return Replica(tuple(segments), micro, kind.batch_size // micro)


def single(kind, domain=0, *layout, micro=None):
    return Plan((chain(kind, (domain, -1, *layout), micro=micro),))


def pending_kind(engine, e=0):
    return engine.world.kinds[int(engine.pending_kind()[e])]


def act(engine, plan, share=False, e=0):
    """Rows of one plan for cluster ``e``."""
    told = replace(plan, beside=ANYBODY) if share and plan is not None else plan
    return encode(engine, told, int(engine.pending_kind()[e]))


def decide(engine, plan, share=False):
    """Carry a plan out in a batch of one; returns rewards and terms."""
    return engine.step(act(engine, plan, share)[None])


def random_plan(rng, world, kind):
    """A well-formed plan of any shape; whether it fits is for the cluster to say."""
    k, n = len(world.cluster), len(kind.model)
    shapes = [s for s in ((1,), (2,), (1, 1), (3,), (2, 1)) if sum(s) <= min(k, world.max_segments)]
    order, replicas = [int(d) for d in rng.permutation(k)], []
    for count in shapes[rng.integers(len(shapes))]:
        micro = kind.microbatches[rng.integers(4)]
        cuts = sorted(int(c) for c in rng.choice(np.arange(1, n), size=count - 1, replace=False))
        segments = []
        for a, z in pairwise([0, *cuts, n]):
            layout = (1, 1, 1) if rng.random() < 0.6 else ((2, 1, 1), (1, 2, 1), (1, 1, 2))[rng.integers(3)]
            segments.append(Segment(order.pop(), a, z, *layout, precision=FP16))
        replicas.append(Replica(tuple(segments), micro, 1))
    return Plan(tuple(replicas))


def random_actions(engine, rng, wild=0.1):
    """Any plan at all for every cluster: sharing devices or not, now and then nonsense or nothing."""
    world = engine.world
    rows = np.empty((engine.clusters, world.max_segments, 5), dtype=np.int64)
    for e in range(engine.clusters):
        draw = rng.random()
        if draw < wild:
            rows[e] = rng.integers(0, engine.choices, size=rows[e].shape)
        elif draw < 0.25 or engine.state.event[e, st.EVENT] == st.NO_EVENT:
            rows[e] = encode(engine, None, 0)
        else:
            kind = int(engine.pending_kind()[e])
            share = world.share_limit > 1 and rng.random() < 0.5
            plan = random_plan(rng, world, world.kinds[kind])
            rows[e] = encode(engine, replace(plan, beside=ANYBODY) if share else plan, kind)
    return rows


def rollout(engine, seed, decisions=60):
    """Play random actions; yields rewards and terms of every decision."""
    rng = np.random.default_rng(seed)
    engine.seed([seed])
    engine.reset()
    for _ in range(decisions):
        if engine.state.event[0, st.DONE]:
            break
        yield engine.step(random_actions(engine, rng))


def snapshot(engine):
    """A copy of everything that changes."""
    return [array.copy() for array in engine.state]


def same(before, after):
    return all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
