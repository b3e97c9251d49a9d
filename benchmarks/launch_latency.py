"""From handing in to the first instruction of a job: through the executors, beside the engine's own command.

    python benchmarks/launch_latency.py [--jobs 10]

A job writes the time at which it begins. Local processes, and Slurm where it can be started (root, Debian's packages):
``launch`` beside plain ``sbatch`` on the same controller, in turn. The same wall clock, so ratios are what to read.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from attribution_sched.executors.local import LocalExecutor
from attribution_sched.executors.records import Component, JobSpec
from attribution_sched.executors.slurm import SlurmExecutor, environment_of
from tests.engines.slurm_here import Unavailable, slurm_here


def began(path: Path, launch: Callable[[], object], limit_s: float = 60.0) -> float:
    """Seconds from the call to what the job wrote."""
    at = time.time()
    launch()
    while not (path.exists() and path.read_text().strip()):
        if time.time() - at > limit_s:
            raise SystemExit(f"{path} was never written")
        time.sleep(0.005)
    return float(path.read_text()) - at


def spec(path: Path) -> JobSpec:
    """A job that writes the time."""
    return JobSpec("task", ("sh", "-c", f"date +%s.%N > {path}"), Component("east", 0, 1, 0, 1, 0, 8))


def show(name: str, values: list[float]) -> None:
    """One line."""
    print(f"{name:22} median {1e3 * statistics.median(values):7.0f} ms, longest {1e3 * max(values):7.0f} ms")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10)
    jobs = parser.parse_args().jobs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        local = LocalExecutor("east", 4, folder / "jobs")
        show(
            "local",
            [began(folder / f"l{n}", lambda n=n: local.launch(f"l-{n}", spec(folder / f"l{n}"))) for n in range(jobs)],
        )
        try:
            with slurm_here() as slurm:
                executor = SlurmExecutor("east", folder=folder / "spool", conf=slurm.conf("east"))
                variables = environment_of(slurm.conf("east"))
                ours, plain = [], []
                for n in range(jobs):
                    at = folder / f"s{n}"
                    ours.append(began(at, lambda n=n, at=at: executor.launch(f"{os.getpid()}-{n}", spec(at))))
                    at = folder / f"p{n}"
                    words = ["sbatch", "--parsable", "-p", "east", "--gres=gpu:1", "-o", "/dev/null",
                             "--wrap", f"date +%s.%N > {at}"]  # fmt: skip
                    plain.append(
                        began(
                            at,
                            lambda words=words: subprocess.run(words, env=variables, check=True, capture_output=True),
                        )
                    )
                show("slurm, launch", ours)
                show("slurm, plain sbatch", plain)
                print(f"launch over sbatch: {statistics.median(ours) / statistics.median(plain):.2f} by the medians")
        except Unavailable as error:
            print(f"slurm: skipped, {error}")
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
