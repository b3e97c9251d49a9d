"""Raise at a line of the ring, go on with the same System, and see that nothing was lost, doubled or decided otherwise.

``python -m tests.campaigns.fail_points --runs 10000`` counts; every run interrupts one line (sometimes several) of the
modules that record, carry out and book, as Ctrl-C in a notebook or a cluster that does not answer would.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from attribution_sched import System
from attribution_sched.errors import AttributionSchedError
from attribution_sched.journal import Journal
from tests.session.small import small

PACKAGE = Path(sys.modules["attribution_sched"].__file__ or "").parent
TRACED = ("system.py", "session/", "live_cluster.py", "resume.py", "journal/", "admission.py")
"""Where a line may raise: all that stands between a policy's answer and what came of it."""

SETTINGS = small(arrivals={"kind": "poisson", "rate_per_hour": 500.0})
PLACED = 6
CLOCKS = ("recorded_at", "created_at", "decision_s", "attribution_s")


class Cut(BaseException):
    """What is raised; like KeyboardInterrupt, nobody may catch it as an ordinary error."""


@contextmanager
def raising(at: Callable[[int], bool]) -> Iterator[list[int]]:
    """Count traced lines, and raise at those that ``at`` chooses."""
    count = [0]

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            count[0] += 1
            if at(count[0]):
                raise Cut(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        return local

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        inside = name.startswith(str(PACKAGE)) and name[len(str(PACKAGE)) + 1 :].startswith(TRACED)
        return local if inside else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield count
    finally:
        sys.settrace(before)


def calls(system: System) -> list[Callable[[], Any]]:
    """What a session does: tasks handed in, tasks placed, some of it twice in a row."""

    def submit(number: int) -> Callable[[], Any]:
        def handed_in() -> None:
            if not system.journal.knows_task(f"own-{number}"):
                system.submit("resnet-50", steps=600 + number, id=f"own-{number}")

        return handed_in

    def place(number: int) -> Callable[[], Any]:
        def placed() -> None:
            while sum(o is not None and o.code == 1 for _, o in system.journal.entries()) < number:
                system.schedule_next_task()

        return placed

    steps: list[Callable[[], Any]] = []
    for number in range(PLACED):
        if number % 2 == 0:
            steps.append(submit(number))
        steps.append(place(number + 1))
    return steps


def history(journal: Journal) -> list[tuple[Any, ...]]:
    """All that a journal says, but for clocks."""
    decisions = [
        (d.id, d.sequence, d.task_id, d.cluster_time_s, d.action, d.slot, d.weights, None if o is None else
         (o.code, o.r_eff, o.r_util, o.r_cost, o.reward, o.step_s, o.details))
        for d, o in journal.entries()
    ]  # fmt: skip
    return [*decisions, *[(t.id, t.kind, t.steps, t.submitted_s, dict(t.meta)) for t in journal.tasks()]]


def same_state(one: System, other: System) -> bool:
    """Whether two clusters are the same to the last bit."""
    mine, theirs = one.cluster.engine.state, other.cluster.engine.state
    return all(np.array_equal(getattr(mine, f), getattr(theirs, f), equal_nan=True) for f in mine._fields)


@cache
def straight(policy: str, seed: int) -> System:
    """The run that nobody interrupts."""
    system = System(SETTINGS, policy, seed=seed)
    for call in calls(system):
        call()
    return system


def count_lines(policy: str, seed: int) -> int:
    """Lines at which an uninterrupted run could be interrupted."""
    system = System(SETTINGS, policy, seed=seed)
    with raising(lambda _: False) as count:
        for call in calls(system):
            call()
    return count[0]


def interrupted(policy: str, seed: int, points: set[int], folder: Path) -> tuple[list[str], str]:
    """One run with interrupts: where they fell, and what is wrong with what came of it (nothing: empty)."""
    path = folder / f"run-{os.getpid()}.journal"
    for stale in folder.glob(f"{path.name}*"):
        stale.unlink()
    system = System(SETTINGS, policy, seed=seed, journal=path)
    cuts: list[str] = []
    with raising(points.__contains__):
        for call in calls(system):
            while True:
                try:
                    call()
                    break
                except Cut as cut:
                    cuts.append(str(cut))
    expected = straight(policy, seed)
    try:
        if history(system.journal) != history(expected.journal):
            return cuts, "the journal differs from the uninterrupted one"
        if not same_state(system, expected):
            return cuts, "the cluster differs from the uninterrupted one"
        system.close()
        with System.resume(path) as resumed:
            if resumed.journal.pending() or history(resumed.journal) != history(expected.journal):
                return cuts, "the resumed journal differs"
            if not same_state(resumed, expected):
                return cuts, "the resumed cluster differs"
    except AttributionSchedError as error:
        return cuts, f"{type(error).__name__}: {error}"
    finally:
        system.close()
    return cuts, ""


def campaign(runs: int, policy: str = "sjf", seed: int = 11) -> list[str]:
    """So many interrupted runs, at lines spread over the whole session; what went wrong."""
    lines = count_lines(policy, seed)
    rng = random.Random(seed)
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        for run in range(runs):
            points = {1 + (run * lines) // runs + rng.randrange(max(1, lines // runs))}
            if run % 7 == 0:
                points |= {rng.randrange(1, lines) for _ in range(3)}
            cuts, problem = interrupted(policy, seed, points, Path(name))
            if problem:
                wrong.append(f"{policy} seed {seed} lines {sorted(points)} ({', '.join(cuts)}): {problem}")
    return wrong


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--policy", default="sjf")
    parser.add_argument("--seed", type=int, default=11)
    chosen = parser.parse_args()
    wrong = campaign(chosen.runs, chosen.policy, chosen.seed)
    sys.stdout.write("".join(f"{each}\n" for each in wrong[:20]))
    sys.stdout.write(f"fail points: {chosen.runs} runs, {len(wrong)} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
