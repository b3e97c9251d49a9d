"""How many decisions of a journal are explained in a CPU-second by ``explain_many``, and what 100,000 would take.

    python benchmarks/explain_rate.py --policy "hi-ppo[quick]" --decisions 1000 --seed 3500000
    python benchmarks/explain_rate.py --policy sjf --decisions 1000 --rows 400
    python benchmarks/explain_rate.py --profile                       # where the time goes

A system writes a journal of fresh days; it is opened again, as ``explain --all`` does, and every decision explained
by default (its log-odds or choice against the best other one), in order, in this process: CPU time, living through
again and writing included, loading and compiling not. Workers share nothing but the journal's file, so that two cores
take half as long; that extrapolation is written out.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
import time
from pathlib import Path

import numpy as np

from attribution_sched import System


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cross-domain-easy")
    parser.add_argument("--policy", default="hi-ppo[quick]")
    parser.add_argument("--decisions", type=int, default=1000)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--seed", type=int, default=3_500_000)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    options = {} if given.rows is None else {"rows": given.rows}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        with System(given.preset, policy=given.policy, seed=given.seed, journal=path) as system:
            while system.journal.count() < given.decisions:
                system.schedule_next_task()
        with System.resume(path) as system:
            names = [each.id for each in system.journal.decisions()][: given.decisions]
            placed = {each.id for each in system.journal.decisions() if each.plan is not None}
            system.explain_many(names[:10], **options)
            profile = cProfile.Profile()
            spent = []
            if given.profile:
                profile.enable()
            for name in names[10:]:
                began = time.process_time()
                done = system.explain_many([name], **options)
                spent.append((time.process_time() - began, name in placed, not done.failed))
            profile.disable()
    cpu_s = np.array([each for each, _, _ in spent])
    acts = np.array([each for _, each, _ in spent])
    failed = sum(not fine for _, _, fine in spent)
    rate = len(cpu_s) / cpu_s.sum()
    hours = 100_000 / rate / 2.0 / 60.0
    print("| policy | decisions | failed | a CPU-second | mean ms | placed: median, p95 ms | waits, keeps | 100,000 |")
    print("|---|---:|---:|---|---|---|---|---|")

    def told(values: np.ndarray) -> str:
        if len(values) == 0:
            return "none"
        return f"{np.median(values) * 1e3:.0f}, {np.quantile(values, 0.95) * 1e3:.0f} ({len(values)})"

    print(
        f"| {given.policy} | {len(cpu_s)} | {failed} | {rate:.1f} | {cpu_s.mean() * 1e3:.1f} | {told(cpu_s[acts])} | "
        f"{told(cpu_s[~acts])} | {hours:.0f} min on two cores |"
    )
    if given.profile:
        pstats.Stats(profile).sort_stats("cumtime").print_stats(40)


if __name__ == "__main__":
    main()
