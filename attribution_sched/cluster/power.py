"""What a device draws, and what a power cap does to it.

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

from typing import Any

import numpy as np

from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.gpus import Gpu, Precision
from attribution_sched.errors import SettingsError, problem


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


def cap_beta(busy: Any) -> Any:
    """β of a model never measured, from the share of the step its device is busy: ``β_max · busy^k``."""
    law = load_constants("power")["cap_beta"]
    return law["beta_max"] * np.power(busy, law["k"])


def cap_floor_w(gpu: Gpu) -> float:
    """``P0`` of a GPU: the V100's fitted position between idle and lowest cap, applied to ``gpu``.

    Only the V100 value is measured; for A100 and H100 this is an assumption.
    """
    share: float = load_constants("power")["cap_floor"]["share_idle_to_min_cap"]
    return gpu.idle_w + share * (gpu.min_cap_w - gpu.idle_w)


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
