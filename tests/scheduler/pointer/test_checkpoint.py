import json

import pytest
import torch

from attribution_sched.errors import CheckpointError
from attribution_sched.scheduler.pointer.checkpoint import SHIPPED, describe, load, save

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
    assert sorted(p.name for p in saved.parent.iterdir()) == ["net.json", "net.safetensors"]


def test_equal_networks_are_equal_files(saved, tmp_path):
    again = tmp_path / "again.safetensors"
    save(load(saved), again, {"seed": 2})
    assert again.read_bytes() == saved.read_bytes()
    assert again.with_suffix(".json").read_text() == saved.with_suffix(".json").read_text()


def rewrite(path, **changes):
    file = path.with_suffix(".json")
    about = json.loads(file.read_text())
    for name, value in changes.items():
        if value is None:
            del about[name]
        else:
            about[name] = value
    file.write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 2}, "reads format 1"),
        ({"extra": 1}, "and no other"),
        ({"made": None}, "must have the fields"),
        ({"sha256": "0" * 64}, "checksum does not match"),
        ({"size": {"width": 16}}, "as integers"),
        ({"size": {"width": 32, "rounds": 2}}, "holds other weights"),
        ({"size": {"width": "16", "rounds": 2}}, "as integers"),
    ],
)
def test_what_was_changed_is_refused(saved, changes, said):
    rewrite(saved, **changes)
    with pytest.raises(CheckpointError, match=said):
        load(saved)


def test_tampered_truncated_and_missing_files_are_refused(saved):
    whole = saved.read_bytes()
    for wrong in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:100], b""):
        saved.write_bytes(wrong)
        with pytest.raises(CheckpointError, match="checksum does not match"):
            load(saved)
    saved.unlink()
    with pytest.raises(CheckpointError, match="does not exist"):
        load(saved)
    saved.with_suffix(".json").write_text("{")
    with pytest.raises(CheckpointError, match="is not JSON"):
        load(saved)
    saved.with_suffix(".json").unlink()
    with pytest.raises(CheckpointError, match="does not exist"):
        load(saved)


def test_the_shipped_weights_are_small_and_load():
    assert SHIPPED.stat().st_size < 1_000_000
    assert describe()["made"]["examples"] > 0
    assert sum(p.numel() for p in load().parameters()) > 10_000
