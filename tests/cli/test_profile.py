"""`attribution-sched profile`: what a user's model asks of this machine."""

import json
import sys

import pytest
import torch
from torch import nn

from attribution_sched.cli.profile_measure import (
    UsersError,
    as_task,
    distance,
    having,
    load,
    measure,
    nearest_world,
    random_input,
    samples_of,
    submission,
)
from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.config import load_settings
from attribution_sched.errors import TaskError
from attribution_sched.system.decision_records import in_a_word
from attribution_sched.system.system import System

from .helpers import errors, invoke, refused

CODE = """
import torch
from torch import nn

def conv():
    layers = nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4)
    model, inputs = nn.Sequential(*layers), torch.randn(4, 3, 32, 32)
    model(inputs)
    return model, inputs

def bare():
    return nn.Linear(16, 8)

def step():
    weight = torch.ones(8, 8, requires_grad=True)
    def one():
        (torch.ones(4, 8) @ weight).sum().backward()
    return one

def broken():
    raise ValueError("no\\nweights")

def mismatch():
    return nn.Linear(16, 8), torch.randn(2, 17)

def nothing():
    return None

number = 7
"""


@pytest.fixture
def code(here):
    (here / "their_models.py").write_text(CODE)
    yield here
    sys.modules.pop("their_models", None)
    sys.path[:] = [each for each in sys.path if each != str(here)]


def test_people_read_operators_counters_energy_and_the_nearest_task(code):
    done = invoke("profile", "their_models.py:conv", "--steps", "2", "--no-attribution", columns=80)
    assert done.exit_code == 0, done.stderr
    for words in ("Sequential", "a forward step takes", "4 samples", "convolution", "cpu_seconds", "measured"):
        assert words in done.stdout
    assert "Energy" in done.stdout
    assert "Nearest tasks of testbed" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_json_says_how_each_number_was_got(code):
    done = invoke("profile", "their_models:conv", "--train", "--steps", "2", "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["training"] is True
    assert told["samples_per_step"] == 4
    assert told["step_s"] > 0
    assert set(told["counters"]) == set(COUNTER_NAMES)
    for figure in told["counters"].values():
        assert (figure["value"] is None) == (figure["provenance"] == "unavailable")
        assert figure["how"]
    assert told["counters"]["conv"]["provenance"] == "measured"
    # 4 images, 16 filters of 3 x 3 x 3 at 30 x 30 places; the weight's gradient costs as much, the data has none.
    assert told["operators"]["conv"]["flops"] == pytest.approx(2 * 2 * 4 * 16 * 27 * 900)
    assert sum(each["time_share"] for each in told["operators"].values()) == pytest.approx(1.0)
    read = {name for name, figure in told["counters"].items() if figure["value"] is not None}
    assert set(told["submit"]["counters"]) == read and set(told["submit"]["provenance"]) == set(COUNTER_NAMES)
    assert told["submit"]["samples_per_s"] == pytest.approx(4 / told["step_s"])
    assert (told["attribution"] is None) or told["attribution"]["units"] == "J/sample"
    assert told["attribution_how"]


def test_counters_can_be_handed_to_a_system(code):
    done = invoke("profile", "their_models:conv", "--steps", "2", "--submit-as", "resnet-50")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["kind"] == "resnet-50"
    unread = [name for name, how in told["provenance"].items() if how == "unavailable"]
    assert unread and all(name in done.stderr for name in unread)
    with System("testbed", "greedy", queue="empty") as system:
        system.submit(told, id="mine")
        result = system.schedule_next_task()
        assert result.task.id == "mine"
        assert system.journal.task("mine").meta["provenance"] == told["provenance"]
        # No machine without a GPU measures its memory's bandwidth: EmSHAP carries it, and nothing is called measured.
        assert result.provenance["counters"] == in_a_word(told["provenance"])
        assert "memory_bandwidth" in result.attribution.missing and result.attribution["conv"] > 0.0


def test_a_model_becomes_a_kind_of_task_by_itself(code, tmp_path):
    """Its own layers and parameters, not those of the nearest kind."""
    path = tmp_path / "mine.yaml"
    words = ("--steps", "2", "--train", "--preset", "testbed", "--into", str(path), "--name", "ours")
    done = invoke("profile", "their_models:conv", *words)
    assert done.exit_code == 0, done.stderr
    assert "ours is a kind of task, 4 layers" in done.stderr
    told = json.loads(done.stdout)
    assert told["kind"] == "ours"
    model = next(kind.model for kind in load_settings(path).build_world().kinds if kind.model.name == "ours")
    assert model.params == 16 * 3 * 9 + 16 + 16 * 30 * 30 * 4 + 4
    assert model.column("conv_flops").sum() == 2 * 27 * 16 * 30 * 30 and model.column("attention_flops").sum() == 0.0
    with System(path, "greedy", queue="empty") as system:
        system.submit(told, id="mine")
        result = system.schedule_next_task()
        assert (result.task.id, result.task.kind) == ("mine", "ours")
    again = invoke("profile", "their_models:conv", *words)
    assert again.exit_code == 0 and path.read_text().count("model: ours") == 1


def test_a_function_has_no_layers_to_write(code, tmp_path):
    done = invoke("profile", "their_models:step", "--steps", "1", "--into", str(tmp_path / "mine.yaml"))
    assert done.exit_code == 2 and "--into = 'one': steps by itself" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "mine.yaml").exists()


