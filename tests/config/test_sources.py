"""Settings: where they come from, how they build on each other, and that they survive a round trip."""

from __future__ import annotations

import dataclasses
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from attribution_sched.cluster.arrivals import Burst, Diurnal, Poisson, TraceArrivals
from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.incidents import DomainLoss, LinkCut
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Reward, Runtime, World
from attribution_sched.config import Settings, load_settings, load_training_settings, preset_names
from attribution_sched.config.episode import EpisodeSettings, RuntimeSettings
from attribution_sched.config.network import MotionSettings
from attribution_sched.config.sources import merge

SMALL = {
    "domains": [{"name": "a"}, {"name": "b", "devices": 4}],
    "domain_defaults": {"gpu": "V100-16", "devices": 8},
    "network": {"links": {"kind": "uniform", "gbps": 2, "latency_s": 0.03, "usd_per_gb": 0.05}},
    "kinds": [
        {
            "model": "bert-base",
            "batch_size": 64,
            "microbatches": [4, 8, 16, 32],
            "steps": [10, 20],
            "epoch_steps": 5,
        }
    ],
    "arrivals": {"kind": "poisson", "rate_per_hour": 4},
}


@pytest.mark.parametrize(
    ("record", "target"),
    [(RuntimeSettings, Runtime), (EpisodeSettings, World), (MotionSettings, Wan)],
)
def test_defaults_are_those_of_the_world(record, target):
    theirs = {field.name: field.default for field in dataclasses.fields(target)}
    # A preset of the runtime names other values of these very fields; it is none of them.
    ours = {name: value for name, value in record().model_dump().items() if name != "preset"}
    assert ours == {name: theirs[name] for name in ours}


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_survives_the_round_trip(name, tmp_path):
    first = load_settings(name)
    path = tmp_path / "copy.yaml"
    path.write_text(first.to_yaml(), encoding="utf-8")
    assert load_settings(path) == first
    assert load_settings(str(path)) == first
    assert load_settings(yaml.safe_load(first.to_yaml())) == first


@settings(deadline=None, max_examples=40)
@given(
    w_eff=st.floats(0, 1e6),
    horizon_s=st.floats(1e-3, 3e9),
    pool_seed=st.integers(0, 2**62 - 1),
    tenant=st.text(min_size=1, max_size=200).filter(lambda name: name.isprintable() and name.strip()),
)
def test_any_valid_value_survives_the_round_trip(w_eff, horizon_s, pool_seed, tenant):
    kind = SMALL["kinds"][0] | {"tenant": tenant}
    given_settings = load_settings(
        SMALL
        | {"kinds": [kind], "reward": {"w_eff": w_eff}, "episode": {"horizon_s": horizon_s, "pool_seed": pool_seed}}
    )
    again = load_settings(yaml.safe_load(given_settings.to_yaml()))
    assert again == given_settings
    assert again.kinds[0].tenant == tenant
    assert again.episode.pool_seed == pool_seed


def test_settings_are_returned_as_they_are_and_are_frozen():
    loaded = load_settings(SMALL)
    assert load_settings(loaded) is loaded
    with pytest.raises(ValidationError):
        loaded.name = "other"
    with pytest.raises(FrozenInstanceError):
        loaded.reward.w_eff = 2.0
    training = load_training_settings()
    assert load_training_settings(training) is training


def test_the_mapping_given_is_left_alone():
    source = {"extends": "testbed", "reward": {"w_eff": 2}}
    load_settings(source)
    assert source == {"extends": "testbed", "reward": {"w_eff": 2}}


def test_extends_overrides_one_key_and_keeps_the_others():
    parent = load_settings("cross-domain-easy")
    child = load_settings({"extends": "cross-domain-easy", "network": {"motion": {"spread": 0.05}}})
    assert child.network.motion.spread == 0.05
    restored = child.network.motion.model_copy(update={"spread": parent.network.motion.spread})
    assert child.network.model_copy(update={"motion": restored}) == parent.network
    assert child.kinds == parent.kinds


