"""Weights and training runs on disk: what is written comes back bit by bit, anything else is refused in one error."""

import json
import pickle
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched import storage
from attribution_sched.errors import CheckpointError
from attribution_sched.scheduler.hi_ppo import checkpoint
from attribution_sched.scheduler.hi_ppo.checkpoint import (
    ATTRIBUTION_SCHEMA,
    KIND,
    TRAINING_KIND,
    describe,
    feature_names,
    load,
    resume_training,
    save,
    save_training,
)
from attribution_sched.scheduler.hi_ppo.cluster_batch import field_arrays
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork, NetworkSize

from .tiny_courses import HOW, SIZE, small_network, small_trainer


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A network, and the bytes of its checkpoint."""
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    network = small_network(3)
    save(path, network, {"made": "by a test"})
    return network, path.read_bytes()


@pytest.fixture
def file(written, tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(written[1])
    return path


def equal(one, other):
    ours, theirs = one.state_dict(), other.state_dict()
    return set(ours) == set(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("conv", ["edge-sage", "gine", "gatv2"])
def test_weights_come_back_bit_by_bit(tmp_path, conv):
    network = small_network(7, NetworkSize(16, 8, 2, conv, "max"))
    save(tmp_path / "w.safetensors", network, {"seed": 7})
    found = load(tmp_path / "w.safetensors")
    assert equal(found, network)
    assert found.size == network.size
    assert not found.training
    assert {weight.device.type for weight in found.parameters()} == {"cpu"}
    assert all(weight.requires_grad != (name == "agents") for name, weight in found.named_parameters())
    assert describe(tmp_path / "w.safetensors") == {"seed": 7}


def test_equal_networks_are_equal_files(tmp_path, file):
    save(tmp_path / "again.safetensors", small_network(3), {"made": "by a test"})
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()


def test_reading_is_quick(tmp_path):
    save(tmp_path / "w.safetensors", HiPpoNetwork(), {})
    took = []
    for _ in range(3):
        began = time.process_time()
        load(tmp_path / "w.safetensors")
        took.append(time.process_time() - began)
    assert min(took) < 0.05


def test_a_missing_file_is_told_with_the_command_that_makes_one(tmp_path):
    with pytest.raises(CheckpointError, match=r"does not exist\. .*attribution-sched train --preset hi_ppo_tuned"):
        load(tmp_path / "none.safetensors")
    with pytest.raises(CheckpointError, match="does not exist"):
        load(tmp_path)


def test_a_truncated_file_is_refused(file):
    whole = file.read_bytes()
    for length in (0, 4, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="truncated or not a checkpoint"):
            load(file)


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_no_changed_byte_gives_other_weights(written, tmp_path_factory, data):
    network, whole = written
    at = data.draw(st.one_of(st.integers(0, 3000), st.integers(0, len(whole) - 1)))
    path = tmp_path_factory.mktemp("changed") / "w.safetensors"
    path.write_bytes(whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :])
    try:
        found = load(path)
    except CheckpointError:
        return
    assert equal(found, network)


def test_changed_weights_are_refused(file):
    whole = bytearray(file.read_bytes())
    whole[-3] ^= 1
    file.write_bytes(whole)
    with pytest.raises(CheckpointError, match="checksum does not match"):
        load(file)


def test_another_version_is_refused(file, monkeypatch):
    monkeypatch.setattr(storage, "FORMAT", storage.FORMAT + 1)
    with pytest.raises(CheckpointError, match="checkpoint format = 2: this release reads format 3"):
        load(file)


def test_weights_for_other_features_are_refused_by_name(file, monkeypatch):
    names = feature_names()
    monkeypatch.setattr(checkpoint, "feature_names", lambda: names | {"edges": [*names["edges"], "jitter"]})
    with pytest.raises(CheckpointError, match="features = 'jitter': was made for other edges features"):
        load(file)
    monkeypatch.setattr(checkpoint, "feature_names", lambda: names | {"nodes": names["nodes"][::-1]})
    with pytest.raises(CheckpointError, match="features = 'nodes'"):
        load(file)


class Harm:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_a_pickle_is_refused_and_not_run(tmp_path, form):
    harm, path = tmp_path / "harm", tmp_path / "w.safetensors"
    if form == "pickle":
        path.write_bytes(pickle.dumps(Harm(harm)))
    else:
        torch.save({"weights": Harm(harm)}, path)
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        load(path)
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        resume_training(path, None)
    assert not harm.exists()


def read(file, kind):
    return storage.read(file, kind, attribution_schema=ATTRIBUTION_SCHEMA, any_number=("",))


def write(file, kind, header, arrays):
    storage.write(file, kind, header, arrays, attribution_schema=ATTRIBUTION_SCHEMA, any_number=("",))


def test_weights_for_another_attribution_vector_are_refused(file, monkeypatch):
    monkeypatch.setattr(checkpoint, "ATTRIBUTION_SCHEMA", "counters-12/emshap-7/v2")
    with pytest.raises(CheckpointError, match=r"attribution_schema = 'log-energy-1'.*emshap-7/v2"):
        load(file)
    with pytest.raises(CheckpointError, match="attribution_schema"):
        describe(file)


def forged(file, **changes):
    """A checkpoint with a valid checksum over a header and weights that nobody saved."""
    header, arrays = read(file, KIND)
    header |= {name: value for name, value in changes.items() if name != "arrays"}
    write(file, KIND, header, arrays | changes.get("arrays", {}))


@pytest.mark.parametrize(
    ("size", "rule"),
    [
        ({"width": 10**9}, "size.width = 1000000000: must be a whole number from 1 to 1024"),
        ({"width": 0}, "size.width = 0"),
        ({"rounds": True}, "size.rounds = True"),
        ({"hidden": "8"}, "size.hidden = '8'"),
        ({"conv": "edge-sag"}, "Did you mean 'edge-sage'"),
        ({"more": 1}, "must give conv, hidden, pooling, rounds, width"),
        ({"width": 32}, "checkpoint weight .* must be"),
        ({"rounds": 2}, "is a weight of the file or of the network, but not of both"),
    ],
)
def test_a_forged_size_is_refused(file, size, rule):
    forged(file, size=SIZE.to_json() | size)
    with pytest.raises(CheckpointError, match=rule):
        load(file)


@pytest.mark.parametrize("header", ["[1]", "{", '"x"', "null", "[" * 100_000])
def test_a_forged_header_is_refused(tmp_path, header, monkeypatch):
    monkeypatch.setattr(storage.json, "dumps", lambda value, **how: header if "size" in value else DUMPS(value, **how))
    save(tmp_path / "w.safetensors", small_network(), {})
    monkeypatch.undo()
    with pytest.raises(CheckpointError):
        load(tmp_path / "w.safetensors")


DUMPS = json.dumps


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_neither_read_nor_written(file, tmp_path, value):
    forged(file, arrays={"value.0.bias": np.full(16, value, dtype=np.float32)})
    with pytest.raises(CheckpointError, match=r"weight value\.0\.bias.*finite"):
        load(file)
    network = small_network()
    with torch.no_grad():
        network.value[0].bias[2] = value
    with pytest.raises(CheckpointError, match=r"weight value\.0\.bias.*finite"):
        save(tmp_path / "new.safetensors", network, {})
    assert not (tmp_path / "new.safetensors").exists()


@pytest.mark.parametrize("array", [np.zeros(15, dtype=np.float32), np.zeros(16), np.zeros((16, 1), dtype=np.float32)])
def test_a_weight_of_another_form_is_refused(file, array):
    forged(file, arrays={"value.0.bias": array})
    with pytest.raises(CheckpointError, match=r"weight value\.0\.bias = .*must be \(16,\) of float32"):
        load(file)


def test_a_failed_write_leaves_the_old_file(file, monkeypatch):
    def full(number):
        raise OSError(28, "No space left on device")

    before = file.read_bytes()
    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left"):
        save(file, small_network(4), {})
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def everything(trainer):
    """All that a run consists of."""
    moments = [
        (index, name, torch.as_tensor(value).clone())
        for index, state in sorted(trainer.optimiser.state_dict()["state"].items())
        for name, value in sorted(state.items())
    ]
    return (
        {name: tensor.clone() for name, tensor in trainer.network.state_dict().items()},
        moments,
        trainer.generator.get_state(),
        [(list(field_arrays(f).values()), list(f.returns)) for f in trainer.fields],
        (trainer.number, trainer.decisions, trainer.agent_steps, trainer.multipliers),
    )


def identical(one, other):
    return (
        set(one[0]) == set(other[0])
        and all(torch.equal(one[0][name], other[0][name]) for name in one[0])
        and len(one[1]) == len(other[1]) > 0
        and all(a[:2] == b[:2] and torch.equal(a[2], b[2]) for a, b in zip(one[1], other[1], strict=True))
        and torch.equal(one[2], other[2])
        and all(
            all(np.array_equal(x, y, equal_nan=True) for x, y in zip(a[0], b[0], strict=True)) and a[1] == b[1]
            for a, b in zip(one[3], other[3], strict=True)
        )
        and one[4] == other[4]
    )


def test_a_resumed_run_is_the_run_that_never_stopped(tmp_path):
    straight = small_trainer()
    for i in range(4):
        straight.iterate(i / 4)
    stopped = small_trainer()
    for i in range(2):
        stopped.iterate(i / 4)
    stopped.fields[0].returns.append(0.1 + 0.2)
    save_training(tmp_path / "state.safetensors", stopped, {"best": -1.25})
    resumed = small_trainer(seed=9)
    assert not identical(everything(resumed), everything(stopped))
    assert resume_training(tmp_path / "state.safetensors", resumed) == {"best": -1.25}
    assert identical(everything(resumed), everything(stopped))
    for i in range(2, 4):
        resumed.iterate(i / 4)
    assert resumed.number == 4
    assert identical(everything(resumed), everything(straight))


def test_a_run_is_resumed_only_as_it_was(tmp_path):
    path = tmp_path / "state.safetensors"
    save_training(path, small_trainer(), {})
    other = replace(HOW, ppo=replace(HOW.ppo, lr=1e-3))
    for trainer, rule in (
        (small_trainer(settings=other), r"settings\.ppo\.lr = 0\.001: the run that was stopped had 0\.0003"),
        (small_trainer(clusters=(4, 3)), r"fields\[1\]\.clusters = 3: the run that was stopped had 2"),
        (small_trainer(clusters=(4,)), "fields = "),
        (small_trainer(size=replace(SIZE, width=32)), r"size\.width = 32: the run that was stopped had 16"),
    ):
        before = everything(trainer)
        with pytest.raises(CheckpointError, match=rule):
            resume_training(path, trainer)
        assert torch.equal(before[2], trainer.generator.get_state())


def test_weights_are_no_training_run_and_the_other_way_round(file, tmp_path):
    with pytest.raises(CheckpointError, match=f"must be '{TRAINING_KIND}'"):
        resume_training(file, small_trainer())
    save_training(tmp_path / "state.safetensors", small_trainer(), {})
    with pytest.raises(CheckpointError, match=f"must be '{KIND}'"):
        load(tmp_path / "state.safetensors")
    with pytest.raises(CheckpointError, match=r"training state = .* does not exist"):
        resume_training(tmp_path / "none.safetensors", small_trainer())


def test_a_training_state_that_lacks_a_part_is_refused(tmp_path):
    path = tmp_path / "state.safetensors"
    save_training(path, small_trainer(), {})
    header, arrays = read(path, TRAINING_KIND)
    for part in ("counters", "returns", "extra"):
        write(path, TRAINING_KIND, {name: value for name, value in header.items() if name != part}, arrays)
        with pytest.raises(CheckpointError, match="lacks a part"):
            resume_training(path, small_trainer())
    for part in ("generator", "field1.running", "field1.forecast.level", "field0.engine.state.clock"):
        write(path, TRAINING_KIND, header, {name: array for name, array in arrays.items() if name != part})
        with pytest.raises(CheckpointError, match=r"lacks a part|is missing"):
            resume_training(path, small_trainer())
