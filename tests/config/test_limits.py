"""Small files that would hang or fill a machine: one clear error each, within a second."""

import time

import pytest

from attribution_sched.config import load_settings, load_training_settings
from attribution_sched.errors import SettingsError
from attribution_sched.limits import MOST_NODES

NINE = range(9)


def chain(first, line, levels=12):
    return "\n".join([first, *(line(n) for n in range(1, levels))])


BOMBS = {
    "lists of aliases": chain("- &a0 [x, x, x]", lambda n: f"- &a{n} [{', '.join(f'*a{n - 1}' for _ in NINE)}]"),
    "lists in a name": chain("name: &a0 [x]", lambda n: f"n{n}: &a{n} [{', '.join(f'*a{n - 1}' for _ in NINE)}]"),
    "mappings of aliases": chain(
        "a0: &a0 {x: 1}", lambda n: f"a{n}: &a{n} {{{', '.join(f'k{k}: *a{n - 1}' for k in NINE)}}}"),
    "merge keys": chain("a0: &a0 {x: 1}", lambda n: f"a{n}: &a{n} {{<<: [{', '.join(f'*a{n - 1}' for _ in NINE)}]}}"),
    "3,000 brackets": "[" * 3000,
    "3,000 brackets that close": "a: " + "[" * 3000 + "]" * 3000,
    "3,000 braces": "{a: " * 3000,
    "1,000 indents": "".join("  " * n + "a:\n" for n in range(1000)),
    "a list in itself": "a: &a [*a]",
    "a mapping in itself": "a: &a {b: *a}",
    "NUL in extends": 'extends: "a\\0b"',
    "NUL in a path": 'extends: testbed\narrivals: {kind: trace, path: "x\\0y"}',
    "half a surrogate pair": 'extends: testbed\nname: "\\ud800"',
    "half a surrogate pair in a path": 'extends: testbed\nnetwork: {trace: "\\udcff"}',
    "an escape in a key": '"\\e[2J": 1',
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_one_error_within_seconds(tmp_path, name):
    path = tmp_path / "bomb.yaml"
    path.write_text(BOMBS[name], encoding="utf-8")
    began = time.process_time()
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    assert time.process_time() - began < 5.0
    told = str(caught.value)
    assert "\n" not in told
    assert "\x1b" not in told
    assert len(told) < 600 + len(str(path))


def test_aliases_that_stay_small_are_taken(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "extends: cross-domain-easy\nregions: null\n"
        "domains: [&a {name: 'aws:us-east-1', devices: 4}, {<<: *a, name: 'gcp:us-west1-a'}]\n"
    )
    assert [each.devices for each in load_settings(path).domains] == [4, 4]


def circle():
    me = {"extends": "testbed"}
    me["reward"] = me
    return me


def shared(levels=40):
    value = ["x"]
    for _ in range(levels):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (circle(), "must not contain itself"),
        ({"extends": shared()}, "nested at most 32"),
        ({"extends": "testbed", "name": shared(20)}, f"at most {MOST_NODES} values"),
        ({"extends": "testbed", "kinds": [{}] * 10**6}, f"at most {MOST_NODES} values"),
        ({"extends": "testbed", "kinds": [{}] * 10**4}, "49999 more problems"),
        ({"extends": "a\0b"}, "NUL"),
        ({"extends": "testbed", "network": {"trace": "\ud800"}}, "surrogate"),
        ({"extends": "a" * 5000}, "at most 4096 bytes"),
        ({"extends": "a" * 300}, "parts of at most 255 bytes"),
        ({"extends": "testbed", "name": "a" * 201}, "at most 200 characters"),
        ({"extends": "testbed", "name": "a\u202eb"}, "printable characters only, not U+202E"),
        ({"extends": "testbed", "name": "two\nlines"}, "printable characters only, not U+000A"),
        ({"extends": "testbed", "episode": {"pool_seed": 10**5000}}, "about 5000 digits: must be <"),
    ],
)
def test_a_mapping_is_held_to_the_same_limits(document, words):
    began = time.process_time()
    with pytest.raises(SettingsError) as caught:
        load_settings(document)
    assert words in str(caught.value)
    assert time.process_time() - began < 5.0


def kinds(**changes):
    usual = {"model": "bert-base", "batch_size": 8, "microbatches": [1, 2, 4, 8], "steps": [1, 2], "epoch_steps": 1}
    return {"kinds": [usual | changes]}


