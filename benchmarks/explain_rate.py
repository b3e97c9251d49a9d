"""How many decisions of a journal are explained in a CPU-second by ``explain_many``, and what 100,000 would take.

    python benchmarks/explain_rate.py --policy "hi-ppo[quick]" --decisions 1000 --seed 3500000
    python benchmarks/explain_rate.py --policy sjf --decisions 1000 --rows 400
    python benchmarks/explain_rate.py --policy rule --preset cross-domain --cut 6 --seed 3510000
    python benchmarks/explain_rate.py --p95 100 --preset cross-domain --policy hi-ppo --seed 3520000
    python benchmarks/explain_rate.py --profile                       # where the time goes

A system writes a journal of fresh days; it is opened again, as ``explain --all`` does, and every decision explained
by default (its log-odds or choice against the best other one), in order, in this process: CPU time, living through
again and writing included, loading and compiling not. Workers share nothing but the journal's file, so that two cores
take half as long; that extrapolation is written out.

``--cut N`` explains only the first N placements over several domains. ``--p95 N`` explains N placements of a
running system as they come, without and with the table of alternatives. The digest is of all numbers told, to twelve
digits: two versions that explain alike have the same.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import json
import pstats
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    parser.add_argument("--cut", type=int, default=0, help="explain so many placements over several domains, no others")
    parser.add_argument("--p95", type=int, default=0, help="explain so many placements of a running system")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    options = {} if given.rows is None else {"rows": given.rows}
    if given.p95:
        as_it_runs(given, options)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        cut: list[str] = []
        with System(given.preset, policy=given.policy, seed=given.seed, journal=path) as system:
            while len(cut) < given.cut if given.cut else system.journal.count() < given.decisions:
                placed_now = system.schedule_next_task()
                assert placed_now is not None
                if given.cut and len(domains_of(system.journal.decision(placed_now.id).plan)) > 1:
                    cut.append(placed_now.id)
        with System.resume(path) as system:
            names = cut or [each.id for each in system.journal.decisions()][: given.decisions]
            placed = {each.id for each in system.journal.decisions() if each.plan is not None}
            if not given.cut:
                system.explain_many(names[:10], **options)
                names = names[10:]
            profile = cProfile.Profile()
            spent, digest = [], hashlib.blake2b(digest_size=8)
            if given.profile:
                profile.enable()
            for name in names:
                began = time.process_time()
                done = system.explain_many([name], **options)
                spent.append((time.process_time() - began, name in placed, not done.failed))
                for each in system.journal.explanations(name):
                    digest.update(numbers(each.explanation))
            profile.disable()
    cpu_s = np.array([each for each, _, _ in spent])
    acts = np.array([each for _, each, _ in spent])
    failed = sum(not fine for _, _, fine in spent)
    rate = len(cpu_s) / cpu_s.sum()
    hours = 100_000 / rate / 2.0 / 60.0
    print("| policy | decisions | failed | a CPU-second | mean ms | placed: median, p95 ms | waits, keeps | 100,000 |")
    print("|---|---:|---:|---|---|---|---|---|")
    print(
        f"| {given.policy} | {len(cpu_s)} | {failed} | {rate:.2g} | {cpu_s.mean() * 1e3:.1f} | {told(cpu_s[acts])} | "
        f"{told(cpu_s[~acts])} | {hours:.0f} min on two cores |"
    )
    print(f"digest {digest.hexdigest()}")
    if given.profile:
        pstats.Stats(profile).sort_stats("cumtime").print_stats(90)


def as_it_runs(given: argparse.Namespace, options: dict[str, Any]) -> None:
    """Explain placements of a running system, without and with the table of alternatives, and print both times."""
    alone, table, cut = [], [], 0
    with System(given.preset, policy=given.policy, seed=given.seed) as system:
        for _ in range(given.p95 + 1):
            placed = system.schedule_next_task()
            if placed is None:
                break
            began = time.process_time()
            system.explain(placed, **options)
            explained = time.process_time()
            system.alternatives(placed)
            alone.append(explained - began)
            table.append(time.process_time() - began)
            cut += len(domains_of(system.journal.decision(placed.id).plan)) > 1
    # The first is left out: it loads, compiles and warms up.
    without, with_table = np.array(alone[1:]), np.array(table[1:])
    print("| world, policy, seed | placements, of these cut | explained: median, p95, p99 ms | with the table |")
    print("|---|---|---|---|")
    cells = [
        ", ".join(f"{1e3 * value:.0f}" for value in np.quantile(some, (0.5, 0.95, 0.99)))
        for some in (without, with_table)
    ]
    print(f"| {given.preset}, {given.policy}, {given.seed} | {len(without)}, {cut} | {cells[0]} | {cells[1]} |")


def domains_of(plan: Any) -> set[Any]:
    """Domains of a recorded plan."""
    return set() if plan is None else {part["domain"] for each in plan["replicas"] for part in each["segments"]}


def numbers(told: Any) -> bytes:
    """All of a record in bytes, its numbers to twelve digits."""
    if isinstance(told, float):
        return f"{told:.12g};".encode()
    if isinstance(told, Mapping):
        return b"".join(key.encode() + numbers(value) for key, value in sorted(told.items()) if key != "seconds")
    if isinstance(told, list | tuple):
        return b"".join(numbers(value) for value in told)
    return json.dumps(told).encode()


def told(values: np.ndarray) -> str:
    """Median and 95th percentile in milliseconds, and of how many."""
    if len(values) == 0:
        return "none"
    return f"{np.median(values) * 1e3:.0f}, {np.quantile(values, 0.95) * 1e3:.0f} ({len(values)})"


if __name__ == "__main__":
    main()
