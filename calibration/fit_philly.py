"""Fit how tasks of the Philly log arrive, how many devices they ask for and how long they take, tenant by tenant.

Writes ``attribution_sched/cluster/constants/philly.json`` from the log up to the first test week. Run from the
repository root with the log in ``$ATTRIBUTION_SCHED_DATA``::

    python calibration/fit_philly.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd

from attribution_sched.cluster.models.opaque import REQUESTS
from attribution_sched.cluster.philly import LONGEST_S, TEST_WEEKS, request_of

OUT = Path("attribution_sched/cluster/constants/philly.json")
SOURCE = {
    "dataset": "philly",
    "repository": "https://github.com/msr-fiddle/philly-traces",
    "commit": "29a1b87f",
    "licence": "CC BY 4.0",
    "table": "petuum/adaptdl @ c793c7089bd307462686339d29707925c461f9a9, simulator/traces/philly.csv",
}
LEVELS = 21
FEW = 50
"""Tenants with fewer tasks share the quantiles of all."""
SESSION_GAP_S = 60.0
"""Tasks closer than this belong to one session."""


def main() -> None:
    """Fit and write."""
    table = pd.read_csv(Path(os.environ["ATTRIBUTION_SCHED_DATA"]) / "philly" / "philly.csv", parse_dates=["timestamp"])
    begin, end = table["timestamp"].min(), pd.Timestamp(TEST_WEEKS[0])
    names = sorted(table["cluster"].unique())
    table = table[(table["timestamp"] >= begin) & (table["timestamp"] < end)].sort_values("timestamp")
    seconds = table["duration"].clip(1.0, LONGEST_S).to_numpy()
    devices = np.array([request_of(n) for n in table["num_gpus"]])
    gaps = table["timestamp"].diff().dt.total_seconds().to_numpy()[1:]
    within = gaps[gaps < SESSION_GAP_S]
    # The day from the beginnings of sessions: a large session is one event of its hour, not hundreds.
    starts = table["timestamp"].to_numpy()[1:][gaps >= SESSION_GAP_S]
    hours = pd.DatetimeIndex(starts).hour.to_numpy() + 0.5
    wave = np.exp(2j * np.pi * hours / 24.0).mean()

    def quantiles(chosen: np.ndarray, fallback: np.ndarray) -> list[float]:
        own = seconds[chosen] if chosen.sum() >= FEW else seconds[fallback]
        return [float(f"{q:.4g}") for q in np.quantile(own, np.linspace(0, 1, LEVELS))]

    tenants = {}
    for name in names:
        own = (table["cluster"] == name).to_numpy()
        if not own.any():
            continue
        sizes = [float(f"{np.mean(devices[own] == n):.4g}") for n in REQUESTS]
        tenants[name] = {
            "share": float(f"{own.mean():.4g}"),
            "sizes": sizes,
            "single": quantiles(own & (devices == 1), devices == 1),
            "wide": quantiles(own & (devices > 1), devices > 1),
        }
    constants = {
        "source": SOURCE,
        "from": str(begin.date()), "before": TEST_WEEKS[0],
        "rows": len(table),
        "cut_at_s": LONGEST_S,
        "sizes_of": list(REQUESTS),
        "gpu_hours_per_task": float(f"{(seconds * devices).mean() / 3600:.4g}"),
        "day": {"amplitude": float(f"{min(1.0, 2 * abs(wave)):.4g}"),
                "peak_hour": float(f"{(np.angle(wave) * 24 / (2 * np.pi)) % 24:.4g}")},
        "session": {"chance": float(f"{len(within) / len(gaps):.4g}"), "gap_s": float(f"{within.mean():.4g}"),
                    "how": f"gaps below {SESSION_GAP_S:g} s"},
        "tenants": tenants,
    }  # fmt: skip
    OUT.write_text(json.dumps(constants, indent=1) + "\n")
    print(json.dumps({k: v for k, v in constants.items() if k != "tenants"}, indent=1), len(tenants), "tenants")


if __name__ == "__main__":
    main()
