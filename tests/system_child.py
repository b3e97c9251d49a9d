"""A process that lets systems work until it is told to stop, each in a process of its own that can be killed.

Reads lines ``WORLD PATH COUNT``: resume the journal there, or make it, and go on until so many tasks were placed.
Writes ``warm`` once, then per line ``pid N``, ``ready`` when the system is made, ``at WORK`` before each thing it does
(``submit``, ``decide``, ``explain``, ``feedback``, ``report``, ``export``), ``R id`` for every placement that was
returned and ``end STATUS``. The systems start quickly because the kernels are loaded before the process forks.
"""

import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from attribution_sched import System
from attribution_sched.attribution.attributor import DefaultAttributor
from attribution_sched.config import load_settings
from calibration.convert_journal import convert
from tests.campaigns.quick import thinking_little
from tests.small_world import small

SETTINGS = small(arrivals={"kind": "poisson", "rate_per_hour": 500.0})
SEED, POLICY = 11, "sjf"
Tell = Callable[[str], None]


def say(words: str) -> None:
    os.write(1, f"{words}\n".encode())


def quiet(words: str) -> None:
    """Tell nobody."""


def placements(system: System) -> list[str]:
    """Ids of the decisions that placed a task."""
    return [decision.id for decision, outcome in system.journal.entries() if outcome is not None and outcome.code == 1]


def work(system: System, count: int, tell: Tell = quiet) -> None:
    """Place tasks, handing in one's own before every fifth."""
    placed = len(placements(system))
    known = {task.id for task in system.journal.tasks()}
    while placed < count:
        if placed % 5 == 0 and f"own-{placed}" not in known and system.cluster.has_room:
            tell("at submit")
            system.submit("resnet-50", steps=600 + placed, id=f"own-{placed}")
            known.add(f"own-{placed}")
        tell("at decide")
        result = system.schedule_next_task()
        placed += 1
        tell(f"R {result.id}")


def work_on_everything(system: System, count: int, tell: Tell = quiet) -> None:
    """Place tasks; between placements, by their number, hand in, explain, reshape the reward, report and export.

    Each of these is done unless the journal, or a file beside it, says that it was: whoever goes on after a kill does
    what is missing, and nothing twice.
    """
    beside = None if system.journal.path is None else system.journal.path
    kind = system.world.kinds[-1]
    while True:
        placed = placements(system)
        number = len(placed)
        if number % 3 == 0 and not system.journal.knows_task(f"own-{number}"):
            tell("at submit")
            system.submit(kind.model.name, steps=kind.steps[0] + number, id=f"own-{number}")
        if number and number % 4 == 0 and not system.journal.explanations(placed[-1]):
            tell("at explain")
            system.explain(placed[-1], rows=60)
        due = number // 10
        if number % 10 == 0 and sum(event.kind == "feedback" for event in system.journal.events()) < due:
            tell("at feedback")
            system.feedback(explain=3, episodes=1, decisions=6)
        if beside is not None and number % 10 == 5:
            report = beside.with_name(f"report-{number}.md")
            if not report.exists():
                tell("at report")
                system.report(report, explain=0, rivals=())
        if beside is not None and number % 5 == 2:
            tell("at export")
            system.journal.export(beside.with_name("history.csv"))
        if number >= count:
            return
        tell("at decide")
        result = system.schedule_next_task()
        tell(f"R {result.id}")


@dataclass(frozen=True)
class Trial:
    """A world in which systems are killed.

    Attributes:
        settings: Of the world.
        policy: Who decides.
        work: What is done; the same whoever goes on with it.
        targets: Of feedback; missed, so that weights move.
    """

    settings: Any
    policy: str
    work: Callable[..., None]
    targets: dict[str, float] | None = None

    def new(self, path: Path | None = None) -> System:
        """A system at its beginning."""
        return System(
            self.settings, self.policy, seed=SEED, journal=path, targets=self.targets, attributor=self.attributor()
        )

    def resumed(self, path: Path) -> System:
        """A system that goes on."""
        return System.resume(path, attributor=self.attributor())

    @cache  # noqa: B019 (trials live as long as the process)
    def attributor(self) -> DefaultAttributor:
        """Fitted once a process, not once a kill."""
        return DefaultAttributor(load_settings(self.settings).build_world())

    def __hash__(self) -> int:
        return id(self)


TRIALS: dict[str, Trial] = {
    "small": Trial(SETTINGS, POLICY, work),
    "everything": Trial(SETTINGS, "greedy", work_on_everything, {"step_ratio_at_most": 0.05}),
    "cross-domain-easy": Trial("cross-domain-easy", "hi-ppo", work_on_everything, {"step_ratio_at_most": 0.05}),
}
"""By name."""


def live(name: str, path: Path, count: int) -> None:
    """What a child does."""
    say(f"pid {os.getpid()}")
    if name == "migration":
        say("ready")
        say("at migrate")
        convert(path)
        return
    trial = TRIALS[name]
    system = trial.resumed(path) if path.exists() else trial.new(path)
    say("ready")
    trial.work(system, count, say)


def main() -> None:
    # What is tried is whether decisions survive, not how good they are.
    with thinking_little():
        serve()


def serve() -> None:
    """Fork a system for every line, until there is none."""
    for name in sys.argv[1:] or ["small"]:
        if name in TRIALS:
            warm = TRIALS[name].new()
            TRIALS[name].work(warm, 4)
            warm.close()
            TRIALS[name].attributor().vector(warm.cluster.engine.pool.counters.values[0])
    # What is there now is not looked through in every child.
    gc.freeze()
    say("warm")
    for line in sys.stdin:
        name, path, count = line.split()
        child = os.fork()
        if child == 0:
            try:
                live(name, Path(path), int(count))
            except BaseException as error:
                say(f"failed {type(error).__name__}: {error}".replace("\n", " "))
                os._exit(1)
            os._exit(0)
        say(f"end {os.waitpid(child, 0)[1]}")


if __name__ == "__main__":
    main()
