"""How much longer than a nominal task of its kind a task will compute, as its attributions tell.

The head of demands (:mod:`~attribution_sched.scheduler.hi_ppo.demand_head`) says what a task's attributions mean for
its demands, and demands say how long it computes. Of that factor the logarithm is nearly linear in the attributions
before their bounding tanh, so a plane is laid through what the head says of simulated tasks, once for every kind: a
decision about hundreds of tasks, or an explanation that asks about thousands of situations, then costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.counters import counters
from attribution_sched.cluster.decision import ATTRIBUTIONS, Attributor
from attribution_sched.cluster.demands import draw_demands
from attribution_sched.cluster.world import TaskKind
from attribution_sched.scheduler.hi_ppo.demand_head import DemandHead, DemandReader, NominalTask, unbounded
from attribution_sched.scheduler.hi_ppo.features import PACE
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork

FloatArray = NDArray[np.float64]

DRAWS = 256
"""Simulated tasks the plane is laid through."""


def read_paces(head: DemandHead, kinds: Sequence[TaskKind], attributor: Attributor) -> FloatArray:
    """Lay the planes of some kinds of tasks, shape ``(n_kinds, PACE)``; zeros, a pace of 1, if the head says nothing.

    Args:
        head: Who says what attributions mean.
        kinds: Kinds of tasks.
        attributor: Who makes attributions of counters.
    """
    return np.array([_plane(head, kind, attributor) for kind in kinds]).reshape(len(kinds), PACE)


def paces_of(network: HiPpoNetwork, kinds: Sequence[TaskKind]) -> FloatArray:
    """The planes of some kinds of tasks as a network reads them, shape ``(n_kinds, PACE)``."""
    return read_paces(network.demands, kinds, network.attributions)


def _plane(head: DemandHead, kind: TaskKind, attributor: Attributor) -> FloatArray:
    plane = np.zeros(PACE)
    if not head.fitted:
        return plane
    rng = np.random.default_rng(0)
    demands = draw_demands([kind.model] * DRAWS, rng, training=kind.training)
    attributions = np.asarray(attributor(counters(demands, rng).values), dtype=np.float64)
    reader = DemandReader.of(head, NominalTask.of(kind, attributor))
    ratio = reader.ratios(attributions, attributions, np.arange(DRAWS))
    apart = unbounded(attributions) - reader.task.attribution
    told = np.log(reader.task.factors(ratio)[:, 0])
    found, *_ = np.linalg.lstsq(np.column_stack([apart, np.ones(DRAWS)]), told, rcond=None)
    plane[:ATTRIBUTIONS] = reader.task.attribution
    plane[ATTRIBUTIONS:] = found
    return plane
