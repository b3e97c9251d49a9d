"""Attribution vectors: joules that add up, kept by what was measured, within bounds."""

import numpy as np
import pytest

from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.attribution.cache import AttributionCache
from attribution_sched.errors import SettingsError
from attribution_sched.types import Task
from tests.small_world import small

WORLD = small().build_world()


@pytest.fixture(scope="module")
def attributor():
    return as_attributor(None, WORLD)


def rows(count):
    return np.random.default_rng(3).uniform(0.1, 2.0, (count, 12))


def test_joules_add_up_to_what_the_energy_model_expects(attributor):
    energy = attributor.fitted.energy
    for row in rows(5):
        vector = attributor.vector(Task(counters=row, samples_per_s=3.0))
        assert vector.units == "J/sample" and len(vector.names) == 7
        expected = energy.predict(row[None, :7] / 3.0, np.array([3.0]), np.array([True]))[0]
        assert float(vector.values.sum()) + vector.base == pytest.approx(expected)
        assert vector.provenance["median_error"] == energy.median_error


def test_a_task_is_kept_with_its_pace_and_what_was_not_read(attributor):
    cache, row = AttributionCache(attributor), rows(1)[0]
    fast, slow = (cache(Task(counters=row, samples_per_s=pace)) for pace in (10.0, 1.0))
    assert float(slow.prediction) > float(fast.prediction)
    assert cache(Task(counters=row, samples_per_s=1.0, provenance={"fc": "unavailable"})).missing == ("fc",)
    assert cache.use.misses == 3


def test_a_function_gives_shares_and_says_so():
    vector = as_attributor(lambda counters: np.tanh(counters[:, :7]), WORLD).vector(np.ones(12))
    assert vector.units == "share"
    assert vector.values.tolist() == [np.tanh(1.0)] * 7


@pytest.mark.parametrize("wrong", [1.0, np.ones(7), np.ones((1, 6)), "x", None, np.full((1, 7), np.nan)])
def test_a_function_that_gives_something_else_is_refused(wrong):
    with pytest.raises(SettingsError, match=r"attributor = .*must give one finite row of 7 shares"):
        as_attributor(lambda _: wrong, WORLD).vector(np.ones(12))


def test_what_was_asked_before_is_at_hand(attributor):
    cache, given = AttributionCache(as_attributor(attributor, WORLD), most=3), rows(4)
    assert cache.use.hit_rate is None
    first = cache(given[0])
    assert cache(given[0].copy()) is first
    assert (cache.use.hits, cache.use.misses, cache.use.hit_rate) == (1, 1, 0.5)
    cache(given[1])
    cache(given[0])
    cache(given[2])
    cache(given[3])
    assert cache.use.kept == 3
    assert cache(given[0]) is first
    misses = cache.use.misses
    cache(given[1])
    assert cache.use.misses == misses + 1


def test_an_empty_cache_is_refused(attributor):
    with pytest.raises(SettingsError, match="most = 0"):
        AttributionCache(as_attributor(attributor, WORLD), most=0)
