"""Fit profiles of carbon intensity to hourly records of four US grids (2022).

Writes ``attribution_sched/cluster/constants/grids.json``. Run from the repository root with the measured tables in
``$ATTRIBUTION_SCHED_DATA``::

    python calibration/fit_grids.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
from fit_throughput import data_dir, rounded

OUT = Path("attribution_sched/cluster/constants/grids.json")
SOURCE = {
    "dataset": "carbon_us_2022",
    "repository": "https://github.com/HewlettPackard/dc-rl",
    "commit": "a92b4755aca560e34a98d14028dda629eb968482",
    "licence": "MIT",
}
GRIDS = ("BPAT", "CISO", "ERCO", "PJM")
REGIONS = {
    "aws:us-east-1": "PJM", "gcp:us-east4": "PJM", "gcp:us-east4-a": "PJM", "aws:us-west-2": "BPAT",
    "gcp:us-west1": "BPAT", "gcp:us-west1-b": "BPAT", "azure:westus": "CISO", "azure:southcentralus": "ERCO",
}  # fmt: skip


def hourly(name: str) -> pd.Series:
    """A year of hours, missing ones filled between their neighbours."""
    table = pd.read_csv(data_dir() / "carbon_us_2022" / f"{name}.csv")
    time = pd.to_datetime(table.iloc[:, 0], utc=True)
    series = pd.Series(table["avg_CI"].to_numpy(float), index=time).sort_index()
    series = series[~series.index.duplicated()]
    full = pd.date_range("2022-01-01", periods=8760, freq="h", tz="UTC")
    return series.reindex(full).interpolate().bfill().ffill()


def fit(values: np.ndarray) -> dict[str, object]:
    """Mean, first harmonic of the year, day by season, and the AR(1) of what is left; errors on days left out."""
    hour = np.arange(len(values))
    angle = 2 * np.pi * hour / 8760
    mean = values.mean()
    design = np.stack([np.ones_like(angle), np.cos(angle), np.sin(angle)], axis=1)
    year = np.linalg.lstsq(design, values / mean, rcond=None)[0]
    base = mean * (1 + year[1] * np.cos(angle) + year[2] * np.sin(angle))
    season, clock = (hour // 2190).clip(max=3), hour % 24
    relative = values / base
    table = np.array([[relative[(season == s) & (clock == h)].mean() for h in range(24)] for s in range(4)])
    rest = values - base * table[season, clock]
    phi = float(np.corrcoef(rest[:-1], rest[1:])[0, 1])
    # Odd days are predicted by a table of even ones.
    even = (hour // 24) % 2 == 0
    half = np.array([[relative[even & (season == s) & (clock == h)].mean() for h in range(24)] for s in range(4)])
    off = np.abs(values - base * half[season, clock])[~even]
    return {
        "mean": mean, "year": [year[1], year[2]], "day": table.tolist(), "phi": phi, "sigma": float(rest.std()),
        "held_out_odd_days": float(np.mean(off) / mean),
        "constant_guess_odd_days": float(np.mean(np.abs(values - mean)[~even]) / mean),
    }  # fmt: skip


def main() -> None:
    """Fit every grid and write the constants."""
    constants = {
        "source": SOURCE,
        "unit": "gCO2 per kWh, location-based average intensity",
        "error_unit": "mean absolute error over the mean",
        "how": "season and hour in UTC; the mapping of cloud regions to grids is the data folder's own",
        "regions": REGIONS,
        "grids": {name: fit(hourly(name).to_numpy()) for name in GRIDS},
    }
    OUT.write_text(json.dumps(rounded(json.loads(json.dumps(constants, default=float))), indent=1) + "\n")
    for name, law in constants["grids"].items():  # type: ignore[union-attr]
        print(name, {k: v for k, v in law.items() if k != "day"})


if __name__ == "__main__":
    main()
