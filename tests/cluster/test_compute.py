"""Cost tables: prefix sums of a roofline, masked precisions, and what each switch changes.

Measured layer profiles: the shipped laws against the measurements they were fitted to.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.compute import (
    SIZE_COLUMNS,
    TIME_COLUMNS,
    TP_DEGREES,
    Efficiencies,
    LayerProfile,
    build_tables,
    efficiencies,
    host_s_per_token,
    layer_profile,
)
from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.gpus import GPUS, PRECISIONS, Precision, gpu
from attribution_sched.cluster.memory import activation_share
from attribution_sched.cluster.models import model
from attribution_sched.cluster.models.catalogue import PROFILED_NAMES, profiled_model
from attribution_sched.cluster.world import Runtime

GPT, RESNET = model("gpt2-small"), model("resnet-50")
COLUMN = {name: i for i, name in enumerate(TIME_COLUMNS)}
HALF = Precision.FP16.index


def layer_times(tables, row, g, q, t, name, layers):
    """Undo the prefix sums of one column."""
    return np.diff(tables.times_s[row, g, q, t, COLUMN[name]])[:layers]


def test_half_precision_language_model_is_the_plain_roofline():
    card, achieved = gpu("A100-80"), efficiencies()
    tables = build_tables([GPT], [card], Runtime())
    hbm = achieved.memory * card.bandwidth_bytes_per_s
    flops = np.array([layer.forward_flops for layer in GPT.layers])
    expected = {
        "compute_forward": flops / (achieved.compute * card.peak_flops[Precision.FP16]),
        "memory_forward": achieved.moved * GPT.column("moved_elements") * 2 / hbm,
        "weights_forward": GPT.column("params") * 2 / hbm,
    }
    for name, seconds in expected.items():
        np.testing.assert_allclose(layer_times(tables, 0, 0, HALF, 0, name, len(GPT)), seconds, rtol=1e-9, atol=1e-18)
        backward = layer_times(tables, 0, 0, HALF, 0, name.replace("forward", "backward"), len(GPT))
        np.testing.assert_allclose(backward, 2 * seconds, rtol=1e-9, atol=1e-18)


def test_tensor_parallelism_divides_compute_but_not_all_element_traffic():
    tables = build_tables([GPT], [gpu("A100-80")], Runtime())
    for t, tp in enumerate(TP_DEGREES):
        for name, share in (("compute_forward", 1 / tp), ("memory_forward", activation_share(float(tp), False))):
            one, many = (layer_times(tables, 0, 0, HALF, i, name, len(GPT)) for i in (0, t))
            np.testing.assert_allclose(many, share * one, rtol=1e-9, atol=1e-18)


@pytest.mark.parametrize("card", list(GPUS))
def test_a_precision_without_hardware_is_nan_and_all_others_are_numbers(card):
    tables = build_tables([GPT, RESNET], [gpu(card)], Runtime())
    for precision in PRECISIONS:
        found = tables.times_s[:, 0, precision.index]
        if gpu(card).supports(precision):
            assert (np.isfinite(found)).all()
            assert (np.diff(found, axis=-1) >= 0).all()
        else:
            assert np.isnan(np.diff(found, axis=-1)).all()


def test_recomputation_adds_one_forward_to_the_backward_pass():
    plain, again = (
        build_tables([GPT], [gpu("A100-80")], Runtime(recompute=r)).times_s[0, 0, HALF, 0] for r in (False, True)
    )
    for name in ("compute", "memory", "weights", "floor"):
        forward, backward = plain[COLUMN[f"{name}_forward"]], again[COLUMN[f"{name}_backward"]]
        np.testing.assert_allclose(backward, plain[COLUMN[f"{name}_backward"]] + forward, rtol=1e-12)


def test_inference_that_only_reads_has_no_second_pass():
    tables = build_tables([replace(GPT, output_tokens=0)], [gpu("H100-80")], Runtime(), training=[False])
    assert (tables.times_s[0, 0, HALF, :, 4:] == 0).all()
    assert (tables.times_s[0, 0, HALF, :, 0, -1] > 0).all()


def test_reading_and_writing_share_the_sequence():
    """FLOPs of the products with weights are split by tokens; weights are read once, or once for every token."""
    read, both = (
        build_tables([replace(GPT, output_tokens=n)], [gpu("H100-80")], Runtime(), training=[False]).times_s[
            0, 0, HALF, 0
        ]
        for n in (0, GPT.sequence_length // 4)
    )
    written = GPT.sequence_length // 4
    head = len(GPT) - 1  # a layer without attention products
    whole = read[0, head + 1] - read[0, head]
    assert both[0, head + 1] - both[0, head] == pytest.approx(0.75 * whole)
    assert both[4, head + 1] - both[4, head] == pytest.approx(0.25 * whole)
    assert both[2, -1] == pytest.approx(read[2, -1])
    assert both[6, -1] == pytest.approx(written * read[2, -1])
    assert both[0, -1] + both[4, -1] < read[0, -1]  # what is written attends to what came before only
    assert both[8, -1] == pytest.approx(written * host_s_per_token(gpu("H100-80")))


def test_unfused_attention_moves_its_scores():
    fused, unfused = (
        build_tables([GPT], [gpu("A100-80")], Runtime(flash_attention=f)).times_s[0, 0, HALF, 0, 1, -1]
        for f in (True, False)
    )
    hbm = efficiencies().memory * gpu("A100-80").bandwidth_bytes_per_s
    more = efficiencies().moved * 2 * GPT.column("score_elements").sum() * 2 / hbm
    assert unfused - fused == pytest.approx(more)


def test_models_of_different_depth_share_one_table():
    tables = build_tables([GPT, RESNET], [gpu("A100-80")], Runtime())
    alone = build_tables([GPT], [gpu("A100-80")], Runtime())
    width = len(GPT) + 1
    assert tables.n_layers.tolist() == [len(GPT), len(RESNET)]
    np.testing.assert_array_equal(tables.times_s[0, ..., :width], alone.times_s[0])
    # Beyond a model's last layer a prefix sum stays at its total.
    shorter = int(np.argmin(tables.n_layers))
    tail = tables.sizes[shorter][:, int(tables.n_layers[shorter]) :]
    assert (tail == tail[:, :1]).all()


def test_sizes_add_up_to_the_model():
    tables = build_tables([GPT, RESNET], [gpu("A100-80")], Runtime())
    size = {name: i for i, name in enumerate(SIZE_COLUMNS)}
    for row, chain in enumerate((GPT, RESNET)):
        total = tables.sizes[row, :, -1]
        assert total[size["params_sharded"]] + total[size["params_whole"]] == pytest.approx(chain.params)
        kept = total[size["kept_sharded"]] + total[size["kept_whole"]] + total[size["kept_divided"]]
        assert kept == pytest.approx(chain.column("activation_elements").sum())
        assert total[size["flops"]] == pytest.approx(chain.forward_flops)
        assert tables.boundary[row, 0] == 0
        np.testing.assert_array_equal(tables.boundary[row, 1 : len(chain) + 1], chain.column("output_elements"))


@pytest.mark.parametrize("flash", [True, False])
@pytest.mark.parametrize("name", ["gpt2-small", "gpt3-6.7b"])
def test_peak_layer_is_the_largest_on_one_rank(name, flash):
    """The head of a small model, whose logits are divided; a block of a large one, with or without its scores."""
    chain = model(name)
    tables = build_tables([chain], [gpu("A100-80")], Runtime(flash_attention=flash))
    for t, tp in enumerate(TP_DEGREES):
        sets = [
            (1 / tp if layer.kind == "head" else activation_share(float(tp), False)) * layer.activation_elements
            + (0.0 if flash else layer.score_elements / tp)
            for layer in chain.layers
        ]
        assert tables.peak_layer[0, t] == pytest.approx(max(sets))


def test_a_measured_profile_replaces_the_roofline_in_training_only():
    chain, card = profiled_model("OPT-350"), gpu("A100-40")
    for training in (True, False):
        tables = build_tables([chain, GPT], [card], Runtime(), training=[training, True])
        assert tables.measured[0].all() == training
        assert not tables.measured[1].any()
    found = layer_profile(chain, card.name)
    tables = build_tables([chain], [card], Runtime())
    slope, floor, slope_back, floor_back = found.law(2)
    for name, expected in (
        ("compute_forward", slope), ("floor_forward", floor),
        ("compute_backward", slope_back), ("floor_backward", floor_back),
    ):  # fmt: skip
        seconds = layer_times(tables, 0, 0, Precision.FP32.index, 1, name, len(chain))
        np.testing.assert_allclose(seconds, expected, rtol=1e-9, atol=1e-15)
    assert (tables.times_s[0, 0, Precision.FP32.index, 1, [1, 2, 5, 6]] == 0).all()


def test_efficiencies_can_be_given():
    given = Efficiencies(0.5, 0.5, 1.0, 0.5, 0.5, 0.0)
    slow = build_tables([GPT], [gpu("A100-80")], Runtime(), achieved=given)
    fast = build_tables([GPT], [gpu("A100-80")], Runtime())
    assert slow.times_s[0, 0, HALF, 0, 0, -1] > fast.times_s[0, 0, HALF, 0, 0, -1]


RENAMED = {"GH-96": "H100-96"}


def test_only_profiled_chains_have_a_profile():
    assert layer_profile(model("opt-350m"), "A100-40") is None
    assert layer_profile(profiled_model("OPT-350"), "no such card") is None


@pytest.mark.parametrize("name", PROFILED_NAMES)
def test_every_stored_law_covers_the_chain_and_takes_time(name):
    chain = profiled_model(name)
    cards = load_constants("profiles")["models"][f"profiled {name}"]["gpus"]
    assert cards
    for card in cards:
        found = layer_profile(chain, card)
        assert found.precision is Precision.FP32
        for slope, floor, slope_back, floor_back in found.by_tp.values():
            assert len(slope) == len(chain)
            assert (np.stack([slope, floor, slope_back, floor_back]) >= 0).all()
            assert (slope + floor > 0).all()
            blocks = [layer.kind == "block" for layer in chain.layers]
            assert (slope_back + floor_back)[blocks].min() > 0


def test_a_degree_between_is_scaled_from_the_nearest():
    slope = np.array([4.0])
    profile = LayerProfile(Precision.FP32, {1: (slope, slope, slope, slope), 4: (slope / 2,) * 4})
    assert profile.law(4) is profile.by_tp[4]
    forward, floor, backward, floor_back = profile.law(8)
    assert (forward[0], backward[0]) == (1.0, 1.0)
    assert (floor[0], floor_back[0]) == (2.0, 2.0)


@pytest.mark.parametrize("name", PROFILED_NAMES)
def test_laws_give_back_the_measured_block_times(name, data_folder):
    path = data_folder / "sailor" / "layer_profiles.json"
    if not path.is_file():
        pytest.skip("the folder of measured data has no sailor/layer_profiles.json")
    chain, errors = profiled_model(name), []
    block = len(chain) // 2
    for card, by_batch in json.loads(path.read_text())[name].items():
        found = layer_profile(chain, RENAMED.get(card, card))
        for batch, by_tp in by_batch.items():
            for tp, table in by_tp.items():
                if int(tp) not in found.by_tp:
                    continue
                slope, floor, slope_back, floor_back = (law[block] for law in found.by_tp[int(tp)])
                for column, a, c in ((0, slope, floor), (1, slope_back, floor_back)):
                    errors.append(abs(np.hypot(int(batch) * a, c) / table[str(block)][column] - 1))
    assert len(errors) > 10
    assert np.mean(errors) < 0.1