def test_extends_follows_files_relative_to_each_other(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "base.yaml").write_text("extends: testbed\nreward: {w_eff: 3.0, w_util: 4.0}\n")
    (tmp_path / "deep" / "leaf.yaml").write_text("extends: ../base.yaml\nreward: {w_util: 5.0}\n")
    loaded = load_settings(tmp_path / "deep" / "leaf.yaml")
    assert (loaded.reward.w_eff, loaded.reward.w_util) == (3.0, 5.0)
    assert loaded.reward.interval_s == load_settings("testbed").reward.interval_s == 60.0
    assert loaded.name == "testbed"


def test_a_change_of_kind_replaces_instead_of_merging():
    child = load_settings({"extends": "cross-domain-easy", "arrivals": {"kind": "poisson", "rate_per_hour": 2}})
    assert child.arrivals.model_dump() == {"kind": "poisson", "rate_per_hour": 2.0, "burst": None}


def test_regions_and_domains_replace_each_other():
    child = load_settings({"extends": "cross-domain-easy", "regions": ["aws:us-east-1", "gcp:us-west1-a"]})
    assert child.domains is None
    assert child.domain_names == ("aws:us-east-1", "gcp:us-west1-a")
    back = load_settings({"extends": "large", "domains": [{"name": "gcp:us-west1-a"}]})
    assert back.regions is None


def test_null_takes_a_key_back_to_its_default():
    child = load_settings({"extends": "testbed", "reward": None, "domain_defaults": {"power_budget_w": None}})
    assert child.reward == Reward()
    assert child.domain_defaults.power_budget_w is None
    assert child.domain_defaults.devices == 4


names = st.sampled_from("abc")
anything = st.recursive(st.integers(), lambda inner: st.dictionaries(names, inner), max_leaves=8)
documents = st.dictionaries(names, anything)
two_levels = st.dictionaries(names, st.dictionaries(names, st.integers()))


@settings(deadline=None, max_examples=50)
@given(documents, documents)
def test_merging_is_idempotent_has_an_identity_and_lets_the_child_win(a, b):
    assert merge(a, {}) == a
    assert merge({}, a) == a
    assert merge(a, a) == a
    merged = merge(a, b)
    assert merged.keys() == a.keys() | b.keys()
    assert merge(merged, b) == merged
    for key, value in b.items():
        if not isinstance(value, dict):
            assert merged[key] == value


# Only for documents of one shape: a plain value between two mappings cuts the first one off.
@settings(deadline=None, max_examples=50)
@given(two_levels, two_levels, two_levels)
def test_merging_is_associative(a, b, c):
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


def test_the_world_has_what_the_settings_say():
    world = load_settings(SMALL | {"gpus": {"V100-16": {"idle_w": 41.5}}, "episode": {"max_segments": 2}}).build_world()
    assert isinstance(world, World)
    assert [domain.devices for domain in world.cluster.domains] == [8, 4]
    assert {domain.gpu.idle_w for domain in world.cluster.domains} == {41.5}
    assert gpu("V100-16").idle_w != 41.5
    assert world.cluster.wan.bandwidth_gbps[0, 1] == 2.0
    assert world.cluster.wan.price_usd_per_gb[1, 0] == 0.05
    assert world.arrivals == Poisson(4.0)
    assert world.kinds[0].model.name == "bert-base"
    assert world.kinds[0].microbatches == (4, 8, 16, 32)


def test_a_profiled_model_can_be_named():
    kind = SMALL["kinds"][0] | {"model": "profiled:LLAMA-3-8"}
    world = load_settings(SMALL | {"kinds": [kind]}).build_world()
    assert world.kinds[0].model.params == pytest.approx(8_797_954_048, rel=0.02)


def test_matrices_reach_the_network():
    links = {
        "kind": "matrix",
        "bandwidth_gbps": [[100, 3], [5, 100]],
        "latency_s": [[0, 0.02], [0.04, 0]],
        "price_usd_per_gb": [[0, 0.1], [0.2, 0]],
    }
    wan = load_settings(SMALL | {"network": {"links": links}}).build_world().cluster.wan
    np.testing.assert_array_equal(wan.bandwidth_gbps, [[100, 3], [5, 100]])
    np.testing.assert_array_equal(wan.latency_s, [[0, 0.02], [0.04, 0]])
    np.testing.assert_array_equal(wan.price_usd_per_gb, [[0, 0.1], [0.2, 0]])


