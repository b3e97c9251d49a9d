"""What the user wants of the cluster: targets with units, what serves them, and how far they are missed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from attribution_sched.errors import SettingsError, nearest, problem


@dataclass(frozen=True)
class Kind:
    """What a target asks for.

    Attributes:
        component: Reward component that serves it.
        weight: Weight of that component.
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
    """

    utilisation_at_least: float | None = None
    step_s_at_most: float | None = None
    step_ratio_at_most: float | None = None
    bill_usd_per_day_at_most: float | None = None
    cost_ratio_at_most: float | None = None
    energy_j_per_unit_at_most: float | None = None

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
    def of(cls, given: Mapping[str, float]) -> Targets:
        """Targets by name, as a settings file has them."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise SettingsError(problem("targets", name, "is not a target", nearest(name, known)))
        return cls(**given)

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
