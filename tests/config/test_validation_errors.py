"""Every mistake in settings gives one sentence: the full key, the value, the rule and a way out."""

from __future__ import annotations

import re

import pytest

from attribution_sched.config import load_settings, load_training_settings
from attribution_sched.errors import SettingsError

KIND = {"model": "bert-base", "batch_size": 8, "microbatches": [1, 2, 4, 8], "steps": [1, 2], "epoch_steps": 1}


def kind(**changes):
    return {"kinds": [KIND, KIND | changes]}


def domains(*names, **changes):
    return {"domains": [{"name": name} | changes for name in names]}


def matrix(**changes):
    four = [[1.0] * 4] * 4
    links = {"kind": "matrix", "bandwidth_gbps": four, "latency_s": four, "price_usd_per_gb": four}
    return {"network": {"links": links | changes}}


CUT = {
    "kind": "link_cut", "source": "aws:us-east-1", "target": "azure:westus", "start_h": 1, "end_h": 2, "factor": 0.1,
}  # fmt: skip
LOSS = {"kind": "domain_loss", "domain": "aws:us-west-2", "start_h": 2, "end_h": 3}


def incident(*incidents):
    return {"incidents": list(incidents)}


# Change to the cross-domain-easy preset → key, value, rule, fix, each as it must stand in the message.
MISTAKES = {
    "unknown key": ({"reward": {"w_ef": 1}}, "reward.w_ef", "1", "is not a setting", "'w_eff'"),
    "unknown key at the top": ({"kindz": []}, "kindz", "[]", "is not a setting", "'kinds'"),
    "unknown key in a list": (kind(batchsize=3), "kinds[1].batchsize", "3", "is not a setting", "'batch_size'"),
    "unknown key of a tagged part": (
        {"arrivals": {"kind": "diurnal", "peak": 3}}, "arrivals.peak", "3", "is not a setting", "'peak_hour'"),
    "unknown key of a device": (
        {"gpus": {"A100-80": {"idle": 3}}}, "gpus.A100-80.idle", "3", "is not a setting", "'idle_w'"),
    "nothing near": ({"reward": {"zzzzzz": 1}}, "reward.zzzzzz", "1", "is not a setting", "Valid: carbon"),
    "below its range": ({"episode": {"horizon_s": -5}}, "episode.horizon_s", "-5", "must be >= 0.001", "86400"),
    "above its range": ({"network": {"motion": {"bound": 1.5}}}, "network.motion.bound", "1.5", "must be < 1", "0.3"),
    "range inside a list": (kind(share=0), "kinds[1].share", "0", "must be > 0", "leave it out for 1"),
    "range of a tagged part": ({"arrivals": {"amplitude": 2}}, "arrivals.amplitude", "2", "must be <= 1", "0.5"),
    "range of a matrix": (
        matrix(latency_s=[[0, -1]]), "network.links.latency_s[0][1]", "-1", "must be >= 0", "Give a value >= 0"),
    "share limit": ({"episode": {"share_limit": 3}}, "episode.share_limit", "3", "must be <= 2", "leave it out for 2"),
    "not a number": ({"reward": {"w_eff": "high"}}, "reward.w_eff", "'high'", "must be a number", "Write a number"),
    "number YAML reads as text": (
        {"reward": {"w_eff": "3e-4"}}, "reward.w_eff", "'3e-4'", "must be a number", "decimal point, 0.0003"),
    "NaN": ({"reward": {"w_eff": float("nan")}}, "reward.w_eff", "nan", "must be a finite number", "Write a finite"),
    "infinity": ({"episode": {"tick_s": float("inf")}}, "episode.tick_s", "inf", "must be a finite number", "Write"),
    "truth for a number": ({"episode": {"max_running": True}}, "episode.max_running", "True", "whole number", "Write"),
    "half a task": ({"episode": {"max_running": 2.5}}, "episode.max_running", "2.5", "whole number", "Write"),
    "word for a switch": ({"runtime": {"recompute": "yes"}}, "runtime.recompute", "'yes'", "true or false", "Write"),
    "number for a name": ({"name": 3}, "name", "3", "must be text", "Write text"),
    "empty name": ({"name": ""}, "name", "''", "must not be empty", "Write a name"),
    "number for a section": ({"reward": 3}, "reward", "3", "must be a mapping of settings", "Write a mapping"),
    "number for a list": ({"kinds": 3}, "kinds", "3", "must be a list", "Write a list"),
    "empty list": ({"kinds": []}, "kinds", "[]", "at least 1 entries, not 0", "Add entries"),
    "too many levels": (
        kind(microbatches=[1, 2, 4, 8, 8]), "kinds[1].microbatches", "[1, 2, 4, 8, 8]", "at most 4 entries", "Remove"),
    "wrong word": (
        {"network": {"trace_at_end": "hodl"}}, "network.trace_at_end", "'hodl'", "must be one of hold, wrap", "'hold'"),
    "wrong kind": (
        {"arrivals": {"kind": "poison"}}, "arrivals.kind", "'poison'", "must be one of poisson", "'poisson'"),
    "no kind": ({"network": {"links": {"kind": None}}}, "network.links.kind", "None", "is required", "Say which kind"),
    "required key": (
        {"network": {"links": {"kind": "uniform", "gbps": 1}}},
        "network.links.latency_s", "None", "is required", "Add network.links.latency_s"),
    "unknown model": (kind(model="bert-bas"), "kinds[1].model", "'bert-bas'", "not in the model zoo", "'bert-base'"),
    "unknown profile": (
        kind(model="profiled:LLAMA-8"), "kinds[1].model", "'profiled:LLAMA-8'", "was not profiled", "LLAMA-3-8"),
    "levels that do not divide": (
        kind(microbatches=[1, 2, 3, 4]), "kinds[1].microbatches", "(1, 2, 3, 4)", "divisors of batch_size", "powers"),
    "steps the wrong way round": (kind(steps=[9, 2]), "kinds[1].steps", "(9, 2)", "fewest steps first", "Swap them"),
    "unknown device": (
        {"domain_defaults": {"gpu": "A100-8"}}, "domain_defaults.gpu", "'A100-8'", "GPU catalogue", "'A100-80'"),
    "unknown device of a domain": (
        domains("aws:us-east-1", gpu="H100-8"), "domains[0].gpu", "'H100-8'", "GPU catalogue", "'H100-80'"),
    "unknown device to override": ({"gpus": {"A100": {}}}, "gpus", "'A100'", "GPU catalogue", "'A100-80'"),
    "impossible device": (
        {"gpus": {"A100-80": {"idle_w": 500}}}, "gpus.A100-80", "'500, 100, 400'", "idle_w < min_cap_w", "Mend"),
    "cap the driver refuses": (
        domains("aws:us-east-1", power_cap_w=9), "domains[0].power_cap_w", "9.0", "from 100 to 400 W", "Choose a cap"),
    "cap for all": (
        {"domain_defaults": {"power_cap_w": 900}}, "domain_defaults.power_cap_w", "900.0", "100 to 400 W", "Choose"),
    "unknown region": (
        {"regions": ["aws:us-east1"]}, "regions[0]", "'aws:us-east1'", "table of cloud regions", "'aws:us-east-1'"),
    "unknown region of a domain": (
        domains("gcp:us-west1-a", "moon"), "domains[1].name", "'moon'", "table of cloud regions", "Valid: aws:"),
    "region twice": (
        {"regions": ["aws:us-east-1"] * 2}, "regions[1]", "'aws:us-east-1'", "is listed twice", "its own name"),
    "no domains": ({"domains": None}, "regions or domains", "'neither'", "exactly one", "Keep one"),
    "small matrix": (
        matrix(latency_s=[[0.0]]), "network.links.latency_s", "'rows of [1]'", "4 rows of 4 numbers", "Add or remove"),
    "dead link": (
        matrix(bandwidth_gbps=[[1, 1, 0, 1]] * 4), "network.links.bandwidth_gbps[0][2]", "0", "must be > 0", "small"),
    "carbon priced but not known": (
        domains("aws:us-east-1") | {"reward": {"carbon_usd_per_kg": 0.1}},
        "domains[0]", "'aws:us-east-1'", "no known carbon intensity", "Set its carbon_g_per_kwh"),
    "deadline before arrival": (kind(deadline_slack=0), "kinds[1].deadline_slack", "0", "must be > 0", "for 2"),
    "burst that never begins": (
        {"arrivals": {"burst": {"start_h": 3, "end_h": 2, "factor": 2}}},
        "arrivals.burst.end_h", "2.0", "must lie after start_h = 3", "hour at which it is over"),
    "unknown key of a burst": (
        {"arrivals": {"burst": {"start_h": 1, "end_h": 2, "factr": 2, "factor": 1}}},
        "arrivals.burst.factr", "2", "is not a setting", "'factor'"),
    "unknown incident": (
        incident({"kind": "linkcut"}), "incidents[0].kind", "'linkcut'", "must be one of link_cut", "'link_cut'"),
    "incident of an unknown domain": (
        incident(CUT, LOSS | {"domain": "aws:us-east1"}),
        "incidents[1].domain", "'aws:us-east1'", "is not a domain of these settings", "'aws:us-east-1'"),
    "cut to nowhere": (
        incident(CUT | {"target": "azure:west"}),
        "incidents[0].target", "'azure:west'", "is not a domain of these settings", "'azure:westus'"),
    "cut of nothing": (incident(CUT | {"factor": 0}), "incidents[0].factor", "0", "must be > 0", "Give a value > 0"),
    "cut that widens": (incident(CUT | {"factor": 2}), "incidents[0].factor", "2", "must be <= 1", "Give a value <= 1"),
    "cut of one end": (
        incident(CUT | {"target": "aws:us-east-1"}),
        "incidents[0].target", "'aws:us-east-1'", "must differ from source", "Name two domains"),
    "loss that ends first": (
        incident(LOSS | {"end_h": 1}), "incidents[0].end_h", "1.0", "must lie after start_h = 2", "Give the hour"),
    "extends a list": ({"extends": ["large"]}, "extends", "['large']", "must be the name of a preset", "'large'"),
    "key that is no text": ({7: 1}, "a key of the settings", "7", "must be text", "quotes"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_key_value_rule_and_fix(mistake):
    change, key, value, rule, fix = MISTAKES[mistake]
    with pytest.raises(SettingsError) as caught:
        load_settings({"extends": "cross-domain-easy"} | change)
    message = str(caught.value)
    start = f"{key} = {value}: "
    assert message.startswith(start)
    assert rule in message[len(start) :]
    assert fix in message[len(start) :]
    assert "\n" not in message
    assert "pydantic" not in message
    assert "more problem" not in message
    # The user sees our error only, not the one it was translated from.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_several_mistakes_show_one_and_count_the_others():
    wrong = {"episode": {"horizon_s": -1, "tick_s": -1, "retry_s": 0}, "reward": {"w_ef": 1, "w_util": -1}}
    with pytest.raises(SettingsError) as caught:
        load_settings({"extends": "cross-domain-easy"} | wrong)
    message = str(caught.value)
    assert message.startswith("reward.w_ef = 1: is not a setting. Did you mean 'w_eff'?")
    assert message.endswith("(4 more problems: reward.w_util, episode.horizon_s, episode.tick_s, …)")


def test_two_mistakes_are_counted_in_the_singular():
    with pytest.raises(SettingsError, match=r"\(1 more problem: reward\.w_util\)$"):
        load_settings({"extends": "testbed", "reward": {"w_eff": -1, "w_util": -1}})


@pytest.mark.parametrize(
    ("text", "where", "why"),
    [
        ("a: [1, 2\nb: 3", "line 2, column 2", "malformed YAML"),
        ("reward:\n  w_eff: 1: 2", "line 2, column 11", "mapping values are not allowed here"),
        ("reward:\n\tw_eff: 1", "line 2, column 1", "cannot start any token"),
        ("name: x\nreward: {w_eff: 1,\n  w_eff: 2}", "line 3, column 3", "the key 'w_eff' stands twice"),
        ("name: !!python/object/apply:os.getcwd []", "line 1, column 7", "could not determine a constructor"),
        ("name: *nowhere", "line 1, column 7", "undefined alias"),
    ],
)
def test_malformed_yaml_is_located(tmp_path, text, where, why):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    assert str(caught.value).startswith(f"{path}, {where}: ")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"- 1\n- 2\n", "must hold a mapping of settings"),
        (b"", "must hold a mapping of settings"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"name: \x00", "special characters are not allowed"),
        (b"extends: bad.yaml\n", "must not lead back to itself"),
        (b"name: !!timestamp x\n", "malformed YAML"),
        (b"name: !!int ''\n", "malformed YAML"),
        (b"name: !!bool x\n", "malformed YAML"),
        (b"name: !!float x\n", "malformed YAML"),
        (b"a: &a [*a]\n", "must not contain itself"),
    ],
)
def test_a_file_that_is_no_settings_document_is_refused(tmp_path, content, rule):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=re.escape(rule)):
        load_settings(path)


