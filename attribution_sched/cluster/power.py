"""What a device draws, and what a power cap does to it.

A pass takes ``t`` seconds, of which the arithmetic units work ``C`` and the memory ``M``, one after the other; the rest
is launching and waiting for the host. With the working share ``u = (C + M) / t``, the compute part ``x = C / (C + M)``
and ``s(u) = 1 − (1 − u)^g``::

    P = idle + (TDP − idle) · min(1, f · s(u) · (x · a_c + (1 − x) · a_m))

``a_c`` and ``a_m`` say how far above idle a chip draws when it does nothing but arithmetic, or nothing but move memory;
``f`` is the factor of the numeric format. These are the very ``C``, ``M`` and ``t`` of the cost model, in the fit
(``calibration/fit_power.py``) as in the kernel: a launch-bound step draws idle power, decoding about half of the
rating, large matrix products nearly all of it.

A cap below the TDP is reached on average by a share ``ρ`` only: a device under it draws ``D = min(P, ρ · cap)``, and
time stretches to::

    t(D) / t(P) = 1 + β · (P − D) / (D − P0),   β = u^k · (x · β_c + (1 − x) · β_m)

so energy ``D · t(D)`` is U-shaped in the cap. Constants are fitted per chip (``constants/power.json``); a chip that was
never measured takes those of the chip it is like, and where it is like none the median: an assumption, as is the cap
law on A100 and H100.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.gpus import Gpu, Precision
from attribution_sched.errors import SettingsError, problem


def draw_w(idle_w: Any, tdp_w: Any, working: Any, compute_part: Any, factor: Any, a_c: Any, a_m: Any, g: Any) -> Any:
    """Natural draw with every constant explicit; see the module's first formula."""
    activity = (1.0 - (1.0 - working) ** g) * (compute_part * a_c + (1.0 - compute_part) * a_m)
    return idle_w + (tdp_w - idle_w) * np.minimum(1.0, factor * activity)


@dataclass(frozen=True)
class DrawLaw:
    """Constants of one chip.

    Attributes:
        a_c: Share of the range from idle to TDP that pure arithmetic draws.
        a_m: The same of pure memory traffic.
        p0_w: Constant P0 of the cap law; watts.
        beta_c: Sensitivity of arithmetic to a cap.
        beta_m: The same of memory traffic.
        measured: Whether the draw was fitted to runs of this very chip.
    """

    a_c: float
    a_m: float
    p0_w: float
    beta_c: float
    beta_m: float
    measured: bool


def draw_law(gpu: Gpu) -> DrawLaw:
    """Constants of a GPU: fitted to its chip, else to the chip it is like, else the median over all fitted chips."""
    constants = load_constants("power")
    draws, caps = constants["natural_draw"]["chips"], constants["cap"]["chips"]
    own = next((name for name in (gpu.chip, gpu.like) if name in draws), None)
    draw = draws[own] if own else constants["natural_draw"]["median"]
    # Caps were measured on fewer chips; the rest takes the V100's, its P0 by position between idle and lowest cap.
    swept = next((name for name in (gpu.chip, gpu.like) if name in caps), "V100")
    cap = caps[swept]
    p0 = cap["p0_w"] if swept == gpu.chip else gpu.idle_w + cap["p0_position"] * (gpu.min_cap_w - gpu.idle_w)
    return DrawLaw(draw["a_c"], draw["a_m"], p0, cap["beta_c"], cap["beta_m"], own == gpu.chip)


def natural_power_w(gpu: Gpu, working: Any, compute_part: Any, factor: Any = 1.0) -> Any:
    """Draw of one device without a cap, in watts; broadcasts over arrays.

    Args:
        gpu: The device.
        working: Share of the time that its units work, in [0, 1].
        compute_part: Share of that work that is arithmetic, in [0, 1].
        factor: Dynamic-power factor of the numeric format (:func:`precision_factor`).
    """
    law = draw_law(gpu)
    g = load_constants("power")["natural_draw"]["g"]
    return draw_w(gpu.idle_w, gpu.tdp_w, working, compute_part, factor, law.a_c, law.a_m, g)


def capped_w(natural_w: Any, cap_w: Any, tdp_w: Any, reached: Any) -> Any:
    """What a device draws under a cap: the natural draw where the cap is the TDP, else at most ``reached · cap``."""
    return np.minimum(natural_w, cap_w * (1.0 - (cap_w < tdp_w) * (1.0 - reached)))


def cap_slowdown(natural_w: Any, drawn_w: Any, p0_w: Any, beta: Any) -> Any:
    """Factor ≥ 1 by which drawing less stretches a step; exactly 1 where nothing is held back.

    Drawing ``P0`` or less is outside the law and gives a huge factor.
    """
    return 1.0 + beta * (natural_w - drawn_w) / np.maximum(drawn_w - p0_w, 1e-6)


def cap_reached() -> float:
    """Share of a binding cap that devices draw on average."""
    reached: float = load_constants("power")["cap"]["reached"]
    return reached


def cap_floor_w(gpu: Gpu) -> float:
    """``P0`` of a GPU."""
    return draw_law(gpu).p0_w


def precision_factor(precision: Precision) -> float:
    """Factor of a numeric format on dynamic power at equal utilisation."""
    factor: float = load_constants("power")["precision_factor"]["values"][precision.value]
    return factor


def cap_levels_w(gpu: Gpu, own_w: float, levels: tuple[float, ...]) -> list[float]:
    """Caps in watts that a task may be given on a device: its domain's own, then shares of the TDP.

    A share below what the driver accepts is the least it accepts; none is above the domain's own.
    """
    return [own_w, *(min(own_w, max(gpu.min_cap_w, level * gpu.tdp_w)) for level in levels)]


def check_levels(levels: tuple[float, ...]) -> tuple[float, ...]:
    """Return cap levels if they are shares of the TDP in descending order, else raise ``SettingsError``."""
    falling = all(a > b for a, b in zip((1.0, *levels), levels, strict=False))
    if len(levels) > MOST_LEVELS or not falling or not all(0.0 < level < 1.0 for level in levels):
        rule = f"must be at most {MOST_LEVELS} shares of the TDP below 1, in descending order"
        raise SettingsError(problem("cap_levels", list(levels), rule, "Use for example [0.9, 0.75, 0.5, 0.35]"))
    return levels


MOST_LEVELS = 8
"""Caps to choose from beside none."""


def check_cap(gpu: Gpu, cap_w: float) -> float:
    """Return ``cap_w`` if the driver of ``gpu`` would accept it, else raise ``SettingsError``."""
    if not gpu.min_cap_w <= cap_w <= gpu.tdp_w:
        rule = f"{gpu.name} accepts caps from {gpu.min_cap_w:g} to {gpu.tdp_w:g} W"
        raise SettingsError(problem("power cap", cap_w, rule, "Choose a cap in that range"))
    return cap_w


def fit_cap_beta(drawn_w: Any, step_s: Any, natural_w: float, p0_w: float) -> float:
    """β by least squares from step times measured under caps; the step that draws most is the reference.

    Args:
        drawn_w: Mean draw under each cap, shape ``(n,)``.
        step_s: Step time under each cap, shape ``(n,)``; the last one is the reference.
        natural_w: Draw without a cap.
        p0_w: Offset of the law.
    """
    drawn, times = np.minimum(natural_w, np.asarray(drawn_w, float)), np.asarray(step_s, float)
    stretch = (natural_w - drawn) / (drawn - p0_w)
    slow = times / times[-1] - 1.0
    norm = float(stretch @ stretch)
    return max(0.0, float(stretch @ slow) / norm) if norm > 0 else 0.0
