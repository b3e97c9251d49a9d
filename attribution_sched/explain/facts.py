"""What may be said of an explanation: the drivers that are certain, and whether more of an output is good."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from attribution_sched.explain.explanation import COMPONENTS, SIGNS, TOTAL, Explanation
from attribution_sched.explain.findings import Interaction, Player
from attribution_sched.stats.interval import half_width
from attribution_sched.types import FloatArray

BEHAVIOUR: tuple[str, ...] = ("decision", "log_probability", "log_odds", "choice")
"""Targets that tell what the policy does, not what a plan is worth; they do not split into reward components."""

LEAST = 0.01
"""A driver with less than this part of the sum of all sizes is not worth a sentence."""

ROUNDING = 1e-9
"""Below this part of the largest number at hand, a share is rounding, however narrow its interval."""


@dataclass(frozen=True)
class Driver:
    """A player whose share is certain.

    Attributes:
        player: The player.
        share: Its share of the output.
        half: Half-width of the share's 95 % interval.
    """

    player: Player
    share: float
    half: float


@dataclass(frozen=True)
class Drivers:
    """Drivers of one output, and what the players that are not among them add up to.

    Attributes:
        output: Name of the output.
        named: The largest first.
        rest: Sum of the shares of all others.
        others: How many these are.
    """

    output: str
    named: tuple[Driver, ...]
    rest: float
    others: int


def direction(explanation: Explanation, output: str) -> int:
    """1 if more of an output is better, −1 if less is, 0 if it does not count or is neither good nor bad.

    R_cost enters the reward with a minus sign; a component of weight 0 does not count.
    """
    if output in COMPONENTS:
        at = COMPONENTS.index(output)
        weight = 1.0 if explanation.weights is None else explanation.weights[at]
        return int(np.sign(SIGNS[at] * weight))
    return 1 if output == TOTAL or explanation.target in BEHAVIOUR else 0


def half_widths(explanation: Explanation, level: float = 0.95) -> FloatArray:
    """Half-widths of all intervals, shape ``(P, C)``."""
    low, high = explanation.interval(level)
    found: FloatArray = (high - low) / 2
    return found


def trifle(explanation: Explanation, output: str) -> float:
    """Size up to which a share of an output is rounding."""
    c = explanation.column(output)
    scale = max(abs(float(explanation.base[c])), abs(float(explanation.value[c])))
    return ROUNDING * max(scale, float(np.abs(explanation.values[:, c]).max(initial=0.0)))


def rounded(explanation: Explanation, output: str, amount: float) -> float:
    """An amount of an output, 0 if it is rounding."""
    return 0.0 if abs(amount) <= trifle(explanation, output) else amount


def sure(explanation: Explanation, output: str) -> NDArray[np.bool_]:
    """Players whose interval does not include 0 and whose share is more than rounding, shape ``(P,)``."""
    shares = explanation.values[:, explanation.column(output)]
    found: NDArray[np.bool_] = explanation.significant(output) & (np.abs(shares) > trifle(explanation, output))
    return found


def shown(explanation: Explanation, output: str, most: int) -> list[int]:
    """Players that get a row of their own, the largest first; if any is left over, one row of ``most`` is kept free.

    Players whose share is rounding, or 0, are left over.
    """
    shares = explanation.values[:, explanation.column(output)]
    order = [i for i in explanation.drivers(output) if abs(shares[i]) > trifle(explanation, output)]
    return order if len(order) == len(shares) <= most else order[: most - 1]


def drivers(explanation: Explanation, output: str, most: int) -> Drivers:
    """The drivers that may be named: certain, and large enough to matter if any is."""
    c = explanation.column(output)
    shares, half, certain = explanation.values[:, c], half_widths(explanation)[:, c], sure(explanation, output)
    order = [i for i in explanation.drivers(output, sure=True) if certain[i]]
    enough = LEAST * float(np.abs(shares).sum())
    kept = ([i for i in order if abs(shares[i]) >= enough] or order)[:most]
    named = tuple(Driver(explanation.players[i], float(shares[i]), float(half[i])) for i in kept)
    rest = rounded(explanation, output, float(shares.sum() - shares[kept].sum()))
    return Drivers(output, named, rest, len(shares) - len(kept))


def interaction(explanation: Explanation) -> tuple[Interaction, float] | None:
    """The strongest interaction whose interval does not include 0, with the half-width of that interval."""

    def half(pair: Interaction) -> float:
        return float(half_width(pair.standard_error, pair.degrees or inf))

    certain = [pair for pair in explanation.interactions if abs(pair.value) > max(half(pair), 0.0)]
    scales = {output: float(np.abs(explanation.values[:, c]).sum()) for c, output in enumerate(explanation.outputs)}
    worth = [pair for pair in certain if abs(pair.value) >= LEAST * scales.get(pair.output, 0.0)]
    if not worth:
        return None
    best = max(worth, key=lambda pair: (pair.output == explanation.main, abs(pair.value)))
    return best, half(best)


def idle(explanation: Explanation, output: str) -> bool:
    """Whether no input moves an output at all: shares and errors are rounding."""
    c, least = explanation.column(output), trifle(explanation, output)
    sizes = np.abs(explanation.values[:, c]) + explanation.standard_error[:, c]
    # What is as large as the largest share is no rounding, so that share itself must be measured against the output.
    least = min(least, ROUNDING * max(abs(float(explanation.base[c])), abs(float(explanation.value[c]))))
    return bool((sizes <= least).all())


def told_before(explanation: Explanation, plan: str) -> bool:
    """Whether the opening sentence has named this plan as the other one, so that it need not be spelt out again."""
    runner_up = explanation.confidence.runner_up if explanation.confidence else ""
    return plan == (explanation.against or runner_up) and bool(plan)


def per_output(explanation: Explanation) -> list[str]:
    """Outputs in the order they are told: the main one, then the others."""
    return [explanation.main, *(output for output in explanation.outputs if output != explanation.main)]
