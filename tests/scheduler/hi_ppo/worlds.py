"""Tiny worlds, weights and random choosers for the laws of Hi-PPO's core."""

from dataclasses import replace

import numpy as np

from attribution_sched.cluster.decision import Decisions, gather
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.models import model
from attribution_sched.cluster.plan import DOMAIN, DP, MICROBATCH, PP, PRECISION, STOP, TP
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Runtime, TaskKind
from attribution_sched.scheduler.hi_ppo.action_masks import DONE
from attribution_sched.scheduler.hi_ppo.decode import Planner
from attribution_sched.scheduler.training import untrained

from ...cluster.engine_worlds import BERT, GPT2, SERVE, tiny_cluster, tiny_world
from ..states import GIANT, small_worlds

TALL = TaskKind(model("gpt3-2.7b"), 16, (1, 2, 4, 8), (20, 60), 20)
"""Weights and states of 42 GB: three or more cards of 16 GB."""

ASKED = TaskKind(model("opt-13b"), 16, (1, 2, 4, 8), (40, 90), 40, training=False)
"""26 GB of weights in 16 bits, 13 GB in 8: served on one card or several."""

MOVING = {"spread": 0.2, "congestion": 0.2}


def old_cards(domains=4, devices=4):
    """Domains of small cards, in which one card holds little."""
    names = tuple(f"v{k}" for k in range(domains))
    wan = Wan.uniform(names, gbps=6.0, latency_s=0.02, usd_per_gb=0.05, **MOVING)
    return Cluster(tuple(Domain(name, gpu("V100-16"), devices, node_devices=2) for name in names), wan, Runtime())


def worlds():
    """Homogeneous and mixed GPUs, tight memory, inference, two to eight domains, incidents, power budgets."""
    return small_worlds() | {
        "pair": tiny_world(tiny_cluster(2, 4, motion=MOVING)),
        "many": tiny_world(tiny_cluster(8, 2, motion=MOVING), (BERT, GPT2, GIANT), max_segments=4),
        "tight": tiny_world(old_cards(), (TALL, GPT2), max_segments=4),
        "served": tiny_world(old_cards(3), (ASKED, SERVE), max_segments=3),
    }


def weights(theta=None):
    """Weights that decide as the rule does, or by other numbers."""
    made = untrained()
    return made if theta is None else made.with_agents(theta)


class Anything:
    """Chooses at random among what is allowed."""

    def __init__(self, seed=0, must_act=False):
        self.rng, self.must_act = np.random.default_rng(seed), must_act

    def _one(self, mask):
        return np.where(mask, self.rng.random(mask.shape), -1.0).argmax(axis=1)

    def task(self, state):
        """Any candidate, or nothing where that may be."""
        mask = state.mask.copy()
        if self.must_act:
            mask[:, -1] &= ~mask[:, :-1].any(axis=1)
        return self._one(mask)

    def choose(self, head, offer, drafts, rows):
        """Any choice that is offered."""
        return self._one(offer.mask)


def chooser(seed=0, must_act=False):
    """Who chooses at random."""
    return Anything(seed, must_act)


def attributor(counters):
    """Any bounded function of the counters."""
    return np.tanh(np.log1p(np.abs(counters[:, :7])) / 10.0 - 1.0)


def begun(world, clusters=1, seed=0):
    """An engine at the first decisions of its episodes."""
    engine = Engine(world, clusters)
    engine.seed([seed + e for e in range(clusters)])
    engine.reset()
    return engine


def planner_of(engine):
    kinds = engine.arrays.kinds
    base_step_s, base_cost = kinds[:, st.K_BASE_STEP].copy(), kinds[:, st.K_BASE_COST].copy()
    return Planner.of(engine.cost, engine.world.kinds, base_step_s, base_cost, engine.world.max_segments)


def pending(engine):
    """Clusters with a decision pending."""
    return np.flatnonzero(engine.state.event[:, st.EVENT] != st.NO_EVENT)


def gathered(engine, rows=None):
    """Pending decisions with attributions of :func:`attributor`."""
    rows = pending(engine) if rows is None else rows
    return gather(engine, rows, attributor(engine.pool.counters.values).astype(np.float32))


def engine_actions(t, drafts, segments, layout_rows):
    """Engine actions ``(R, P, 5)`` of all drafts; one that is not finished ends at once.

    Args:
        t: Tables.
        drafts: The drafts.
        segments: Their segments in order, shape ``(R, P, 11)``.
        layout_rows: Row of every layout in the engine's table, shape ``(L,)``.
    """
    actions = np.zeros((len(drafts.kind), t.max_segments, 5), dtype=np.int64)
    used = (np.arange(t.max_segments) < drafts.written[:, None]) & (drafts.status == DONE)[:, None]
    actions[:, :, 0] = np.where(used, segments[:, :, DOMAIN], drafts.free.shape[1])
    at = np.nonzero(used)
    rows = segments[at]
    layout = (rows[:, None, [DP, TP, PP]] == t.layouts).all(axis=2).argmax(axis=1)
    level = (t.micro[drafts.kind[at[0]]] == rows[:, MICROBATCH, None]).argmax(axis=1)
    actions[at[0], at[1], 1:] = np.column_stack([rows[:, STOP], layout_rows[layout], rows[:, PRECISION], level])
    return actions


def still(cluster):
    """The same cluster over links that do not move."""
    return replace(cluster, wan=replace(cluster.wan, spread=0.0, congestion=0.0))


def lone_decision(planner, links, free):
    """One task of the first kind to place in an empty cluster, its links and free devices given."""
    k = len(free)
    return Decisions(
        replanning=np.zeros(1, dtype=bool), free=free[None], links=links[None],
        domains=np.zeros((1, k, 20), dtype=np.float32), event=np.zeros((1, 6), dtype=np.float32),
        held=np.zeros((1, k), dtype=bool), holding=np.zeros(1, dtype=np.int64), step_s=np.zeros(1),
        weights=np.ones((1, 3)), waiting=np.ones(1, dtype=np.int64), kind=np.zeros((1, 1), dtype=np.int64),
        slot=np.zeros((1, 1), dtype=np.int64), left=np.full((1, 1), 100.0), waited_s=np.zeros((1, 1)),
        attribution=np.zeros((1, 1, 7), dtype=np.float32), carbon=np.zeros((1, 0)),
        electricity=np.zeros((1, 0)),
    )  # fmt: skip
