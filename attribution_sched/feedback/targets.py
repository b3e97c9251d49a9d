"""What the user wants of the cluster, targets with units, and how boldly feedback pursues them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from attribution_sched.errors import SettingsError, nearest, problem


@dataclass(frozen=True)
class Kind:
    """What a target asks for.

    Attributes:
        component: Reward component that serves it.
        weight: Weight of that component; empty where a price inside it serves the target alone.
        unit: Unit of its value; empty for shares and ratios.
        at_least: True if more is better.
        english: What is measured, in words.
        chinese: The same.
    """

    component: str
    weight: str
    unit: str
    at_least: bool
    english: str
    chinese: str


KINDS: dict[str, Kind] = {
    "utilisation_at_least": Kind("R_util", "w_util", "", True, "utilisation", "利用率"),
    "step_s_at_most": Kind("R_eff", "w_eff", "s", False, "step time", "单步时间"),
    "step_ratio_at_most": Kind("R_eff", "w_eff", "", False, "step time over the baseline's", "单步时间与基线之比"),
    "bill_usd_per_day_at_most": Kind("R_cost", "w_cost", "USD/day", False, "bill", "账单"),
    "cost_ratio_at_most": Kind("R_cost", "w_cost", "", False, "cost over the baseline's", "成本与基线之比"),
    "energy_j_per_unit_at_most": Kind("R_cost", "w_cost", "J/unit", False, "energy per unit of work", "单位工作能耗"),
    "carbon_kg_per_day_at_most": Kind("R_cost", "", "kg/day", False, "accounted carbon", "核算碳排放"),
}
"""Every target there is, in the order in which they are reported."""


@dataclass(frozen=True)
class Targets:
    """What the cluster should reach; None where nothing is asked for.

    Attributes:
        utilisation_at_least: Mean R_util, a share of 1.
        step_s_at_most: Mean time of a step.
        step_ratio_at_most: Mean step time over the baseline plan's.
        bill_usd_per_day_at_most: Cross-domain traffic of the work decided on, per day.
        cost_ratio_at_most: Mean R_cost, cost over the baseline plan's.
        energy_j_per_unit_at_most: Energy per unit of work, a unit being what the baseline plan does in a second.
        carbon_kg_per_day_at_most: Accounted carbon of the work decided on, per day; its price inside R_cost serves it.
    """

    utilisation_at_least: float | None = None
    step_s_at_most: float | None = None
    step_ratio_at_most: float | None = None
    bill_usd_per_day_at_most: float | None = None
    cost_ratio_at_most: float | None = None
    energy_j_per_unit_at_most: float | None = None
    carbon_kg_per_day_at_most: float | None = None

    def __post_init__(self) -> None:
        for name in KINDS:
            value = getattr(self, name)
            real = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (real and math.isfinite(value) and value > 0):
                fix = "Leave it out if you do not ask for it"
                raise SettingsError(problem(f"targets.{name}", value, "must be finite and > 0", fix))
        share = self.utilisation_at_least
        if share is not None and share > 1.0:
            raise SettingsError(
                problem("targets.utilisation_at_least", share, "must be <= 1", "Use a share, like 0.85")
            )

    @classmethod
    def of(cls, limits: Mapping[str, float]) -> Targets:
        """Targets by name, as a settings file has them."""
        known = [field.name for field in fields(cls)]
        for name in limits:
            if name not in known:
                raise SettingsError(problem("targets", name, "is not a target", nearest(name, known)))
        return cls(**limits)

    def named(self) -> dict[str, float]:
        """Those that are asked for, by name."""
        return {name: float(value) for name in KINDS if (value := getattr(self, name)) is not None}

    def violation(self, name: str, measured: float) -> float:
        """By how much of the target it is missed; negative if it is met.

        Args:
            name: Which target; it must be asked for.
            measured: What was measured, in the target's unit.
        """
        limit = self.named().get(name)
        if limit is None:
            raise SettingsError(problem("target", name, "is not asked for", nearest(name, self.named())))
        gap = limit - measured if KINDS[name].at_least else measured - limit
        return gap / limit


@dataclass(frozen=True)
class FeedbackSettings:
    """Bounds, rates and levels of confidence.

    Attributes:
        rate: How much a multiplier gains per unit of relative violation and step.
        multiplier_step: Most a multiplier moves in one step.
        multiplier_cap: Largest multiplier; a target that cannot be met must not drown the rest.
        weight_step: Most any weight moves in one step, as a part of the sum of weights.
        explained_step: The same where explanations tell how far the decisions follow.
        least: Smallest part of the sum a weight may be brought to.
        most: Largest part of the sum a weight may be brought to.
        deadband: Relative violation below which nothing begins to move.
        slack: How far a target must be exceeded before its multiplier goes back.
        coupling: How much of the explained coupling between components is believed; 0 moves by outcomes only.
        price_step: Most the logarithm of the energy price moves in one step.
        price_range: Most the energy price is multiplied or divided by in all.
        carbon_step: Most the logarithm of the carbon price moves in one step.
        carbon_range: Most the carbon price is multiplied by in all: at market prices carbon is small change beside
            traffic, and it takes some hundred times as much before placements follow.
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
    explained_step: float = 0.5
    least: float = 0.02
    most: float = 0.9
    deadband: float = 0.01
    slack: float = 0.1
    coupling: float = 0.5
    price_step: float = 0.1
    price_range: float = 4.0
    carbon_step: float = 2.5
    carbon_range: float = 1e5
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
            "weight_step": (0.0, 1.0), "explained_step": (0.0, 1.0), "least": (0.0, 1 / 3), "most": (1 / 3, 1.0),
            "coupling": (0.0, 0.9),
            "damping_floor": (0.0, 1.0), "damping_step": (0.0, 1.0), "fewest": (3, 10**9), "looks": (1, 100),
            "price_range": (1.0, 1e6), "carbon_range": (1.0, 1e9), "level": (0.5, 0.9999),
        }  # fmt: skip
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if not low <= value <= high:
                fix = "Keep the default"
                raise SettingsError(problem(f"feedback.{name}", value, f"must be in [{low:.4g}, {high:.4g}]", fix))
