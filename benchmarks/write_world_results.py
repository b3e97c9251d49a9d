"""Run the benchmarks of the world and write their tables into ``docs/results_world.md``.

Run: ``ATTRIBUTION_SCHED_DATA=<folder> python benchmarks/write_world_results.py``, or with the names of some scripts to
run and replace their sections only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TARGET = HERE.parent / "docs" / "results_world.md"

SECTIONS = (
    ("pipeline_agreement.py", "Pipeline recurrence against ASTRA-sim and an independent event simulation"),
    ("megatron_scaling.py", "Published Megatron-LM weak scaling"),
    ("measured_steps.py", "Measured training steps"),
    ("watts.py", "Watts: from a model's name, a GPU and a batch"),
    ("zeus_cells.py", "Form of the batch and power-cap laws on cells left out"),
    ("precision_speedups.py", "Mixed-precision gain per family"),
    ("pair_law.py", "Two jobs on one GPU"),
    ("pair_trials.py", "Two jobs whose families nobody measured"),
    ("real_pairs.py --table", "Real nets side by side on this machine"),
    ("simulator_agreement.py", "Event simulator against the batched engine"),
    ("env_throughput.py", "Throughput of the batched environment"),
    ("openb.py --policies random;best-fit;fgd;ours", "Alibaba's openb cluster by FGD's definition"),
    ("pollux.py", "Pollux's eight workloads"),
    ("power_caps.py", "A power cap for each task"),
)


def section(script: str, title: str) -> str:
    """Run a script and lay its output out; a script that fails stops everything, and nothing is written."""
    name, *more = script.split()
    done = subprocess.run([sys.executable, str(HERE / name), *more], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{script} failed:\n{done.stderr}")
    print(f"{script}: done")
    return f"## {title}\n\n`python benchmarks/{script}`\n\n```text\n{done.stdout.rstrip()}\n```\n"


def kept(script: str) -> str | None:
    """The section of a script as the page has it; None if it has none."""
    parts = TARGET.read_text().split("\n## ") if TARGET.exists() else []
    found = next((part for part in parts[1:] if f"`python benchmarks/{script}`" in part), None)
    return None if found is None else f"## {found.rstrip()}\n"


def _others() -> list[str]:
    """Sections that no script of these writes, as they stand."""
    parts = TARGET.read_text().split("\n## ")[1:] if TARGET.exists() else []
    return [part for part in parts if not any(f"`python benchmarks/{script}`" in part for script, _ in SECTIONS)]


def summary() -> str:
    """The lines above the first section, as they stand: words are somebody's, and kept."""
    text = TARGET.read_text("utf-8") if TARGET.is_file() else ""
    found = re.search(r"^Five lines: .*?\n\n", text, re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


def main(only: list[str]) -> None:
    """Write the page: every script's section anew, or only those of the named scripts."""
    parts = [
        "# The world: what was measured\n\n"
        + summary()
        + "This page is written by `python benchmarks/write_world_results.py`; "
        "each table is the output of the script named above it. Times are process CPU time on two shared cores.\n"
    ]
    for script, title in SECTIONS:
        old = kept(script) if only and script.split()[0] not in only else None
        parts.append(old if old is not None else section(script, title))
    parts += [f"## {part.rstrip()}\n" for part in _others()]
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("\n".join(parts))


if __name__ == "__main__":
    main(sys.argv[1:])
