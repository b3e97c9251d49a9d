"""Weights on disk: exactly what was written, or one clear error."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.errors import CheckpointError, ModelFitError
from attribution_sched.scheduler.hi_ppo.checkpoint import KIND, SHIPPED, describe, feature_names, load, save
from attribution_sched.scheduler.hi_ppo.ranker import SHAPES, Ranker
from attribution_sched.scheduler.hi_ppo.upper_agent import SIZE, rule_theta
from attribution_sched.storage import write
from attribution_sched.types import ATTRIBUTION_SCHEMA

from . import worlds


def test_weights_come_back_to_the_last_bit(tmp_path):
    made = worlds.weights(rule_theta() + 0.125)
    save(tmp_path / "w.safetensors", made, {"why": "a test"})
    found = load(tmp_path / "w.safetensors")
    for name in ("theta", "unit", "weight", "bias"):
        assert getattr(found, name).tobytes() == getattr(made, name).tobytes()
    assert describe(tmp_path / "w.safetensors") == {"why": "a test"} and found.ranker is None


def test_a_ranker_comes_back_to_the_last_bit(tmp_path):
    rng = np.random.default_rng(0)
    made = replace(worlds.weights(), ranker=Ranker({name: rng.normal(size=shape) for name, shape in SHAPES.items()}))
    save(tmp_path / "w.safetensors", made, {})
    found = load(tmp_path / "w.safetensors").ranker
    assert found is not None
    for name, shape in SHAPES.items():
        assert found.arrays[name].shape == shape and np.array_equal(found.arrays[name], made.ranker.arrays[name])


def test_the_shipped_weights_have_learnt_and_read_counters_as_the_system_does():
    shipped, fresh = load(SHIPPED), worlds.weights()
    assert not np.array_equal(shipped.theta, rule_theta())
    counters = np.abs(np.random.default_rng(0).normal(1.0, 0.3, (5, 12)))
    assert np.array_equal(shipped.attributions(counters), fresh.attributions(counters))


def test_a_file_of_an_older_release_gives_one_clear_error(tmp_path):
    old = {"features": {"nodes": ["a"], "components": ["eff"]}, "size": {}, "about": {}}
    write(tmp_path / "old.safetensors", KIND, old, {"upper.weight": np.zeros(3)}, attribution_schema=ATTRIBUTION_SCHEMA)
    with pytest.raises(CheckpointError, match=r"made for other agents features.*attribution-sched train"):
        load(tmp_path / "old.safetensors")


@pytest.mark.parametrize(("arrays", "rule"), [
    ({"theta": np.zeros(SIZE)}, "is missing"),
    ({"theta": np.zeros(3)}, "must be finite numbers of shape"),
    ({"theta": np.zeros(SIZE), "upper.weight": np.zeros(2)}, "older release"),
])  # fmt: skip
def test_other_numbers_than_it_must_have_are_refused(tmp_path, arrays, rule):
    form = worlds.weights()
    whole = {"unit": form.unit, "weight": form.weight, "bias": form.bias} if len(arrays["theta"]) == 3 else {}
    header = {"features": feature_names(), "about": {}}
    write(tmp_path / "w.safetensors", KIND, header, {**arrays, **whole}, attribution_schema=ATTRIBUTION_SCHEMA)
    with pytest.raises(CheckpointError, match=rule):
        load(tmp_path / "w.safetensors")


def test_missing_and_tampered_files_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"does not exist\. .*attribution-sched train"):
        load(tmp_path / "none.safetensors")
    path = tmp_path / "w.safetensors"
    save(path, worlds.weights(), {})
    held = bytearray(path.read_bytes())
    held[-5] ^= 1
    path.write_bytes(bytes(held))
    with pytest.raises(CheckpointError):
        load(path)


def test_numbers_that_are_not_finite_are_no_weights():
    with pytest.raises(ModelFitError, match="theta"):
        worlds.weights(np.full(SIZE, np.nan))