def test_traces_are_found_beside_the_file_that_names_them(tmp_path, monkeypatch):
    (tmp_path / "links.csv").write_text("time_s,src,dst,gbps\n0,a,b,1.5\n60,a,b,0.5\n")
    (tmp_path / "tasks.csv").write_text("arrival_s,model,steps,batch_size,priority,tenant\n3,bert-base,12,64,0,x\n")
    own = SMALL | {
        "network": SMALL["network"] | {"trace": "links.csv", "trace_at_end": "wrap"},
        "arrivals": {"kind": "trace", "path": "tasks.csv"},
    }
    (tmp_path / "world.yaml").write_text(yaml.safe_dump(own))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    world = load_settings(tmp_path / "world.yaml").build_world()
    assert world.cluster.wan.trace is not None
    assert world.cluster.wan.trace.at_end == "wrap"
    assert world.cluster.wan.trace.gbps[1, 0, 1] == 0.5
    assert isinstance(world.arrivals, TraceArrivals)
    assert world.arrivals.rows[0].steps == 12
    assert load_settings(Path("..") / "world.yaml") == load_settings(tmp_path / "world.yaml")


def test_carbon_comes_from_the_table_then_the_domain_then_the_defaults():
    loaded = load_settings(
        {
            "extends": "cross-domain-easy",
            "domain_defaults": {"carbon_g_per_kwh": 111},
            "domains": [
                {"name": "gcp:us-west1-a"},
                {"name": "gcp:us-east4-a", "carbon_g_per_kwh": 5},
                {"name": "aws:us-east-1"},
            ],
        }
    )
    assert [domain.carbon_g_per_kwh for domain in loaded.resolved_domains()] == [94.0, 5.0, 111.0]


def test_the_training_preset_is_read_extended_and_round_trips(tmp_path):
    plain = load_training_settings()
    assert plain == load_training_settings("hi_ppo") and sum(plain.agents.worlds.values()) > 100
    loaded = load_training_settings({"extends": "hi_ppo", "agents": {"groups": 3}})
    assert (loaded.agents.groups, loaded.ranker) == (3, plain.ranker)
    path = tmp_path / "train.yaml"
    path.write_text(loaded.to_yaml())
    assert load_training_settings(path) == loaded
    assert "hi_ppo" not in preset_names()


def test_diurnal_arrivals_reach_the_world():
    arrivals = {"kind": "diurnal", "rate_per_hour": 3, "amplitude": 0.25, "peak_hour": 9}
    assert load_settings(SMALL | {"arrivals": arrivals}).build_world().arrivals == Diurnal(3.0, 0.25, 9.0)


def test_incidents_bursts_and_deadlines_reach_the_world():
    cut = {"kind": "link_cut", "source": "b", "target": "a", "start_h": 1, "end_h": 2.5, "factor": 0.1}
    loss = {"kind": "domain_loss", "domain": "b", "start_h": 0, "end_h": 1}
    changes = {
        "incidents": [cut, cut | {"both_ways": False}, loss],
        "arrivals": {"kind": "poisson", "rate_per_hour": 4, "burst": {"start_h": 1, "end_h": 2, "factor": 5}},
        "kinds": [SMALL["kinds"][0] | {"deadline_slack": 1.25}],
    }
    loaded = load_settings(SMALL | changes)
    assert load_settings(yaml.safe_load(loaded.to_yaml())) == loaded
    world = loaded.build_world()
    assert world.incidents == (
        LinkCut(1, 0, 3600.0, 9000.0, 0.1),
        LinkCut(1, 0, 3600.0, 9000.0, 0.1, both_ways=False),
        DomainLoss(1, 0.0, 3600.0),
    )
    assert world.arrivals == Poisson(4.0, Burst(1.0, 2.0, 5.0))
    assert world.kinds[0].deadline_slack == 1.25
    diurnal = changes["arrivals"] | {"kind": "diurnal"}
    assert load_settings(SMALL | {"arrivals": diurnal}).build_world().arrivals.burst == Burst(1.0, 2.0, 5.0)
    plain = load_settings(SMALL).build_world()
    assert (plain.incidents, plain.arrivals, plain.kinds[0].deadline_slack) == ((), Poisson(4.0), 2.0)


def test_settings_type_is_public():
    assert isinstance(load_settings(SMALL), Settings)
