"""Weights on disk: exactly what was written comes back, anything else is one clear error."""

import numpy as np
import pytest

from attribution_sched import storage
from attribution_sched.errors import CheckpointError
from attribution_sched.scheduler.predictor.gru_weights import KIND, SHIPPED, GruSize, GruWeights, load, save, shapes
from research.gru_training import first_arrays


@pytest.fixture
def stored(tmp_path):
    size = GruSize(hidden=6, window=5, longest_s=3600)
    weights = GruWeights(size, first_arrays(size, np.random.default_rng(0)), {"by": "a test"})
    save(weights, tmp_path / "w.safetensors")
    return weights, tmp_path / "w.safetensors"


def edit(path, **changes):
    header, arrays = storage.read(path, KIND)
    storage.write(path, KIND, header | changes, arrays)


def test_what_was_written_comes_back(stored):
    weights, path = stored
    again = load(path)
    assert again.size == weights.size
    assert again.made == {"by": "a test"}
    assert all(np.array_equal(again.arrays[name], array) for name, array in weights.arrays.items())
    assert [file.name for file in path.parent.iterdir()] == ["w.safetensors"]


def test_the_shipped_network_is_small_and_says_how_it_was_made():
    weights = load()
    assert SHIPPED.stat().st_size < 50_000
    assert weights.made["command"].startswith("python calibration/train_link_gru.py")
    assert {name: array.shape for name, array in weights.arrays.items()} == shapes(weights.size)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"none\.safetensors'?: does not exist"):
        load(tmp_path / "none.safetensors")


@pytest.mark.parametrize(
    "size", [{"hidden": 6}, {"hidden": -1, "window": 5, "longest_s": 9}, "large", {"hidden": True}, None]
)
def test_a_size_that_is_none_is_refused(stored, size):
    edit(stored[1], size=size)
    with pytest.raises(CheckpointError, match="checkpoint size"):
        load(stored[1])


def test_weights_of_another_size_are_refused(stored):
    edit(stored[1], size={"hidden": 7, "window": 5, "longest_s": 3600})
    with pytest.raises(CheckpointError, match="checkpoint arrays"):
        load(stored[1])


def test_weights_of_another_precision_are_refused(stored):
    header, arrays = storage.read(stored[1], KIND)
    storage.write(stored[1], KIND, header, arrays | {"out.bias": arrays["out.bias"].astype(np.float64)})
    with pytest.raises(CheckpointError, match="must hold float32 arrays"):
        load(stored[1])


def test_weights_that_are_no_numbers_are_not_even_written(stored):
    weights, path = stored
    weights.arrays["out.bias"][0] = np.nan
    with pytest.raises(CheckpointError, match="finite"):
        save(weights, path)
    assert load(path).size == weights.size


def test_weights_that_do_not_say_how_they_were_made_are_refused(stored):
    edit(stored[1], made=[1])
    with pytest.raises(CheckpointError, match="must say how it was made"):
        load(stored[1])
