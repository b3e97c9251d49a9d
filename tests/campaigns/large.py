"""Sixty-four domains of sixty-four devices beside a busy process: every decision in time or named, nothing lost.

``python -m tests.campaigns.large --placements 40`` places tasks on the preset ``large`` while another process does
nothing but count, kills nothing, resumes what came of it, and prints the time of a placement alone and under load. A
decision that Hi-PPO's deadline cut off must be there under the name of its fallback.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched import System
from attribution_sched.attribution.attributor import DefaultAttributor
from attribution_sched.config import load_settings
from tests.campaigns.repeatable import busy
from tests.campaigns.same import account, quick_folder


@dataclass(frozen=True)
class Placed:
    """What came of it.

    Attributes:
        decisions: Taken in all.
        alone_ms: Processor time of a placement, median, with nothing beside it.
        loaded_ms: The same beside a busy process.
        fallbacks: Decisions that the deadline cut off, by name in the journal.
        problem: What is wrong; nothing: empty.
    """

    decisions: int
    alone_ms: float
    loaded_ms: float
    fallbacks: int
    problem: str


def campaign(placements: int, policy: str = "sjf", preset: Any = "large", seed: int = 0) -> Placed:
    """Place so many tasks alone, and so many beside a busy process, in one run; then resume it."""
    attributor = DefaultAttributor(load_settings(preset).build_world())
    with tempfile.TemporaryDirectory(dir=quick_folder()) as name:
        path, medians = Path(name) / "run.journal", []
        with System(preset, policy, seed=seed, journal=path, attributor=attributor) as system:
            system.run(2)
            for under_load in (False, True):
                spent = []
                with busy() if under_load else nullcontext():
                    for _ in range(placements):
                        began = time.process_time()
                        if system.schedule_next_task() is None:
                            return Placed(system.journal.count(), 0.0, 0.0, 0, "nothing was placed")
                        spent.append(1e3 * (time.process_time() - began))
                medians.append(float(np.median(spent)))
            expected = account(system)
        with System.resume(path, attributor=attributor) as resumed:
            problem = expected.difference(account(resumed))
            cut = [each.source for each in resumed.journal.decisions() if "coordination took" in each.source]
            if any(not source.startswith("fallback:") for source in cut):
                problem = problem or f"a decision that was cut off is called {cut[0]}"
            return Placed(resumed.journal.count(), *medians, len(cut), problem)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--placements", type=int, default=40)
    parser.add_argument("--policy", default="sjf")
    chosen = parser.parse_args()
    found = campaign(chosen.placements, chosen.policy)
    told = f"{found.decisions} decisions, CPU of a placement {found.alone_ms:.1f} ms alone, {found.loaded_ms:.1f} ms "
    sys.stdout.write(f"large ({chosen.policy}, 64 × 64): {told}beside a busy process, {found.fallbacks} fallbacks by ")
    sys.stdout.write(f"the deadline, {found.problem or 'resumed to the bit'}\n")
    return 1 if found.problem else 0


if __name__ == "__main__":
    sys.exit(main())
