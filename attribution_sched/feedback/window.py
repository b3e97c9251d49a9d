"""A window of decisions: what was explained of each and what came of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from attribution_sched.errors import ModelFitError, nearest, problem
from attribution_sched.explain.explanation import COMPONENTS, Explanation
from attribution_sched.feedback.targets import KINDS
from attribution_sched.stats.interval import half_width, standard_error
from attribution_sched.types import FloatArray

DAY_S = 86_400.0

PER_DAY: Mapping[str, tuple[str, float]] = {
    "bill_usd_per_day_at_most": ("bill_usd", 1.0),
    "carbon_kg_per_day_at_most": ("carbon_g", 1e3),
}
"""Targets over a day: what of a step is summed up, and how much of it makes the target's unit."""

COMPARABLE: tuple[str, ...] = ("terms", "simulator", "model")
"""Targets of explanations whose components can be held against the terms a decision earned."""


class Recorded(Protocol):
    """What is read of a recorded outcome; a journal's records have it.

    ``details`` may hold ``base_step_s``, ``steps`` and ``carbon_g``.
    """

    @property
    def decision_id(self) -> str: ...  # noqa: D102
    @property
    def r_eff(self) -> float | None: ...  # noqa: D102
    @property
    def r_util(self) -> float | None: ...  # noqa: D102
    @property
    def r_cost(self) -> float | None: ...  # noqa: D102
    @property
    def step_s(self) -> float | None: ...  # noqa: D102
    @property
    def bill_usd(self) -> float | None: ...  # noqa: D102
    @property
    def energy_j(self) -> float | None: ...  # noqa: D102
    @property
    def details(self) -> Mapping[str, Any]: ...  # noqa: D102


@dataclass(frozen=True)
class DecisionOutcome:
    """What one decision came to, as measured or simulated.

    Attributes:
        r_eff: Reward term R_eff, before weighting.
        r_util: Reward term R_util.
        r_cost: Reward term R_cost.
        step_s: Time of one step; None if not known.
        base_step_s: Time of one step on the baseline plan.
        bill_usd: What one step's traffic costs.
        energy_j: Energy of one step.
        steps: Steps that were decided on.
        carbon_g: Accounted carbon of one step.
    """

    r_eff: float
    r_util: float
    r_cost: float
    step_s: float | None = None
    base_step_s: float | None = None
    bill_usd: float | None = None
    energy_j: float | None = None
    steps: float = 1.0
    carbon_g: float | None = None

    def __post_init__(self) -> None:
        for name in ("r_eff", "r_util", "r_cost"):
            _check(name, getattr(self, name), None)
        for name in ("step_s", "base_step_s", "bill_usd", "energy_j", "steps", "carbon_g"):
            if getattr(self, name) is not None:
                _check(name, getattr(self, name), 0.0)

    @classmethod
    def of(cls, record: Recorded) -> DecisionOutcome | None:
        """A recorded outcome; None if the reward terms are not known, as where an action was refused."""
        if record.r_eff is None or record.r_util is None or record.r_cost is None:
            return None
        details = record.details
        return cls(
            record.r_eff, record.r_util, record.r_cost, record.step_s, details.get("base_step_s"), record.bill_usd,
            record.energy_j, details.get("steps", 1.0), details.get("carbon_g"),
        )  # fmt: skip

    @property
    def terms(self) -> tuple[float, float, float]:
        """R_eff, R_util and R_cost."""
        return self.r_eff, self.r_util, self.r_cost


@dataclass(frozen=True)
class Measurement:
    """One figure of a window.

    Attributes:
        value: The figure.
        standard_error: Of it, decisions taken as independent.
        count: Decisions behind it.
    """

    value: float
    standard_error: float
    count: int

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Student's limits; without end for a single decision."""
        if self.count < 2:
            return -math.inf, math.inf
        half = float(half_width(self.standard_error, self.count - 1.0, level))
        return self.value - half, self.value + half


