"""``profile links`` and ``profile stages`` fill a preset, or say in one error why not and write nothing."""

import pytest
import yaml

from attribution_sched.cli.fill import chain_s
from attribution_sched.config import load_settings
from tests.cli.helpers import invoke

CHAIN = """
import torch
from torch import nn

def make():
    return nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(3)], nn.Linear(512, 8))
"""


@pytest.fixture
def preset(tmp_path):
    path = tmp_path / "mine.yaml"
    words = ("--domain", "east=8xA100-80", "--domain", "west=4xA100-80", "--domain", "far-north=4xA100-80")
    assert invoke("init", "-o", str(path), *words).exit_code == 0
    assert "# Links: NOT MEASURED" in path.read_text()
    return path


def test_all_links_are_filled(preset):
    done = invoke("profile", "links", "--seconds", "0.05", "--into", str(preset))
    assert done.exit_code == 0 and "written" in done.stdout
    text = preset.read_text()
    assert "NOT MEASURED" not in text and "all measured by `profile links`" in text
    told = yaml.safe_load(text)["network"]
    wan = load_settings(preset).build_world().cluster.wan
    # Priced with what is left of a direction while the other is busy.
    expected = told["links"]["gbps"] * told["duplex_efficiency"]
    assert wan.bandwidth_gbps[0, 1] == pytest.approx(expected) and 0.0 < told["links"]["latency_s"] < 0.02


def test_one_link_is_filled_and_the_others_stay(preset):
    before = load_settings(preset).build_world().cluster.wan
    assert (
        invoke("profile", "links", "--seconds", "0.05", "--into", str(preset), "--link", "west-far-north").exit_code
        == 0
    )
    told = yaml.safe_load(preset.read_text())["network"]["links"]
    assert told["bandwidth_gbps"][1][2] == told["bandwidth_gbps"][2][1] != told["bandwidth_gbps"][0][1]
    assert told["bandwidth_gbps"][0][1] == before.bandwidth_gbps[0, 1]
    assert told["latency_s"][0] == before.latency_s[0].tolist()


def test_a_domain_gets_the_device_on_which_the_chain_takes_as_long(preset, tmp_path):
    (tmp_path / "chain.py").write_text(CHAIN)
    words = ("--input", "2048x512", "--into", str(preset), "--domain", "west", "--name", "mine")
    done = invoke("profile", "stages", f"{tmp_path}/chain.py:make", *words)
    assert done.exit_code == 0, done.output
    wanted_s = float(done.stdout.rpartition("(")[2].partition(")")[0])
    told, world = yaml.safe_load(preset.read_text()), load_settings(preset).build_world()
    assert [each.gpu.name for each in world.cluster.domains] == ["A100-80", "west-measured", "A100-80"]
    layers = len(next(each.model for each in world.kinds if each.model.name == "mine").layers)
    assert chain_s(told, 1, "mine", layers, 2048) == pytest.approx(wanted_s, rel=0.03)
    assert chain_s(told | {"gpus": {}, "domains": [{**row, "gpu": "A100-80"} for row in told["domains"]]}, 1, "mine",
                   layers, 2048) < wanted_s  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ["links", "--seconds", "0.05", "--link", "east-west"],
        ["links", "--seconds", "0.05", "--into", "PRESET", "--link", "east-mars"],
        ["links", "--seconds", "0.05", "--into", "none.yaml"],
        ["stages", "CHAIN", "--input", "4x512", "--into", "PRESET"],
        ["stages", "CHAIN", "--input", "4x512", "--domain", "east"],
        ["stages", "CHAIN", "--input", "4x512", "--into", "PRESET", "--domain", "mars"],
        # Quicker than a GPU launches its kernels.
        ["stages", "CHAIN", "--input", "1x512", "--into", "PRESET", "--domain", "east"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_filled_is_one_error_and_nothing_is_written(preset, tmp_path, words):
    (tmp_path / "chain.py").write_text(CHAIN)
    before, places = preset.read_text(), {"PRESET": str(preset), "CHAIN": f"{tmp_path}/chain.py:make"}
    done = invoke("profile", *(places.get(word, word) for word in words))
    assert done.exit_code == 2 and len(done.stderr.strip().splitlines()) == 1, done.output
    assert preset.read_text() == before
