"""What a device draws, what a power cap does to it, and who pays for the joules.

Natural draw, with ``s(u) = 1 − (1 − u)^g`` saturating in a utilisation ``u``:

    P = idle + (TDP − idle) · min(1, f · (a_c · s(u_compute) + a_m · s(u_memory)))

``u_compute`` and ``u_memory`` are the shares of a step in which the compute units and the memory system
would be busy at the rate they reach at large batch; a launch-bound step has both near 0 and draws idle
power, decoding has a middling ``u_memory``, diffusion has ``u_compute`` = 1 and draws nearly TDP.

A cap below the natural draw stretches time, with ``P = min(cap, P_full)``:

    t(P) / t(P_full) = 1 + β · ((P_full − P0) / (P − P0) − 1)

so energy ``P · t(P)`` is U-shaped in the cap. All constants are fitted (``constants/power.json``); on A100
and H100 the cap law is an assumption, scaled from the V100.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.gpus import Gpu, Precision
from attribution_sched.errors import SettingsError, problem
from attribution_sched.types import FloatArray


def draw_w(
    idle_w: Any, tdp_w: Any, compute_util: Any, memory_util: Any, factor: Any, a_c: Any, a_m: Any, g: Any
) -> Any:
    """Natural draw with every constant explicit; see the module's first formula."""
    activity = a_c * (1.0 - (1.0 - compute_util) ** g) + a_m * (1.0 - (1.0 - memory_util) ** g)
    return idle_w + (tdp_w - idle_w) * np.minimum(1.0, factor * activity)


def natural_power_w(idle_w: Any, tdp_w: Any, compute_util: Any, memory_util: Any, precision_factor: Any = 1.0) -> Any:
    """Draw of one device without a cap, in watts; broadcasts over arrays.

    Args:
        idle_w: Power with no work resident.
        tdp_w: Board power limit.
        compute_util: Share of the step the compute units are busy, in [0, 1].
        memory_util: Share of the step the memory system is busy, in [0, 1].
        precision_factor: Dynamic-power factor of the numeric format (:func:`precision_factor`).
    """
    law = load_constants("power")["natural_draw"]
    return draw_w(idle_w, tdp_w, compute_util, memory_util, precision_factor, law["a_c"], law["a_m"], law["g"])


def cap_slowdown(natural_w: Any, cap_w: Any, p0_w: Any, beta: Any) -> Any:
    """Factor ≥ 1 by which a cap stretches a step; exactly 1 where the cap is above the draw.

    The law is rearranged to ``1 + β · (P_full − P) / (P − P0)``, which has no 0/0 where the cap does not
    bind. A binding cap at or below ``P0`` is outside the law and gives a huge factor.
    """
    drawn = np.minimum(natural_w, cap_w)
    return 1.0 + beta * (natural_w - drawn) / np.maximum(drawn - p0_w, 1e-6)


def step_energy_j(step_s: Any, natural_w: Any, cap_w: Any, p0_w: Any, beta: Any) -> Any:
    """Energy of one step under a cap: ``min(cap, P_full) · t(P)``; ``step_s`` is the uncapped time."""
    drawn = np.minimum(natural_w, cap_w)
    stretch = 1.0 + beta * (natural_w - drawn) / np.maximum(drawn - p0_w, 1e-6)
    return drawn * stretch * step_s


def optimal_cap_w(natural_w: Any, p0_w: Any, beta: Any, min_cap_w: Any) -> Any:
    """Cap of least energy: ``P0 + sqrt(β · P0 · (P_full − P0) / (1 − β))`` within [min cap, draw]."""
    free = p0_w + np.sqrt(beta * p0_w * np.maximum(natural_w - p0_w, 0.0) / (1.0 - beta))
    return np.maximum(np.minimum(free, natural_w), min_cap_w)


def cap_beta(busy: Any) -> Any:
    """β of a model never measured, from the share of the step its device is busy: ``β_max · busy^k``."""
    law = load_constants("power")["cap_beta"]
    return law["beta_max"] * np.power(busy, law["k"])


def cap_floor_w(gpu: Gpu) -> float:
    """``P0`` of a GPU: the V100's fitted position between idle and lowest cap, applied to ``gpu``.

    Only the V100 value is measured; for A100 and H100 this is an assumption
    (:func:`cap_provenance` says so).
    """
    share: float = load_constants("power")["cap_floor"]["share_idle_to_min_cap"]
    return gpu.idle_w + share * (gpu.min_cap_w - gpu.idle_w)


def cap_provenance(gpu: Gpu) -> str:
    """``measured`` for V100 (Zeus sweeps), ``estimated`` for every other device."""
    return "measured" if gpu.name.startswith("V100") else "estimated"


def precision_factor(precision: Precision) -> float:
    """Factor of a numeric format on dynamic power at equal utilisation."""
    factor: float = load_constants("power")["precision_factor"]["values"][precision.value]
    return factor


def check_cap(gpu: Gpu, cap_w: float) -> float:
    """Return ``cap_w`` if the driver of ``gpu`` would accept it, else raise ``SettingsError``."""
    if not gpu.min_cap_w <= cap_w <= gpu.tdp_w:
        rule = f"{gpu.name} accepts caps from {gpu.min_cap_w:g} to {gpu.tdp_w:g} W"
        raise SettingsError(problem("power cap", cap_w, rule, "Choose a cap in that range"))
    return cap_w


