"""Clusters at different hours of their episodes.

Clusters that begin together pass through the day together: every rollout then holds one hour of it only, and an update
forgets the others. Before learning, each cluster is therefore brought to an hour of its own.
"""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.engine import state as st
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.field import Field
from attribution_sched.scheduler.hi_ppo.field_state import field_arrays, keep_clusters, restore_field
from attribution_sched.scheduler.hi_ppo.walk import Chooser


def stagger(field: Field, chooser: Chooser) -> None:
    """Spread the clusters of a field evenly over the hours of an episode.

    All are played for an episode; then each goes back to the first decision after its share of the horizon, with its
    random streams as they were there, so what follows is an episode as any other.

    Args:
        field: Clusters at the beginning of their episodes.
        chooser: Who decides on the way.
    """
    state, count = field.engine.state, field.clusters
    target_s = field.engine.world.horizon_s * np.arange(count) / count
    kept = field_arrays(field)
    waiting = np.ones(count, dtype=np.bool_)
    with one_thread():
        while True:
            there = waiting & (state.clock[:, st.NOW] >= target_s)
            if there.any():
                keep_clusters(field, there, kept)
                waiting &= ~there
            if not waiting.any():
                break
            ended = field.step(chooser).ended
            if (waiting & ended).any():
                # A cluster whose last decision came before its hour stays at the beginning of its second episode.
                keep_clusters(field, waiting & ended, kept)
                waiting &= ~ended
    restore_field(field, kept)
    field.returns.clear()
