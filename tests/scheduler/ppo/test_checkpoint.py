"""The checkpoint file: exact round trips, atomic writes, and one clear error for every kind of damage."""

import json
import pickle

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from attribution_sched.errors import CheckpointError
from attribution_sched.scheduler.ppo import checkpoint
from attribution_sched.scheduler.ppo.checkpoint import read, take, write

ARRAYS = {
    "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a.streams": np.array([2**64 - 1, 7], dtype=np.uint64),
    "b.flags": np.array([True, False]),
    "b.step": np.array(3.0, dtype=np.float32),
    "b.nothing": np.zeros((0, 4)),
}
HEADER = {"steps": 12, "lr": 0.1 + 0.2, "names": ["r_eff", "r_cost"]}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.safetensors"
    write(path, "test", HEADER, ARRAYS)
    return path


def test_everything_comes_back_exactly(file):
    header, arrays = read(file, "test")
    assert header == HEADER
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype and arrays[name].shape == array.shape
        np.testing.assert_array_equal(arrays[name], array)
    assert set(take(arrays, "b.")) == {"flags", "step", "nothing"}


def test_equal_states_are_equal_files_and_nothing_else_is_left(file, tmp_path):
    again = tmp_path / "again.safetensors"
    write(again, "test", dict(reversed(HEADER.items())), dict(reversed(ARRAYS.items())))
    assert file.read_bytes() == again.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.safetensors", "run.safetensors"]


def test_a_write_that_fails_leaves_the_old_file(file, monkeypatch):
    before = file.read_bytes()

    def full(_):
        raise OSError("no space left")

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write(file, "test", HEADER | {"steps": 13}, ARRAYS)
    assert file.read_bytes() == before
    assert [p.name for p in file.parent.iterdir()] == ["run.safetensors"]


def retold(file, **changes):
    """The same file with its description changed."""
    from safetensors import safe_open

    with safe_open(str(file), framework="numpy") as opened:
        about = json.loads(opened.metadata()["checkpoint"])
    save_file(load_file(file), file, metadata={"checkpoint": json.dumps(about | changes)})


def damaged(file, how):
    if how == "missing":
        file.unlink()
    elif how == "truncated":
        file.write_bytes(file.read_bytes()[:-7])
    elif how == "one bit":
        content = bytearray(file.read_bytes())
        content[-3] ^= 1
        file.write_bytes(content)
    elif how == "an array more":
        from safetensors import safe_open

        with safe_open(str(file), framework="numpy") as opened:
            about = opened.metadata()
        save_file(load_file(file) | {"c": np.zeros(1)}, file, metadata=about)
    elif how == "another version":
        retold(file, schema=99)
    elif how == "another header":
        retold(file, header=json.dumps(HEADER | {"steps": 10**6}))
    elif how == "another kind":
        retold(file, kind="other")
    elif how == "no description":
        save_file(load_file(file), file)
    elif how == "empty":
        file.write_bytes(b"")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", "does not exist"),
        ("truncated", "truncated or not a checkpoint"),
        ("empty", "truncated or not a checkpoint"),
        ("one bit", "changed after it was written"),
        ("an array more", "changed after it was written"),
        ("another header", "changed after it was written"),
        ("another version", "checkpoint version = 99: this release reads version 1"),
        ("another kind", "checkpoint kind = 'other': must be 'test'"),
        ("no description", "checkpoint kind = None"),
    ],
)
def test_damage_is_one_clear_error(file, how, message):
    damaged(file, how)
    with pytest.raises(CheckpointError, match=message):
        read(file, "test")


class Hostile:
    """Would leave a mark if it were ever unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


def test_a_pickle_is_refused_and_never_run(tmp_path):
    mark, file = tmp_path / "mark", tmp_path / "run.safetensors"
    file.write_bytes(pickle.dumps(Hostile(mark)))
    with pytest.raises(CheckpointError, match="truncated or not a checkpoint"):
        read(file, "test")
    assert not mark.exists()
