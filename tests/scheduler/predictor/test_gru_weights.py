"""Weights on disk: exactly what was written comes back, anything else is one clear error."""

import json

import numpy as np
import pytest

from attribution_sched.errors import CheckpointError
from attribution_sched.scheduler.predictor.gru_training import first_arrays
from attribution_sched.scheduler.predictor.gru_weights import SHIPPED, GruSize, GruWeights, load, save, shapes


@pytest.fixture
def stored(tmp_path):
    size = GruSize(hidden=6, window=5, longest_s=3600)
    weights = GruWeights(size, first_arrays(size, np.random.default_rng(0)), {"by": "a test"})
    save(weights, tmp_path / "w.safetensors")
    return weights, tmp_path / "w.safetensors"


def edit(path, **changes):
    file = path.with_suffix(".json")
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_what_was_written_comes_back(stored):
    weights, path = stored
    again = load(path)
    assert again.size == weights.size
    assert again.made == {"by": "a test"}
    assert all(np.array_equal(again.arrays[name], array) for name, array in weights.arrays.items())
    assert sorted(file.name for file in path.parent.iterdir()) == ["w.json", "w.safetensors"]


def test_the_shipped_network_is_small_and_says_how_it_was_made():
    weights = load()
    assert SHIPPED.stat().st_size < 50_000
    assert weights.made["command"].startswith("python calibration/train_link_gru.py")
    assert {name: array.shape for name, array in weights.arrays.items()} == shapes(weights.size)


def test_missing_files_are_named(stored, tmp_path):
    _, path = stored
    with pytest.raises(CheckpointError, match=r"none\.json'?: does not exist"):
        load(tmp_path / "none.safetensors")
    path.unlink()
    with pytest.raises(CheckpointError, match=r"w\.safetensors'?: does not exist"):
        load(path)


def test_a_changed_byte_is_found(stored):
    _, path = stored
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="checksum does not match"):
        load(path)


def test_another_format_is_refused(stored):
    edit(stored[1], format=99)
    with pytest.raises(CheckpointError, match=r"format = 99: this release reads format 1"):
        load(stored[1])


@pytest.mark.parametrize(
    "size", [{"hidden": 6}, {"hidden": -1, "window": 5, "longest_s": 9}, "large", {"hidden": True}]
)
def test_a_size_that_is_none_is_refused(stored, size):
    edit(stored[1], size=size)
    with pytest.raises(CheckpointError, match="checkpoint size"):
        load(stored[1])


def test_weights_of_another_size_are_refused(stored):
    edit(stored[1], size={"hidden": 7, "window": 5, "longest_s": 3600})
    with pytest.raises(CheckpointError, match="checkpoint arrays"):
        load(stored[1])


def test_weights_that_are_no_numbers_are_refused(stored):
    weights, path = stored
    weights.arrays["out.bias"][0] = np.nan
    save(weights, path)
    with pytest.raises(CheckpointError, match="finite float32"):
        load(path)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', "not json"])
def test_a_description_that_is_none_is_refused(stored, text):
    stored[1].with_suffix(".json").write_text(text)
    with pytest.raises(CheckpointError, match="Save the network again"):
        load(stored[1])


def test_a_file_that_is_no_safetensors_is_refused(stored):
    import hashlib

    path = stored[1]
    path.write_bytes(b"something else")
    edit(path, sha256=hashlib.sha256(b"something else").hexdigest())
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        load(path)
