"""Raise at a line of the ring, go on with the same System, and see that nothing was lost, doubled or decided otherwise.

``python -m tests.campaigns.fail_points --runs 10000`` counts; every run interrupts one line (sometimes several) of the
modules that record, carry out and book, as Ctrl-C in a notebook or a cluster that does not answer would. Sessions are
short, so that most of a run is what is tested: ``ring`` hands in and places tasks, ``feedback`` also reshapes the
reward, ``train`` also learns.
"""

from __future__ import annotations

import argparse
import gc
import random
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest import mock

from attribution_sched import System
from attribution_sched.attribution.attributor import DefaultAttributor
from attribution_sched.errors import AttributionSchedError
from attribution_sched.scheduler.hi_ppo import online_learning
from tests.campaigns.quick import thinking_little
from tests.campaigns.same import Account, account, quick_folder
from tests.small_world import small

PACKAGE = Path(sys.modules["attribution_sched"].__file__ or "").parent
TRACED = (
    "system/", "cluster/live.py", "explain/memory.py", "journal/",
)  # fmt: skip
"""Where a line may raise: all that stands between a policy's answer and what came of it."""

SETTINGS = small(arrivals={"kind": "poisson", "rate_per_hour": 500.0})
MISSED = {"step_ratio_at_most": 0.05}
"""A target that is missed, so that feedback moves the weights."""

PIECE = 100
"""Runs of one seed."""

LONGEST_S = 300.0
"""By the clock; a run takes a hundredth of it on a machine that has something else to do."""

Call = Callable[[], Any]


class Cut(BaseException):
    """What is raised; like KeyboardInterrupt, nobody may catch it as an ordinary error."""


