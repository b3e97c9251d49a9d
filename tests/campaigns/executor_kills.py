"""Kill whoever schedules on a real cluster (SIGKILL) at random moments, go on, and count what really ran.

    python -m tests.campaigns.executor_kills --kills 1000
    python -m tests.campaigns.executor_kills --kills 200 --engine slurm
    python -m tests.campaigns.executor_kills --kills 100 --engine ray

A third of the tasks are gangs over both domains. The witness is a file to which every job writes when it begins and
when it ends: a task is lost if it never ends, doubled if a part of it runs twice under one key, or under two keys of
which the first was not given up. A gang is half-released if one of its parts ran and another did not.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from attribution_sched import System
from attribution_sched.attribution.attributor import DefaultAttributor
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.executors.executor import Executor
from attribution_sched.executors.live import Live
from attribution_sched.executors.local import LocalExecutor
from attribution_sched.journal import Journal
from tests.campaigns.same import quick_folder
from tests.small_world import small

SETTINGS = small(arrivals={"kind": "poisson", "rate_per_hour": 1.0}, episode={
    "horizon_s": 3600.0, "max_segments": 2, "max_running": 8, "queue_capacity": 16, "pool_size": 8, "retry_s": 1.0,
})  # fmt: skip
DOMAINS = ("east", "west")
LAYERS = 14
"""Of bert-base in the catalogue."""
WHO = "$ATTR_KEY $ATTR_STAGE $ATTR_TASK"
JOB = f'echo "begin {WHO}" >> {{0}}; sleep {{1}}; echo "end {WHO}" >> {{0}}'


class Mixed:
    """Every third task over both domains, the others on whichever has more room; one device a segment."""

    name = "mixed"

    def decide(self, view):
        if view.replanning:
            return None
        layers = LAYERS
        free = view.free_devices
        if view.task.number % 3 == 0:
            if min(free[0], free[1]) < 1:
                return None
            cut = layers // 2
            return Plan((Replica((Segment(0, 0, cut), Segment(1, cut, layers)), 4, 8),))
        at = int(free[1] > free[0])
        return Plan((Replica((Segment(at, 0, layers),), 4, 8),)) if free[at] else None


MakeExecutors = Callable[[Path], Mapping[str, Executor]]


def local(folder: Path) -> dict[str, Executor]:
    """Processes of this machine."""
    return {name: LocalExecutor(name, 4, folder / "jobs") for name in DOMAINS}


def machines(make: MakeExecutors, folder: Path, gang_s: float) -> Live:
    """What a system runs on; a short tick, so that the twin keeps up."""
    return Live(make(folder), tick_s=0.25, poll_s=0.02, gang_s=gang_s, kind="campaign")


@dataclass
class Trial:
    """One journal that is worked on until all its tasks have ended.

    Attributes:
        folder: Where it lies, with the witness.
        make: The executors.
        tasks: Tasks to hand in.
        lasts_s: How long a job runs.
        gang_s: Seconds that a gang may wait for its devices.
    """

    folder: Path
    make: MakeExecutors
    tasks: int = 9
    lasts_s: float = 0.1
    gang_s: float = 20.0

    @property
    def journal(self) -> Path:
        """Its file."""
        return self.folder / "journal.sqlite"

    @property
    def witness(self) -> Path:
        """To which every job writes."""
        return self.folder / "witness"

    def work(self, attributor: DefaultAttributor) -> None:
        """Go on with it, or begin it, until all tasks have ended."""
        live = machines(self.make, self.folder, self.gang_s)
        if self.journal.exists():
            system = System.resume(self.journal, policy=Mixed(), cluster=live, attributor=attributor)
        else:
            system = System(SETTINGS, Mixed(), journal=self.journal, queue="empty", cluster=live, attributor=attributor)
        for number in range(self.tasks):
            if not system.journal.knows_task(f"task-{number}"):
                command = ["sh", "-c", JOB.format(self.witness, self.lasts_s)]
                system.submit("bert-base", steps=20, id=f"task-{number}", command=command)
        system.run(until="empty")
        system.close()

    def wrong(self) -> list[str]:
        """What really ran, against what the journal says; nothing is wrong: empty."""
        found: list[str] = []
        lines = [line.split() for line in self.witness.read_text().splitlines()] if self.witness.exists() else []
        times = Counter((word, key, stage) for word, key, stage, _ in lines)
        found += [f"{each} ran {count} times" for each, count in times.items() if count > 1]
        with Journal.read(self.journal) as journal:
            given_up = {i.details["key"] for i in journal.intents() if i.kind == "failed"}
            ended = Counter(i.details["name"] for i in journal.intents() if i.kind == "finished")
            placed = {
                journal.key(d.id): len(d.plan["replicas"][0]["segments"])
                for d, o in journal.entries()
                if o is not None and o.code == 1 and d.plan
            }
            journal.verify()
        for number in range(self.tasks):
            name = f"task-{number}"
            if ended[name] != 1:
                found.append(f"{name} ended {ended[name]} times by the journal")
            keys = {key for word, key, _, task in lines if word == "end" and task == name} - given_up
            if len(keys) != 1:
                found.append(f"{name} ran under {sorted(keys)}")
        for key in {key for _, key, _, _ in lines}:
            begun = sum(count for (word, own, _), count in times.items() if word == "begin" and own == key)
            if key not in placed:
                found.append(f"{key} ran and is not in the journal")
            elif begun != placed[key] and key not in given_up:
                found.append(f"{begun} of {placed[key]} parts of {key} ran")
        return found


@dataclass
class Tally:
    """What a campaign did and found."""

    kills: int = 0
    lives: int = 0
    tasks: int = 0
    gangs: int = 0
    wrong: list[str] = field(default_factory=list)


def child_of(trial: Trial, attributor: DefaultAttributor) -> int:
    """Start a process that works on a trial."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            trial.work(attributor)
            code = 0
        except BaseException as error:
            (trial.folder / "failure").write_text(f"{type(error).__name__}: {error}")
        finally:
            os._exit(code)
    return child


