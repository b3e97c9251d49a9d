"""What a journal's tasks used adds up to the engine's own meters, and bills are written from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.billing.bill import UNATTRIBUTED, Tariff, make_bill
from attribution_sched.billing.metering import metered, usage_of
from attribution_sched.billing.rules import RULES
from attribution_sched.cluster.decision import capture
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.fork import replay
from attribution_sched.config import load_settings
from attribution_sched.errors import JournalError, SettingsError
from attribution_sched.scheduler.rule_follower import RuleFollower
from tests.small_world import small


@pytest.fixture(
    scope="module",
    params=["testbed", "cross-domain-easy", "cross-domain", "shared", pytest.param("large", marks=pytest.mark.slow)],
)
def system(request):
    made = System(request.param, policy="rule", seed=5)
    for _ in range(12):
        made.schedule_next_task()
    return made


def test_usage_is_what_the_meters_read(system):
    usage = usage_of(system.journal)
    totals = system.cluster.totals()
    # The journal ends with its last decision; so does the clock of its twin.
    assert usage.meter_j == pytest.approx(totals["meter_j"], rel=1e-12)
    assert usage.idle_j.sum() == pytest.approx(totals["idle_j"], rel=1e-9)
    assert (usage.span_dynamic_j.sum() + usage.span_static_j.sum()) == pytest.approx(totals["task_j"], rel=1e-9)
    assert usage.span_busy_s.sum() == pytest.approx(totals["busy_device_s"], rel=1e-9)
    assert usage.meter_egress_usd == pytest.approx(totals["bill_usd"], rel=1e-12)
    held = usage.held(np.zeros(len(usage.tasks), dtype=np.int64), 1)[0]
    assert (held <= usage.devices[:, None] + 1e-9).all()
    started = [task for task in usage.tasks if task.started_s is not None]
    assert started and all(task.started_s >= task.submitted_s for task in started)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("by", ["tenant", "task", "model", "domain"])
def test_every_bill_of_a_run_adds_up(system, rule, by):
    bill = system.bill(by, rule, electricity_usd_per_kwh=0.1)
    assert bill.gap() <= 1e-9
    drawn_j = bill.meter["energy"] + bill.meter["idle"]
    assert drawn_j == pytest.approx(system.cluster.totals()["meter_j"], rel=1e-9)
    # By the hour where the price has hours; 0.1 is its mean then.
    hourly = system.world.cluster.domains[0].electricity is not None
    electricity_usd = system.cluster.totals()["electricity_usd"] if hourly else drawn_j / 3.6e6 * 0.1
    assert bill.meter["electricity"] == pytest.approx(electricity_usd)
    # What idle devices drew stands apart, and is nobody's twice.
    assert bill.meter["idle"] == pytest.approx(system.cluster.totals()["idle_j"], rel=1e-9)


def drawn_of(usage):
    """Joules of every interval and domain, tasks and idle devices."""
    drawn = usage.idle_j.copy()
    np.add.at(drawn, (usage.span_interval, usage.span_domain), usage.span_dynamic_j + usage.span_static_j)
    return drawn


def test_electricity_of_a_bill_has_the_price_of_its_hour(system):
    """A tariff by the hour where the preset has one, by each region's own clock; else one price all day."""
    usage = usage_of(system.journal, 0.1)
    assert drawn_of(usage).sum() == pytest.approx(system.cluster.totals()["meter_j"], rel=1e-9)
    for domain, at in zip(system.world.cluster.domains, usage.electricity_usd_per_j.T * 3.6e6, strict=True):
        hours = ((usage.edges_s[:-1] + usage.edges_s[1:]) / 7200.0).astype(int) % 24
        wanted = np.full(len(at), 0.1) if domain.electricity is None else np.asarray(domain.electricity.values)[hours]
        inside = usage.edges_s[:-1] % 3600.0 >= 300.0  # Hours change with the first tick in them.
        np.testing.assert_allclose(at[inside], wanted[inside])
        assert inside.any()


def test_grams_of_a_bill_are_those_of_the_run(system):
    """By the hour where grids have hours: the engine's own sum of its tasks' grams, and idle devices beside it."""
    usage = usage_of(system.journal)
    joules = usage.span_dynamic_j + usage.span_static_j
    grams = (joules * usage.carbon_g_per_j[usage.span_interval, usage.span_domain]).sum()
    assert grams == pytest.approx(system.cluster.totals()["carbon_g"], rel=1e-9)
    hourly = any(domain.carbon is not None for domain in system.world.cluster.domains)
    assert (np.ptp(usage.carbon_g_per_j, axis=0) > 0).any() == hourly


