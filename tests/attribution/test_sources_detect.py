import importlib.util
import os
from pathlib import Path

import pytest

from attribution_sched.attribution.sources.detect import detect
from attribution_sched.attribution.sources.reading import Provenance

from .test_sources_nvml import FakeNvml
from .test_sources_perf_event import FakeKernel
from .test_sources_rapl import zone


def by_name(capabilities):
    return {(c.source, c.counter): c for c in capabilities}


def test_what_is_missing_comes_with_a_reason_and_a_fix(tmp_path):
    for capability in detect(tmp_path, FakeKernel({}), tmp_path / "type", FakeNvml(init=9)):
        if not capability.available:
            assert capability.detail
            assert capability.fix
    found = by_name(detect(tmp_path, FakeKernel({}), tmp_path / "type", FakeNvml(init=9)))
    assert "driver is not loaded" in found["nvml", "energy_j"].detail


def test_a_full_machine(tmp_path):
    zone(tmp_path, "intel-rapl:0", "package-0")
    zone(tmp_path, "intel-rapl:0:0", "dram")
    kernel = FakeKernel({(0, 0, False): (1, 1, 1), (0, 1, False): (1, 1, 1), (0, 3, False): (1, 1, 1)})
    found = by_name(detect(tmp_path, kernel, tmp_path / "type", FakeNvml(gpus=2)))
    for key in (
        ("rapl", "package_energy_j"),
        ("rapl", "dram_energy_j"),
        ("perf", "llc_misses"),
        ("nvml", "gpu1/energy_j"),
    ):
        assert found[key].provenance is Provenance.MEASURED
    assert not found["rapl", "platform_energy_j"].available
    assert not kernel.open_handles


def test_a_bad_exporter_address_is_reported_not_raised(tmp_path):
    found = by_name(detect(tmp_path, FakeKernel({}), tmp_path / "t", FakeNvml(), "http://127.0.0.1:9/metrics"))
    assert "could not be read" in found["dcgm", "gpu_counters"].detail


def _paranoid():
    return int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())


@pytest.mark.skipif(not Path("/proc/sys/kernel/perf_event_paranoid").exists(), reason="needs Linux perf events")
def test_this_machine_offers_what_its_system_files_say():
    """The live check: every answer is worked out a second time from /sys, /proc and /dev alone."""
    found = by_name(detect())
    zones = list(Path("/sys/class/powercap").glob("*:*/name")) if Path("/sys/class/powercap").exists() else []
    named = {n: p for p in zones for n in [p.read_text().strip().split("-")[0]]}
    readable = {n: os.access(p.parent / "energy_uj", os.R_OK) for n, p in named.items()}
    assert found["rapl", "package_energy_j"].available == readable.get("package", False)
    assert found["rapl", "dram_energy_j"].available == readable.get("dram", False)

    events = Path("/sys/bus/event_source/devices")
    devices = {p.name for p in events.iterdir()} if events.is_dir() else set()
    pmu = any(d == "cpu" or d.startswith(("cpu_core", "armv8", "apple_")) for d in devices)
    allowed = os.geteuid() == 0 or _paranoid() <= 2
    cycles = found["perf", "cpu_cycles"]
    assert found["perf", "cpu_instructions"].available == (pmu and allowed)
    if pmu and allowed:
        assert cycles.available
    elif "msr" in devices and os.geteuid() == 0:
        assert cycles.provenance is Provenance.ESTIMATED
        assert "time-stamp" in cycles.detail
    elif not pmu:
        assert cycles.provenance is not Provenance.MEASURED

    gpu = Path("/dev/nvidiactl").exists() and importlib.util.find_spec("pynvml") is not None
    assert any(c.available for c in found.values() if c.source == "nvml") == gpu
    assert found["process", "cpu_time_s"].available
    assert found["torch", "operator_time_s"].available == (importlib.util.find_spec("torch") is not None)
    assert not found["dcgm", "gpu_counters"].available
