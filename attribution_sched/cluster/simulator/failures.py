"""What goes wrong or gives way in the event simulator: device failures and preemption.

A device in service fails after an exponential time of mean ``mtbf_h``, out of service draws no power, and is
back after ``repair_h``. A task that sat on it falls back to its last checkpoint. A preempted task saves its
state first and loses nothing. Both kinds wait again at the front of their priority and, when they start again,
pay the restart pause and, where they start elsewhere, the sending of their state over the WAN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from attribution_sched.errors import SettingsError, problem


@dataclass(frozen=True)
class Failures:
    """How devices fail.

    Attributes:
        mtbf_h: Mean hours a device in service runs until it fails.
        repair_h: Hours until a failed device is back.
        checkpoint_steps: A task saves its state whenever it has done another this many steps; saving is taken to
            overlap with work and costs no time.
    """

    mtbf_h: float
    repair_h: float = 1.0
    checkpoint_steps: int = 100

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mtbf_h) and self.mtbf_h > 0):
            fix = "Use hours, or failures=None for devices that never fail"
            raise SettingsError(problem("failures.mtbf_h", self.mtbf_h, "must be finite and > 0", fix))
        if not (math.isfinite(self.repair_h) and self.repair_h >= 0):
            raise SettingsError(problem("failures.repair_h", self.repair_h, "must be finite and >= 0", "Use hours"))
        steps = self.checkpoint_steps
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            rule = "must be a whole number >= 1"
            raise SettingsError(problem("failures.checkpoint_steps", steps, rule, "Use steps between checkpoints"))

    def saved_steps(self, done_steps: float) -> float:
        """Steps that survive a failure after ``done_steps``, by the regular checkpoints alone."""
        # A count that rounding left just below a checkpoint has reached it.
        return math.floor(done_steps / self.checkpoint_steps + 1e-9) * float(self.checkpoint_steps)


@dataclass(frozen=True)
class Preemption:
    """Whether urgent tasks may take devices from others.

    Attributes:
        enabled: A waiting task for which the policy finds no feasible plan may send running tasks of strictly
            lower priority back to the queue: the least urgent first, and among equals the last started.
    """

    enabled: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise SettingsError(
                problem("preemption.enabled", self.enabled, "must be true or false", "Use True or False")
            )
