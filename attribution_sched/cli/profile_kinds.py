"""A measured model among the tasks of a preset: the nearest kind, its usual counters, and where its joules go."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attribution_sched.cli.profile_measure import Figure, Measured

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.cluster.world import TaskKind, World

TRAINING_FLOPS = 3.0
"""Forward and backward over forward alone."""

SIZE_WEIGHT = 0.25
"""A factor of ten in FLOPs per sample counts as much as a quarter of the arithmetic being of another sort."""

FARTHEST = 4.0
"""Standard deviations from the tasks an energy model was fitted on beyond which it would only be guessing."""

GROUPS: tuple[str, ...] = ("conv", "fc", "attention")


@dataclass(frozen=True, eq=False)
class Placed:
    """A model as a task of a preset.

    Attributes:
        kind: Row of the kind in the preset.
        model: Name of its model.
        nearest: Kinds by how near they are, the nearest first, with their distance.
        chosen: Whether the user named the kind.
        counters: The scheduler's counters, those that could not be measured taken from the kind.
    """

    kind: int
    model: str
    nearest: tuple[tuple[str, float], ...]
    chosen: bool
    counters: Mapping[str, Figure]


def as_task(found: Measured, world: World, wanted: str | None) -> Placed:
    """Find the kind of task a model is nearest to, and fill in what could not be measured.

    Args:
        found: The measurement.
        world: Of the preset.
        wanted: Name of a kind; the nearest by default.

    Raises:
        TaskError: If the preset has no such kind.
    """
    from attribution_sched.session.submission import TaskRequest, kind_of

    order = sorted(range(len(world.kinds)), key=lambda row: distance(found, world.kinds[row]))
    listed: dict[str, float] = {}
    for row in order:
        listed.setdefault(world.kinds[row].model.name, distance(found, world.kinds[row]))
    row = order[0] if wanted is None else kind_of(world, TaskRequest(wanted))
    return Placed(
        row, world.kinds[row].model.name, tuple(listed.items()), wanted is not None, _filled(found, world.kinds[row])
    )


def having(worlds: Mapping[str, World], wanted: str) -> dict[str, World]:
    """The presets that have a kind of task.

    Raises:
        TaskError: If none has it.
    """
    from attribution_sched.errors import TaskError, nearest, problem

    named = {name: {kind.model.name.lower() for kind in world.kinds} for name, world in worlds.items()}
    found = {name: world for name, world in worlds.items() if wanted.lower() in named[name]}
    if not found:
        rule = f"is not a kind of task of {' or '.join(worlds)}"
        raise TaskError(problem("--submit-as", wanted, rule, nearest(wanted, set().union(*named.values()))))
    return found


def nearest_world(found: Measured, worlds: Mapping[str, World]) -> str:
    """Name of the preset with the kind of task that is nearest."""
    return min(worlds, key=lambda name: min(distance(found, kind) for kind in worlds[name].kinds))


def distance(found: Measured, kind: TaskKind) -> float:
    """How unlike a kind of task a model is: by the sorts of its arithmetic, and by how much of it a sample takes."""
    flops = {group: found.operators.flops[group] for group in GROUPS}
    theirs = {group: float(kind.model.column(f"{group}_flops").sum()) for group in GROUPS}
    total, known = sum(flops.values()), sum(theirs.values())
    if total <= 0 or known <= 0:
        return math.inf if known > 0 else 0.0
    mix = sum(abs(flops[group] / total - theirs[group] / known) for group in GROUPS) / 2
    per_sample = total / (found.samples or 1) / (TRAINING_FLOPS if found.training else 1.0)
    return mix + SIZE_WEIGHT * abs(math.log10(per_sample / known))


def _filled(found: Measured, kind: TaskKind) -> dict[str, Figure]:
    import numpy as np

    from attribution_sched.cluster.counters import COUNTER_NAMES, COUNTER_UNITS, true_rates
    from attribution_sched.cluster.demands import draw_demands

    usual = true_rates(draw_demands([kind.model], np.random.default_rng(0), 0.0))[0]
    filled: dict[str, Figure] = {}
    for name, value in zip(COUNTER_NAMES, usual.tolist(), strict=True):
        figure = found.counters[name]
        if figure.value is None:
            why = f"what {kind.model.name} usually shows in the simulation; here: {figure.how}"
            figure = Figure(value, COUNTER_UNITS[name], "simulated", why)
        filled[name] = figure
    return filled


def joules(placed: Placed, world: World) -> tuple[AttributionVector | None, str]:
    """Where the joules go by the preset's energy model: per sample, above the preset's typical task.

    Returns:
        The attribution and how it was got; None, and why, if the model knows no tasks like this one.
    """
    import numpy as np

    from attribution_sched.attributor import as_attributor, simulated_attributor

    values = np.array([figure.value for figure in placed.counters.values()], dtype=np.float64)
    attributor = simulated_attributor(world)
    far = np.abs(attributor.standardised(values[None])[0])
    worst = int(far.argmax())
    if far[worst] > FARTHEST:
        name = attributor.names[worst]
        away = f"{name} lies {far[worst]:.0f} standard deviations from theirs"
        return None, f"the preset's energy model knows no such tasks: {away}"
    how = "estimated by the preset's energy model of simulated tasks on its GPUs, not a reading of this machine"
    return as_attributor(attributor, world).vector(values), f"{how} (R² {attributor.r_squared:.2f})"


def submission(placed: Placed) -> dict[str, Any]:
    """What ``System.submit`` takes, and how each number of it was got."""
    return {
        "kind": placed.model,
        "counters": {name: figure.value for name, figure in placed.counters.items()},
        "provenance": {name: figure.provenance for name, figure in placed.counters.items()},
    }
