"""J2 attribution → decision, in return: the vector cut, and raw counters in its place where some cannot be read."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.attribution.vector import state_vectors
from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.config import load_settings
from attribution_sched.scheduler.beliefs import AttributionBeliefs
from attribution_sched.scheduler.hi_ppo.checkpoint import load
from attribution_sched.scheduler.hi_ppo.policy_search import Days

DAYS, FIRST = 120, 7_420_000
"""Days that nothing was tuned on, with tasks of their own."""

UNREAD = ("conv", "fc", "attention")


@pytest.fixture(scope="module")
def returns():
    """Return a day of the shipped agents by what is believed of tasks; the measured pace is told in all."""
    weights = load()
    world = replace(load_settings("testbed").build_world(), pool_seed=42)
    days = Days(world, DAYS, weights)
    pool, emshap = days.engine.pool, as_attributor(None, world)
    logs = np.log1p(pool.counters.values[:, :7])
    centre, spread = logs.mean(axis=0), np.maximum(logs.std(axis=0), 1e-6)

    def raw(counters, hidden=()):
        found = np.tanh(0.5 * (np.log1p(counters[:, :7]) - centre) / spread)
        found[:, [COUNTER_NAMES.index(name) for name in hidden]] = 0.0
        return found

    def partly(task):
        return emshap.vector(replace(task, provenance={**task.provenance, **dict.fromkeys(UNREAD, "unavailable")}))

    vector, counted = AttributionBeliefs(world, weights.attributions), AttributionBeliefs(world, raw)
    arms = {
        "vector": (vector, state_vectors(weights.attributions, DEMAND_NAMES)),
        "none": (AttributionBeliefs(world, weights.attributions, attributions=False), None),
        "unread, EmSHAP": (vector, partly),
        "unread, raw": (counted, state_vectors(lambda read: raw(read, UNREAD), DEMAND_NAMES)),
    }
    found = {}
    for name, (beliefs, attribute) in arms.items():
        seen = pool if attribute is None else pool.attributed(attribute)
        days.believe(beliefs.of([seen.task(row, world.kinds) for row in range(len(pool))]))
        found[name] = days.returns(weights.theta, FIRST)
    return found


def over(one, other):
    """Mean gain a day and half of its 95 % interval."""
    apart = one - other
    return apart.mean(), 1.96 * apart.std(ddof=1) / np.sqrt(len(apart))


def test_cutting_the_vector_costs_return_beyond_the_interval(returns, tell):
    gain, half = over(returns["vector"], returns["none"])
    tell("J2", preset="testbed", days=DAYS, vector_over_none=gain, half=half)
    assert gain - half > 0.0


def test_where_operators_cannot_be_read_emshap_is_worth_more_than_raw_counters_and_than_none(returns, tell):
    for other in ("unread, raw", "none"):
        gain, half = over(returns["unread, EmSHAP"], returns[other])
        tell("J2", preset="testbed", days=DAYS, unread=1, over=other, gain=gain, half=half)
        assert gain - half > 0.0, other
