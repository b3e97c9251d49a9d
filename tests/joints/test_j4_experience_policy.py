"""J4 experience → policy: the network against the rule it was cloned from, on the same days, without thinking time."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.config import load_settings
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, load
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkChooser
from attribution_sched.scheduler.hi_ppo.field import Field
from attribution_sched.scheduler.hi_ppo.paces import paces_of
from attribution_sched.scheduler.hi_ppo.teachers import ShortestFirst

FIRST_SEED = 1_900_000
"""Days that nothing was tuned on."""


def returns(world, network, chooser, days):
    """Return of each of some days, one cluster each."""
    field = Field(world, days, FIRST_SEED, network.attributions, paces=paces_of(network, world.kinds))
    found = np.full(days, np.nan)
    while np.isnan(found).any():
        before = len(field.returns)
        ended = np.flatnonzero(field.step(chooser).ended)
        for cluster, value in zip(ended, field.returns[before:], strict=True):
            found[cluster] = value if np.isnan(found[cluster]) else found[cluster]
    return found


def compared(tell, days, hours):
    world = replace(load_settings("cross-domain").build_world(), horizon_s=3600.0 * hours)
    network = load(SHIPPED)
    rule, own = (
        returns(world, network, ShortestFirst(), days),
        returns(world, network, NetworkChooser(network, None), days),
    )
    gain = own - rule
    error = float(gain.std(ddof=1) / np.sqrt(days))
    tell(
        "J4",
        days=days,
        hours=hours,
        network=float(own.mean()),
        rule=float(rule.mean()),
        gain=float(gain.mean()),
        error=error,
    )
    assert np.isfinite(gain).all() and rule.mean() != 0.0


def test_the_network_against_its_teacher(tell):
    compared(tell, 4, 5.0)


@pytest.mark.slow
def test_the_network_against_its_teacher_on_whole_days(tell):
    compared(tell, 32, 24.0)
