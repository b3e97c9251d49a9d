"""One turn of the ring while it is under way: what was decided, how far it has come, how long each phase took."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attribution_sched.kernels import clock

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.journal import DecisionRecord, TaskRecord, WaitRecord
    from attribution_sched.session.asking import Asked
    from attribution_sched.types import Task

PHASES: tuple[str, ...] = ("observe", "attribute", "decide", "record", "carry out", "learn")
"""The ring, in order."""

log = logging.getLogger("attribution_sched.ring")


class Clock:
    """Times the phases of one turn and logs each as it ends."""

    def __init__(self) -> None:
        self.spent_s: dict[str, float] = {}
        self._last = clock()

    def phase(self, name: str, about: object) -> None:
        """A phase has ended."""
        now = clock()
        self.spent_s[name] = spent_s = now - self._last
        self._last = now
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%d %s %s: %.3f ms", PHASES.index(name) + 1, name, about, 1e3 * spent_s)

    def latencies_s(self, decision_s: float) -> dict[str, float]:
        """Seconds by part, as results tell them; the policy's own time stands for the phase in which it was asked."""
        spent = self.spent_s
        return {
            "attribution": spent["attribute"],
            "decision": decision_s,
            "journal": spent["record"] + spent["learn"],
            "effect": spent["carry out"],
        }


@dataclass(frozen=True, eq=False)
class Turn:
    """A decision that is being taken.

    Attributes:
        number: Decisions in the journal before it.
        asked: What the policy was asked and said.
        action: The same as the cluster is told it.
        told: What the journal is to keep of it before it takes effect.
        new: Its task, if the journal does not have it yet.
        task: Whose task.
        vector: Where its joules go: what the policy saw.
        paid: What the cluster had earned since the decision before it.
        decided: Decisions that had taken effect before it.
        since: Decisions since the last result.
        clock: Its phases.
        waits: What its event leaves waiting without a question.
    """

    number: int
    asked: Asked
    action: NDArray[np.int64]
    told: DecisionRecord
    new: TaskRecord | None
    task: Task
    vector: AttributionVector
    paid: tuple[float, float, float]
    decided: int
    since: int
    clock: Clock = field(repr=False)
    waits: tuple[WaitRecord, ...] = ()
