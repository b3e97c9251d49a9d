"""Small random decisions of drawn worlds, shared by the tests of the package."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from attribution_sched.rivals.seq2seq.network import NetworkSize
from research.pointer_draws import Range, at, build_view, draw_decision, draw_world
from research.pointer_training import fresh

SMALL = NetworkSize(width=16, rounds=2)


@lru_cache(maxsize=16)
def world(seed, domains=4, models=None):
    """A drawn world and its view."""
    among = Range(domains=(domains, domains), max_segments=(4,))
    if models:
        among = replace(among, models=models, large=len(models))
    drawn = draw_world(np.random.default_rng(seed), among)
    return drawn, build_view(drawn)


def moment(seed, domains=4, models=None):
    """A random decision."""
    drawn, view = world(seed % 3, domains, models)
    return at(view, draw_decision(np.random.default_rng(seed), drawn, view.bandwidth_gbps))


def small_network(seed=0):
    """An untrained network."""
    return fresh(SMALL, seed)