def campaign(
    make: MakeExecutors, kills: int, seed: int, *, tasks: int = 9, longest_s: float = 0.9, progress: bool = False
) -> Tally:
    """Kill so often; a new journal begins whenever one is done."""
    chance, tally = random.Random(seed), Tally()
    attributor = DefaultAttributor(SETTINGS.build_world())
    warm(attributor)
    while tally.kills < kills:
        with tempfile.TemporaryDirectory(dir=quick_folder()) as name:
            trial = Trial(Path(name), make, tasks)
            while True:
                child = child_of(trial, attributor)
                status, killed = finish(child, chance.uniform(0.0, longest_s) if tally.kills < kills else 120.0)
                tally.kills += killed
                if not killed:
                    if status != 0:
                        failure = trial.folder / "failure"
                        tally.wrong.append(failure.read_text() if failure.exists() else f"ended with {status}")
                    break
            tally.lives, tally.tasks, tally.gangs = tally.lives + 1, tally.tasks + tasks, tally.gangs + -(-tasks // 3)
            if trial.journal.exists():
                tally.wrong += trial.wrong()
        if progress:
            sys.stderr.write(f"{tally.kills} kills, {tally.lives} journals, {len(tally.wrong)} wrong so far\n")
    return tally


def finish(child: int, delay_s: float) -> tuple[int, bool]:
    """Wait for a process that long, then kill it: its status, and whether it was killed."""
    until = time.monotonic() + delay_s
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, status == -signal.SIGKILL


def warm(attributor: DefaultAttributor) -> None:
    """Load what every child needs, once."""
    with System(SETTINGS, Mixed(), queue="empty", attributor=attributor) as system:
        system.submit("bert-base", steps=20)
        system.schedule_next_task()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=0.9, help="seconds within which a process is killed (local)")
    parser.add_argument("--engine", choices=["local", "slurm", "ray"], default="local")
    chosen = parser.parse_args()
    if chosen.engine == "local":
        tally = campaign(local, chosen.kills, chosen.seed, longest_s=chosen.longest, progress=True)
    elif chosen.engine == "ray":
        from attribution_sched.executors.ray import RayExecutor
        from tests.engines.ray_here import Unavailable as NoRay
        from tests.engines.ray_here import ray_here

        try:
            with ray_here() as found:

                def on_ray(folder: Path) -> dict[str, Executor]:
                    spool, at = folder / "spool", found.address
                    return {name: RayExecutor(name, folder=spool, address=at, resource="CPU") for name in DOMAINS}

                tally = campaign(on_ray, chosen.kills, chosen.seed, tasks=6, longest_s=6.0, progress=True)
        except NoRay as error:
            sys.stdout.write(f"executor kills (ray): skipped, Ray cannot be had here: {error}\n")
            return 0
    else:
        from attribution_sched.executors.slurm import SlurmExecutor
        from tests.engines.slurm_here import Unavailable, slurm_here

        try:
            with slurm_here() as slurm:

                def executors(folder: Path) -> dict[str, Executor]:
                    spool = folder / "spool"
                    return {name: SlurmExecutor(name, folder=spool, conf=slurm.conf(name)) for name in DOMAINS}

                tally = campaign(executors, chosen.kills, chosen.seed, tasks=6, longest_s=3.0, progress=True)
        except Unavailable as error:
            sys.stdout.write(f"executor kills (slurm): skipped, Slurm cannot be had here: {error}\n")
            return 0
    sys.stdout.write("".join(f"{each}\n" for each in tally.wrong[:20]))
    sys.stdout.write(
        f"executor kills ({chosen.engine}): {tally.kills} kills, {tally.lives} journals, {tally.tasks} tasks, "
        f"{tally.gangs} gangs, {len(tally.wrong)} wrong\n"
    )
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