POISSON = {"kind": "poisson", "rate_per_hour": 1.0}
SIZES = {
    "devices": ({"domain_defaults": {"devices": 10**9}}, "<= 100000: every device"),
    "devices of one": ({"domains": [{"name": "a", "devices": 10**9}]}, "<= 100000: every device"),
    "devices of all": ({"domains": [{"name": str(n), "devices": 60_000} for n in range(2)],
                        "network": {"links": {"kind": "uniform", "gbps": 1, "latency_s": 0}}},
                       "all domains together"),
    "max_running": ({"episode": {"max_running": 10**9}}, "<= 1000000: every slot"),
    "queue_capacity": ({"episode": {"queue_capacity": 10**9}}, "<= 1000000: every slot"),
    "slots of many domains": ({"domains": [{"name": str(n)} for n in range(64)],
                               "network": {"links": {"kind": "uniform", "gbps": 1, "latency_s": 0}},
                               "episode": {"queue_capacity": 10**6}}, "keeps its traffic over every link"),
    "domains": ({"regions": [str(n) for n in range(1001)]}, "at most 1000 entries, not 1001: every pair"),
    "pool_size": ({"episode": {"pool_size": 10**9}}, "<= 100000: every instance"),
    "batch_size": (kinds(batch_size=2**63), "<= 100000000: bytes"),
    "steps": (kinds(steps=[1, 10**20]), "<= 1000000000000: at a millisecond"),
    "priority": (kinds(priority=10**30), "<= 1000000: policies"),
    "tick_s": ({"episode": {"tick_s": 1e-300}}, ">= 0.001: the clock"),
    "ticks": ({"episode": {"tick_s": 0.001, "horizon_s": 1e6}}, "each is an event"),
    "retries": ({"episode": {"retry_s": 0.001, "horizon_s": 1e6}}, "each is an event"),
    "horizon_s": ({"episode": {"horizon_s": 1e300}}, "<= 3.2e+09: the clock"),
    "rate_per_hour": ({"arrivals": POISSON | {"rate_per_hour": 1e308}}, "<= 1e+06: arrivals"),
    "rate next to none": ({"arrivals": POISSON | {"rate_per_hour": 1e-300}}, ">= 1e-06: arrivals"),
    "burst": ({"arrivals": POISSON | {"burst": {"start_h": 0, "end_h": 1, "factor": 1e300}}}, "<= 1000: arrivals"),
    "weights": ({"reward": {"w_eff": 1e308}}, "<= 1e+09: the reward"),
    "bandwidth": ({"domain_defaults": {"fabric_gbps": 1e-300}}, ">= 1e-06: slower"),
    "latency": ({"domain_defaults": {"fabric_latency_s": 1e300}}, "<= 1e+06: a task"),
    "idiosyncrasy": ({"episode": {"idiosyncrasy": 1e5}}, "<= 10: demands"),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_every_size_has_a_bound_and_says_why(name):
    change, words = SIZES[name]
    began = time.process_time()
    with pytest.raises(SettingsError) as caught:
        load_settings({"extends": "testbed"} | change)
    assert words in str(caught.value)
    assert time.process_time() - began < 5.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"agents": {"groups": 10**9}}, "<= 1000000: more would never end"),
        ({"agents": {"members": 10**6}}, "<= 1000: each is played"),
        ({"ranker": {"futures": 10**6}}, "<= 256: each candidate"),
        ({"seed": 2**70}, "generators take"),
        ({"agents": {"worlds": {"x\0": 3}}}, "NUL"),
    ],
)
def test_training_has_bounds_too(change, words):
    with pytest.raises(SettingsError) as caught:
        load_training_settings({"extends": "hi_ppo"} | change)
    assert words in str(caught.value)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * 4_000_001)
    with pytest.raises(SettingsError, match="at most 4000000 bytes"):
        load_settings(path)


def test_an_unknown_region_names_the_way_out():
    with pytest.raises(SettingsError) as caught:
        load_settings({"extends": "cross-domain-easy", "regions": ["aws:us-east-1", "moon:crater-1"]})
    assert "set network.links.kind to uniform or matrix" in str(caught.value)
    with pytest.raises(SettingsError, match="Did you mean 'aws:us-east-1'"):
        load_settings({"extends": "cross-domain-easy", "regions": ["aws:us-east1"]})
