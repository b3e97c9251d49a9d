"""``attribution-sched init``: a preset from an inventory, from words or from questions, that can be loaded."""

import pytest
from typer.testing import CliRunner

from attribution_sched import load_settings
from attribution_sched.cli import init as subject
from attribution_sched.cli.app import app
from attribution_sched.cli.init import Site, catalogued, parsed
from attribution_sched.errors import SettingsError
from attribution_sched.executors.shadow import Shadow, ShadowNode

RUNNER = CliRunner()


def test_from_words(tmp_path):
    path = tmp_path / "mine.yaml"
    options = ["--domain", "east=8xA100-80", "--domain", "west=4xH100-80/4", "--gbps", "5"]
    done = RUNNER.invoke(app, ["init", "-o", str(path), *options])
    assert done.exit_code == 0, done.output
    world = load_settings(str(path)).build_world()
    assert [(each.name, each.devices, each.node_devices, each.gpu.name) for each in world.cluster.domains] == [
        ("east", 8, 8, "A100-80"), ("west", 4, 4, "H100-80"),
    ]  # fmt: skip
    assert world.cluster.wan.bandwidth_gbps[0, 1] == 5.0
    assert "NOT MEASURED" not in path.read_text() and "llama-2-70b" in path.read_text().splitlines()[1]


def test_from_questions(tmp_path):
    path = tmp_path / "mine.yaml"
    done = RUNNER.invoke(app, ["init", "-o", str(path)], input="2\nhere\nA100-40\n4\n4\nthere\n\n8\n8\n")
    assert done.exit_code == 0, done.output
    world = load_settings(str(path)).build_world()
    assert [(each.name, each.devices, each.gpu.name) for each in world.cluster.domains] == [
        ("here", 4, "A100-40"), ("there", 8, "A100-40"),
    ]  # fmt: skip
    assert "NOT MEASURED" in path.read_text()


def test_questions_that_nobody_answers_are_one_line(tmp_path):
    """Found by the fuzzer: it was "failed: Abort:", with nothing after it."""
    path = tmp_path / "mine.yaml"
    done = RUNNER.invoke(app, ["init", "-o", str(path)], input="2\n")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == (
        "error: a question was not answered. Give the answers as options, see --help"
    )
    assert not path.exists()


def test_from_a_slurm(tmp_path, monkeypatch):
    nodes = [ShadowNode(f"n{at}", ("gpu",), 4, 0, "idle") for at in range(3)]
    nodes.append(ShadowNode("c0", ("cpu",), 0, 0, "idle"))
    monkeypatch.setattr("attribution_sched.executors.shadow.read_live", lambda ask, now: Shadow((), tuple(nodes), now))
    monkeypatch.setattr("attribution_sched.executors.slurm.ask_slurm", lambda command, conf=None: "gpu:a100:4(S:0)\n")
    path = tmp_path / "mine.yaml"
    done = RUNNER.invoke(app, ["init", "-o", str(path), "--slurm"])
    assert done.exit_code == 0, done.output
    (only,) = load_settings(str(path)).build_world().cluster.domains
    assert (only.name, only.devices, only.node_devices, only.gpu.name) == ("gpu", 12, 4, "A100-80")


class Ray:
    """What is asked of Ray."""

    @staticmethod
    def nodes():
        def node(label, gpus, alive=True):
            resources = {"GPU": gpus, "CPU": 8.0, "accelerator_type:L4": 1.0}
            return {"Alive": alive, "Labels": {"domain": label} if label else {}, "Resources": resources}

        return [node("east", 4.0), node("east", 2.0), node("west", 8.0), node(None, 1.0), node("west", 8.0, False)]


def test_from_a_ray(monkeypatch):
    monkeypatch.setattr("attribution_sched.executors.ray.connect", lambda address: Ray)
    assert subject.ray_sites("auto") == [Site("east", 6, 4, "L4-24"), Site("west", 8, 8, "L4-24")]


@pytest.mark.parametrize(
    ("word", "name"),
    [("a100", "A100-80"), ("nvidia_a100_40gb", "A100-40"), ("H100", "H100-96"), ("L40S", "L40S-48"), ("mi300x", "")],
)
def test_an_engines_word_for_a_gpu(word, name):
    assert catalogued([word]) == name


@pytest.mark.parametrize("text", ["", "east", "east=8", "east=8x", "east=eightxA100-80", "=8xA100-80", "e=8xA100-80/n"])
def test_a_wrong_word_is_refused(text):
    with pytest.raises(SettingsError, match="NAME=NxGPU"):
        parsed(text)


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--domain", "east=8xB1"], "not in the catalogue"), (["--slurm", "--ray", "auto"], "one must be chosen"),
     (["--domain", "e=8xA100-80", "--extends", "nothing"], "nothing"), (["--domain", "e=0xA100-80"], "devices")],
)  # fmt: skip
def test_what_is_wrong_leaves_no_file(tmp_path, options, words):
    path = tmp_path / "mine.yaml"
    done = RUNNER.invoke(app, ["init", "-o", str(path), *options])
    assert done.exit_code != 0 and not path.exists()
    assert words in str(done.exception) + done.output


def test_a_file_that_is_there_is_kept(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("mine")
    done = RUNNER.invoke(app, ["init", "-o", str(path), "--domain", "e=8xA100-80"])
    assert done.exit_code != 0 and path.read_text() == "mine"