def fit_cap_beta(cap_w: Any, step_s: Any, natural_w: float, p0_w: float) -> float:
    """β by least squares from step times measured under caps; the largest cap must not bind hard.

    Args:
        cap_w: Caps, shape ``(n,)``.
        step_s: Step time under each cap, shape ``(n,)``; the time at the largest cap is the reference.
        natural_w: Draw at the largest cap.
        p0_w: Offset of the law.
    """
    caps, times = np.asarray(cap_w, float), np.asarray(step_s, float)
    drawn = np.minimum(natural_w, caps)
    stretch = (natural_w - drawn) / (drawn - p0_w)
    slow = times / times[np.argmax(caps)] - 1.0
    norm = float(stretch @ stretch)
    return max(0.0, float(stretch @ slow) / norm) if norm > 0 else 0.0


class IdleRule(StrEnum):
    """Who pays for the power a device draws when it does nothing."""

    RESERVATION = "reservation"
    TIME = "time"
    UNALLOCATED = "unallocated"


@dataclass(frozen=True)
class EnergySplit:
    """A meter reading divided among tasks; the parts add up to the meter.

    Attributes:
        dynamic_j: Joules above idle of each task, shape ``(n_tasks,)``.
        idle_share_j: Idle joules charged to each task, shape ``(n_tasks,)``.
        unallocated_j: Idle joules charged to nobody.
        meter_j: What the meter read.
        scale: Factor applied to the tasks' estimated dynamic joules to close the sum; 1 when the
            estimates were exact.
    """

    dynamic_j: FloatArray
    idle_share_j: FloatArray
    unallocated_j: float
    meter_j: float
    scale: float

    @property
    def task_j(self) -> FloatArray:
        """Joules of each task, shape ``(n_tasks,)``."""
        return self.dynamic_j + self.idle_share_j

    @property
    def gap(self) -> float:
        """Relative difference between the parts and the meter: 0 up to rounding."""
        parts = float(self.task_j.sum()) + self.unallocated_j
        return abs(parts - self.meter_j) / max(self.meter_j, 1e-12)


def split_energy(
    meter_j: float,
    idle_j: float,
    dynamic_j: Any,
    device_s: Any,
    capacity_s: float,
    rule: IdleRule = IdleRule.RESERVATION,
) -> EnergySplit:
    """Divide a meter reading: ``Σ dynamic + Σ idle shares + unallocated idle = meter``.

    Args:
        meter_j: Joules the meter read over the window.
        idle_j: Joules the devices would have drawn idle over the window.
        dynamic_j: Estimated joules above idle of each task; rescaled so that they sum to ``meter − idle``.
        device_s: Device-seconds each task held, shape ``(n_tasks,)``.
        capacity_s: Device-seconds there were: devices · window.
        rule: ``reservation`` charges idle by ``device_s / capacity_s`` and leaves the rest unallocated;
            ``time`` charges all of it by ``device_s`` shares; ``unallocated`` charges none.
    """
    dynamic, held = np.asarray(dynamic_j, float), np.asarray(device_s, float)
    for name, value in (("meter_j", meter_j), ("idle_j", idle_j), ("dynamic_j", dynamic), ("device_s", held)):
        if not (np.isfinite(value).all() and (np.asarray(value) >= 0).all()):
            raise SettingsError(problem(name, value, "must be finite and >= 0", "Correct the reading"))
    if held.sum() > capacity_s * (1 + 1e-9):
        rule_text = f"is more than the {capacity_s:g} device-seconds there were"
        raise SettingsError(problem("device_s", float(held.sum()), rule_text, "Pass the capacity of the window"))
    above = max(meter_j - idle_j, 0.0)
    total = float(dynamic.sum())
    scale = above / total if total > 0 else 1.0
    idle = meter_j - above if total > 0 else meter_j
    weights = {
        IdleRule.RESERVATION: capacity_s,
        IdleRule.TIME: float(held.sum()),
        IdleRule.UNALLOCATED: np.inf,
    }
    base = weights[rule]
    shares = idle * held / base if base > 0 else np.zeros_like(held)
    return EnergySplit(dynamic * scale, shares, idle - float(shares.sum()), meter_j, scale)


class Meter:
    """Integrates the power of a group of devices and remembers who caused it.

    The meter adds up *total* power; tasks add up their own dynamic power. That the two agree is checked by
    :meth:`split`, not assumed.
    """

    def __init__(self, devices: int, idle_w: float) -> None:
        """Start at zero joules with ``devices`` devices of ``idle_w`` watts idle each."""
        self.devices, self.idle_w = devices, idle_w
        self.meter_j, self.window_s = 0.0, 0.0
        self._dynamic_j: dict[str, float] = {}
        self._device_s: dict[str, float] = {}

    def advance(self, duration_s: float, dynamic_w: Mapping[str, float], held: Mapping[str, float]) -> None:
        """Let ``duration_s`` pass with some tasks running.

        Args:
            duration_s: Seconds of constant power.
            dynamic_w: Task name → watts above idle it causes.
            held: Task name → devices it holds (fractions for shared devices).
        """
        self.meter_j += (self.devices * self.idle_w + sum(dynamic_w.values())) * duration_s
        self.window_s += duration_s
        for name, watts in dynamic_w.items():
            self._dynamic_j[name] = self._dynamic_j.get(name, 0.0) + watts * duration_s
        for name, count in held.items():
            self._device_s[name] = self._device_s.get(name, 0.0) + count * duration_s

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks seen so far, in the order of a split's axis."""
        return tuple(self._device_s | self._dynamic_j)

    def split(self, rule: IdleRule = IdleRule.RESERVATION) -> EnergySplit:
        """Divide what was metered so far among :attr:`tasks`."""
        return split_energy(
            self.meter_j,
            self.devices * self.idle_w * self.window_s,
            [self._dynamic_j.get(name, 0.0) for name in self.tasks],
            [self._device_s.get(name, 0.0) for name in self.tasks],
            self.devices * self.window_s,
            rule,
        )
