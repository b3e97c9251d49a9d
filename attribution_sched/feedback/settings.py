"""How boldly feedback acts."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from attribution_sched.errors import SettingsError, problem


@dataclass(frozen=True)
class FeedbackSettings:
    """Bounds, rates and levels of confidence.

    Attributes:
        rate: How much a multiplier gains per unit of relative violation and step.
        multiplier_step: Most a multiplier moves in one step.
        multiplier_cap: Largest multiplier; a target that cannot be met must not drown the rest.
        weight_step: Most any weight moves in one step, as a part of the sum of weights.
        least: Smallest part of the sum a weight may be brought to.
        most: Largest part of the sum a weight may be brought to.
        deadband: Relative violation below which nothing begins to move.
        slack: How far a target must be exceeded before its multiplier goes back.
        coupling: How much of the explained coupling between components is believed; 0 moves by outcomes only.
        price_step: Most the logarithm of the energy price moves in one step.
        price_range: Most the energy price is multiplied or divided by in all.
        fewest: Decisions below which nothing is concluded.
        level: Confidence of every test.
        damping_floor: Smallest multiplier of a contradicted driver.
        damping_step: Most a driver's multiplier moves in one step; a rollback brings those who argued for it to the
            floor at once.
        tolerance: Fall of the held-out return that is put up with, as a part of a return's typical size.
        looks: Steps in a row at which a fall must be seen before changes are taken back; a learner's return dips by
            itself, and then comes back.
        probation: Steps after which changes that neither raised nor lowered the held-out return are kept for good;
            longer than a learner needs to follow its reward.
        cooldown: Steps without changes after a rollback; doubles with each further one.
    """

    rate: float = 4.0
    multiplier_step: float = 0.5
    multiplier_cap: float = 4.0
    weight_step: float = 0.1
    least: float = 0.02
    most: float = 0.9
    deadband: float = 0.01
    slack: float = 0.1
    coupling: float = 0.5
    price_step: float = 0.1
    price_range: float = 4.0
    fewest: int = 8
    level: float = 0.95
    damping_floor: float = 0.1
    damping_step: float = 0.3
    tolerance: float = 0.05
    looks: int = 2
    probation: int = 8
    cooldown: int = 2

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (math.isfinite(value) and value >= 0):
                fix = "Use a non-negative number"
                raise SettingsError(problem(f"feedback.{name}", value, "must be finite and >= 0", fix))
        ranges = {
            "weight_step": (0.0, 1.0), "least": (0.0, 1 / 3), "most": (1 / 3, 1.0), "coupling": (0.0, 0.9),
            "damping_floor": (0.0, 1.0), "damping_step": (0.0, 1.0), "fewest": (3, 10**9), "looks": (1, 100),
            "price_range": (1.0, 1e6), "level": (0.5, 0.9999),
        }  # fmt: skip
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if not low <= value <= high:
                fix = "Keep the default"
                raise SettingsError(problem(f"feedback.{name}", value, f"must be in [{low:.4g}, {high:.4g}]", fix))
