"""Rules: every one adds up to the meter, and each is what its table says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.billing.rules import RULES, Sharing, hour_prices
from attribution_sched.errors import SettingsError
from tests.billing.usages import random_usage

QUANTITIES = ("energy", "electricity", "carbon", "device time")


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 5000), st.sampled_from(RULES), st.sampled_from(QUANTITIES))
def test_shares_and_rest_add_up_to_the_meter(seed, rule, what):
    usage = random_usage(seed)
    sharing = Sharing(usage, "tenant")
    found = sharing.allocate(rule, what)
    meter = {
        "energy": usage.meter_j,
        "device time": float(usage.devices.sum()) * usage.hours,
    }.get(what, sharing.metered(what).total)
    booked = found.own.sum() + found.shared.sum() + found.unallocated
    assert abs(booked - meter) <= 1e-9 * max(1.0, meter)
    assert found.unallocated >= -1e-6 * max(1.0, meter)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2000), st.sampled_from(("shapley", "reservation", "usage", "cpu-time")))
def test_who_used_nothing_pays_nothing(seed, rule):
    usage = random_usage(seed, tasks=8, tenants=8)
    sharing = Sharing(usage, "tenant")
    idle = sharing.held_s.sum(axis=1) == 0
    found = sharing.allocate(rule, "energy")
    assert np.allclose((found.own + found.shared)[idle], 0.0)


def test_shapley_charges_the_peak_and_not_the_hours():
    """Two tenants hold the same device-hours; one of them at the common peak."""
    usage = random_usage(1, tasks=0, domains=1, intervals=4)
    from dataclasses import replace

    from attribution_sched.billing.usage import TaskUse

    lengths = np.diff(usage.edges_s)
    usage = replace(usage, edges_s=np.array([0.0, 100.0, 200.0, 300.0, 400.0]), devices=np.array([10]))
    rows = [(0, 0), (1, 0), (2, 1), (3, 1), (0, 2), (1, 2)]
    at = np.array([row[0] for row in rows])
    who = np.array([row[1] for row in rows])
    held = np.full(len(rows), 4.0)
    static = held * 100.0 * 50.0
    idle = np.array([[10.0 - held[at == t].sum()] for t in range(4)]) * 100.0 * 50.0
    usage = replace(
        usage,
        tasks=(TaskUse("a", "peak", "m", 0.0), TaskUse("b", "valley", "m", 0.0), TaskUse("c", "peaky-2", "m", 0.0)),
        span_interval=at, span_task=who, span_domain=np.zeros(6, dtype=np.int64), span_devices=held,
        span_busy_s=held * 100.0, span_dynamic_j=np.zeros(6), span_static_j=static, idle_j=idle,
        carbon_g_per_j=np.zeros((4, 1)), electricity_usd_per_j=np.zeros((4, 1)), meter_egress_usd=0.0,
        meter_j=float(static.sum() + idle.sum()),
    )  # fmt: skip
    assert len(lengths) == 4
    sharing = Sharing(usage, "tenant")
    by_name = dict(zip(sharing.names, sharing.allocate("shapley", "energy").shared, strict=True))
    assert by_name["valley"] < by_name["peak"] == pytest.approx(by_name["peaky-2"])
    even = dict(zip(sharing.names, sharing.allocate("reservation", "energy").shared, strict=True))
    assert even["valley"] == pytest.approx(even["peak"])
    # Two devices were never needed: nobody answers for them.
    assert sharing.allocate("shapley", "energy").unallocated == pytest.approx(2 * 400.0 * 50.0)


def test_an_unknown_rule_names_the_known():
    with pytest.raises(SettingsError, match="Did you mean 'usage'"):
        Sharing(random_usage(0), "tenant").allocate("usages", "energy")


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 500))
def test_a_day_at_the_listed_prices_pays_for_the_days_capacity(seed):
    """Σ over hours of price × demand is what the peak costs for a day."""
    usage = random_usage(seed, tasks=20, intervals=30)
    prices = hour_prices(usage, 2.0)
    at = (usage.edges_s[:-1] // 3600 % 24).astype(int)
    held = usage.held(np.zeros(len(usage.tasks), dtype=np.int64), 1)[0]
    for domain in range(2):
        spent = np.bincount(at, usage.lengths_s, 24)
        demand = np.bincount(at, held[domain] * usage.lengths_s, 24) / np.maximum(spent, 1e-300)
        assert np.isclose((prices[domain] * demand).sum(), 24 * 2.0 * demand.max())


def test_a_negative_price_is_refused():
    with pytest.raises(SettingsError, match="device_h_usd = -1"):
        hour_prices(random_usage(0), -1.0)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2000), st.sampled_from(("shapley", "reservation", "usage", "cpu-time", "max-request-use")))
def test_of_what_idle_devices_drew_nobody_pays_more_than_there_was(seed, rule):
    """The share of idle energy is part of what is shared, payer by payer; what nobody's peak needed nobody pays."""
    sharing = Sharing(random_usage(seed), "tenant")
    found = sharing.allocate(rule, "energy")
    idle = float(sharing.metered("energy").idle.sum())
    assert (found.idle >= -1e-9 * max(1.0, idle)).all()
    assert (found.idle <= found.shared + 1e-6 * max(1.0, idle)).all()
    assert found.idle.sum() <= idle * (1.0 + 1e-9) + 1e-9
    if rule not in ("max-request-use", "shapley") and found.idle.any():
        assert found.idle.sum() == pytest.approx(idle)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2000))
def test_who_pays_for_its_largest_request_pays_for_as_much_of_the_idle_energy(seed):
    sharing = Sharing(random_usage(seed, domains=1), "tenant")
    found, metered = sharing.allocate("max-request-use", "energy"), sharing.metered("energy")
    assert found.idle * metered.total == pytest.approx(found.shared * float(metered.idle.sum()), rel=1e-9)
    assert metered.idle.sum() == 0.0 or found.idle.sum() > 0.0
