"""Write ``attribution_sched/cluster/constants/regions.json``: the network between real cloud regions.

Usage::

    ATTRIBUTION_SCHED_DATA=/path/to/data python calibration/fit_regions.py [--check]

Bandwidth is the geometric mean of the two Skyplane campaigns, or the one that measured the pair; between
the five GCP zones of Sailor it is Sailor's fitted curve at one stated message size. ``--check`` compares
with the file that is there and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TARGET = Path(__file__).parents[1] / "attribution_sched" / "cluster" / "constants" / "regions.json"
FIELDS = ("gbps", "rtt_ms", "usd_per_gb")
MESSAGE_MB = 64
MACHINE = ("A100-40", "4")
INTER_ZONE_RTT_MS = 1.0

SKYPLANE = {"repository": "github.com/skyplane-project/skyplane", "licence": "Apache-2.0"}
SAILOR = {
    "repository": "github.com/eth-easl/sailor",
    "commit": "cf2c8e3cc53ce178fe58a4003f46b4b6b848fc33",
    "licence": "MIT",
    "date": "2025 (published; dates of measurement not stated)",
}
SOURCES: dict[str, list[dict[str, str]]] = {
    "gbps": [
        SKYPLANE
        | {
            "commit": "2e3b2c01, 123e799d",
            "date": "2022-01, 2022-11",
            "what": "iperf3, 64 connections, 5 s, premium tier; geometric mean of both campaigns",
        },
        SAILOR | {"what": f"GCP zone pairs: {MACHINE[1]} x {MACHINE[0]} per machine, curve at {MESSAGE_MB} MB"},
    ],
    "rtt_ms": [
        SKYPLANE
        | {
            "commit": "2e3b2c01",
            "date": "2022-01",
            "what": "ping, average of a run; the smaller of the runs from either end",
        }
    ],
    "usd_per_gb": [
        SKYPLANE | {"commit": "2e3b2c01", "date": "2022-01", "what": "list price of egress"},
        SAILOR | {"what": "GCP zone pairs: list price of egress"},
    ],
    "inter_zone.rtt_ms": [
        {"what": "assumed: near the smallest round trips measured between providers in one city (0.9-2 ms)"}
    ],
    "carbon_g_per_kwh": [
        {
            "repository": "github.com/mlco2/codecarbon",
            "commit": "b05965e43b690cdc53787c7577adbe6e2caf4ed9",
            "licence": "MIT",
            "date": "not stated by the file",
            "what": "gCO2eq/kWh of the grid; the name me-cenrtal1 is read as me-central1",
        }
    ],
}

Pair = tuple[str, str]


def main() -> int:
    """Build the table; write it, or compare it with the shipped one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only; exit code 1 if the file differs")
    arguments = parser.parse_args()
    folder = os.environ.get("ATTRIBUTION_SCHED_DATA")
    if not folder:
        print("ATTRIBUTION_SCHED_DATA is not set: point it at the folder of skyplane/, sailor/ and codecarbon/")
        return 2
    table = build(Path(folder))
    text = dump(table)
    print(f"{len(table['names'])} places, {len(text) / 1000:.0f} kB")
    for key in ("drift", "fallback_error"):
        print(f"{key}: {json.dumps(table[key])}")
    if arguments.check:
        same = TARGET.read_text(encoding="utf-8") == text
        print("unchanged" if same else f"{TARGET.name} differs")
        return 0 if same else 1
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    return 0


def build(folder: Path) -> dict[str, Any]:
    """Assemble every part of the constants file from the data folder."""
    sky = folder / "skyplane"
    campaigns = [_pairs(sky / f"throughput_2022_{m}.csv", "gbps_received") for m in ("01", "11")]
    measured: dict[str, dict[Pair, float]] = {
        "gbps": {
            pair: math.exp(np.mean([math.log(c[pair]) for c in campaigns if pair in c]))
            for pair in campaigns[0].keys() | campaigns[1].keys()
        },
        "rtt_ms": _pairs(sky / "rtt.csv", "avg_rtt_ms"),
        "usd_per_gb": _pairs(sky / "egress_cost.csv", "egress_usd_per_gb"),
    }
    regions = {re.sub(r"-[a-f]$", "", name): name for name in sorted({p[0] for p in measured["gbps"]})}
    zone_gbps, zone_price = _sailor(folder / "sailor")
    inter_zone = {
        "gbps": _median([v for (a, b), v in zone_gbps.items() if _region(a) == _region(b)]),
        "rtt_ms": INTER_ZONE_RTT_MS,
        "usd_per_gb": _median([v for (a, b), v in zone_price.items() if _region(a) == _region(b)]),
    }
    medians, errors = _fallbacks(measured)
    # A round trip has no direction, and one slow ping inflates the average of a short run.
    rtt = measured["rtt_ms"]
    measured["rtt_ms"] = {(a, b): min(value, rtt.get((b, a), value)) for (a, b), value in rtt.items()}
    # Sailor's figures come last: between its zones they are the ones that training traffic saw.
    measured["gbps"] |= zone_gbps
    measured["usd_per_gb"] |= zone_price
    names = sorted({name for pair in measured["gbps"] for name in pair})
    return {
        "sources": SOURCES,
        "drift": _drift(*campaigns),
        "fallback_error": errors,
        "inter_zone": {k: _round(v) for k, v in inter_zone.items()},
        "provider_pair_median": medians,
        "zone_of_region": {r: zone for r, zone in regions.items() if r != zone},
        "carbon_g_per_kwh": _carbon(folder / "codecarbon" / "cloud_impact.csv"),
        "names": names,
        **{f: [[_round(measured[f].get((a, b))) for b in names] for a in names] for f in FIELDS},
    }


