"""The bill: lines, what a payer may see, prices, comparison of rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.billing.bill import BY, NOBODY, OTHERS, Tariff, compare_rules, make_bill
from attribution_sched.billing.games import from_table
from attribution_sched.billing.rules import RULES
from attribution_sched.errors import JournalError, SettingsError
from tests.billing.usages import random_usage


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 3000), st.sampled_from(BY), st.sampled_from(RULES))
def test_lines_and_rest_are_the_meter(seed, by, rule):
    usage = random_usage(seed)
    bill = make_bill(usage, by, rule)
    assert bill.gap() <= 1e-9
    assert bill.meter["energy"] + bill.meter["idle"] == pytest.approx(usage.meter_j, rel=1e-12)
    assert bill.meter["idle"] == pytest.approx(usage.idle_j.sum(), rel=1e-12)
    assert bill.meter["egress"] == usage.meter_egress_usd


def test_an_edited_usage_is_refused():
    usage = random_usage(0)
    with pytest.raises(JournalError, match="meter_j"):
        replace(usage, meter_j=usage.meter_j * 1.001)
    with pytest.raises(JournalError, match="meter_egress_usd"):
        replace(usage, meter_egress_usd=usage.meter_egress_usd + 1.0)


def test_a_payer_sees_others_only_in_sum():
    bill = make_bill(random_usage(5), "tenant")
    own = bill.seen_by("tenant-1")
    assert set(own.payers) == {"tenant-1", OTHERS}
    assert own.gap() <= 1e-9 and own.core == {}
    assert own.amount("tenant-1", "energy") == bill.amount("tenant-1", "energy")
    with pytest.raises(SettingsError, match="tenant-9"):
        bill.seen_by("tenant-9")


def test_prices_turn_quantities_into_dollars():
    usage = random_usage(2)
    bill = make_bill(usage, prices=Tariff(carbon_usd_per_kg=0.1, device_usd_per_h=2.0))
    carbon = next(line for line in bill.lines if line.part == "carbon")
    assert carbon.usd == pytest.approx(carbon.quantity / 1e3 * 0.1)
    energy = next(line for line in bill.lines if line.part == "energy")
    assert energy.usd is None
    with pytest.raises(SettingsError, match="carbon_usd_per_kg = -1"):
        Tariff(carbon_usd_per_kg=-1.0)


def test_congestion_has_a_sum_of_its_own():
    usage = random_usage(2, tenants=3)
    shares = from_table(np.array([0.0, 1.0, 1.0, 4.0, 2.0, 5.0, 5.0, 9.0]))
    bill = make_bill(usage, prices=Tariff(congestion_usd_per_h=3.0), congestion=shares)
    assert bill.meter["congestion"] == 9.0
    assert sum(bill.amount(payer, "congestion") for payer in bill.payers) == pytest.approx(9.0)


def test_rules_stand_side_by_side():
    usage = random_usage(4)
    table = compare_rules(usage)
    assert list(table.columns[: len(RULES)]) == list(RULES)
    assert np.allclose(table[list(RULES)].sum(), usage.meter_j)
    assert table.index[-1] == NOBODY


def test_rules_as_one_payer_may_see_them():
    usage = random_usage(4)
    whole, own = compare_rules(usage), compare_rules(usage, payer="tenant-1")
    assert list(own.index) == ["tenant-1", OTHERS, NOBODY]
    assert np.allclose(own.loc["tenant-1"], whole.loc["tenant-1"])
    assert np.allclose(own[list(RULES)].sum(), usage.meter_j)
    # Both rows give the mean draw of a device, which says whether one's own draw more than others'.
    for table in (whole, own):
        mean_w = (table["share of hours"] * table["watts per device"]).sum()
        assert mean_w == pytest.approx((usage.meter_j - usage.idle_j.sum()) / held_s(usage))
    with pytest.raises(SettingsError, match="tenant-9"):
        compare_rules(usage, payer="tenant-9")


def held_s(usage):
    return float((usage.span_devices * usage.lengths_s[usage.span_interval]).sum())


def test_grams_of_unknown_grids_are_no_line_of_zero():
    usage = random_usage(4)
    known = make_bill(usage)
    assert "carbon" in known.meter and known.no_carbon == ()
    dark = np.array(usage.carbon_g_per_j)
    dark[:, 0] = 0.0
    partly = make_bill(replace(usage, carbon_g_per_j=dark))
    assert partly.no_carbon == usage.domains[:1] and partly.meter["carbon"] < known.meter["carbon"]
    for by in BY:
        blind = make_bill(replace(usage, carbon_g_per_j=np.zeros_like(dark)), by)
        assert blind.no_carbon == usage.domains and blind.gap() <= 1e-9
        assert "carbon" not in blind.meter and not any(line.part == "carbon" for line in blind.lines)


def test_a_small_rest_in_dollars_is_not_taken_for_rounding_in_joules():
    usage = random_usage(1)
    large = replace(
        usage, span_dynamic_j=usage.span_dynamic_j * 1e9, span_static_j=usage.span_static_j * 1e9,
        idle_j=usage.idle_j * 1e9, meter_j=usage.meter_j * 1e9,
        electricity_usd_per_j=usage.electricity_usd_per_j / 1e9,
    )  # fmt: skip
    bill = make_bill(large, rule="max-request-use")
    assert 0.0 < bill.unallocated["electricity"] < 1e-12 * bill.meter["energy"]
    assert bill.gap() <= 1e-9


def test_a_table_ends_with_rest_and_meter():
    table = make_bill(random_usage(4)).table()
    assert list(table.index[-2:]) == [NOBODY, "meter"]
    assert np.allclose(table.iloc[:-1].sum(), table.iloc[-1])


def test_unknown_payers_are_refused():
    with pytest.raises(SettingsError, match="Did you mean 'tenant'"):
        make_bill(random_usage(0), "tenants")


@pytest.mark.parametrize("exact", [True, False])
def test_a_bill_is_exact_only_if_all_its_shares_are(exact):
    usage = random_usage(2, tenants=3)
    shares = from_table(np.array([0.0, 1.0, 2.0, 4.0, 2.0, 4.0, 5.0, 9.0]))
    assert shares.exact
    bill = make_bill(usage, congestion=replace(shares, exact=exact))
    assert all(peak.exact for peak in bill.core.values()) and bill.exact == exact
