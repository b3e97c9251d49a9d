"""Measured layer profiles: the shipped laws against the measurements they were fitted to."""

import json

import numpy as np
import pytest

from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.models import model
from attribution_sched.cluster.models.profiled import PROFILED_NAMES, profiled_model
from attribution_sched.cluster.precision import Precision
from attribution_sched.cluster.profiles import LayerProfile, layer_profile

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
