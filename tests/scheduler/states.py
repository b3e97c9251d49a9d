"""Clusters in random states, for laws that every policy must obey."""

from dataclasses import replace

import numpy as np

from attribution_sched.cluster.decision import encode, pend, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.incidents import DomainLoss, LinkCut
from attribution_sched.cluster.models import model
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Runtime, TaskKind
from attribution_sched.planning.candidates import feasible
from attribution_sched.scheduler.policy import Episodic, QueueOrder

from ..cluster.engine_worlds import BERT, GPT2, SERVE, begun, random_actions, tiny_cluster, tiny_world

GIANT = TaskKind(model("gpt3-13b"), 8, (1, 2, 4, 8), (10, 40), 10)
"""208 GB of weights and states: three or four devices of 80 GB."""


def mixed_cluster():
    """Domains that differ in GPU, size, node and precision."""
    names = ("a", "b", "c")
    wan = Wan.uniform(names, gbps=4.0, latency_s=0.03, usd_per_gb=0.05, spread=0.15)
    domains = (
        Domain("a", gpu("A100-80"), 4, node_devices=4),
        Domain("b", gpu("V100-16"), 8, node_devices=4),
        Domain("c", gpu("H100-80"), 2, node_devices=2),
    )
    return Cluster(domains, wan, Runtime())


def small_worlds():
    """Worlds of one to five domains: equal and mixed hardware, tight memory, tight power, incidents."""
    moving = {"spread": 0.2}
    troubled = (DomainLoss(1, 600.0, 1500.0), LinkCut(0, 2, 900.0, 2400.0, 0.05), DomainLoss(0, 2400.0, 3000.0))
    budget = tiny_cluster(2, 4, motion=moving, power_budget_w=900.0)
    return {
        "equal": tiny_world(tiny_cluster(motion=moving)),
        "incidents": tiny_world(tiny_cluster(motion=moving), incidents=troubled),
        "mixed": tiny_world(mixed_cluster()),
        "giant": tiny_world(tiny_cluster(4, 2, motion=moving), (BERT, GIANT), max_segments=4),
        "lone-devices": tiny_world(tiny_cluster(5, 1, motion=moving), (GIANT, GPT2, SERVE), max_segments=4),
        "power": tiny_world(budget, (BERT, SERVE)),
        "one-domain": tiny_world(tiny_cluster(1, 8, motion=moving), max_segments=1),
    }


def check_states(world, policy, states, seed):
    """Ask a policy in so many states of a world; every plan must be carried out. Returns plans seen.

    Between its decisions the policy's plans, random plans, refusals and waiting mix, so that it meets states it
    would not get itself into.
    """
    rng = np.random.default_rng(seed)
    engine = begun(world, seed)
    if isinstance(policy, Episodic):
        policy.reset(seed)
    # Random plans ask for two devices in a domain; where none has two, random nonsense stands in.
    wild = 0.1 if max(domain.devices for domain in world.cluster.domains) > 1 else 1.0
    plans = asked = 0
    while asked < states:
        if engine.state.event[0, st.DONE]:
            engine.reset()
            if isinstance(policy, Episodic):
                policy.reset(seed)
            continue
        asked += 1
        seen = view(engine)
        if not seen.replanning and len(seen.queue) > 1 and isinstance(policy, QueueOrder):
            pend(engine, policy.select(seen))
            seen = view(engine)
        plan = policy.decide(seen)
        rows = encode(engine, plan, seen.kind_index)
        if plan is not None:
            code = int(engine.probe(0, rows[None])["code"][0])
            reason = feasible(seen, plan)
            assert code >= 0, f"{policy.name}: {st.CODES[code]} ({reason}): {plan}"
            assert reason is None, f"{policy.name}: {reason}: {plan}"
            plans += 1
        engine.step(rows[None] if rng.random() < 0.5 else random_actions(engine, rng, wild))
    return plans


def with_links(seen, bandwidth_gbps):
    """The same decision over other links."""
    return replace(seen, bandwidth_gbps=np.asarray(bandwidth_gbps, dtype=float))
