"""The profiled networks against the measured size table, and how far the real models are from them."""

import json
import os
from pathlib import Path

import pytest

from attribution_sched.cluster.memory import activation_share
from attribution_sched.cluster.models import model
from attribution_sched.cluster.models.profiled import PROFILED_NAMES, profiled_model
from attribution_sched.errors import TaskError


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


def test_unknown_name_gives_the_nearest():
    with pytest.raises(TaskError, match="Did you mean 'OPT-350'"):
        profiled_model("OPT-35")
