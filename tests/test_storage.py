"""The one checkpoint file: exact round trips, atomic writes, one clear error for every kind of damage, files of 0.1."""

import ast
import hashlib
import json
import os
import pickle
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save, save_file

from attribution_sched import storage
from attribution_sched.errors import CheckpointError
from attribution_sched.storage import read, take, write

ROOT = Path(__file__).parents[1]

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
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"cannot be written \(No space left on device\)\. Give another path"):
        write(file, "test", HEADER | {"steps": 13}, ARRAYS)
    assert file.read_bytes() == before
    assert [p.name for p in file.parent.iterdir()] == ["run.safetensors"]


def test_a_target_that_cannot_be_written_is_one_clear_error(tmp_path):
    for path in (tmp_path / "no" / "folder.safetensors", tmp_path):
        with pytest.raises(CheckpointError, match="cannot be written"):
            write(path, "test", HEADER, ARRAYS)


def test_what_killed_processes_left_is_swept_and_nothing_else(file):
    stale, fresh = file.with_name("run.safetensors.123.partial"), file.with_name("run.safetensors.124.partial")
    foreign = file.with_name("run.safetensors.mine.partial")
    for path in (stale, fresh, foreign):
        path.write_bytes(b"half")
    old = time.time() - storage.STALE_S - 1
    for path in (stale, foreign):
        os.utime(path, (old, old))
    write(file, "test", HEADER, ARRAYS)
    assert not stale.exists()
    assert fresh.exists() and foreign.exists()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_are_finite_unless_their_place_says_otherwise(file, value):
    odd = ARRAYS | {"clock.next": np.array([1.0, value])}
    with pytest.raises(CheckpointError, match=r"weight clock\.next.*must hold finite weights only"):
        write(file, "test", HEADER, odd)
    write(file, "test", HEADER, odd, any_number=("clock.",))
    with pytest.raises(CheckpointError, match=r"weight clock\.next.*must hold finite weights only"):
        read(file, "test")
    np.testing.assert_array_equal(read(file, "test", any_number=("clock.",))[1]["clock.next"], [1.0, value])


@pytest.mark.parametrize("header", [{"x": np.nan}, {"x": {1, 2}}, {"x": b"bytes"}])
def test_a_header_that_is_not_json_is_refused(tmp_path, header):
    with pytest.raises(CheckpointError, match="must be ready for JSON"):
        write(tmp_path / "x.safetensors", "test", header, ARRAYS)
    assert not list(tmp_path.iterdir())


def test_a_network_is_fed_only_the_attributions_it_learnt_on(tmp_path):
    path = tmp_path / "x.safetensors"
    write(path, "test", HEADER, ARRAYS, attribution_schema="counters-12/linear-7/v1")
    assert read(path, "test", attribution_schema="counters-12/linear-7/v1")[0] == HEADER
    for other in ("counters-12/emshap-7/v1", None):
        with pytest.raises(CheckpointError, match=r"attribution_schema = 'counters-12/linear-7/v1': it would read"):
            read(path, "test", attribution_schema=other)
    write(path, "test", HEADER, ARRAYS)
    with pytest.raises(CheckpointError, match="attribution_schema = None"):
        read(path, "test", attribution_schema="counters-12/linear-7/v1")


def told(file):
    """The description of a file."""
    from safetensors import safe_open

    with safe_open(str(file), framework="numpy") as opened:
        return json.loads(opened.metadata()["checkpoint"])


def retold(file, **changes):
    """The same file with its description changed."""
    save_file(load_file(file), file, metadata={"checkpoint": json.dumps(told(file) | changes)})


def forged(file, header, **marks):
    """A file with a right checksum over a header that nobody wrote."""
    mark = storage._Mark(marks.get("schema", "test"), marks.get("version", 1), None)
    about = {"format": storage.FORMAT, "attribution_schema": None, "schema": mark.schema, "version": mark.version}
    about |= {"header": header, "sha256": storage._digest(mark, header, ARRAYS)}
    save_file(ARRAYS, file, metadata={"checkpoint": json.dumps(about)})