def crowded():
    """Three tenants on eight devices: two in each other's way from the start, one that comes when all is over."""
    system = System(small(), "rule", queue="empty")
    for at in range(6):
        system.submit("bert-base", id=f"a{at}", tenant="a", steps=6000)
        system.submit("bert-base", id=f"b{at}", tenant="b", steps=6000)
    system.run(hours=3.0)
    system.submit("bert-base", id="c0", tenant="c", steps=600)
    system.schedule_next_task()
    return system


def test_congestion_is_shared_between_those_who_are_in_each_others_way():
    system = crowded()
    bill = system.bill(congestion=True, prices=Tariff(congestion_usd_per_h=2.0))
    lines = {line.payer: line for line in bill.lines if line.part == "congestion"}
    assert bill.meter["congestion"] > 0.5 and bill.gap() <= 1e-9
    assert lines["a"].quantity == pytest.approx(lines["b"].quantity, rel=0.2)
    assert lines["c"].quantity == pytest.approx(0.0, abs=1e-9)
    assert lines["a"].usd == pytest.approx(2.0 * lines["a"].quantity)
    # The Shapley value itself, from the three groups that matter, played one by one.
    cluster = metered(system.journal)
    usage = cluster.usage()
    alone = {}
    for tenants in ("a", "b", "ab"):
        rows = [use for use in usage.tasks if use.tenant in tenants]
        waiting = max(cluster.world.queue_capacity, len(usage.tasks))
        moment = capture(Engine(replace(cluster.world, queue_capacity=waiting)))
        pool = np.array([cluster._rows_of[use.id] for use in rows])
        came = np.array([use.submitted_s for use in rows])
        waits = replay(moment, pool, came, float(usage.edges_s[-1]), RuleFollower.of(moment))
        alone[tenants] = waits.sum() / 3600.0
    assert lines["a"].quantity == pytest.approx((alone["a"] + alone["ab"] - alone["b"]) / 2, rel=1e-9)


def test_who_cannot_wait_for_others_is_not_asked():
    with pytest.raises(SettingsError, match="made to wait"):
        crowded().bill("domain", congestion=True)


def test_the_twin_reads_its_meters_without_moving_them(system):
    """A journal lived through with meters on comes out as recorded, or the replay itself would refuse it."""
    first, second = usage_of(system.journal), usage_of(system.journal)
    assert first.meter_j == second.meter_j and np.array_equal(first.span_dynamic_j, second.span_dynamic_j)


def test_an_archived_beginning_cannot_be_billed(tmp_path):
    path = tmp_path / "journal.sqlite"
    with System("testbed", policy="sjf", journal=path) as system:
        for _ in range(3):
            system.schedule_next_task()
        system.journal.archive(tmp_path / "old.sqlite", before=2, without_snapshot=True)
        with pytest.raises(JournalError, match="cannot be billed"):
            system.bill()


def test_of_a_shared_device_each_task_is_told_its_part(sharing):
    """Two tasks on one device hold half of it each, and together it works no more than all of the time."""
    usage, totals = usage_of(sharing.journal), sharing.cluster.totals()
    assert (usage.span_devices % 1.0 == 0.5).any()
    assert usage.span_busy_s.sum() == pytest.approx(totals["busy_device_s"], rel=1e-9)
    assert usage.meter_j == pytest.approx(totals["meter_j"], rel=1e-12)
    held = usage.held(np.zeros(len(usage.tasks), dtype=np.int64), 1)[0]
    assert (held <= usage.devices[:, None] + 1e-9).all()


@pytest.fixture(scope="module")
def sharing():
    """A run in which tasks share devices."""
    settings = load_settings("shared").model_dump(mode="json")
    settings["domain_defaults"]["devices"] = 8
    settings["arrivals"]["rate_per_hour"] = 30.0
    settings["episode"] |= {"pool_size": 512, "queue_capacity": 8, "max_running": 16}
    made = System(load_settings(settings), policy="gavel-sharing", seed=1)
    for _ in range(40):
        made.schedule_next_task()
    return made


