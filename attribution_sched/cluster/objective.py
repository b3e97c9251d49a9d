"""What decisions are rewarded for, and what a kind of task asks for: what settings may say and the world takes, once.

Limits stand in the annotations; a settings file is checked against them by pydantic, which names the file. Nothing here
loads the compiled cluster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from attribution_sched.errors import SettingsError, problem
from attribution_sched.limits import Rationale, name_rule

Price = Annotated[
    float, Field(strict=True, ge=0, le=1e9, allow_inf_nan=False), Rationale("the reward is a sum of such terms")
]
"""Weight or price of a term of the reward."""
Interval = Annotated[
    float,
    Field(strict=True, ge=1e-3, le=3.2e9, allow_inf_nan=False),
    Rationale("the clock moves in seconds: a thousandth of one to a century"),
]
Switch = Annotated[bool, Field(strict=True)]
Positive = Annotated[
    float, Field(strict=True, gt=0, le=1e15, allow_inf_nan=False), Rationale("beyond it sums lose their digits")
]
Samples = Annotated[
    int,
    Field(strict=True, ge=1, le=10**8),
    Rationale("bytes of a batch are whole numbers of 64 bits, and no step is so large"),
]
Steps = Annotated[int, Field(strict=True, ge=1, le=10**12), Rationale("at a millisecond each, that is 30 years")]
Priority = Annotated[int, Field(strict=True, ge=-1_000_000, le=1_000_000), Rationale("policies weigh it as a number")]

BATCH_LEVELS = 4
"""Microbatch choices per task kind."""


@dataclass(frozen=True)
class Reward:
    """What a decision is worth: ``R = w_eff·R_eff + w_util·R_util − w_cost·R_cost``.

    Attributes:
        w_eff: Weight of training efficiency.
        w_util: Weight of utilisation.
        w_cost: Weight of cost.
        lambda_fragmentation: λ1 of the lower agents' reward.
        lambda_intra_comm: λ2 of the lower agents' reward, per second.
        energy_usd_per_kwh: Price of energy inside R_cost; 0 leaves energy out.
        carbon_usd_per_kg: Price of carbon inside R_cost; 0 leaves carbon out.
        per_decision: True rewards a decision at once with its own R; False pays R as work gets done: every step of
            a running task pays ``R · base_step_s / interval_s`` of its kind, and a task that waits or moves pays
            ``World.waiting_r_eff`` per interval. With the default of −1 the sum of R_eff is, in intervals, what the
            work done would have taken on the baseline minus the time that tasks spent in the cluster.
        interval_s: Time that counts as one unit of reward when paid as work gets done; an hour by default.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", hide_input_in_errors=True)

    w_eff: Price = 1.0
    w_util: Price = 0.5
    w_cost: Price = 0.5
    lambda_fragmentation: Price = 1.0
    lambda_intra_comm: Price = 1.0
    energy_usd_per_kwh: Price = 0.0
    carbon_usd_per_kg: Price = 0.0
    per_decision: Switch = False
    interval_s: Interval = 3600.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not value >= 0:
                raise SettingsError(problem(f"reward.{each.name}", value, "must be >= 0", "Use a non-negative number"))
        if not self.interval_s > 0:
            raise SettingsError(problem("reward.interval_s", self.interval_s, "must be > 0", "Use seconds"))


def four_levels(levels: object) -> object:
    """One to three microbatch sizes filled up with the largest: tables have a place for four."""
    if isinstance(levels, list | tuple) and 1 <= len(levels) < BATCH_LEVELS:
        return (*levels, *[levels[-1]] * (BATCH_LEVELS - len(levels)))
    return levels


