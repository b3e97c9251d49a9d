"""What decisions are rewarded for: what a settings file may say and what the world takes, in one record.

Limits stand in the annotations; a settings file is checked against them by pydantic, which names the file. Nothing here
loads the compiled cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from attribution_sched.errors import SettingsError, problem
from attribution_sched.limits import Why

Price = Annotated[
    float, Field(strict=True, ge=0, le=1e9, allow_inf_nan=False), Why("the reward is a sum of such terms")
]
"""Weight or price of a term of the reward."""
Interval = Annotated[
    float,
    Field(strict=True, ge=1e-3, le=3.2e9, allow_inf_nan=False),
    Why("the clock moves in seconds: a thousandth of one to a century"),
]
Switch = Annotated[bool, Field(strict=True)]


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


Amount = Annotated[float, Field(strict=True, gt=0, le=1e15, allow_inf_nan=False), Why("a sum over a run")]
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000), Why("more devices than any cluster here has")]


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