def test_co_location_is_shared_by_who_slows_whom(sharing):
    """The hours lost are those that the measured pairs cost, and each of a pair answers for half of them."""
    usage = usage_of(sharing.journal)
    assert usage.slowed and all(task != other and hours > 0.0 for task, other, hours in usage.slowed)
    spent_h = np.zeros(len(usage.tasks))
    np.add.at(spent_h, usage.span_task, usage.lengths_s[usage.span_interval] / 3600.0)
    lost_h = np.zeros(len(usage.tasks))
    np.add.at(lost_h, [task for task, _, _ in usage.slowed], [hours for _, _, hours in usage.slowed])
    assert (lost_h <= spent_h + 1e-12).all()
    bill = make_bill(usage, "task")
    assert bill.gap() <= 1e-9
    assert bill.meter["co-location"] == pytest.approx(lost_h.sum())
    names = [task.id for task in usage.tasks]
    for at, name in enumerate(names):
        pairs = sum(hours for task, other, hours in usage.slowed if at in (task, other))
        assert bill.amount(name, "co-location") == pytest.approx(pairs / 2.0)
    # Cut: alone on their devices they cost each other nothing.
    apart = make_bill(replace(usage, slowed=()), "task")
    assert "co-location" not in apart.meter


@pytest.mark.parametrize("by", ["tenant", "task", "model"])
def test_joules_by_operator_add_up_to_what_each_payer_drew_itself(system, by):
    bill = system.bill(by)
    own = {line.payer: line.own for line in bill.lines if line.part == "energy"}
    summed = bill.operator_table().sum(axis=1)
    for payer, joules in own.items():
        assert summed[payer] == pytest.approx(joules, rel=1e-9)
    assert all(part.half_width_j >= 0.0 for part in bill.operators)
    assert any(part.half_width_j > 0.0 for part in bill.operators)


def test_operators_of_a_bill_are_those_of_the_journaled_vectors():
    """A convolutional network draws nothing by attention; without recorded vectors nothing is attributed."""
    made = System(small(), policy="sjf", seed=2)
    for _ in range(4):
        made.schedule_next_task()
    usage = usage_of(made.journal)
    vectors = {record.task_id: record.attribution for record in made.journal.decisions()}
    for task in usage.tasks:
        if task.operators is not None:
            values = dict(zip(vectors[task.id]["names"], vectors[task.id]["values"], strict=True))
            whole = sum(values.values()) + max(0.0, vectors[task.id]["unattributed"])
            for name, (share, _) in task.operators.items():
                if name != UNATTRIBUTED:
                    assert share == pytest.approx(values[name] / whole)
            assert sum(share for share, _ in task.operators.values()) == pytest.approx(1.0)
    blind = make_bill(replace(usage, tasks=tuple(replace(task, operators=None) for task in usage.tasks)))
    assert {part.operator for part in blind.operators} == {UNATTRIBUTED}
    assert {part.operator for part in make_bill(usage).operators} - {UNATTRIBUTED}


def test_a_payers_own_bill_has_no_other_payers_operators(system):
    bill = system.bill()
    shown = bill.seen_by(bill.payers[0])
    assert {part.payer for part in shown.operators} <= {bill.payers[0]}


def test_a_run_tells_what_its_bill_tells():
    """Dollars of electricity and grams, of tasks and of idle devices, come from one hour's prices and grids."""
    system = System("cross-domain", "sjf", seed=3)
    summary, bill = system.run(12), system.bill()
    assert summary.electricity_usd == pytest.approx(bill.meter["electricity"], rel=1e-9)
    assert 1e3 * (summary.carbon_kg + summary.idle_carbon_kg) == pytest.approx(bill.meter["carbon"], rel=1e-9)
    assert summary.idle_carbon_kg > 0.0 and summary.network_carbon_kg > 0.0
    assert len(summary.completions_h) == summary.completed > 3
    sums = system.cluster.totals()
    assert sum(summary.completions_h) == pytest.approx(sums["completion_s"] / 3600.0, rel=1e-3)
    told = summary.to_dict()
    assert told["mean_completion_h"] < told["p95_completion_h"] <= max(summary.completions_h)
    assert "completions_h" not in told and told["gpu_h"] == pytest.approx(sums["busy_device_s"] / 3600.0)


def test_grams_stand_in_the_outcome_of_a_decision():
    """Of one step, by the grid of the hour at which it was placed."""
    system = System("cross-domain", "sjf", seed=3)
    result = next(each for each in (system.schedule_next_task() for _ in range(5)) if each.placed)
    told = system.outcome(result).predicted
    hour_s = result.cluster_time_s // 3600.0 * 3600.0
    grids = [domain.carbon.at(hour_s) for domain in system.world.cluster.domains]
    assert min(grids) <= 3.6e6 * told.carbon_g / told.energy_j <= max(grids)


def test_a_run_without_intensities_does_not_tell_that_there_were_no_grams():
    unknown, known = (System(preset, "sjf", seed=3).run(2) for preset in ("testbed", "cross-domain"))
    assert not unknown.carbon_known and "carbon intensity not given" in str(unknown) and "CO2e" not in str(unknown)
    assert known.carbon_known and "kg CO2e of tasks" in str(known)
