"""The time both levels have to agree in, and who decides if they do not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from attribution_sched.errors import SettingsError, problem

COORDINATION_LIMIT_S = 2.0
"""Longest time from the upper agent's choice to the last lower agent's."""


@dataclass(frozen=True)
class Fallback:
    """A decision that was not the learner's.

    Attributes:
        reason: Why, for a person to read.
        policy: Who decided instead.
    """

    reason: str
    policy: str


class Deadline:
    """Time left for the two levels to agree.

    Starts when made and again when entered as a context.

    Args:
        limit_s: Time allowed.
        clock: Seconds that only ever rise.
    """

    def __init__(self, limit_s: float = COORDINATION_LIMIT_S, clock: Callable[[], float] = time.perf_counter) -> None:
        if not limit_s > 0:
            raise SettingsError(problem("deadline.limit_s", limit_s, "must be > 0", "Use infinity for no deadline"))
        self.limit_s = limit_s
        self._clock = clock
        self._start_s = clock()

    def __enter__(self) -> Self:
        self._start_s = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    @property
    def elapsed_s(self) -> float:
        """Time since the start."""
        return self._clock() - self._start_s

    @property
    def remaining_s(self) -> float:
        """Time left; never negative."""
        return max(0.0, self.limit_s - self.elapsed_s)

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self.elapsed_s >= self.limit_s

    def fallback(self, policy: str, stage: str) -> Fallback | None:
        """Say who must decide because time ran out; None while there is time.

        Args:
            policy: Name of the policy that takes over.
            stage: What was going on, like "lower agents".
        """
        elapsed = self.elapsed_s
        if elapsed < self.limit_s:
            return None
        return Fallback(f"coordination took {elapsed:.3f} s of {self.limit_s:.3f} s allowed, at: {stage}", policy)
