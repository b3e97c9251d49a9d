"""The table of real regions: its figures, its fallbacks and what it says about them."""

import csv
import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.regions import carbon_g_per_kwh, region_names, wan_between
from attribution_sched.cluster.wan import WanProcess
from attribution_sched.errors import NetworkError

ROOT = Path(__file__).parents[2]
DATA = os.environ.get("ATTRIBUTION_SCHED_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="ATTRIBUTION_SCHED_DATA is not set")

EAST, WEST4, CENTRAL_A, CENTRAL_B = (
    "aws:us-east-1", "gcp:europe-west4-a", "gcp:us-central1-a", "gcp:us-central1-b",
)  # fmt: skip


def read(name, column):
    with (Path(DATA) / "skyplane" / name).open(newline="") as file:
        return {(row["src_region"], row["dst_region"]): float(row[column]) for row in csv.DictReader(file)}


def test_table_covers_three_providers_and_stays_small():
    names = region_names()
    assert len(names) == len(set(names)) > 75
    assert {n.split(":")[0] for n in names} == {"aws", "azure", "gcp"}
    assert {EAST, WEST4, CENTRAL_A, CENTRAL_B} <= set(names)
    path = ROOT / "attribution_sched" / "cluster" / "constants" / "regions.json"
    assert path.stat().st_size < 200_000


def test_every_matrix_is_square_and_every_figure_possible():
    table = load_constants("regions")
    k = len(table["names"])
    for field in ("gbps", "rtt_ms", "usd_per_gb"):
        matrix = np.array(table[field], dtype=float)
        assert matrix.shape == (k, k)
        assert np.isnan(np.diag(matrix)).all()
        known = matrix[~np.isnan(matrix)]
        assert known.size > 3_900
        assert (known > 0).all() or (field == "usd_per_gb" and (known >= 0).all())


def test_measured_pair_is_directed_and_latency_is_half_the_round_trip():
    table = load_constants("regions")
    i, j = table["names"].index(EAST), table["names"].index(WEST4)
    wan = wan_between([EAST, WEST4])
    assert wan.provenance[EAST, WEST4] == wan.provenance[WEST4, EAST] == "measured"
    assert wan.bandwidth_gbps[0, 1] == table["gbps"][i][j]
    assert wan.bandwidth_gbps[1, 0] == table["gbps"][j][i] != table["gbps"][i][j]
    assert wan.latency_s[0, 1] == pytest.approx(table["rtt_ms"][i][j] / 2000)
    assert wan.price_usd_per_gb.tolist() == [[0.0, 0.09], [0.12, 0.0]]


@needs_data
def test_figures_equal_the_files_to_three_digits():
    first = read("throughput_2022_01.csv", "gbps_received")
    second = read("throughput_2022_11.csv", "gbps_received")
    rtt, price = read("rtt.csv", "avg_rtt_ms"), read("egress_cost.csv", "egress_usd_per_gb")
    for names in ([EAST, WEST4, "azure:eastus"], ["aws:ap-south-1", "gcp:us-east4-a", "azure:westeurope"]):
        wan = wan_between(names)
        for i, a in enumerate(names):
            for j, b in enumerate(names):
                if i != j:
                    both = [c[a, b] for c in (first, second) if (a, b) in c]
                    gbps = math.prod(both) ** (1 / len(both))
                    assert wan.bandwidth_gbps[i, j] == pytest.approx(gbps, rel=0.006)
                    shorter = min(rtt[a, b], rtt[b, a])
                    assert wan.latency_s[i, j] == pytest.approx(shorter / 2000, rel=0.006)
                    assert wan.price_usd_per_gb[i, j] == pytest.approx(price[a, b], rel=0.006)


@needs_data
def test_shipped_file_is_what_the_calibration_writes():
    spec = importlib.util.spec_from_file_location("fit_regions", ROOT / "calibration" / "fit_regions.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    text = script.dump(script.build(Path(DATA)))
    assert script.TARGET.read_text(encoding="utf-8") == text


def test_provenance_covers_every_link_and_never_claims_an_estimate_as_measured():
    names = region_names()
    table = load_constants("regions")
    wan = wan_between(names)
    assert set(wan.provenance) == {(a, b) for a in names for b in names}
    complete = ~np.isnan([np.array(table[f], dtype=float) for f in ("gbps", "rtt_ms", "usd_per_gb")]).any(axis=0)
    for i, a in enumerate(names):
        for j, b in enumerate(names):
            word = wan.provenance[a, b].split(":")[0]
            assert word == ("assumed" if i == j else "measured" if complete[i, j] else "estimated")
            # A pair with figures both ways says the same both ways.
            if complete[i, j] and complete[j, i]:
                assert wan.provenance[a, b] == wan.provenance[b, a]


def test_missing_direction_takes_the_reverse_and_says_so(monkeypatch):
    table = dict(load_constants("regions"))
    i, j = table["names"].index(EAST), table["names"].index(WEST4)
    for field in ("gbps", "usd_per_gb"):
        table[field] = [list(row) for row in table[field]]
        table[field][i][j] = None
    monkeypatch.setattr("attribution_sched.cluster.regions.load_constants", lambda name: table)
    wan = wan_between([EAST, WEST4])
    assert wan.bandwidth_gbps[0, 1] == wan.bandwidth_gbps[1, 0]
    words = wan.provenance[EAST, WEST4]
    assert words.startswith(f"estimated: bandwidth = that of {WEST4} to {EAST}, the reverse direction")
    # A price belongs to its source: 0.12 is what GCP charges, never what AWS charges.
    assert wan.price_usd_per_gb[0, 1] == 0.09
    assert f"price = median of {EAST} to gcp" in words
    assert "latency" not in words
    assert wan.provenance[WEST4, EAST] == "measured"


def test_place_without_round_trips_takes_the_provider_median_and_says_so():
    wan = wan_between([EAST, "azure:westus2"])
    median = load_constants("regions")["provider_pair_median"]["aws > azure"]["rtt_ms"]
    assert wan.latency_s[0, 1] == pytest.approx(median / 2000)
    assert wan.provenance[EAST, "azure:westus2"] == "estimated: latency = median of aws to azure"


def test_region_stands_for_its_measured_zone():
    region, zone = wan_between([EAST, "gcp:europe-west4"]), wan_between([EAST, WEST4])
    assert np.array_equal(region.bandwidth_gbps, zone.bandwidth_gbps)
    assert region.provenance[EAST, "gcp:europe-west4"] == f"measured: {EAST} to {WEST4}"


def test_unmeasured_zone_takes_the_figures_of_its_region():
    other = wan_between([EAST, "gcp:europe-west4-c"])
    assert np.array_equal(other.bandwidth_gbps, wan_between([EAST, WEST4]).bandwidth_gbps)
    expected = f"estimated: bandwidth, latency, price = that of {EAST} to {WEST4}"
    assert other.provenance[EAST, "gcp:europe-west4-c"] == expected


def test_zones_of_one_region():
    wan = wan_between([CENTRAL_A, CENTRAL_B, "gcp:us-west1-b"])
    assert 45 < wan.bandwidth_gbps[0, 1] < 55
    assert 4 < wan.bandwidth_gbps[0, 2] < 7
    assert wan.price_usd_per_gb[0].tolist() == [0.0, 0.01, 0.02]
    assert wan.latency_s[0, 1] == 0.0005
    assert wan.provenance[CENTRAL_A, CENTRAL_B] == "estimated: latency = assumed between zones of one region"
    unseen = wan_between(["gcp:europe-west4-b", "gcp:europe-west4-c"])
    words = unseen.provenance["gcp:europe-west4-b", "gcp:europe-west4-c"]
    between = "between zones of one region"
    assert words == f"estimated: bandwidth, price = usual {between}; latency = assumed {between}"


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(region_names()), min_size=1, max_size=6, unique=True), st.integers(0, 99))
def test_any_choice_of_places_gives_a_network_that_runs(names, seed):
    wan = wan_between(names)
    process = WanProcess(wan, seed)
    process.step(60.0)
    assert np.all(process.bandwidth_gbps > 0)
    between = ~np.eye(len(names), dtype=bool)
    assert np.all((wan.latency_s[between] > 1e-4) & (wan.latency_s[between] < 0.3))
    assert np.all(wan.price_usd_per_gb[between] < 0.3)