def test_a_function_that_steps_by_itself_and_a_module_with_a_shape(code):
    done = invoke("profile", "their_models:step", "--steps", "1", "--warmup", "0", "--json", "--no-attribution")
    assert done.exit_code == 0, done.stderr
    # Forward and the weight's gradient: two products of 4 x 8 by 8 x 8.
    assert json.loads(done.stdout)["operators"]["fc"]["flops"] == 2 * (2 * 4 * 8 * 8)
    assert json.loads(done.stdout)["samples_per_step"] is None
    done = invoke("profile", "their_models:bare", "--input", "5x16", "--steps", "1", "--json", "--no-attribution")
    assert json.loads(done.stdout)["operators"]["fc"]["flops"] == 2 * 5 * 16 * 8


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("their_models",), ("MODULE:FACTORY = 'their_models'", "a colon")),
        (("their_model:conv",), ("MODULE = 'their_model'", "Did you mean 'their_models'?")),
        (("their_model.py:conv",), ("their_models.py",)),
        (("their_models:convv",), ("FACTORY = 'convv'", "Did you mean 'conv'?")),
        (("their_models:number",), ("is an int",)),
        (("their_models:nothing",), ("returned nothing",)),
        (("their_models:bare",), ("without inputs", "--input")),
        (("their_models:bare", "--input", "3xa"), ("--input = '3xa'",)),
        (("their_models:conv", "--submit-as", "resnet50"), ("--submit-as = 'resnet50'", "'resnet-50'")),
        (("their_models:conv", "--preset", "testbad"), ("'testbed'",)),
        (("their_models:conv", "--steps", "0"), ("--steps = 0", ">= 1")),
    ],
)
def test_a_mistake_is_one_line_and_code_2(code, arguments, words):
    refused(invoke("profile", *arguments), *words)


def test_what_their_code_raises_is_one_line_and_code_1_and_more_if_asked_for(code):
    done = invoke("profile", "their_models:broken")
    assert done.exit_code == 1
    assert errors(done) == ["failed: broken() raised ValueError: no weights. Add --traceback to see where"]
    assert "Traceback" not in done.stderr
    done = invoke("profile", "their_models:broken", "--traceback")
    assert done.exit_code == 1
    assert 'their_models.py", line ' in done.stderr
    assert "Add --traceback" not in done.stderr
    done = invoke("profile", "their_models:mismatch")
    assert done.exit_code == 1
    assert "a step of Linear raised RuntimeError" in errors(done)[0]


def test_shapes_become_tensors():
    assert random_input("2x3").shape == (2, 3)
    tokens = random_input("4x6:int10")
    assert tokens.dtype == torch.int64
    assert 0 <= tokens.min() <= tokens.max() < 10
    assert torch.equal(random_input("2x3"), random_input("2x3"))
    for wrong in ("", "x", "2x", "0x3", "2x3:float", "2x3:int0"):
        with pytest.raises(TaskError, match="--input"):
            random_input(wrong)


@pytest.mark.parametrize("wrong", ["9999999x9999999x99", "2x2:int99999999999999999999"])
def test_an_input_that_no_machine_holds_is_refused(wrong):
    with pytest.raises(TaskError, match=rf"--input = '{wrong}'.*Use smaller sizes"):
        random_input(wrong)


def test_samples_are_the_first_size_of_the_first_tensor():
    assert samples_of(torch.ones(3, 2)) == 3
    assert samples_of(("words", torch.ones(5))) == 5
    assert samples_of({"ids": torch.ones(7, 1)}) == 7
    assert samples_of(()) is None


def test_a_model_of_the_zoo_is_nearest_to_itself(code):
    class Like:
        """A measurement with the very arithmetic of a kind of task."""

        def __init__(self, kind):
            self.training, self.samples = kind.training, 8
            many = 8 * (3.0 if kind.training else 1.0)
            self.operators = type("O", (), {})()
            self.operators.flops = {
                group: many * float(kind.model.column(f"{group}_flops").sum()) for group in ("conv", "fc", "attention")
            }

    worlds = {name: load_settings(name).build_world() for name in ("cross-domain-easy", "testbed")}
    for name, world in worlds.items():
        for kind in world.kinds:
            assert distance(Like(kind), kind) == pytest.approx(0.0, abs=1e-9)
            others = [each for each in world.kinds if each.model.name != kind.model.name]
            assert all(distance(Like(kind), each) > 0 for each in others)
        assert nearest_world(Like(world.kinds[0]), worlds) == name
    assert set(having(worlds, "ResNet-50")) == {"testbed"}


def test_what_cannot_be_measured_is_handed_on_as_unavailable(code):
    subject = load("their_models:conv", None)
    found = measure(subject, training=False, steps=1, warmup=0)
    placed = as_task(found, load_settings("testbed").build_world(), "bert-base")
    assert placed.model == "bert-base"
    told = submission(placed)
    for name, figure in found.counters.items():
        assert (name in told["counters"]) == (figure.value is not None)
        assert told["provenance"][name] == ("unavailable" if figure.value is None else figure.provenance)
    assert told["counters"]["conv"] == found.counters["conv"].value
    assert isinstance(subject.model, nn.Module)


def test_the_users_own_error_is_the_cause(code):
    with pytest.raises(UsersError) as caught:
        load("their_models:broken", None)
    assert isinstance(caught.value.__cause__, ValueError)
