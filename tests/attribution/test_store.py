import numpy as np
import pytest
from safetensors.numpy import save_file

from attribution_sched.attribution import store
from attribution_sched.errors import CheckpointError

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([1, 2], dtype=np.int64)}


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "model.safetensors"
    store.write(target, "thing", {"x": [1, 2], "name": "n"}, ARRAYS)
    return target


def test_round_trip(path):
    header, arrays = store.read(path, "thing")
    assert header == {"x": [1, 2], "name": "n"}
    for key, value in ARRAYS.items():
        assert arrays[key].dtype == value.dtype
        assert np.array_equal(arrays[key], value)


def test_no_partial_file_is_left(path):
    assert [p.name for p in path.parent.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("keep", [0, 7, 40, 0.5, 0.99])
def test_truncated_files_are_refused(path, keep):
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if keep < 1 else keep])
    with pytest.raises(CheckpointError, match="truncated"):
        store.read(path, "thing")


def test_every_changed_payload_byte_is_noticed(path):
    data = path.read_bytes()
    for position in range(len(data) - 64, len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(CheckpointError):
            store.read(path, "thing")


def test_a_changed_setting_is_noticed(path):
    path.write_bytes(path.read_bytes().replace(b"[1, 2]", b"[1, 3]"))
    with pytest.raises(CheckpointError, match="checksum"):
        store.read(path, "thing")


def test_another_version_kind_or_file_is_refused(path, tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match="must be 'other'"):
        store.read(path, "other")
    with pytest.raises(CheckpointError, match="does not exist"):
        store.read(tmp_path / "missing", "thing")
    foreign = tmp_path / "foreign.safetensors"
    save_file(ARRAYS, foreign)
    with pytest.raises(CheckpointError, match="kind"):
        store.read(foreign, "thing")
    monkeypatch.setattr(store, "FORMAT_VERSION", 2)
    with pytest.raises(CheckpointError, match="version"):
        store.read(path, "thing")
