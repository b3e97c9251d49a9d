"""The loop of a training run: iterate, measure on held-out episodes, keep the best, until its time is over."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from attribution_sched.errors import CheckpointError, problem
from attribution_sched.scheduler.hi_ppo.held_out import HeldOut, Measured
from attribution_sched.scheduler.hi_ppo.network import COMPONENTS
from attribution_sched.scheduler.hi_ppo.trainer import Iteration, Trainer

Phase = Literal["cloning", "comparing", "staggering", "measuring", "learning"]
Note = Callable[[str, int, int, Mapping[str, Any]], None]
"""Kind of event, iterations, decisions, numbers by name."""


@dataclass(frozen=True)
class Budget:
    """How long to learn.

    Attributes:
        decisions: In decisions; None counts seconds.
        seconds: In seconds.
        clock: Whose seconds: the processor's or the wall's.
    """

    decisions: int | None
    seconds: float
    clock: Literal["cpu", "wall"] = "cpu"

    def now(self) -> float:
        """Seconds on the clock."""
        return time.process_time() if self.clock == "cpu" else time.monotonic()

    def share(self, decisions: int, seconds: float) -> float:
        """How much of it is used, in [0, 1]."""
        return min(1.0, seconds / self.seconds if self.decisions is None else decisions / self.decisions)


@dataclass(frozen=True)
class Report:
    """How far a run has come.

    Attributes:
        phase: What it does now.
        share: How much of its time is used, in [0, 1].
        iteration: Iterations done.
        decisions: Decisions taken.
        episode_return: Mean return of the episodes that ended last in the first world; None before the first.
        held_out: Last held-out return; None before the first.
        best: Highest held-out return; None before the first.
        eta_s: Seconds that are left at the speed so far; None while unknown.
    """

    phase: Phase
    share: float
    iteration: int
    decisions: int
    episode_return: float | None
    held_out: float | None
    best: float | None
    eta_s: float | None


@dataclass(frozen=True)
class Best:
    """The highest held-out return so far.

    Attributes:
        iteration: When it was reached.
        measured: The returns.
    """

    iteration: int
    measured: Measured


class Learning:
    """A run of a trainer.

    Args:
        trainer: What learns, and where.
        held_out: How it is measured: before the first iteration, then ``every`` so many, and at the end.
        budget: How long.
        every: Iterations between two measurements.
        keep: Called when the network is the best so far.
        kept: Called after every iteration, when everything can be saved.
        note: Told the numbers of every event.
        progress: Told how far the run has come.
    """

    def __init__(
        self,
        trainer: Trainer,
        held_out: HeldOut,
        budget: Budget,
        every: int,
        *,
        keep: Callable[[], None],
        kept: Callable[[], None] | None = None,
        note: Note | None = None,
        progress: Callable[[Report], None] | None = None,
    ) -> None:
        self.trainer = trainer
        self.held_out = held_out
        self.budget = budget
        self.every = every
        self.spent_s = 0.0
        self.start: Measured | None = None
        self.last: Measured | None = None
        self.best: Best | None = None
        self._measured_at = -1
        self._episode_return: float | None = None
        self._keep = keep
        self._kept = kept or (lambda: None)
        self._note: Note = note or (lambda kind, iteration, decisions, numbers: None)
        self._progress = progress or (lambda report: None)

    @property
    def share(self) -> float:
        """How much of the budget is used, in [0, 1]."""
        return self.budget.share(self.trainer.decisions, self.spent_s)

    @property
    def measured_now(self) -> bool:
        """Whether ``last`` belongs to the network as it is."""
        return self._measured_at == self.trainer.number

    def run(self, stop: Callable[[], bool]) -> tuple[Measured, Best]:
        """Learn until the budget is used or ``stop`` says so; returns how good the start was and the best."""
        if self.start is None or self.best is None:
            self._timed(self._measure)
            self._kept()
        while self.share < 1.0 and not stop():
            self._timed(self._iterate)
            self._kept()
            self.tell("learning")
        if self.share >= 1.0 and not self.measured_now:
            self._timed(self._measure)
            self._kept()
        if self.start is None or self.best is None:
            raise RuntimeError("a measurement left no result")
        return self.start, self.best

    def tell(self, phase: Phase) -> None:
        """Report how far it has come."""
        share = self.share
        left = self.spent_s * (1.0 - share) / share if share > 0.0 and self.spent_s > 0.0 else None
        self._progress(
            Report(
                phase,
                share,
                self.trainer.number,
                self.trainer.decisions,
                self._episode_return,
                self.last.mean if self.last else None,
                self.best.measured.mean if self.best else None,
                left,
            )
        )

    def to_json(self) -> dict[str, Any]:
        """Where the run stands, ready for JSON; the trainer is stored elsewhere."""
        return {
            "spent_s": self.spent_s,
            "start": self.start.returns if self.start else None,
            "last": self.last.returns if self.last else None,
            "best": {"iteration": self.best.iteration, "returns": self.best.measured.returns} if self.best else None,
            "measured_at": self._measured_at,
            "episode_return": self._episode_return,
        }

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Go on from what ``to_json`` gave.

        Raises:
            CheckpointError: If a part is missing.
        """
        try:
            self.start, self.last, best = (
                Measured(tuple(float(value) for value in part))
                for part in (stored["start"], stored["last"], stored["best"]["returns"])
            )
            self.best = Best(int(stored["best"]["iteration"]), best)
            self.spent_s, self._measured_at = float(stored["spent_s"]), int(stored["measured_at"])
            value = stored["episode_return"]
            self._episode_return = None if value is None else float(value)
        except (KeyError, TypeError, ValueError) as error:
            fix = "Use an untouched copy of the training state"
            raise CheckpointError(problem("learning state", list(stored), "lacks a part", fix)) from error

    def _timed(self, action: Callable[[], None]) -> None:
        began = self.budget.now()
        action()
        self.spent_s += self.budget.now() - began

    def _iterate(self) -> None:
        began = self.budget.now()
        done = self.trainer.iterate(self.share)
        seconds = self.budget.now() - began
        first = done.returns[self.trainer.fields[0].name]
        if math.isfinite(first):
            self._episode_return = first
        rate = self.trainer.optimiser.param_groups[0]["lr"]
        self._note("iteration", done.number, done.decisions, _numbers(done, rate, seconds))
        if done.number % self.every == 0:
            self._measure()

    def _measure(self) -> None:
        number = self.trainer.number
        self.tell("measuring")
        found = self.held_out.measure(self.trainer.network)
        self.last, self._measured_at = found, number
        self.start = self.start or found
        if self.best is None or found.mean > self.best.measured.mean:
            self.best = Best(number, found)
            self._keep()
        numbers = {"return": found.mean, "standard_error": found.standard_error, "best": self.best.measured.mean}
        self._note("held_out", number, self.trainer.decisions, numbers)


def _numbers(done: Iteration, lr: float, seconds: float) -> dict[str, Any]:
    stats = asdict(done.stats)
    explained = dict(zip(COMPONENTS, stats.pop("explained_variance"), strict=True))
    return {
        "agent_steps": done.agent_steps,
        "lr": lr,
        "seconds": seconds,
        "return": done.returns,
        **stats,
        "stopped_early": int(done.stats.stopped_early),
        "explained_variance": explained,
        "multiplier": dict(zip(done.multipliers.names, done.multipliers.values, strict=True)),
    }
