import pytest
import torch

from attribution_sched import storage
from attribution_sched.errors import CheckpointError
from attribution_sched.scheduler.pointer.checkpoint import KIND, SHIPPED, describe, load, save

from .decisions import small_network


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "net.safetensors"
    save(small_network(2), path, {"seed": 2})
    return path


def test_a_network_survives_the_disk(saved):
    again = load(saved)
    for name, weight in small_network(2).state_dict().items():
        assert torch.equal(weight, again.state_dict()[name]), name
    assert describe(saved)["made"] == {"seed": 2}
    assert [p.name for p in saved.parent.iterdir()] == ["net.safetensors"]


def test_equal_networks_are_equal_files(saved, tmp_path):
    again = tmp_path / "again.safetensors"
    save(load(saved), again, {"seed": 2})
    assert again.read_bytes() == saved.read_bytes()


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ({"width": 16}, "must give rounds, width"),
        ({"width": 32, "rounds": 2}, "a network of this size has"),
        ({"width": "16", "rounds": 2}, "size.width = '16'"),
        ({"width": 10**9, "rounds": 2}, "from 1 to 1024"),
        (None, "must give rounds, width"),
    ],
)
def test_a_size_that_does_not_fit_is_refused(saved, size, said):
    header, arrays = storage.read(saved, KIND)
    storage.write(saved, KIND, header | {"size": size}, arrays)
    with pytest.raises(CheckpointError, match=said):
        load(saved)


def test_other_weights_are_refused(saved):
    header, arrays = storage.read(saved, KIND)
    name = next(iter(arrays))
    for other in ({k: v for k, v in arrays.items() if k != name}, arrays | {name: arrays[name].astype("f8")}):
        storage.write(saved, KIND, header, other)
        with pytest.raises(CheckpointError, match="a network of this size has"):
            load(saved)


def test_tampered_truncated_and_missing_files_are_refused(saved):
    whole = saved.read_bytes()
    for wrong in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:100], b""):
        saved.write_bytes(wrong)
        with pytest.raises(CheckpointError, match=r"checksum does not match|truncated"):
            load(saved)
    saved.unlink()
    with pytest.raises(CheckpointError, match="does not exist"):
        load(saved)


def test_the_shipped_weights_are_small_and_load():
    assert SHIPPED.stat().st_size < 1_000_000
    assert describe()["made"]["examples"] > 0
    assert sum(p.numel() for p in load().parameters()) > 10_000
