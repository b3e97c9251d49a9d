"""Quotas of tenants: obeyed by every policy, named by why, kept through a restart, refused where they say nothing."""

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.billing.metering import usage_of
from attribution_sched.cluster.objective import Quota
from attribution_sched.errors import SettingsError
from attribution_sched.explain.why import Cause
from tests.small_world import small


def system_of(*quotas, policy="greedy", **given):
    settings = small(quotas=list(quotas), reward={"energy_usd_per_kwh": 0.2})
    return System(settings, policy, **({"queue": "empty"} | given))


def devices_of(system, tenant):
    """Devices that a tenant's tasks are on now."""
    running = {slot for slot, task in system.cluster.residents.items() if task.tenant == tenant}
    return int(np.isin(system.cluster.engine.state.occupant[0], list(running)).any(axis=2).sum())


@pytest.mark.parametrize("policy", ["greedy", "sjf", "rule"])
def test_a_tenant_never_has_more_devices_than_its_quota(policy):
    system = system_of({"tenant": "small", "devices": 2}, policy=policy)
    for at in range(5):
        system.submit("bert-base", id=f"s{at}", tenant="small", steps=4000)
        system.submit("bert-base", id=f"o{at}", tenant="other", steps=4000)
    most = 0
    while (done := system.schedule_next_task()) is not None and done.placed:
        most = max(most, devices_of(system, "small"))
    assert 0 < most <= 2
    # The rest of the cluster is not left empty for it: everybody was served in the end.
    assert system.status().waiting == 0


def test_why_names_the_quota_and_who_is_limited():
    system = system_of({"tenant": "small", "devices": 1})
    system.submit("bert-base", id="first", tenant="small", steps=50_000)
    system.submit("bert-base", id="second", tenant="small", steps=50_000)
    system.schedule_next_task()
    system.run(hours=0.01)
    why = system.why("second")
    assert why.cause is Cause.QUOTA
    assert "quota of small leaves it 0 devices" in why.say()
    assert "租户 small 的配额" in why.say("zh")


def test_a_budget_that_is_used_up_lets_nothing_start_until_its_window_ends():
    budget = {"tenant": "small", "energy_kwh": 0.02, "per_h": 1.0}
    system = system_of(budget)
    for at in range(6):
        system.submit("bert-base", id=f"s{at}", tenant="small", steps=2500)
    system.run(hours=0.9)
    name, used, limit = system.cluster.spending.spent("small", system.now_s)
    assert (name, limit) == ("energy_kwh", 0.02) and used >= limit
    waiting = system.queue()["id"].tolist()
    assert waiting and devices_of(system, "small") == 0
    why = system.why(waiting[0])
    assert why.cause is Cause.QUOTA and "has used" in why.say() and "kWh" in why.say()
    started = system.cluster.decided
    system.run(hours=1.0)
    assert system.cluster.spending.spent("small", 0.5 * 3600) != (name, used, limit)
    assert len(system.queue()) < len(waiting) and system.cluster.decided > started


def test_what_is_booked_is_what_the_meter_read(tmp_path):
    """Device-hours, energy, dollars and grams of a tenant, against the bill's own meter of the same journal."""
    budget = {"tenant": "t", "energy_kwh": 1e6, "per_h": 1e6}
    with system_of(budget, journal=tmp_path / "a.db") as system:
        for at in range(4):
            system.submit("gpt2-small", id=f"a{at}", tenant="t", steps=3000)
            system.submit("bert-base", id=f"b{at}", tenant="u", steps=3000)
        system.run(hours=0.4)
        usage = usage_of(system.journal)
        booked = system.cluster.spending.used[0, 1:]
    lasted = np.diff(usage.edges_s)
    own = np.array([usage.tasks[int(t)].tenant == "t" for t in usage.span_task])
    joules = usage.span_dynamic_j + usage.span_static_j
    grams = joules * usage.carbon_g_per_j[usage.span_interval, usage.span_domain]
    dollars = joules * usage.electricity_usd_per_j[usage.span_interval, usage.span_domain]
    egress = sum(task.egress_usd for task in usage.tasks if task.tenant == "t")
    metered = [
        (usage.span_devices * lasted[usage.span_interval])[own].sum() / 3600.0,
        joules[own].sum() / 3.6e6,
        dollars[own].sum() + egress,
        grams[own].sum() / 1e3,
    ]
    assert booked.tolist() == pytest.approx(metered, rel=1e-9)


def test_what_was_spent_is_known_after_a_restart(tmp_path):
    given = {"tenant": "t", "device_hours": 1e6}
    with system_of(given, journal=tmp_path / "a.db") as system:
        for at in range(6):
            system.submit("bert-base", id=f"a{at}", tenant="t", steps=3000)
        for _ in range(4):
            system.schedule_next_task()
    with System.resume(tmp_path / "a.db") as again:
        assert again.cluster.spending.used.tobytes() == system.cluster.spending.used.tobytes()
        assert again.cluster.spending.used[0, 1] > 0


def test_episodes_with_a_quota_nobody_reaches_are_as_without(tmp_path):
    def decisions(*quotas):
        system = System(small(quotas=list(quotas)), "greedy", seed=4)
        return [system.schedule_next_task().decision.plan for _ in range(8)]

    assert decisions() == decisions({"tenant": "default", "devices": 8, "usd": 1e9})


@pytest.mark.parametrize(
    ("quota", "words"),
    [
        ({"tenant": "a"}, "must limit something"),
        ({"tenant": "a", "devices": 0}, "devices"),
        ({"tenant": "a", "usd": -1.0}, "usd"),
        ({"tenant": "", "devices": 1}, "tenant"),
        ({"tenant": "a", "gpus": 1}, "gpus"),
    ],
)
def test_a_quota_that_says_nothing_is_refused(quota, words):
    with pytest.raises(SettingsError, match=words):
        small(quotas=[quota]).build_world()


def test_a_tenant_has_one_quota():
    with pytest.raises(SettingsError, match="one quota"):
        small(quotas=[{"tenant": "a", "devices": 1}, {"tenant": "a", "usd": 1.0}]).build_world()
    with pytest.raises(SettingsError, match="must be > 0"):
        Quota("a", usd=0.0)