@dataclass(frozen=True, eq=False)
class Window:
    """Decisions in order.

    Attributes:
        outcomes: What they came to; at least one.
        explanations: One for each outcome, None where a decision was not explained; empty if none was.
        span_s: Time the window covers; needed for a bill per day.
    """

    outcomes: tuple[DecisionOutcome, ...]
    explanations: tuple[Explanation | None, ...] = ()
    span_s: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcomes", tuple(self.outcomes))
        explanations = tuple(self.explanations) or (None,) * len(self.outcomes)
        object.__setattr__(self, "explanations", explanations)
        if not self.outcomes:
            fix = "Decide and run some tasks first"
            raise ModelFitError(problem("window.outcomes", (), "there must be at least one", fix))
        if len(explanations) != len(self.outcomes):
            rule = f"must be {len(self.outcomes)}, one per outcome"
            raise ModelFitError(problem("window.explanations", len(explanations), rule, "Put None where there is none"))
        for explanation in explanations:
            if explanation is not None and not np.isfinite(explanation.values).all():
                fix = "Explain the decision again"
                raise ModelFitError(problem(f"explanation {explanation.decision}", "NaN", "must be finite", fix))
        if self.span_s is not None:
            _check("span_s", self.span_s, 0.0)

    @classmethod
    def of(
        cls,
        records: Iterable[Recorded],
        explanations: Mapping[str, Explanation] | None = None,
        span_s: float | None = None,
    ) -> Window:
        """A window of recorded outcomes; those whose reward terms are not known are left out.

        Args:
            records: In order.
            explanations: By identifier of the decision.
            span_s: Time the window covers.
        """
        known = [
            (record.decision_id, outcome) for record in records if (outcome := DecisionOutcome.of(record)) is not None
        ]
        by_decision = explanations or {}
        return cls(tuple(outcome for _, outcome in known), tuple(by_decision.get(name) for name, _ in known), span_s)

    def __len__(self) -> int:
        return len(self.outcomes)

    def terms(self) -> FloatArray:
        """Measured R_eff, R_util and R_cost, shape ``(N, 3)``."""
        return np.array([outcome.terms for outcome in self.outcomes])

    def comparable(self) -> list[int]:
        """Decisions whose explanation can be held against their outcome."""
        return [
            i
            for i, explanation in enumerate(self.explanations)
            if explanation is not None
            and explanation.target in COMPARABLE
            and not explanation.against
            and set(COMPONENTS) <= set(explanation.outputs)
        ]

    def measure(self, target: str) -> Measurement:
        """What a target is held against, over the whole window.

        Args:
            target: A key of :data:`~attribution_sched.feedback.targets.KINDS`.

        Raises:
            ModelFitError: If outcomes do not tell it.
        """
        if target not in KINDS:
            raise ModelFitError(problem("target", target, "is not known", nearest(target, KINDS)))
        if target == "utilisation_at_least":
            return _mean(self.terms()[:, 1])
        if target == "step_ratio_at_most":
            return _mean(1.0 - self.terms()[:, 0])
        if target == "cost_ratio_at_most":
            return _mean(self.terms()[:, 2])
        if target == "step_s_at_most":
            return _mean(self._column("step_s", target))
        steps = self._column("steps", target)
        if target in PER_DAY:
            if not self.span_s:
                fix = "Give the window its length in seconds"
                raise ModelFitError(problem("window.span_s", self.span_s, f"is needed for {target}", fix))
            column, unit = PER_DAY[target]
            each = _mean(self._column(column, target) * steps)
            per_day = len(self) * DAY_S / self.span_s / unit
            return Measurement(each.value * per_day, each.standard_error * per_day, each.count)
        return _ratio(self._column("energy_j", target) * steps, self._column("base_step_s", target) * steps)

    def _column(self, name: str, target: str) -> FloatArray:
        values = [getattr(outcome, name) for outcome in self.outcomes]
        if None in values:
            fix = "Fill it in, or leave the target out"
            raise ModelFitError(problem(f"outcome {values.index(None)}: {name}", None, f"is needed for {target}", fix))
        return np.array(values, dtype=np.float64)


def _check(name: str, value: float, least: float | None) -> None:
    if not math.isfinite(value) or (least is not None and value < least):
        rule = "must be finite" if least is None else f"must be finite and >= {least:g}"
        raise ModelFitError(problem(f"outcome.{name}", value, rule, "Leave out decisions that were not measured"))


def _mean(values: FloatArray) -> Measurement:
    n = len(values)
    error = float(standard_error(values)) if n > 1 else math.inf
    return Measurement(float(values.mean()), error, n)


def _ratio(above: FloatArray, below: FloatArray) -> Measurement:
    """Ratio of sums, with the standard error of its linearisation."""
    mean = float(below.mean())
    if not mean > 0:
        fix = "Give the baseline's step time and the steps decided on"
        raise ModelFitError(problem("work of the window", mean, "must be > 0", fix))
    value = float(above.mean()) / mean
    spread = _mean((above - value * below) / mean)
    return Measurement(value, spread.standard_error, len(above))
