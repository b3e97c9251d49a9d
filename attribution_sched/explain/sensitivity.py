"""Quantities of a decision that can be turned up and down one at a time, each in its own unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import ATTRIBUTIONS, Decisions
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine.engine import DAY_S, GROUPS
from attribution_sched.explain.players import QUEUE_LENGTH, STEPS_LEFT, WAITED
from attribution_sched.types import FloatArray

GRID = 17
"""Values tried of every continuous quantity before the threshold is narrowed down."""

Apply = Callable[[Decisions, FloatArray], None]
"""Writes one value per row into decisions that may be written to."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """One quantity of one player.

    Attributes:
        player: The player.
        quantity: What is turned, such as ``bandwidth``.
        unit: Its unit.
        value: What it is in the decision.
        spread: How much it usually varies: its standard deviation over the background.
        values: Values to try, ascending.
        whole: Whether only whole numbers make sense.
        apply: Writes values into situations.
    """

    player: str
    quantity: str
    unit: str
    value: float
    spread: float
    values: FloatArray
    whole: bool
    apply: Apply


def copies(decision: Decisions, n: int) -> Decisions:
    """So many copies of one decision, free to be written to."""
    return Decisions(**{f.name: np.repeat(getattr(decision, f.name), n, axis=0) for f in fields(Decisions)})


def sweeps(decision: Decisions, background: Decisions, domains: tuple[str, ...], devices: list[int]) -> list[Sweep]:
    """Everything that can be turned at a decision.

    Args:
        decision: It, with its task as candidate 0.
        background: States that tell how much each quantity usually varies.
        domains: Names of the domains.
        devices: Devices of each.
    """
    found = [*_links(decision, background, domains), *_loads(decision, background, domains, devices)]
    if not decision.replanning[0]:
        found += _queue(decision, background)
    found += _task(decision, background)
    for c, name in enumerate(DEMAND_NAMES[:ATTRIBUTIONS]):
        own = float(decision.attribution[0, 0, c])
        spread = _spread(background.attribution[:, 0, c], own)
        grid = np.linspace(-1.0, 1.0, GRID)
        found.append(Sweep(f"attribution {name}", "attribution", "", own, spread, grid, False, _set_attribution(c)))
    for c, name in enumerate(("w_eff", "w_util", "w_cost")):
        own = float(decision.weights[0, c])
        spread = _spread(background.weights[:, c], own)
        grid = np.linspace(0.0, max(4.0 * own, 1.0), GRID)
        found.append(Sweep("reward weights", name, "", own, spread, grid, False, _set_weight(c)))
    return found


def _spread(values: NDArray[Any], own: float) -> float:
    """Standard deviation over the background; a tenth of the value where nothing varies."""
    found = float(np.std(values))
    return found if found > 1e-9 else max(0.1 * abs(own), 1e-3)


def _links(decision: Decisions, background: Decisions, domains: tuple[str, ...]) -> list[Sweep]:
    found = []
    for i in range(len(domains)):
        for j in range(i + 1, len(domains)):
            player = f"link {domains[i]}–{domains[j]}"
            for row, quantity, unit, scale in ((0, "bandwidth", "Gb/s", 1.0), (1, "latency", "ms", 1e3)):
                own = scale * float(decision.links[0, row, [i, j], [j, i]].mean())
                if own <= 0.0:
                    continue
                seen = scale * background.links[:, row, [i, j], [j, i]].mean(axis=1)
                grid = own * np.geomspace(0.02, 10.0, GRID)
                apply = _set_link(i, j, row, scale)
                found.append(Sweep(player, quantity, unit, own, _spread(seen, own), grid, False, apply))
    return found


def _set_link(i: int, j: int, row: int, scale: float) -> Apply:
    def apply(d: Decisions, values: FloatArray) -> None:
        now = scale * d.links[:, row, [i, j], [j, i]].mean(axis=1)
        for a, b in ((i, j), (j, i)):
            d.links[:, row, a, b] *= values / now
            if row == 0:
                # What is expected of the link moves with it.
                d.links[:, 3, a, b] *= values / now

    return apply


def _loads(decision: Decisions, background: Decisions, domains: tuple[str, ...], devices: list[int]) -> list[Sweep]:
    found = []
    for i, name in enumerate(domains):
        own = float(decision.free[0, i])
        grid = np.unique(np.round(np.linspace(0, devices[i], min(GRID, devices[i] + 1))))
        spread = _spread(background.free[:, i], own)
        apply = _set_free(i, devices[i])
        found.append(Sweep(f"load {name}", "free devices", "devices", own, spread, grid, True, apply))
    return found


def _set_free(domain: int, devices: int) -> Apply:
    def apply(d: Decisions, values: FloatArray) -> None:
        before = d.free[:, domain]
        busy = 1.0 - values / devices
        # Instruments tell of the same: utilisation of compute and memory follow the devices in use.
        share = np.where(before < devices, busy / np.maximum(1.0 - before / devices, 1e-9), 0.0)
        shown = d.domains[:, domain, : 2 * GROUPS]
        moved = np.where((before < devices)[:, None], shown * share[:, None], busy[:, None])
        d.domains[:, domain, : 2 * GROUPS] = np.clip(moved, 0.0, 1.0)
        d.free[:, domain] = values.astype(np.int64)

    return apply


def _queue(decision: Decisions, background: Decisions) -> list[Sweep]:
    others = int((decision.kind[0, 1:] >= 0).sum())
    if others == 0:
        return []
    own = float(decision.waiting[0])
    grid = own - np.arange(others, -1.0, -1.0)
    spread = _spread(background.waiting, own)

    def apply(d: Decisions, values: FloatArray) -> None:
        kept = values - d.waiting + others
        gone = np.arange(d.kind.shape[1] - 1) >= kept[:, None]
        d.kind[:, 1:] = np.where(gone, -1, d.kind[:, 1:])
        d.domains[:, :, QUEUE_LENGTH] *= (values / np.maximum(d.waiting, 1))[:, None]
        d.waiting[:] = values.astype(np.int64)

    return [Sweep("queue", "tasks waiting", "tasks", own, spread, grid, True, apply)]


def _task(decision: Decisions, background: Decisions) -> list[Sweep]:
    def set_left(d: Decisions, values: FloatArray) -> None:
        d.left[:, 0] = values
        d.event[:, STEPS_LEFT] = np.minimum(1.0, np.log10(np.maximum(1.0, values)) / 8.0)

    def set_waited(d: Decisions, values: FloatArray) -> None:
        d.waited_s[:, 0] = 3600.0 * values
        d.event[:, WAITED] = np.minimum(1.0, 3600.0 * values / DAY_S)

    left, waited_h = float(decision.left[0, 0]), float(decision.waited_s[0, 0]) / 3600.0
    grid = np.geomspace(max(1.0, left / 100.0), max(2.0, left * 100.0), GRID)
    found = [
        Sweep("work left", "work left", "steps", left, _spread(background.left[:, 0], left), grid, False, set_left)
    ]
    if not decision.replanning[0]:
        spread = _spread(background.waited_s[:, 0] / 3600.0, waited_h)
        hours = np.linspace(0.0, max(24.0, 2.0 * waited_h), GRID)
        found.append(Sweep("waited", "time waited", "h", waited_h, spread, hours, False, set_waited))
    return found


def _set_attribution(c: int) -> Apply:
    def apply(d: Decisions, values: FloatArray) -> None:
        d.attribution[:, 0, c] = values

    return apply


def _set_weight(c: int) -> Apply:
    def apply(d: Decisions, values: FloatArray) -> None:
        d.weights[:, c] = values

    return apply