def test_a_mistake_in_a_file_names_the_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("extends: testbed\nreward: {w_eff: -1.0}\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(str(path))
    assert str(caught.value).startswith(f"{path}: reward.w_eff = -1.0: must be >= 0.")


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("crossdomain", "preset = 'crossdomain': is neither a preset nor a file.*Did you mean 'cross-domain'"),
        ("hi_ppo", "preset = 'hi_ppo': .*Valid: cross-domain, cross-domain-easy, large, shared, testbed"),
        ("missing.yaml", r"settings file = 'missing.yaml': cannot be read \(No such file"),
        ("/", r"settings file = '/': cannot be read \(Is a directory"),
        (None, "source = None: must be the name of a preset"),
        ({"extends": "tesbed"}, "preset = 'tesbed': .*Did you mean 'testbed'"),
    ],
)
def test_a_source_that_does_not_exist_is_refused(source, rule):
    with pytest.raises(SettingsError, match=rule):
        load_settings(source)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"network": {"trace": "missing.csv"}}, "^network: trace file = 'missing.csv': cannot be read"),
        ({"arrivals": {"kind": "trace", "path": "missing.csv"}}, "^arrivals: trace file = 'missing.csv'"),
    ],
)
def test_what_only_the_world_can_see_is_still_a_settings_error(change, rule):
    loaded = load_settings({"extends": "cross-domain-easy"} | change)
    with pytest.raises(SettingsError, match=rule):
        loaded.build_world()


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ({"agents": {"member": 4}}, "agents.member = 4: is not a setting"),
        ({"agents": {"members": 7}}, "agents.members = 7: must be even"),
        ({"agents": {"worlds": {"ou30": 20000}}}, "agents.worlds = 20000: all days together must be at most 10000"),
        ({"ranker": {"clip": 0.0}}, "ranker.clip = 0.0: must be > 0"),
        ({"ranker": {"judged": 1}}, "ranker.judged = 1: must be >= 2"),
        ({"seed": -1}, "seed = -1: must be >= 0"),
        ("testbed", "preset = 'testbed': is neither a preset.*Valid: hi_ppo"),
    ],
)
def test_hyper_parameters_are_checked_too(source, rule):
    with pytest.raises(SettingsError, match=rule):
        load_training_settings(source)


def test_an_opaque_job_is_a_kind_and_no_base_of_a_model():
    assert load_settings("shared").kinds[0].model == "opaque-1"
    wrong = {"extends": "testbed", "models": {"mine": {"base": "opaque-1"}}}
    with pytest.raises(SettingsError, match=r"opaque-1.*is not in the model zoo"):
        load_settings(wrong)
    kinds = [{"model": "opaque-3", "batch_size": 1, "microbatches": [1, 1, 1, 1], "steps": [1, 2], "epoch_steps": 1}]
    with pytest.raises(SettingsError, match=r"opaque-3.*is not in the model zoo"):
        load_settings({"extends": "shared", "kinds": kinds})
