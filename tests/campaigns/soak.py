"""Decide at full rate for minutes: memory stays flat, the queue stays bounded.

``python -m tests.campaigns.soak --minutes 10`` prints the slope of the resident memory with its 95 % interval, by least
squares over readings after what is bounded by design has filled up. It must be below 1 MB per 10,000 decisions, or not
be told from none.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from attribution_sched import System
from tests.campaigns.same import quick_folder
from tests.small_world import small

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SETTINGS = small(arrivals={"kind": "poisson", "rate_per_hour": 400.0})
STEP = 10_000
MOST_MB = 1.0
"""Per so many decisions."""


def resident_mb() -> float:
    """Megabytes of this process that are in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES / 1e6


@dataclass(frozen=True)
class Soaked:
    """What came of it.

    Attributes:
        decisions: Taken in all.
        slope_mb: Megabytes per 10,000 decisions.
        low_mb: Lower end of its 95 % interval.
        high_mb: Upper end.
        queue: Longest queue seen.
        readings: How many the slope rests on.
    """

    decisions: int
    slope_mb: float
    low_mb: float
    high_mb: float
    queue: int
    readings: int

    def problem(self) -> str:
        """What is wrong; nothing: empty."""
        if self.queue > SETTINGS.episode.queue_capacity:
            return f"{self.queue} tasks waited, the queue holds {SETTINGS.episode.queue_capacity}"
        if self.slope_mb >= MOST_MB and self.low_mb > 0.0:
            return f"memory grows by {self.slope_mb:.2f} MB per {STEP} decisions"
        return ""


def slope(decisions: list[int], megabytes: list[float]) -> tuple[float, float, float]:
    """Least squares: megabytes per 10,000 decisions, and the ends of the 95 % interval."""
    fit = stats.linregress(np.array(decisions) / STEP, np.array(megabytes))
    reach = float(stats.t.ppf(0.975, len(decisions) - 2) * fit.stderr)
    return float(fit.slope), float(fit.slope) - reach, float(fit.slope) + reach


def campaign(seconds: float, policy: str = "sjf", settled: int = 1500, seed: int = 0) -> Soaked:
    """Decide for so long, after some decisions that fill what is bounded."""
    with (
        tempfile.TemporaryDirectory(dir=quick_folder()) as place,
        System(SETTINGS, policy, seed=seed, journal=Path(place) / "run.journal") as system,
    ):
        while system.journal.count() < settled:
            system.run(50)
        counts, megabytes, queue = list[int](), list[float](), 0
        begun = time.monotonic()
        while (spent := time.monotonic() - begun) < seconds or len(counts) < 5:
            system.run(20)
            queue = max(queue, system.cluster.waiting)
            if spent >= len(counts) * max(seconds / 200.0, 0.1):
                counts.append(system.journal.count())
                megabytes.append(resident_mb())
        return Soaked(system.journal.count(), *slope(counts, megabytes), queue, len(counts))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--policy", default="sjf")
    chosen = parser.parse_args()
    found = campaign(60.0 * chosen.minutes, chosen.policy)
    told = f"{found.slope_mb:+.3f} MB per {STEP} decisions (95 % {found.low_mb:+.3f} to {found.high_mb:+.3f})"
    problem = found.problem()
    sys.stdout.write(f"soak ({chosen.policy}, {chosen.minutes:g} min): {found.decisions} decisions, memory {told}, ")
    sys.stdout.write(f"{found.readings} readings, at most {found.queue} waiting: {problem or 'flat'}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
