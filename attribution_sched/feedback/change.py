"""What a step of feedback did: every change with its reason, and what there is to record of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from attribution_sched.cluster.world import Reward
from attribution_sched.feedback.drivers import DriverEvidence
from attribution_sched.feedback.held_out import Verdict

Kind = Literal["changed", "rolled back", "still"]

WEIGHTS_CHANGED = "reward weights"
PRICE_CHANGED = "reward.energy_usd_per_kwh"


@dataclass(frozen=True)
class Change:
    """One thing that was changed, or taken back.

    Attributes:
        number: Number of changes before it.
        changed: What: ``reward weights``, ``reward.energy_usd_per_kwh`` or ``damping of <driver> in <component>``.
        before: Its value before; plain numbers and names.
        after: Its value since.
        reason: Why, in English.
        reason_zh: The same in Chinese.
        undoes: Number of the change that this one takes back.
    """

    number: int
    changed: str
    before: Any
    after: Any
    reason: str
    reason_zh: str
    undoes: int | None = None

    def to_record(self) -> dict[str, Any]:
        """What a journal keeps of it: changed, before, after, both reasons, undoes."""
        return {name: value for name, value in asdict(self).items() if name != "number"}


@dataclass(frozen=True, eq=False)
class FeedbackChange:
    """One step of feedback.

    Attributes:
        step: Number of steps before it.
        kind: Whether something was changed, something was rolled back, or everything stayed.
        changes: Every change, in order.
        reward: The reward from now on.
        reason: What was done and why, in English.
        reason_zh: The same in Chinese.
        evidence: The numbers behind it, ready for JSON: measurements and violations of the targets, multipliers,
            coupling.
        drivers: What outcomes say of the certain drivers.
        verdict: Held-out returns against the last good state; None if there was nothing to compare.
        anchored: Whether this is now the last good state. A learner keeps a copy of itself here and goes back to it
            when ``kind`` is ``rolled back``: taking back a reward does not take back what was learnt from it.
    """

    step: int
    kind: Kind
    changes: tuple[Change, ...]
    reward: Reward
    reason: str
    reason_zh: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    drivers: tuple[DriverEvidence, ...] = ()
    verdict: Verdict | None = None
    anchored: bool = False

    def records(self) -> list[dict[str, Any]]:
        """What a journal keeps, one record per change, in order."""
        return [change.to_record() for change in self.changes]
