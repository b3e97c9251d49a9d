"""A disk that fills up and a clock that is set back: one clear error, nothing half-written, and on it goes.

``python -m tests.campaigns.disturbed --runs 20`` counts. The disk is a tmpfs of a few megabytes (needs the right
to mount; said where it is missing), filled to the brim at a random moment and emptied again. The clocks are those the
process reads: at random moments they jump back by up to a day.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

from attribution_sched import System
from attribution_sched.errors import AttributionSchedError, JournalError
from tests.campaigns.fail_points import SETTINGS, attributor
from tests.campaigns.same import Account, account, quick_folder

PLACED = 12


def work(system: System, count: int = PLACED) -> None:
    """Place tasks until so many are, handing in one before every fourth."""
    while (placed := sum(o is not None and o.code == 1 for _, o in system.journal.entries())) < count:
        if placed % 4 == 0 and not system.journal.knows_task(f"own-{placed}"):
            system.submit("resnet-50", steps=600 + placed, id=f"own-{placed}")
        system.schedule_next_task()


def straight(seed: int) -> Account:
    """The run that nothing disturbs."""
    system = System(SETTINGS, "sjf", seed=seed, attributor=attributor())
    work(system)
    return account(system)


@contextmanager
def small_disk(kilobytes: int) -> Iterator[Path | None]:
    """A disk of this size; None where this process may not mount one."""
    with tempfile.TemporaryDirectory() as name:
        mounted = os.geteuid() == 0
        if mounted:
            command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", name]
            mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
        try:
            yield Path(name) if mounted else None
        finally:
            if mounted:
                subprocess.run(["umount", "-l", name], check=True)


def fill(path: Path) -> None:
    """Write until there is no room for another byte."""
    with path.open("ab", buffering=0) as file, suppress(OSError):
        for size in (65536, 4096, 1):
            with suppress(OSError):
                while file.write(b"x" * size) == size:
                    pass


def full_disk(run: int, folder: Path) -> str:
    """Fill the disk after some placements; what is wrong with what came of it (nothing: empty)."""
    chance = random.Random(run)
    path, ballast = folder / "run.journal", folder / "ballast"
    for stale in folder.iterdir():
        stale.unlink()
    system = System(SETTINGS, "sjf", seed=run % 3, journal=path, attributor=attributor())
    errors: list[str] = []
    try:
        work(system, chance.randrange(1, PLACED))
        fill(ballast)
        for _ in range(3):
            try:
                work(system)
            except AttributionSchedError as error:
                errors.append(str(error))
        if not errors:
            return "a full disk was not noticed"
        if any("\n" in each or "full" not in each for each in errors):
            return f"the error does not say that the disk is full: {errors[0]}"
        half = [each.name for each in folder.iterdir() if each.suffix == ".csv"]
        with suppress(JournalError):
            system.journal.export(folder / "history.csv")
            return "an export onto a full disk was not noticed"
        if half != [each.name for each in folder.iterdir() if each.suffix == ".csv"]:
            return "an export was half-written"
        ballast.unlink()
        work(system)
        expected = straight(run % 3)
        problem = expected.difference(account(system))
        if problem:
            return problem
    finally:
        system.close()
    with System.resume(path, attributor=attributor()) as resumed:
        return expected.difference(account(resumed))


@contextmanager
def clocks_set_back(chance: random.Random) -> Iterator[None]:
    """Every clock of the process jumps back now and then."""
    behind = [0.0]

    def back(real: Callable[[], float]) -> Callable[[], float]:
        def read() -> float:
            if chance.random() < 0.2:
                behind[0] += chance.uniform(0.0, 86_400.0)
            return real() - behind[0]

        return read

    with (
        mock.patch.object(time, "time", back(time.time)),
        mock.patch.object(time, "monotonic", back(time.monotonic)),
        mock.patch.object(time, "perf_counter", back(time.perf_counter)),
    ):
        yield


def clock_set_back(run: int, folder: Path, policy: str = "sjf") -> str:
    """Decide while clocks jump back; what is wrong with what came of it (nothing: empty)."""
    path = folder / f"run-{run}.journal"
    with clocks_set_back(random.Random(run)):
        with System(SETTINGS, policy, seed=run % 3, journal=path, attributor=attributor()) as system:
            work(system, 6)
        with System.resume(path, attributor=attributor()) as system:
            work(system)
            found = account(system)
    expected = System(SETTINGS, policy, seed=run % 3, attributor=attributor())
    work(expected)
    return account(expected).difference(found)


def campaign(runs: int) -> tuple[int, int, list[str]]:
    """So many of each: full disks tried (0 where none can be mounted), clocks set back, and what went wrong."""
    wrong, disks = [], 0
    with small_disk(4000) as disk:
        for run in range(runs if disk is not None else 0):
            disks += 1
            problem = full_disk(run, Path(str(disk)))
            wrong += [f"full disk, run {run}: {problem}"] if problem else []
    with tempfile.TemporaryDirectory(dir=quick_folder()) as name:
        for run in range(runs):
            problem = clock_set_back(run, Path(name))
            wrong += [f"clock set back, run {run}: {problem}"] if problem else []
    return disks, runs, wrong


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    disks, clocks, wrong = campaign(parser.parse_args().runs)
    sys.stdout.write("".join(f"{each}\n" for each in wrong[:20]))
    told = (
        f"{disks} full disks{'' if disks else ' (skipped: no right to mount one)'}, {clocks} runs with clocks set back"
    )
    sys.stdout.write(f"disturbed: {told}, {len(wrong)} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
