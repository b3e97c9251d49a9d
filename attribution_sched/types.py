"""The records that walk the ring, and the arrays they are made of.

    counters ─▶ attribution ─▶ scheduler ─▶ cluster ─▶ outcome

| record | home | what it is |
|---|---|---|
| :class:`Task` | here | what was submitted and measured, its attribution, where it stands in the cluster |
| ``Decision`` | ``cluster.decision`` | the moment: task, queue, free devices, links, weights, all attributions |
| ``Plan``, ``PlanBatch`` | ``cluster.plan`` | where and how a task runs; one record, one array form |
| :class:`Outcome` | here | what a decision came to: predicted and observed, side by side |

A room adds a field or makes the next record; nobody encodes one again at a door. All four can be imported from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.cluster.decision import Decision
    from attribution_sched.cluster.plan import Plan, PlanBatch

__all__ = [
    "ATTRIBUTION_SCHEMA", "Attributor", "BoolArray", "Decision", "Float32Array", "FloatArray", "IntArray", "Outcome",
    "Plan", "PlanBatch", "Quantities", "RewardTerms", "Task",
]  # fmt: skip

FloatArray = NDArray[np.float64]
"""Real numbers in double precision; whoever takes or gives one says its axes, the batch axis first."""

Float32Array = NDArray[np.float32]
"""Real numbers as networks read them; axes as said beside it, the batch axis first."""

IntArray = NDArray[np.int64]
"""Counts, codes and indices; axes as said beside it, the batch axis first."""

BoolArray = NDArray[np.bool_]
"""Masks: True is allowed, present or chosen; axes as said beside it, the batch axis first."""

Attributor = Callable[[FloatArray], FloatArray]
"""Counters ``(n, 12)`` → the seven numbers in [−1, 1] that a policy's state holds of every task, ``(n, 7)``."""

ATTRIBUTION_SCHEMA = "log-energy-1"
"""Name of the normalisation behind those seven numbers, see ``attribution.schema``. Weights that learnt from another
one have another name in their checkpoint, and are refused."""

_ELSEWHERE = {"Decision": "cluster.decision", "Plan": "cluster.plan", "PlanBatch": "cluster.plan"}