@dataclass(frozen=True)
class KindFields:
    """What a kind of task is, in settings (with its model's name) and in a world (with its model).

    Attributes:
        model: What is trained or run.
        batch_size: Global batch: samples per step.
        microbatches: The microbatch sizes (samples) a plan may choose, ascending, four at most; each divides the batch.
        steps: Fewest and most steps a task of this kind needs (log-uniform between them).
        epoch_steps: Steps after which a running task may be re-planned.
        training: False for inference.
        share: How often this kind arrives, relative to the others.
        priority: Larger is more urgent.
        tenant: Who asks for it.
        deadline_slack: A task is late when it takes longer from arrival to finish than so many times what its steps
            take on the baseline plan.
    """

    model: Any
    batch_size: Samples
    microbatches: Annotated[tuple[Samples, Samples, Samples, Samples], BeforeValidator(four_levels)]
    steps: tuple[Steps, Steps]
    epoch_steps: Steps
    training: Switch = True
    share: Positive = 1.0
    priority: Priority = 0
    tenant: Annotated[str, Field(strict=True, min_length=1)] = "default"
    deadline_slack: Positive = 2.0

    def broken(self) -> tuple[str, object, str, str] | None:
        """Field, value, rule and fix of the first rule that does not hold; None if all do."""
        if self.batch_size < 1:
            return "batch_size", self.batch_size, "must be >= 1", "Use samples per step"
        levels = self.microbatches
        wrong = [level for level in levels if level < 1 or self.batch_size % level]
        if len(levels) != BATCH_LEVELS or wrong or list(levels) != sorted(levels):
            rule = f"must be {BATCH_LEVELS} ascending divisors of batch_size = {self.batch_size}"
            return "microbatches", levels, rule, "Use powers of two"
        if not 1 <= self.steps[0] <= self.steps[1]:
            return "steps", self.steps, "must give the fewest steps first, then the most, both >= 1", "Swap them"
        if self.epoch_steps < 1:
            return "epoch_steps", self.epoch_steps, "must be >= 1", "Use steps per epoch"
        if not self.share > 0:
            return "share", self.share, "must be > 0", "Leave the kind out instead"
        if not (math.isfinite(self.deadline_slack) and self.deadline_slack > 0):
            fix = "Use multiples of the time on the baseline plan"
            return "deadline_slack", self.deadline_slack, "must be finite and > 0", fix
        unnamed = name_rule(self.tenant)
        return None if unnamed is None else ("tenant", self.tenant, unnamed, "Use letters, digits and signs")


Amount = Annotated[float, Field(strict=True, gt=0, le=1e15, allow_inf_nan=False), Rationale("a sum over a run")]
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000), Rationale("more devices than any cluster here has")]


@dataclass(frozen=True)
class Quota:
    """What a tenant may use: devices at once, and budgets for a window of time that begins again when it ends.

    A tenant that has spent a budget gets no further placement until the window ends; what runs is not stopped, so a
    budget can be exceeded by what its last tasks still use.

    Attributes:
        tenant: Whose.
        devices: Most devices at once.
        device_hours: Most device-hours in a window.
        energy_kwh: Most energy of its tasks.
        usd: Most dollars of its tasks: traffic, and electricity where that is priced.
        carbon_kg: Most accounted carbon of its tasks.
        per_h: Length of the window.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", hide_input_in_errors=True)

    tenant: Annotated[str, Field(strict=True, min_length=1, max_length=200)]
    devices: Count | None = None
    device_hours: Amount | None = None
    energy_kwh: Amount | None = None
    usd: Amount | None = None
    carbon_kg: Amount | None = None
    per_h: Amount = 24.0

    def __post_init__(self) -> None:
        limits = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "tenant"}
        for name, value in limits.items():
            if value is not None and not value > 0:
                fix = "Leave it out for no limit"
                raise SettingsError(problem(f"quota of {self.tenant}: {name}", value, "must be > 0", fix))
        if all(limits[name] is None for name in (*BUDGETS, "devices")):
            fix = f"Give one of devices, {', '.join(BUDGETS)}"
            raise SettingsError(problem(f"quota of {self.tenant}", "no limit", "must limit something", fix))


BUDGETS = ("device_hours", "energy_kwh", "usd", "carbon_kg")
"""What a quota may limit over a window."""

SHARE_RULES = ("none", "fair-share")
"""Whose turn it is when several tenants wait. ``none``: the policy's choice alone. ``fair-share``: who holds an equal
part of the devices or more is asked about after those who hold less, and makes room for them in the window; nothing
that runs is stopped, and devices that nobody below their share can use stay open to all."""

ShareRule = Literal["none", "fair-share"]