def test_settings_reach_the_network():
    wan = wan_between([EAST, WEST4], spread=0.2, bound=0.25, correlation=0.5, intra_gbps=400.0)
    assert (wan.spread, wan.bound, wan.correlation, wan.bandwidth_gbps[1, 1]) == (0.2, 0.25, 0.5, 400.0)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("aws:us-east1", "aws:us-east-1"),
        ("gcp:europe-west4-z", "gcp:europe-west4-a"),
        ("azure:eastus22", "azure:eastus"),
    ],
)
def test_unknown_place_names_the_nearest(name, hint):
    with pytest.raises(NetworkError, match=f"{name}.*Did you mean '{hint}"):
        wan_between([EAST, name])


def test_repeated_place_is_refused():
    with pytest.raises(NetworkError, match="each once"):
        wan_between([EAST, EAST])


def test_carbon_is_known_for_gcp_and_honestly_unknown_elsewhere():
    assert carbon_g_per_kwh("gcp:europe-west4") == carbon_g_per_kwh("gcp:europe-west4-c") == 236.0
    assert carbon_g_per_kwh("gcp:me-central1") == 575.0
    assert carbon_g_per_kwh(EAST) is None
    with pytest.raises(NetworkError, match="not in the table"):
        carbon_g_per_kwh("gcp:atlantis1")


def test_every_field_names_repository_commit_licence_and_date():
    sources = load_constants("regions")["sources"]
    assert {"gbps", "rtt_ms", "usd_per_gb", "carbon_g_per_kwh"} <= set(sources)
    for field, entries in sources.items():
        for entry in entries:
            keys = {"repository", "commit", "licence", "date", "what"}
            assert keys <= set(entry) or entry["what"].startswith("assumed"), field


def test_names_do_not_load_numba():
    code = "import sys; from attribution_sched.cluster import regions; regions.region_names()"
    code += "; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
