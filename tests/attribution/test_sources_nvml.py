from types import SimpleNamespace

import pytest

from attribution_sched.attribution.sources.nvml import NvmlSource, load_nvml, start_nvml
from attribution_sched.attribution.sources.reading import Provenance
from attribution_sched.errors import CounterError


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(f"NVML {value}")
        self.value = value


class FakeNvml:
    """A driver whose answers are attributes; an int in `errors` makes a call fail with that code."""

    NVMLError = NVMLError

    def __init__(self, gpus=1, **errors):
        self.errors = errors
        self.energy_mj = [1_000_000] * gpus
        self.power_mw = [250_000] * gpus
        self.mig = [0] * gpus
        self.gpus = gpus

    def _fail(self, name):
        if name in self.errors:
            raise NVMLError(self.errors[name])

    def nvmlInit(self):
        self._fail("init")

    def nvmlDeviceGetCount(self):
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, i):
        return i

    def nvmlDeviceGetTotalEnergyConsumption(self, h):
        self._fail("energy")
        return self.energy_mj[h]

    def nvmlDeviceGetPowerUsage(self, h):
        self._fail("power")
        return self.power_mw[h]

    def nvmlDeviceGetUtilizationRates(self, h):
        self._fail("utilisation")
        return SimpleNamespace(gpu=80, memory=40)

    def nvmlDeviceGetMigMode(self, h):
        self._fail("mig")
        return (self.mig[h], self.mig[h])

    def nvmlDeviceGetPcieThroughput(self, h, counter):
        self._fail("pcie")
        return 500 + counter


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_volta_counts_millijoules_from_when_it_was_opened():
    nvml = FakeNvml(gpus=2)
    source = NvmlSource(nvml)
    nvml.energy_mj = [1_005_000, 1_002_000]
    reading = source.read()
    assert reading.values["gpu0/energy_j"] == pytest.approx(5.0)
    assert reading.values["gpu1/energy_j"] == pytest.approx(2.0)
    assert reading.values["gpu_energy_j"] == pytest.approx(7.0)
    assert reading.provenance["gpu_energy_j"] is Provenance.MEASURED
    assert reading.values["gpu0/power_w"] == pytest.approx(250.0)
    assert reading.values["gpu0/utilisation"] == pytest.approx(0.8)
    assert reading.values["gpu0/pcie_tx_bytes_per_s"] == 500_000
    assert reading.values["gpu0/pcie_rx_bytes_per_s"] == 501_000


def test_before_volta_power_is_polled_and_the_energy_estimated():
    nvml, clock = FakeNvml(energy=3, mig=3), Clock()
    nvml.power_mw = [100_000]
    source = NvmlSource(nvml, clock)
    clock.now, nvml.power_mw = 2.0, [300_000]
    reading = source.read()
    assert reading.values["gpu0/energy_j"] == pytest.approx(0.5 * (100 + 300) * 2.0)
    assert reading.provenance["gpu0/energy_j"] is Provenance.ESTIMATED
    assert reading.provenance["gpu_energy_j"] is Provenance.ESTIMATED
    assert "trapezoids" in reading.notes["gpu0/energy_j"]


def test_no_counter_and_no_power_is_unavailable():
    reading = NvmlSource(FakeNvml(energy=3, power=4)).read()
    assert reading.provenance["gpu0/energy_j"] is Provenance.UNAVAILABLE
    assert reading.provenance["gpu_energy_j"] is Provenance.UNAVAILABLE
    assert "permission" in reading.notes["gpu0/power_w"]


def test_mig_has_no_utilisation_but_keeps_energy():
    nvml = FakeNvml()
    nvml.mig = [1]
    reading = NvmlSource(nvml).read()
    assert reading.provenance["gpu0/utilisation"] is Provenance.UNAVAILABLE
    assert "MIG" in reading.notes["gpu0/utilisation"]
    assert reading.provenance["gpu0/energy_j"] is Provenance.MEASURED


@pytest.mark.parametrize(("call", "counter"), [("utilisation", "utilisation"), ("pcie", "pcie_tx_bytes_per_s")])
def test_what_a_gpu_does_not_support_is_unavailable(call, counter):
    reading = NvmlSource(FakeNvml(**{call: 3})).read()
    assert reading.provenance[f"gpu0/{counter}"] is Provenance.UNAVAILABLE
    assert "not supported" in reading.notes[f"gpu0/{counter}"]


def test_an_old_package_without_a_function():
    nvml = FakeNvml()
    nvml.nvmlDeviceGetPcieThroughput = None
    assert "missing in this version" in NvmlSource(nvml).read().notes["gpu0/pcie_tx_bytes_per_s"]


def test_a_reloaded_driver_loses_the_count_for_good():
    nvml = FakeNvml()
    source = NvmlSource(nvml)
    nvml.energy_mj = [10]
    assert "reloaded" in source.read().notes["gpu0/energy_j"]
    nvml.energy_mj = [2_000_000]
    assert source.read().provenance["gpu0/energy_j"] is Provenance.UNAVAILABLE


def test_a_gpu_that_falls_off_the_bus():
    nvml = FakeNvml()
    source = NvmlSource(nvml)
    nvml.errors = {"energy": 15, "power": 15}
    assert "off the bus" in source.read().notes["gpu0/energy_j"]


def test_no_driver_no_gpu_no_package(monkeypatch):
    with pytest.raises(CounterError, match="driver is not loaded"):
        start_nvml(FakeNvml(init=9))
    with pytest.raises(CounterError, match="sees no GPU"):
        NvmlSource(FakeNvml(gpus=0))
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    with pytest.raises(CounterError, match="nvidia-ml-py"):
        load_nvml()
