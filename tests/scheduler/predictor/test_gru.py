"""The recurrent predictor: the numpy network is torch's, it beats persistence, and a cut link stays cut."""

import math
import subprocess
import sys

import numpy as np
import pytest

from attribution_sched import storage
from attribution_sched.cluster.wan import Wan, WanProcess
from attribution_sched.errors import CheckpointError, NetworkError
from attribution_sched.scheduler.predictor.forecast import PersistencePredictor
from attribution_sched.scheduler.predictor.gru import (
    KIND,
    SHIPPED,
    GruPredictor,
    GruSize,
    GruWeights,
    answer,
    features,
    load,
    recur,
    save,
    shapes,
)
from research.gru_training import first_arrays
from research.link_score import play, skill

HELD_OUT = 70_000
TIMES_S = 300.0 * np.arange(72)


def record(wan, networks):
    processes = [WanProcess(wan, HELD_OUT + seed) for seed in range(networks)]
    rows = []
    for _ in TIMES_S:
        rows.append(np.stack([process.bandwidth_gbps for process in processes]))
        for process in processes:
            process.step(300.0)
    return np.stack(rows)


def test_the_network_in_numpy_is_that_of_torch():
    import torch

    weights = load()
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((24, 7, 4)).astype(np.float32)
    unit = torch.nn.GRU(4, weights.size.hidden)
    unit.load_state_dict(
        {name.removeprefix("gru."): torch.from_numpy(a) for name, a in weights.arrays.items() if name[:3] == "gru"}
    )
    with torch.no_grad():
        expected = unit(torch.from_numpy(inputs))[1][0].numpy()
    np.testing.assert_allclose(recur(weights, inputs, np.ones((24, 7), bool)), expected, atol=2e-6)


def test_readings_that_are_not_there_leave_no_trace():
    weights = load()
    rng = np.random.default_rng(1)
    inputs = rng.standard_normal((24, 3, 4)).astype(np.float32)
    valid = np.ones((24, 3), bool)
    valid[:10, 1] = False
    state = recur(weights, inputs, valid)
    alone = recur(weights, inputs[10:, 1:2], np.ones((14, 1), bool))
    np.testing.assert_allclose(state[1], alone[0], atol=2e-6)


def test_untrained_it_is_nearly_persistence():
    size = GruSize(hidden=8)
    weights = GruWeights(size, first_arrays(size, np.random.default_rng(0)), {})
    ratio, std = answer(weights, np.zeros((5, 8), np.float32), np.zeros((5, 4), np.float32), 1800.0)
    np.testing.assert_allclose(ratio, 1.0, atol=0.05)
    np.testing.assert_allclose(std, 0.1, atol=0.03)


@pytest.mark.parametrize("motion", [{}, {"reversion_per_s": 1 / 600.0}, {"spread": 0.06}])
def test_it_beats_persistence_on_paths_held_out(motion):
    wan = Wan.uniform(("a", "b", "c"), gbps=5.0, latency_s=0.02, usd_per_gb=0.1, **motion)
    series = record(wan, 40)
    horizons = (1800.0, 7200.0)
    baseline = play(PersistencePredictor(), TIMES_S, series, 5.0, horizons, every=4)
    for predictor, most in ((GruPredictor(base_gbps=wan.bandwidth_gbps), 0.9), (GruPredictor(), 1.0)):
        for ours, theirs in zip(play(predictor, TIMES_S, series, 5.0, horizons, every=4), baseline, strict=True):
            found = skill(ours, theirs, np.random.default_rng(0))
            assert found.rmse_ratio_interval[1] < most
            assert found.crps_ratio < most


@pytest.mark.parametrize("base", [None, np.array([[1.0, 5.0], [5.0, 1.0]])])
def test_a_cut_link_is_not_said_to_recover_at_once(base):
    predictor = GruPredictor(base_gbps=base)
    rng = np.random.default_rng(3)
    for tick in range(30):
        gbps = 5.0 * (1.0 + 0.05 * rng.standard_normal((2, 2))) * (0.2 if tick >= 24 else 1.0)
        predictor.observe(300.0 * tick, gbps)
    assert predictor.forecast(300.0).mean_gbps[0, 1] < 1.5
    assert predictor.forecast(1800.0).mean_gbps[0, 1] < 2.0


def test_only_the_window_counts():
    rng = np.random.default_rng(4)
    series = 5.0 * (1.0 + 0.1 * rng.standard_normal((60, 3, 3)))
    window = load().size.window
    whole, tail = GruPredictor(), GruPredictor()
    for tick, reading in enumerate(series):
        whole.observe(300.0 * tick, reading)
        if tick >= 60 - window:
            tail.observe(300.0 * tick, reading)
    np.testing.assert_allclose(whole.forecast(900.0).mean_gbps, tail.forecast(900.0).mean_gbps, rtol=1e-5)


def test_features_are_what_they_say():
    share = np.array([[1.0, 2.0], [1.1, 0.001]])
    found = features(share, np.array([[7.0, 7.0], [600.0, 300.0]]), np.array([1.0, 0.0]))
    expected = [
        [[0.0, 0.0, 0.0, 1.0], [4.0, 0.0, 0.0, 0.0]],
        [[0.4, 4 * math.log(1.1), math.log(2.0), 1.0], [-3.996, -8.0, 0.0, 0.0]],
    ]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_it_never_looks_further_than_it_was_trained():
    predictor = GruPredictor()
    predictor.observe(0.0, np.ones((2, 2)))
    with pytest.raises(NetworkError, match=r"horizon_s = 7201.0: must be <= 7200"):
        predictor.forecast(7201.0)


def test_asking_loads_no_deep_learning_library():
    code = (
        "import sys, numpy as np\n"
        "from attribution_sched.scheduler.predictor.gru import GruPredictor\n"
        "p = GruPredictor(); p.observe(0.0, np.ones((2, 2))); p.forecast(300.0)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


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