def dump(table: dict[str, Any]) -> str:
    """Write JSON with one matrix row per line, so that a change of one region reads well in a diff."""
    parts = []
    for key, value in table.items():
        if key in FIELDS:
            rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in value)
            parts.append(f"{json.dumps(key)}: [\n{rows}\n]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value, indent=1)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _pairs(path: Path, column: str) -> dict[Pair, float]:
    frame = pd.read_csv(path)
    frame = frame[(frame.src_region != frame.dst_region) & frame[column].notna()]
    return dict(zip(zip(frame.src_region, frame.dst_region, strict=True), map(float, frame[column]), strict=True))


def _sailor(folder: Path) -> tuple[dict[Pair, float], dict[Pair, float]]:
    """Return Gb/s and $/GB between Sailor's zones."""
    curves = json.loads((folder / "gcp_zone_bandwidth.json").read_text())
    prices = json.loads((folder / "gcp_egress_cost.json").read_text())
    gpu, count = MACHINE
    gbps, price = {}, {}
    for a in curves:
        for b in curves:
            if a != b:
                quadratic, _ = curves[a][gpu][count][b][gpu][count]
                gbps[f"gcp:{a}", f"gcp:{b}"] = 8.0 * float(np.polyval(quadratic, math.log2(MESSAGE_MB)))
                price[f"gcp:{a}", f"gcp:{b}"] = float(prices[a][b])
    return gbps, price


def _drift(first: dict[Pair, float], second: dict[Pair, float]) -> dict[str, float]:
    """Describe how the same pairs moved between the campaigns; two snapshots give no reversion rate."""
    change = np.array([math.log(second[p] / first[p]) for p in sorted(first.keys() & second.keys())])
    near = np.abs(np.expm1(change)) < 0.3
    quartile = np.subtract(*np.quantile(change, [0.75, 0.25]))
    figures = {f"ratio_p{q}": math.exp(np.quantile(change, q / 100)) for q in (5, 25, 50, 75, 95)}
    return {
        "pairs": len(change),
        **{k: _round(v) for k, v in figures.items()},
        "share_within_30_percent": _round(float(near.mean())),
        # Two independent draws of one stationary law differ by sqrt(2) of its spread.
        "spread_of_pairs_within_30_percent": _round(float(change[near].std() / math.sqrt(2))),
        "spread_from_quartiles_of_all": _round(float(quartile / 1.349 / math.sqrt(2))),
    }


def _fallbacks(measured: dict[str, dict[Pair, float]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return provider-pair medians, and the relative error each fallback makes on the measured pairs."""
    medians: dict[str, dict[str, float]] = {}
    errors: dict[str, dict[str, Any]] = {}
    for field in FIELDS:
        table = {pair: measured[field][pair] for pair in sorted(measured[field])}
        by_provider: dict[str, list[float]] = {}
        by_source: dict[Pair, list[float]] = {}
        for (a, b), value in table.items():
            by_provider.setdefault(f"{_provider(a)} > {_provider(b)}", []).append(value)
            by_source.setdefault((a, _provider(b)), []).append(value)
        for group, values in sorted(by_provider.items()):
            medians.setdefault(group, {})[field] = _round(_median(values))
        guesses = {
            "provider_pair_median": {(a, b): medians[f"{_provider(a)} > {_provider(b)}"][field] for a, b in table}
        }
        if field == "usd_per_gb":
            guesses["source_median"] = {(a, b): _median(by_source[a, _provider(b)]) for a, b in table}
        else:
            guesses["reverse_direction"] = {(a, b): table[b, a] for a, b in table if (b, a) in table}
        errors[field] = {name: _error(guess, table) for name, guess in guesses.items()}
    return medians, errors


def _error(guess: dict[Pair, float], truth: dict[Pair, float]) -> dict[str, float]:
    relative = np.array([abs(guess[pair] / truth[pair] - 1) for pair in guess if truth[pair] > 0])
    return {"median": _round(float(np.median(relative))), "mean": _round(float(relative.mean()))}


def _carbon(path: Path) -> dict[str, float]:
    frame = pd.read_csv(path, encoding="utf-8-sig")
    names = frame.provider + ":" + frame.region.str.replace("cenrtal", "central")
    return {name: float(value) for name, value in sorted(zip(names, frame.impact, strict=True))}


def _provider(name: str) -> str:
    return name.split(":")[0]


def _region(name: str) -> str:
    return name.rsplit("-", 1)[0]


def _median(values: list[float]) -> float:
    return float(np.median(values))


def _round(value: float | None) -> Any:
    """Keep three significant digits."""
    return None if value is None else float(f"{value:.3g}")


if __name__ == "__main__":
    sys.exit(main())
