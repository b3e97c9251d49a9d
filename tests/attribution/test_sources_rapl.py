from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attribution_sched.attribution.sources import rapl
from attribution_sched.attribution.sources.rapl import RaplSource, find_zones
from attribution_sched.attribution.sources.reading import Provenance
from attribution_sched.errors import CounterError

WRAP = 262143328850


def zone(root, key, name, energy_uj=0, wrap=WRAP):
    folder = root / key
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(name + "\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    if wrap is not None:
        (folder / "max_energy_range_uj").write_text(f"{wrap}\n")
    return folder / "energy_uj"


def test_package_and_dram_add_up_and_core_does_not(tmp_path):
    package = zone(tmp_path, "intel-rapl:0", "package-0", 100)
    core = zone(tmp_path, "intel-rapl:0:0", "core", 50)
    dram = zone(tmp_path, "intel-rapl:0:1", "dram", 10)
    source = RaplSource(tmp_path, clock=lambda: 7.0)
    package.write_text(str(100 + 3_000_000))
    core.write_text(str(50 + 2_000_000))
    dram.write_text(str(10 + 500_000))
    reading = source.read()
    assert reading.timestamp_s == 7.0
    assert reading.values["package_energy_j"] == pytest.approx(3.0)
    assert reading.values["core_energy_j"] == pytest.approx(2.0)
    assert reading.values["dram_energy_j"] == pytest.approx(0.5)
    assert reading.values["energy_j"] == pytest.approx(3.5)
    assert reading.units["energy_j"] == "J"
    assert reading.provenance["uncore_energy_j"] is Provenance.UNAVAILABLE


def test_nested_tree_is_the_same_as_the_flat_one(tmp_path):
    zone(tmp_path, "intel-rapl:0", "package-0")
    zone(tmp_path / "intel-rapl:0", "intel-rapl:0:0", "dram")
    zone(tmp_path, "intel-rapl:0:0", "dram")  # sysfs shows children both ways
    assert [z.label for z in find_zones(tmp_path)] == ["package-0", "package-0/dram"]


def test_two_dies_and_two_packages_are_summed_once_each(tmp_path):
    files = [zone(tmp_path, f"intel-rapl:{i}", f"package-{i // 2}-die-{i % 2}") for i in range(4)]
    source = RaplSource(tmp_path)
    for file in files:
        file.write_text("1000000")
    assert source.read().values["package_energy_j"] == pytest.approx(4.0)


def test_psys_is_shown_but_never_added(tmp_path):
    package, psys = zone(tmp_path, "intel-rapl:0", "package-0"), zone(tmp_path, "intel-rapl:1", "psys")
    source = RaplSource(tmp_path)
    package.write_text("1000000")
    psys.write_text("9000000")
    reading = source.read()
    assert reading.values["energy_j"] == pytest.approx(1.0)
    assert reading.values["platform_energy_j"] == pytest.approx(9.0)


def test_the_same_package_through_mmio_counts_once(tmp_path):
    register, mmio = zone(tmp_path, "intel-rapl:0", "package-0"), zone(tmp_path, "intel-rapl-mmio:0", "package-0")
    source = RaplSource(tmp_path)
    register.write_text("1000000")
    mmio.write_text("1000000")
    assert source.read().values["package_energy_j"] == pytest.approx(1.0)


def test_missing_dram_is_unavailable_not_zero(tmp_path):
    zone(tmp_path, "intel-rapl:0", "package-0")
    reading = RaplSource(tmp_path).read()
    assert reading.provenance["dram_energy_j"] is Provenance.UNAVAILABLE
    assert "no RAPL dram zone" in reading.notes["dram_energy_j"]
    assert "packages only" in reading.notes["energy_j"]


@settings(deadline=None, max_examples=50, derandomize=True)
@example(WRAP - 1, [5, WRAP - 1])
@given(st.integers(0, WRAP), st.lists(st.integers(0, WRAP - 1), min_size=1, max_size=6))
def test_wrap_is_unrolled(tmp_path_factory, start, steps):
    root = tmp_path_factory.mktemp("powercap")
    counter = zone(root, "intel-rapl:0", "package-0", start % WRAP)
    source, now = RaplSource(root), start % WRAP
    for step in steps:
        now = (now + step) % WRAP
        counter.write_text(str(now))
        reading = source.read()
    assert reading.values["package_energy_j"] == pytest.approx(sum(steps) * 1e-6, rel=1e-12)


def test_a_fall_without_a_known_range_is_lost_for_good(tmp_path):
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 500, wrap=None)
    source = RaplSource(tmp_path)
    counter.write_text("100")
    assert "gives no max_energy_range_uj" in source.read().notes["package_energy_j"]
    counter.write_text("900")
    reading = source.read()
    assert reading.provenance["energy_j"] is Provenance.UNAVAILABLE


def test_permission_denied_comes_with_the_fix(tmp_path, monkeypatch):
    zone(tmp_path, "intel-rapl:0", "package-0")
    real = Path.read_text

    def denied(self, *args, **kwargs):
        if self.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", denied)
    reading = RaplSource(tmp_path).read()
    assert reading.provenance["package_energy_j"] is Provenance.UNAVAILABLE
    for words in ("CVE-2020-8694", "chmod a+r"):
        assert words in reading.notes["package_energy_j"]
    assert reading.provenance["energy_j"] is Provenance.UNAVAILABLE


def test_denied_dram_does_not_leave_a_total_without_it(tmp_path):
    zone(tmp_path, "intel-rapl:0", "package-0")
    zone(tmp_path, "intel-rapl:0:0", "dram").unlink()
    reading = RaplSource(tmp_path).read()
    assert reading.provenance["package_energy_j"] is Provenance.MEASURED
    assert reading.provenance["energy_j"] is Provenance.UNAVAILABLE


def test_amd_tree_has_the_same_shape(tmp_path):
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 0, wrap=65532610987)
    zone(tmp_path, "intel-rapl:0:0", "core")
    source = RaplSource(tmp_path)
    counter.write_text("2000000")
    assert source.read().values["energy_j"] == pytest.approx(2.0)
    assert source.max_interval_s(200.0) == pytest.approx(65532.610987 / 200.0)


def test_no_tree_and_bad_text_are_clear_errors(tmp_path):
    with pytest.raises(CounterError, match="modprobe intel_rapl_msr"):
        RaplSource(tmp_path / "absent")
    zone(tmp_path, "intel-rapl:0", "package-0").write_text("garbage")
    with pytest.raises(CounterError, match="non-negative integer"):
        RaplSource(tmp_path)


def test_constants_name_the_cure():
    assert "virtual machine" in rapl.ABSENT
    assert "root" in rapl.DENIED_FIX
