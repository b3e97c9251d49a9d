import os

import numpy as np
import pytest

from attribution_sched.attribution import recording_presets as presets
from attribution_sched.errors import TraceError

needs_data = pytest.mark.skipif(not os.environ.get(presets.DATA_VARIABLE), reason=f"{presets.DATA_VARIABLE} is not set")


@needs_data
def test_kepler():
    recording = presets.kepler()
    assert recording.values.shape == (2202, 5)
    assert np.diff(recording.timestamps_s).tolist() == [3.0] * 2201
    assert recording.column("package_power_w").max() == pytest.approx(199.5, abs=0.1)
    cycles, instructions = recording.select(presets.KEPLER_COUNTERS[:2]).T
    assert np.corrcoef(cycles, instructions)[0, 1] == pytest.approx(0.73, abs=0.01)
    assert presets.kepler("dynamic").column("package_power_w").mean() < recording.column("package_power_w").mean()


@needs_data
@pytest.mark.parametrize(("table", "rows"), [("sass_sim", 26), ("hw", 25), ("hybrid", 25)])
def test_accelwattch_components_close(table, rows):
    recording = presets.accelwattch_components(table)
    parts = [n for n in recording.names if n not in ("model_total_w", "measured_w")]
    assert len(recording) == rows
    total = recording.select(parts).sum(axis=1)
    np.testing.assert_allclose(total, recording.column("model_total_w"), atol=1e-6)
    assert set(recording.provenance[:, 0]) == {"simulated"}
    assert set(recording.provenance[:, -1]) == {"measured"}


@needs_data
def test_accelwattch_counters_and_zeus():
    assert presets.accelwattch_counters().values.shape == (25, 18)
    rows = {gpu: len(presets.zeus_power(gpu)) for gpu in presets.ZEUS_GPUS}
    assert rows == {"v100": 476, "a40": 453, "rtx6000": 410, "p100": 270}
    assert set(presets.zeus_power("v100").labels["network"]) >= {"resnet50", "shufflenetv2"}


def test_unknown_tables_and_no_data(monkeypatch, tmp_path):
    with pytest.raises(TraceError, match="Did you mean 'v100'"):
        presets.zeus_power("v10")
    monkeypatch.delenv(presets.DATA_VARIABLE, raising=False)
    with pytest.raises(TraceError, match="must name the directory"):
        presets.kepler()
    monkeypatch.setenv(presets.DATA_VARIABLE, str(tmp_path))
    with pytest.raises(TraceError, match="is not a file"):
        presets.kepler()
    with pytest.raises(TraceError, match="not in the data directory"):
        presets.accelwattch_components()
