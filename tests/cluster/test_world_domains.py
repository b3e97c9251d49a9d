"""Domains and clusters: what they refuse and what they derive."""

import pytest

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.models import model
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Runtime
from attribution_sched.errors import SettingsError

A100, H100 = gpu("A100-80"), gpu("H100-80")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"devices": 0}, "devices"),
        ({"node_devices": 0}, "node_devices"),
        ({"fabric_gbps": 0.0}, "fabric"),
        ({"fabric_gbps": float("nan")}, "fabric"),
        ({"fabric_latency_s": -1.0}, "fabric"),
        ({"power_cap_w": 50.0}, "accepts caps from 100 to 400 W"),
        ({"power_cap_w": 401.0}, "accepts caps from 100 to 400 W"),
        ({"power_budget_w": 0.0}, "power_budget_w"),
        ({"carbon_g_per_kwh": -1.0}, "carbon_g_per_kwh"),
    ],
)
def test_a_bad_domain_is_refused(fields, words):
    with pytest.raises(SettingsError, match=words):
        Domain(**{"name": "east", "gpu": A100, "devices": 8, **fields})


def test_the_cap_in_force():
    assert Domain("east", A100, 8).cap_w == 400.0
    assert Domain("east", A100, 8, power_cap_w=250.0).cap_w == 250.0


def network(*names):
    return Wan.uniform(names, gbps=5.0, latency_s=0.03, usd_per_gb=0.05)


def test_domains_must_stand_in_the_networks_order():
    east, west = Domain("east", A100, 8), Domain("west", H100, 16)
    assert len(Cluster((east, west), network("east", "west"))) == 2
    with pytest.raises(SettingsError, match="must match the network"):
        Cluster((west, east), network("east", "west"))


def test_a_cluster_counts_devices_and_gpu_types():
    domains = (Domain("a", H100, 8), Domain("b", A100, 16), Domain("c", H100, 4))
    found = Cluster(domains, network("a", "b", "c"))
    assert found.devices == 28
    assert [card.name for card in found.gpus] == ["H100-80", "A100-80"]


def test_an_overridden_card_does_not_leak_into_other_domains():
    slow = A100.override(bandwidth_bytes_per_s=2e11)
    both = Cluster((Domain("a", A100, 8), Domain("b", slow, 8)), network("a", "b"))
    plain = Cluster((Domain("a", A100, 8), Domain("b", A100, 8)), network("a", "b"))
    assert len(both.gpus) == 2
    chain = model("gpt2-small")

    def step_s(where, domain):
        plan = Plan((Replica((Segment(domain, 0, len(chain)),), 4, 2),))
        return float(CostModel(where, [chain]).score(plan).step_s[0])

    assert step_s(both, 0) == step_s(plain, 0)
    assert step_s(both, 1) > step_s(plain, 1)


@pytest.mark.parametrize(
    "fields", [{"zero_stage": 4}, {"zero_stage": -1}, {"reserved_bytes": -1.0}, {"reserved_bytes": float("nan")}]
)
def test_a_bad_runtime_is_refused(fields):
    with pytest.raises(SettingsError, match=next(iter(fields))):
        Runtime(**fields)
