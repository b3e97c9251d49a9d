"""Two processes, one of them on a busy machine and with other numbers of threads, come to the same journal.

    python -m tests.campaigns.repeatable                     # every world
    python -m tests.campaigns.repeatable --world large

Each world is lived in by two processes: one alone with one thread, one with two threads beside a process that does
nothing but count. Every row of every table of their journals must be the same, snapshots byte by byte; only columns
that hold what a clock said may differ. Feedback is part of all but ``sjf``, and must have changed a weight in most.
``thinking`` is Hi-PPO, which plays copies of the cluster before it decides; ``command`` is ``attribution-sched run``,
twice, on the testbed, ``command-...`` the same on other presets and in a small world.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from attribution_sched import System
from tests.campaigns.same import quick_folder, rows
from tests.small_world import SMALL, small

ROOT = Path(__file__).parents[2]
MISSED = {"step_ratio_at_most": 0.05}
WORLDS: dict[str, tuple[Any, str, int]] = {
    "small": (small(), "greedy", 10),
    "sjf": (small(), "sjf", 12),
    "thinking": (small(arrivals={"kind": "poisson", "rate_per_hour": 500.0}), "hi-ppo", 9),
    "cross-domain-easy": ("cross-domain-easy", "hi-ppo", 12),
    "large": ("large", "hi-ppo", 2),
}
"""Settings, policy, and placements between two steps of feedback."""

COMMANDS = {
    "command": ("testbed", "hi-ppo", 12),
    "command-cross-domain-easy": ("cross-domain-easy", "hi-ppo", 8),
    "command-shared": ("shared", "hi-ppo", 8),
    "command-hourly": ("cross-domain", "hi-ppo", 8),
    "command-small": ("small.yaml", "greedy", 16),
}
"""Of ``attribution-sched run``: preset, policy, tasks."""

CHANGES = {"small", "thinking", "cross-domain-easy", "large", "command-small"}
"""Where feedback must have changed a weight; Hi-PPO's commands take their step after few placements, and may not."""


def live(name: str, path: Path) -> None:
    """Place, explain, reshape the reward, place on."""
    settings, policy, count = WORLDS[name]
    with System(settings, policy, seed=5, journal=path, targets=MISSED) as system:
        for _ in range(2):
            system.run(count)
            last = [d.id for d, o in system.journal.entries() if o is not None and o.code == 1][-1]
            system.explain(last, rows=200)
            if policy != "sjf":
                system.feedback(explain=2, episodes=1, decisions=8)
        system.run(3)


@contextmanager
def busy() -> Iterator[None]:
    """A core has something else to do meanwhile."""
    counting = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        counting.kill()
        counting.wait()


def lived(name: str, folder: Path, threads: int, under_load: bool) -> dict[str, Any]:
    """What the journal of a process of its own says."""
    path = folder / f"{name}-{threads}-{under_load}" / "run.journal"
    path.parent.mkdir()
    command = [sys.executable, "-m", "tests.campaigns.repeatable", "--live", name, str(path)]
    if name in COMMANDS:
        preset, policy, tasks = COMMANDS[name]
        if preset.endswith(".yaml"):
            preset = str(path.with_name(preset))
            Path(preset).write_text(json.dumps(SMALL), encoding="utf-8")  # JSON is YAML
        files = ["--journal", str(path), "--report", str(path.with_name("report.md"))]
        asked = ["--preset", preset, "--policy", policy, "--tasks", str(tasks), "--target", "step_ratio_at_most=0.05"]
        command = [sys.executable, "-m", "attribution_sched.cli", "run", *asked, *files]
    number = str(threads)
    environment = os.environ | {"OMP_NUM_THREADS": number, "OPENBLAS_NUM_THREADS": number, "MKL_NUM_THREADS": number}
    with busy() if under_load else nullcontext():
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    return rows(path)


def campaign(name: str) -> tuple[int, str]:
    """Whether two processes agree in a world: rows compared, and what differs first (nothing: empty)."""
    with tempfile.TemporaryDirectory(dir=quick_folder()) as place:
        one = lived(name, Path(place), 1, under_load=False)
        other = lived(name, Path(place), 2, under_load=True)
    count = sum(map(len, one.values()))
    for table, mine in one.items():
        theirs = other[table]
        if mine != theirs:
            at = next((n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), -1)
            return count, f"{table} {at} of {len(mine)} and {len(theirs)}: {differing(mine[at], theirs[at])}"
    if name in CHANGES and not one["feedback"]:
        return count, "no step of feedback changed a weight"
    return count, ""


def differing(one: Any, other: Any, path: str = "") -> str:
    """Where two values differ, and how."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next((differing(one[k], other[k], f"{path}.{k}") for k in one if one[k] != other[k]), "")
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next((differing(a, b, f"{path}[{n}]") for n, (a, b) in pairs if a != b), "")
    return f"{path}: {str(one)[:200]} | {str(other)[:200]}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", choices=[*WORLDS, *COMMANDS], action="append")
    parser.add_argument("--live", nargs=2, metavar=("WORLD", "JOURNAL"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.live:
        live(chosen.live[0], Path(chosen.live[1]))
        return 0
    wrong = 0
    for name in chosen.world or [*WORLDS, *COMMANDS]:
        count, problem = campaign(name)
        wrong += bool(problem)
        sys.stdout.write(f"repeatable ({name}): 2 processes, {count} rows, {problem or 'the same journal'}\n")
        sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