class Hangs(BaseException):
    """What is raised where going on does not end."""


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    """Raise :class:`Hangs` after so long: an interrupt may leave a lock behind that nobody gives back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring_out(*_: Any) -> None:
        raise Hangs(f"it does not go on after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring_out)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@cache
def _traced(code: CodeType) -> bool:
    name = code.co_filename
    return name.startswith(str(PACKAGE)) and name[len(str(PACKAGE)) + 1 :].startswith(TRACED)


@contextmanager
def raising(at: set[int], count: list[int]) -> Iterator[None]:
    """Count traced lines in ``count[0]``, and raise at those of ``at``.

    Garbage is not collected meanwhile: a finaliser of somebody else's journal would be counted, and what is raised in
    it reaches nobody.
    """
    last = max(at, default=-1)
    collecting = gc.isenabled()

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            count[0] += 1
            if count[0] in at:
                if count[0] == last:
                    sys.settrace(None)
                raise Cut(f"{Path(frame.f_code.co_filename).relative_to(PACKAGE)}:{frame.f_lineno}")
        return local

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        return local if _traced(frame.f_code) else None

    before = sys.gettrace()
    gc.disable()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)
        if collecting:
            gc.enable()


@dataclass(frozen=True)
class Session:
    """What a session does, as calls that may be made again until they have been heeded.

    Attributes:
        policy: Who decides.
        calls: From a system to its calls.
        targets: Of feedback.
    """

    policy: str
    calls: Callable[[System], list[Call]]
    targets: dict[str, float] | None = None


def submit(system: System, number: int) -> Call:
    """Hand a task in, unless it is in the journal."""

    def heeded() -> None:
        if not system.journal.knows_task(f"own-{number}"):
            system.submit("resnet-50", steps=600 + number, id=f"own-{number}")

    return heeded


def place(system: System, number: int) -> Call:
    """Place tasks until so many are."""

    def heeded() -> None:
        while sum(outcome is not None and outcome.code == 1 for _, outcome in system.journal.entries()) < number:
            system.schedule_next_task()

    return heeded


def once(system: System, kind: str, number: int, do: Call) -> Call:
    """Do something that leaves an event of a kind, so often."""

    def heeded() -> None:
        while sum(event.kind == kind for event in system.journal.events()) < number:
            do()

    return heeded


def ring(system: System) -> list[Call]:
    """Tasks are handed in and placed."""
    return [submit(system, 0), place(system, 1), place(system, 2), submit(system, 1), place(system, 3)]


def feedback(system: System) -> list[Call]:
    """Two steps of feedback, with explanations and held-out episodes, between placements."""

    def step() -> None:
        system.feedback(explain=3, episodes=1, decisions=3)

    return [
        place(system, 9), once(system, "feedback", 1, step), submit(system, 0), place(system, 11),
        once(system, "feedback", 2, step), place(system, 12),
    ]  # fmt: skip


def train(system: System) -> list[Call]:
    """Other weights take over between two placements."""
    return [place(system, 1), once(system, "learnt", 1, lambda: system.train(64)), place(system, 2)]


SESSIONS = {
    "ring": Session("sjf", ring),
    "hi-ppo": Session("hi-ppo", ring),
    "feedback": Session("greedy", feedback, MISSED),
    "train": Session("hi-ppo", train),
}
"""Sessions by name."""


@cache
def attributor() -> DefaultAttributor:
    """The attributor of all runs: fitted once, not once a run."""
    return DefaultAttributor(SETTINGS.build_world())


@cache
def _learnt() -> Any:
    """What learning on comes to: computed once, and taken over as better whether or not so few decisions made it so."""
    real = online_learning.learn_on
    from attribution_sched.scheduler.registry import make_policy

    policy: Any = make_policy("hi-ppo")
    found = real(policy.learnt, SETTINGS.build_world(), 64)
    better = found.weights.with_agents(0.99 * found.weights.theta)
    return replace(found, improved=True, weights=better)


@contextmanager
def quickly(name: str) -> Iterator[None]:
    """What surrounds the ring costs little: a short warm-up of explanations, learning whose answer is known."""
    with thinking_little():
        if name != "train":
            yield
            return
        answer = _learnt()
        with mock.patch.object(online_learning, "learn_on", lambda *_, **__: answer):
            yield


def _new(session: Session, seed: int, folder: Path) -> System:
    path = folder / "run.journal"
    for stale in folder.glob(f"{path.name}*"):
        stale.unlink()
    return System(
        SETTINGS, session.policy, seed=seed, journal=path, targets=session.targets, attributor=attributor()
    )  # fmt: skip


@cache
def straight(name: str, seed: int) -> tuple[Account, tuple[int, ...]]:
    """The run that nobody interrupts: what it came to, and how many lines each of its calls has."""
    session = SESSIONS[name]
    with quickly(name), tempfile.TemporaryDirectory(dir=quick_folder()) as place_:
        for _ in range(2):  # What is imported or cached at first use is no line of the second run.
            with _new(session, seed, Path(place_)) as system:
                lines = []
                for call in session.calls(system):
                    count = [0]
                    with raising(set(), count):
                        call()
                    lines.append(count[0])
                found = account(system)
    return found, tuple(lines)


def interrupted(name: str, seed: int, points: set[int], folder: Path) -> tuple[list[str], str]:
    """One run with interrupts: where they fell, and what is wrong with what came of it (nothing: empty)."""
    expected, lines = straight(name, seed)
    session = SESSIONS[name]
    cuts: list[str] = []
    with quickly(name):
        system = _new(session, seed, folder)
        path, first = folder / "run.journal", 0
        for call, length in zip(session.calls(system), lines, strict=True):
            # Only the calls that are to be cut are traced; counting goes on in what is called again.
            due = {point - first for point in points if first < point <= first + length}
            count = [0]
            while True:
                try:
                    if due - set(range(count[0] + 1)):
                        with raising({point for point in due if point > count[0]}, count):
                            call()
                    else:
                        call()
                    break
                except Cut as cut:
                    cuts.append(str(cut))
                except Exception as error:  # Called again after an interrupt, it must go on as if there had been none.
                    with suppress(Exception):
                        system.close()
                    return cuts, f"{type(error).__name__}: {error}"
            first += length
        try:
            problem = expected.difference(account(system))
            if problem:
                return cuts, problem
            system.close()
            with System.resume(path, attributor=attributor()) as resumed:
                if resumed.journal.pending():
                    return cuts, "a decision is still pending after resuming"
                problem = expected.difference(account(resumed))
                return cuts, problem and f"resumed: {problem}"
        except AttributionSchedError as error:
            return cuts, f"{type(error).__name__}: {error}"
        finally:
            system.close()


def campaign(runs: int, name: str = "ring", seed: int = 11, where: Counter[str] | None = None) -> list[str]:
    """So many interrupted runs, at lines spread over the whole session; what went wrong.

    Args:
        runs: How many.
        name: Of the session.
        seed: Of the session, and of what is interrupted.
        where: Counts the interrupts by line of the source.
    """
    lines = sum(straight(name, seed)[1])
    rng = random.Random(seed)
    wrong = []
    with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
        for run in range(runs):
            points = {min(lines, 1 + (run * lines) // runs + rng.randrange(max(1, lines // runs)))}
            if run % 7 == 0:
                points |= {rng.randrange(1, lines) for _ in range(3)}
            try:
                with in_time(LONGEST_S):
                    cuts, problem = interrupted(name, seed, points, Path(folder))
            except Hangs as hangs:
                wrong.append(f"{name} seed {seed} lines {sorted(points)}: {hangs}")
                continue
            if where is not None:
                where.update(cuts)
            if problem or not cuts:
                told = problem or "no line was interrupted"
                wrong.append(f"{name} seed {seed} lines {sorted(points)} ({', '.join(cuts)}): {told}")
    return wrong


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--session", choices=SESSIONS, default="ring")
    parser.add_argument("--seed", type=int, default=11)
    chosen = parser.parse_args()
    where: Counter[str] = Counter()
    wrong: list[str] = []
    # In pieces, each with a seed of its own: what was found by then is told if it is stopped.
    for piece, first in enumerate(range(0, chosen.runs, PIECE)):
        found = campaign(min(PIECE, chosen.runs - first), chosen.session, chosen.seed + piece, where)
        wrong += found
        sys.stdout.write("".join(f"{each}\n" for each in found[:20]))
        sys.stdout.write(f"{min(first + PIECE, chosen.runs)} runs, {len(wrong)} wrong\n")
        sys.stdout.flush()
    told = f"{chosen.runs} runs, {sum(where.values())} interrupts at {len(where)} lines of the source"
    sys.stdout.write(f"fail points ({chosen.session}): {told}, {len(wrong)} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
