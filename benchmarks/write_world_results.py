"""Run the benchmarks of the world and write their tables into ``docs/results_world.md``.

Run: ``ATTRIBUTION_SCHED_DATA=<folder> python benchmarks/write_world_results.py``
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TARGET = HERE.parent / "docs" / "results_world.md"

SECTIONS = (
    ("pipeline_agreement.py", "Pipeline recurrence against ASTRA-sim and an independent event simulation"),
    ("megatron_scaling.py", "Published Megatron-LM weak scaling"),
    ("measured_steps.py", "Measured training steps"),
    ("zeus_cells.py", "Batch and power-cap laws on cells left out"),
    ("precision_speedups.py", "Mixed-precision gain per family"),
    ("pair_law.py", "Two jobs on one GPU"),
    ("simulator_agreement.py", "Event simulator against the batched engine"),
    ("env_throughput.py", "Throughput of the batched environment"),
)


def main() -> None:
    """Run every script and write the page; a script that fails stops it, and nothing is written."""
    parts = [
        "# The world: what was measured\n\nThis page is written by `python benchmarks/write_world_results.py`; "
        "each table is the output of the script named above it. Times are process CPU time on two shared cores.\n"
    ]
    for script, title in SECTIONS:
        done = subprocess.run([sys.executable, str(HERE / script)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{script} failed:\n{done.stderr}")
        parts.append(f"## {title}\n\n`python benchmarks/{script}`\n\n```text\n{done.stdout.rstrip()}\n```\n")
        print(f"{script}: done")
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