def __getattr__(name: str) -> Any:
    """Records whose home is the cluster; loaded when they are asked for, so that the cluster may import this."""
    if name in _ELSEWHERE:
        return getattr(import_module(f"attribution_sched.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _nothing_measured() -> FloatArray:
    return np.zeros(0)


SIGNS: tuple[float, float, float] = (1.0, 1.0, -1.0)
"""With which sign R_eff, R_util and R_cost enter R."""

Number = TypeVar("Number", float, FloatArray)
"""One number, or an array of any axes."""


def total(eff: Number, util: Number, cost: Number, w_eff: float, w_util: float, w_cost: float) -> Number:
    """R of the three terms."""
    return w_eff * eff + w_util * util - w_cost * cost


@dataclass(frozen=True)
class Task:
    """One task: the request, what was measured of it, and where it stands.

    What it demands in truth is not in it; only the simulator knows that.

    Attributes:
        id: Its name; empty for a task that was never submitted, as in an episode.
        kind_index: Row of its kind in the world and the cost model.
        model: Name of what is trained or run.
        steps: Work that was asked for, in steps.
        batch_size: Samples per step; 0 if nobody said.
        training: False for inference.
        tenant: Who asks for it.
        priority: Larger is more urgent.
        deadline_s: When it must have finished, on the cluster's clock; None for no deadline of its own.
        devices: How many devices were asked for; None leaves that to the scheduler.
        hold: Whether it must not be placed yet.
        counters: What was measured of it, shape ``(12,)``; empty if nobody measured it.
        provenance: Name of a counter → how it was got: measured, estimated, simulated or unavailable.
        samples_per_s: Measured throughput on the reference device; 0 if nobody measured it.
        measured_devices: Devices whose samples that throughput counts together, while a counter is one device's: those
            that a job asked for and was measured on, 1 on the reference device.
        attribution: Where its joules go; None until it is attributed, or if nothing was measured.
        submitted: Whether somebody handed it in; else the simulation did.
        number: How many tasks came before it.
        arrived_s: When it came, on the cluster's clock.
        slot: Its place in the cluster's table of tasks; −1 outside.
        steps_left: Work left at this moment, in steps.
        waited_s: Time in the queue until this moment.
        memory_bytes: Measured on one device in the first minutes; 0 if nobody measured it.
    """

    id: str = ""
    kind_index: int = 0
    model: str = ""
    steps: float = 0.0
    batch_size: int = 0
    training: bool = True
    tenant: str = "default"
    priority: int = 0
    deadline_s: float | None = None
    devices: int | None = None
    hold: bool = False
    counters: FloatArray = field(default_factory=_nothing_measured, compare=False, repr=False)
    provenance: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    samples_per_s: float = 0.0
    measured_devices: int = 1
    attribution: AttributionVector | None = field(default=None, compare=False, repr=False)
    submitted: bool = False
    number: int = 0
    arrived_s: float = 0.0
    slot: int = -1
    steps_left: float = 0.0
    waited_s: float = 0.0
    memory_bytes: float = 0.0

    def at(self, slot: int, steps_left: float, waited_s: float) -> Task:
        """The same task at another moment; quick, because every decision asks it of every waiting task."""
        moment = object.__new__(Task)
        moment.__dict__.update(self.__dict__)
        moment.__dict__.update(slot=slot, steps_left=steps_left, waited_s=waited_s)
        return moment

    def __deepcopy__(self, _: dict[int, object]) -> Task:
        """It never changes, so a copy of whatever holds it may share it."""
        return self


@dataclass(frozen=True)
class Quantities:
    """Numbers of one plan, by one account: a prediction, a simulation or a meter. None is not known.

    Attributes:
        start_s: When the task starts, on the cluster's clock.
        step_s: Time of one step.
        traffic_bytes: What one step sends between domains.
        energy_j: What the task's devices draw in one step.
        bill_usd: Traffic bill of one step.
        carbon_g: CO2-equivalent of one step's energy.
        r_eff: Share of the baseline's step time that is saved.
        r_util: Mean over its domains of compute time over step time.
        r_cost: Cost over the baseline's cost.
        provenance: How the numbers were got: measured, estimated, simulated or unavailable.
    """

    start_s: float | None = None
    step_s: float | None = None
    traffic_bytes: float | None = None
    energy_j: float | None = None
    bill_usd: float | None = None
    carbon_g: float | None = None
    r_eff: float | None = None
    r_util: float | None = None
    r_cost: float | None = None
    provenance: str = "unavailable"


@dataclass(frozen=True)
class Outcome:
    """What a decision came to: what was expected and what was observed, side by side.

    A task that does not run has zeros for its step, not None: nothing is drawn, sent or billed.

    Attributes:
        code: What the cluster made of it; negative is a refusal. Words in ``cluster.engine.state.CODES``.
        observed: What the cluster says: the simulation's own account (``simulated``), or a meter's (``measured``).
        predicted: What was expected of a nominal task when the decision was taken; None if nobody was asked.
        move_s: Pause for moving or restarting the task.
        move_usd: Bill of moving it.
        busy_share: Devices that hold a task, of all devices, after the decision.
        paid: What the cluster earned of R_eff, R_util and R_cost since the decision before.
    """

    code: int
    observed: Quantities
    predicted: Quantities | None = None
    move_s: float = 0.0
    move_usd: float = 0.0
    busy_share: float = 0.0
    paid: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def terms(self) -> tuple[float, float, float]:
        """R_eff, R_util and R_cost of the decision itself; 0 where nothing is known."""
        return self.observed.r_eff or 0.0, self.observed.r_util or 0.0, self.observed.r_cost or 0.0

    @property
    def step_s(self) -> float:
        """Time of one step as observed; 0 if the task does not run."""
        return self.observed.step_s or 0.0

    @property
    def bill_usd(self) -> float:
        """Traffic bill of one step as observed."""
        return self.observed.bill_usd or 0.0

    @property
    def energy_j(self) -> float:
        """Joules of one step as observed."""
        return self.observed.energy_j or 0.0


@dataclass(frozen=True)
class RewardTerms:
    """What a decision is worth by itself: R = w_eff·R_eff + w_util·R_util − w_cost·R_cost.

    Attributes:
        r_eff: Share of the baseline's step time that is saved.
        r_util: Utilisation.
        r_cost: Bill over the baseline's bill.
        w_eff: Weight of r_eff.
        w_util: Weight of r_util.
        w_cost: Weight of r_cost.
    """

    r_eff: float
    r_util: float
    r_cost: float
    w_eff: float
    w_util: float
    w_cost: float

    @property
    def total(self) -> float:
        """R."""
        return total(self.r_eff, self.r_util, self.r_cost, self.w_eff, self.w_util, self.w_cost)


def provenance_of(names: tuple[str, ...], way: str) -> Mapping[str, str]:
    """The same way for every counter."""
    return MappingProxyType(dict.fromkeys(names, way))