def damaged(file, how):
    whole = file.read_bytes()
    if how == "missing":
        file.unlink()
    elif how == "truncated":
        file.write_bytes(whole[:-7])
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "one bit":
        file.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    elif how == "an array more":
        about = {"checkpoint": json.dumps(told(file))}
        save_file(load_file(file) | {"c": np.zeros(1)}, file, metadata=about)
    elif how == "another format":
        retold(file, format=99)
    elif how == "another edition":
        write(file, "test", HEADER, ARRAYS, version=7)
    elif how == "edition edited":
        retold(file, version=7)
    elif how == "another header":
        retold(file, header=json.dumps(HEADER | {"steps": 10**6}))
    elif how == "another schema":
        write(file, "other", HEADER, ARRAYS)
    elif how == "no description":
        save_file(load_file(file), file)
    elif how == "description no mapping":
        save_file(load_file(file), file, metadata={"checkpoint": "[1]"})
    elif how == "description deep":
        save_file(load_file(file), file, metadata={"checkpoint": "[" * 100_000})
    elif how == "header no mapping":
        forged(file, "[1, 2]")
    elif how == "header deep":
        forged(file, '{"x": ' * 100 + "1" + "}" * 100)
    elif how == "header very deep":
        forged(file, "[" * 100_000)
    elif how == "header broken":
        forged(file, "{")
    elif how == "metadata no mapping":
        inner = json.dumps({"__metadata__": [1]}).encode()
        file.write_bytes(struct.pack("<Q", len(inner)) + inner)
    elif how == "metadata deep":
        inner = b'{"__metadata__": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        file.write_bytes(struct.pack("<Q", len(inner)) + inner)
    elif how == "absurd header size":
        file.write_bytes(struct.pack("<Q", 2**63) + whole[8:])
    elif how == "an element type numpy lacks":
        inner = json.dumps(
            {"__metadata__": {"checkpoint": json.dumps(told(file))},
             "w": {"dtype": "F8_E5M2", "shape": [1], "data_offsets": [0, 1]}}
        ).encode()  # fmt: skip
        file.write_bytes(struct.pack("<Q", len(inner)) + inner + b"\0")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", "does not exist"),
        ("truncated", "truncated or not a checkpoint"),
        ("empty", "truncated or not a checkpoint"),
        ("one bit", "changed after it was written"),
        ("an array more", "changed after it was written"),
        ("another header", "changed after it was written"),
        ("edition edited", "changed after it was written"),
        ("another format", "checkpoint format = 99: this release reads format 2"),
        ("another edition", "checkpoint version = 7: this release reads version 1 of 'test'"),
        ("another schema", "checkpoint schema = 'other': must be 'test'"),
        ("no description", "checkpoint schema = None: must be 'test'"),
        ("description no mapping", "broken description"),
        ("description deep", "broken description"),
        ("header no mapping", "broken header"),
        ("header deep", "broken header"),
        ("header very deep", "broken header"),
        ("header broken", "broken header"),
        ("metadata no mapping", "must be 'test'"),
        ("metadata deep", "truncated or not a checkpoint"),
        ("absurd header size", "truncated or not a checkpoint"),
        ("an element type numpy lacks", "truncated or not a checkpoint|changed"),
    ],
)
def test_damage_is_one_clear_error(file, how, message):
    damaged(file, how)
    with pytest.raises(CheckpointError, match=message):
        read(file, "test")


