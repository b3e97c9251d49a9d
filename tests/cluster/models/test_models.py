"""The catalogue as a whole: names, published counts, and laws that hold for every model.

The profiled networks against the measured size table, and how far the real models are from them.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from attribution_sched.cluster.memory import activation_share
from attribution_sched.cluster.models import MODELS, Layer, Model, TaskType, model, model_names
from attribution_sched.cluster.models.catalogue import BUILDERS, PROFILED_NAMES, profiled_model
from attribution_sched.errors import TaskError

# Written down from papers and model cards, apart from the catalogue, so that a slip there shows.
PUBLISHED = {
    "resnet-50": 25.557e6,
    "efficientnet-b0": 5.289e6,
    "efficientnet-b1": 7.794e6,
    "efficientnet-b2": 9.110e6,
    "efficientnet-b3": 12.233e6,
    "efficientnet-b4": 19.342e6,
    "shufflenet-v2": 2.279e6,
    "shufflenet-v2-cifar": 1.356e6,
    "vit-b-16": 86.57e6,
    "vit-l-16": 304.33e6,
    "bert-base": 109.48e6,
    "bert-large": 335.14e6,
    "gpt2-small": 124.4e6,
    "gpt2-medium": 354.8e6,
    "gpt2-large": 774.0e6,
    "gpt2-xl": 1557.6e6,
    "gpt3-small": 125e6,
    "gpt3-medium": 350e6,
    "gpt3-large": 760e6,
    "gpt3-xl": 1.3e9,
    "gpt3-2.7b": 2.7e9,
    "gpt3-6.7b": 6.7e9,
    "gpt3-13b": 13e9,
    "gpt3-175b": 174.6e9,
    "gpt-neo-2.7b": 2.651e9,
    "opt-350m": 331.2e6,
    "opt-1.3b": 1.316e9,
    "opt-2.7b": 2.652e9,
    "opt-6.7b": 6.658e9,
    "opt-13b": 12.853e9,
    "opt-30b": 29.975e9,
    "opt-66b": 65.72e9,
    "llama-2-7b": 6.738e9,
    "llama-2-13b": 13.016e9,
    "llama-2-70b": 68.977e9,
    "llama-3-8b": 8.030e9,
    "llama-3-70b": 70.554e9,
    "mixtral-8x7b": 46.703e9,
    "deepseek-v3": 671e9,
    "qwen-2.5-7b": 7.6156e9,
    "qwen-2.5-72b": 72.706e9,
    "whisper-large-v3": 1.5435e9,
    "dit-xl-2": 675e6,
    "sdxl-unet": 2.567e9,
}
ROUNDED_IN_THE_PAPER = {name for name in PUBLISHED if name.startswith("gpt3")} - {"gpt3-175b"}
NUMBERS = [f.name for f in fields(Layer) if f.type == "float"]


def test_catalogue_holds_exactly_the_promised_models():
    assert set(model_names()) == set(PUBLISHED)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_parameters_match_the_published_count(name):
    built = model(name)
    tolerance = 0.02 if name in ROUNDED_IN_THE_PAPER else 5e-4
    assert built.params == pytest.approx(PUBLISHED[name], rel=tolerance)
    assert built.published_params == pytest.approx(PUBLISHED[name], rel=5e-4)
    if built.published_params % 1000:  # an exact checkpoint count, not a rounded one
        assert built.params == built.published_params


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_chain_is_continuous(name):
    layers = model(name).layers
    assert [a.output_elements for a in layers[:-1]] == [b.input_elements for b in layers[1:]]


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_every_number_is_finite_and_sane(name):
    built = model(name)
    assert isinstance(built, Model)
    assert built.name == name
    assert len({layer.name for layer in built.layers}) == len(built)
    for layer in built.layers:
        for field in NUMBERS:
            value = getattr(layer, field)
            assert math.isfinite(value) and value >= 0, (layer.name, field)
        assert layer.kind in {"embedding", "block", "conv", "norm", "head"}
        assert layer.input_elements > 0 and layer.output_elements > 0
        # A layer cannot run without writing its output, nor learn without keeping something.
        # The skips of a U-Net wait beside its layers and are not moved by them.
        assert layer.moved_elements >= layer.output_elements or name == "sdxl-unet"
        assert layer.activation_elements > 0
        assert (layer.tp_reduced_elements > 0) == layer.tp_sharded


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_vision_models_have_no_sequence_and_language_models_have_one(name):
    built = model(name)
    if built.task_type is TaskType.VISION:
        assert built.sequence_length == 1
        channels = 4 if name in ("dit-xl-2", "sdxl-unet") else 3  # it reads latents, not pixels
        assert built.layers[0].input_elements == channels * built.input_size[0] * built.input_size[1]
    elif built.task_type is TaskType.SPEECH:
        assert built.layers[0].input_elements == built.input_size[0] * built.input_size[1]
    else:
        assert built.sequence_length == built.input_size[0] == built.layers[0].input_elements
        assert built.layers[1].input_elements == built.input_size[0] * built.input_size[1]


def test_equal_blocks_share_their_numbers():
    blocks = [layer for layer in model("opt-13b").layers if layer.kind == "block"]
    assert len(blocks) == 40
    assert len({tuple(getattr(b, f) for f in NUMBERS) for b in blocks}) == 1


def test_lookup_ignores_case_and_builds_once():
    assert model("LLaMA-3-8B") is model(" llama-3-8b ") is MODELS["llama-3-8b"]


@pytest.mark.parametrize(("wrong", "hint"), [("lama-3-8b", "llama-3-8b"), ("resnet50", "resnet-50"), ("", "Valid")])
def test_unknown_name_gives_the_nearest(wrong, hint):
    with pytest.raises(TaskError, match="is not in the model zoo") as caught:
        model(wrong)
    assert hint in str(caught.value) and repr(wrong) in str(caught.value)


def test_name_of_a_wrong_type_is_one_clear_error():
    with pytest.raises(TaskError, match="7: is not in the model zoo"):
        model(7)


def test_mapping_is_lazy_and_answers_like_a_mapping():
    assert list(MODELS) == list(model_names()) and len(MODELS) == len(PUBLISHED)
    assert "gpt2-xl" in MODELS and "gpt5" not in MODELS
    with pytest.raises(KeyError):
        MODELS["gpt5"]
    assert MODELS.get("gpt5") is None


def test_importing_the_zoo_builds_nothing_and_loads_no_heavy_library():
    code = (
        "import sys, attribution_sched.cluster.models as z; heavy = {'torch', 'pandas'} & set(sys.modules);"
        "assert not heavy, heavy; assert 'attribution_sched.cluster.models.catalogue' not in sys.modules;"
        "list(z.MODELS); assert z._built.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture(scope="module")
def sizes():
    folder = os.environ.get("ATTRIBUTION_SCHED_DATA")
    path = Path(folder) / "sailor" / "layer_sizes.json" if folder else None
    if path is None or not path.is_file():
        pytest.skip("ATTRIBUTION_SCHED_DATA does not point to a folder with sailor/layer_sizes.json")
    return json.loads(path.read_text())


def column(table, field):
    return [table[key][field] for key in sorted(table, key=int)]


@pytest.mark.parametrize("name", PROFILED_NAMES)
def test_every_layer_has_exactly_the_measured_parameters(sizes, name):
    assert list(profiled_model(name).column("params")) == column(sizes[name]["1"], "params_floats")


@pytest.mark.parametrize("name", PROFILED_NAMES)
def test_every_layer_but_the_head_sends_what_was_measured(sizes, name):
    outputs = list(profiled_model(name).column("output_elements"))[:-1]
    assert outputs == column(sizes[name]["1"], "act_output_floats")[:-1]


@pytest.mark.parametrize("name", PROFILED_NAMES)
def test_tensor_parallelism_divides_the_sharded_parameters(sizes, name):
    built = profiled_model(name)
    for ways in (int(key) for key in sizes[name] if key != "1"):
        measured = column(sizes[name][str(ways)], "params_floats")
        for layer, params in zip(built.layers, measured, strict=True):
            if layer.kind == "block":
                # Norms and the biases after a reduction stay whole on every rank.
                assert params == pytest.approx(layer.params / ways, rel=0.005)


@pytest.mark.parametrize(
    # The profiled LLaMA build fused none of its element-wise chains, so it kept more than the arithmetic says.
    ("name", "tolerance"),
    [("OPT-350", 0.08), ("OPT-30", 0.08), ("GPT-Neo-2.7", 0.08), ("LLAMA-3-8", 0.15)],
)
def test_blocks_keep_what_was_measured(sizes, name, tolerance):
    block = profiled_model(name).layers[1]
    for ways, table in sizes[name].items():
        share = activation_share(float(ways), False)
        kept = share * block.activation_elements + block.score_elements / int(ways)
        assert kept == pytest.approx(table["1"]["act_mem_floats"], rel=tolerance)


@pytest.mark.parametrize(
    ("profiled", "real", "tolerance"),
    [("OPT-350", "opt-350m", 1e-9), ("OPT-30", "opt-30b", 1e-9), ("GPT-Neo-2.7", "gpt-neo-2.7b", 2e-4)],
)
def test_blocks_of_the_real_models_are_the_profiled_ones(sizes, profiled, real, tolerance):
    measured = sizes[profiled]["1"]["1"]["params_floats"]
    assert model(real).layers[1].params == pytest.approx(measured, rel=tolerance)


def test_word_tables_of_the_real_models_differ_only_by_padding(sizes):
    for profiled, real in (("OPT-30", "opt-30b"), ("GPT-Neo-2.7", "gpt-neo-2.7b")):
        measured = sizes[profiled]["1"]["0"]["params_floats"]
        assert model(real).layers[0].params == pytest.approx(measured, rel=0.002)


def test_the_profiled_llama_is_larger_than_the_real_one():
    ratio = profiled_model("LLAMA-3-8").layers[1].forward_flops / model("llama-3-8b").layers[1].forward_flops
    assert ratio == pytest.approx(1.18, abs=0.005)


@pytest.mark.parametrize("name", PROFILED_NAMES)
def test_chain_is_continuous_and_complete(name):
    built = profiled_model(name)
    assert built.params == built.published_params
    assert [a.output_elements for a in built.layers[:-1]] == [b.input_elements for b in built.layers[1:]]


def test_unknown_profiled_name_gives_the_nearest():
    with pytest.raises(TaskError, match="Did you mean 'OPT-350'"):
        profiled_model("OPT-35")
