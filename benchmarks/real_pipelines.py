"""Pipelines that were really run against what is predicted of them.

    python benchmarks/real_pipelines.py [CASES.json]

Nothing here is random. All rows of the default file were looked at while building, so it judges a fit: the form of the
model and the bytes that reach a receiver before it posts its receive (0, 32, 64, 96, 128 KiB were tried, ``--eager``
shows them) were chosen by their errors; a link's shares and the overhead of an operation were scanned before the
measured shares and no overhead were kept. The programme of each runtime was read in torch's source.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path

from attribution_sched.cluster.rendezvous import EAGER_BYTES, LinkProfile, measured_step_s

CASES = Path(__file__).parents[1] / "tests" / "cases" / "real_pipelines.json"
RUNTIMES = {"1f1b": "torch-1f1b", "gpipe": "torch-gpipe"}


def predicted(row: dict, eager_bytes: float) -> float:
    """Step of a row, from its stages' seconds and its links' nominal rates."""
    nominal = (LinkProfile.nominal(rate * 1e6 / 8.0) for rate in row["links_mbit_s"])
    links = [replace(link, eager_bytes=eager_bytes) for link in nominal]
    size = row["microbatch"] * 64 * 256 * 4
    return measured_step_s(
        RUNTIMES[row["schedule"]], row["stage_forward_s"], row["stage_backward_s"], size, links, row["microbatches"]
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="?", type=Path, default=CASES)
    parser.add_argument("--eager", action="store_true", help="other numbers of eager bytes")
    chosen = parser.parse_args()
    rows = json.loads(chosen.cases.read_text())["rows"]
    if chosen.eager:
        for kib in (0, 32, 64, 96, 128):
            errors = [abs(predicted(row, 1024.0 * kib) / row["measured_step_s"] - 1.0) for row in rows]
            print(f"{kib:4d} KiB  mean {statistics.mean(errors):.1%}  max {max(errors):.1%}")
        return
    errors = []
    print(f"{'pipeline':16} {'measured s':>10} {'predicted s':>11} {'error':>7}")
    for row in rows:
        step_s = predicted(row, EAGER_BYTES)
        errors.append(step_s / row["measured_step_s"] - 1.0)
        print(f"{row['name']:16} {row['measured_step_s']:10.3f} {step_s:11.3f} {errors[-1]:+7.1%}")
    sizes = [abs(error) for error in errors]
    print(f"mean error {statistics.mean(sizes):.1%}, max {max(sizes):.1%} (bar: 6 %, 15 %)")


if __name__ == "__main__":
    main()