def test_absurd_sizes_are_not_read(file, monkeypatch):
    monkeypatch.setattr(storage, "MOST_BYTES", 100)
    with pytest.raises(CheckpointError, match="at most 100 are read"):
        read(file, "test")
    monkeypatch.undo()
    monkeypatch.setattr(storage, "MOST_HEADER_BYTES", 100)
    with pytest.raises(CheckpointError, match=r"has a header of .* at most 100 are read"):
        read(file, "test")


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_no_changed_byte_gives_other_content(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "run.safetensors"
    write(path, "test", HEADER, ARRAYS)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole)
    try:
        header, arrays = read(path, "test")
    except CheckpointError:
        return
    assert header == HEADER
    assert all(arrays[name].tobytes() == array.tobytes() for name, array in ARRAYS.items())


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


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ([8], "must give rounds, width as whole numbers"),
        ({"width": 8}, "must give rounds, width"),
        ({"width": 8, "rounds": 2, "more": 1}, "must give rounds, width"),
        ({"width": 10**9, "rounds": 2}, "size.width = 1000000000: must be a whole number from 1 to 64"),
        ({"width": True, "rounds": 2}, "size.width = True"),
        ({"width": 8.0, "rounds": 2}, "size.width = 8.0"),
        ({"width": 8, "rounds": 0}, "size.rounds = 0"),
    ],
)
def test_sizes_that_would_take_all_memory_are_refused(size, message):
    with pytest.raises(CheckpointError, match=message):
        storage.expected_sizes("x", size, {"width": 64, "rounds": 4})


def old_file(path, layout, tampered=False):
    """A file as release 0.1 wrote it, in each of its three layouts."""
    text = json.dumps(HEADER, sort_keys=True)
    if layout == "beside":
        path.write_bytes(save(ARRAYS))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        about = {"format": 1, "sha256": "0" * 64 if tampered else digest, "size": {"width": 8}, "made": {"seed": 1}}
        path.with_suffix(".json").write_text(json.dumps(about))
        return
    digest = hashlib.sha256(f"test\n1\n{text}\n".encode())
    for name in sorted(ARRAYS):
        digest.update(f"{name} {ARRAYS[name].dtype.str} {ARRAYS[name].shape}\n".encode())
        digest.update(np.ascontiguousarray(ARRAYS[name]).tobytes())
    about = {"kind": "test", "header": text, "sha256": digest.hexdigest()}
    about["schema" if layout == "checkpoint" else "version"] = 1
    if tampered:
        about["header"] = text.replace("12", "13")
    save_file(ARRAYS, path, metadata={layout: json.dumps(about)})


@pytest.mark.parametrize("layout", ["checkpoint", "estimator", "beside"])
def test_files_of_0_1_are_converted_and_checked_by_their_own_checksum(tmp_path, layout):
    path = tmp_path / "old.safetensors"
    old_file(path, layout)
    # 0.1 did not say which attributions a network reads, so none are refused.
    header, arrays = read(path, "test", attribution_schema="counters-12/linear-7/v1")
    assert header == (HEADER if layout != "beside" else {"size": {"width": 8}, "made": {"seed": 1}})
    assert {name: array.tobytes() for name, array in arrays.items()} == {n: a.tobytes() for n, a in ARRAYS.items()}
    if layout != "beside":
        with pytest.raises(CheckpointError, match="schema = 'test': must be 'other'"):
            read(path, "other")
    old_file(path, layout, tampered=True)
    with pytest.raises(CheckpointError, match="changed after it was written"):
        read(path, "test")


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"format": 9, "sha256": "", "size": 1, "made": 1}'])
def test_a_description_of_0_1_that_is_none_is_refused(tmp_path, text):
    path = tmp_path / "old.safetensors"
    old_file(path, "beside")
    path.with_suffix(".json").write_text(text)
    with pytest.raises(CheckpointError, match=r"broken description|must describe weights of release 0\.1"):
        read(path, "test")


def test_no_other_module_reads_or_writes_safetensors():
    """One definition: attribution_sched/storage.py."""
    importers = set()
    for path in (ROOT / "attribution_sched").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if any(name.split(".")[0] == "safetensors" for name in names):
                importers.add(path.relative_to(ROOT).as_posix())
    assert importers == {"attribution_sched/storage.py"}


def test_every_shipped_file_is_of_this_format():
    for path in (ROOT / "attribution_sched").rglob("*.safetensors"):
        about = told(path)
        assert about["format"] == storage.FORMAT, path
        # An attributor is two models: EmSHAP in the one format, the energy model's few numbers beside it.
        assert path.parent.name == "shipped" or not path.with_suffix(".json").exists()
        assert (about["attribution_schema"] is not None) == (about["schema"] in ("hi-ppo", "hi-ppo-tree"))
