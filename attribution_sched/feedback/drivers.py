"""Which drivers the measured outcomes bear out, which they contradict, and how the components hang together.

An explanation claims that a decision earned ``base + Σ_p φ_p`` of a component. Over a window, a driver is
*contradicted* if outcomes are predicted better without its shares than with them, and *supported* if they are predicted
worse: a paired test of squared errors over the decisions in which the driver is certain. The level of the errors is
taken out first, so that a critic that is off by a constant blames nobody. Contradicted drivers are taken out one by
one, the worst first, so that one false claim does not discredit its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attribution_sched.explain.explanation import COMPONENTS, SIGNS
from attribution_sched.explain.stacking import Stack, stack
from attribution_sched.feedback.targets import FeedbackSettings
from attribution_sched.feedback.window import Window
from attribution_sched.stats.interval import standard_error
from attribution_sched.types import BoolArray, FloatArray

Damping = Mapping[str, Mapping[str, float]]
"""Component → player → multiplier in [floor, 1]; 1 where nothing is said."""


TESTABLE = 0.25
"""Part of a claim's square that must differ between decisions for outcomes to speak for it."""


@dataclass(frozen=True)
class DriverEvidence:
    """What outcomes say of one driver's claim.

    Attributes:
        player: The driver.
        component: R_eff, R_util or R_cost.
        decisions: Decisions in which its share is certain.
        claimed: Mean size of its shares there.
        measured: Mean of what outcomes show in the direction of the claim: the rest of the explanation taken off, and
            the common level. Equal to ``claimed`` if it is borne out.
        slope: Measured effect per unit of claimed share; 1 if borne out, 0 if there is none, negative if it pulls
            the other way.
        p_value: Of the test that decided; one-sided.
        contradicted: Whether outcomes speak against it.
        supported: Whether they speak for it.
    """

    player: str
    component: str
    decisions: int
    claimed: float
    measured: float
    slope: float
    p_value: float
    contradicted: bool
    supported: bool


def evidence(window: Window, settings: FeedbackSettings) -> list[DriverEvidence]:
    """Hold every certain driver of the window against the outcomes; empty if too few decisions were explained."""
    rows = window.comparable()
    if len(rows) < settings.fewest:
        return []
    explanations = [explanation for i in rows if (explanation := window.explanations[i]) is not None]
    terms = window.terms()[rows]
    stacks = [stack(explanations, component) for component in COMPONENTS]
    tests = max(1, sum(int((one.certain.sum(axis=0) >= settings.fewest).sum()) for one in stacks))
    # Many drivers are tested at once; Bonferroni keeps one false alarm in 1/(1 − level) windows.
    alpha = (1.0 - settings.level) / tests
    drivers: list[DriverEvidence] = []
    for c, one in enumerate(stacks):
        drivers += _component(one, terms[:, c], alpha, settings.fewest)
    return drivers


def _component(one: Stack, measured: FloatArray, alpha: float, fewest: int) -> list[DriverEvidence]:
    shares = np.nan_to_num(one.shares)
    known = [p for p in range(len(one.players)) if one.certain[:, p].sum() >= fewest]
    believed, against = list(range(len(one.players))), []
    while True:
        error = measured - one.base - shares[:, believed].sum(axis=1)
        tested = [(p, *_test(error, shares[:, p], one.certain[:, p])) for p in believed if p in known]
        worst = max((row for row in tested if row[2] < alpha), key=lambda row: row[1], default=None)
        if worst is None:
            break
        against.append(_evidence(one, worst[0], error, shares, worst[2], contradicted=True))
        believed.remove(worst[0])
    rest = [
        _evidence(one, p, error, shares, min(worse, better), supported=better < alpha) for p, _, worse, better in tested
    ]
    return against + rest


def _test(error: FloatArray, share: FloatArray, certain: BoolArray) -> tuple[float, float, float]:
    """Gain of leaving a driver out, with the probabilities of so large and so small a gain by chance."""
    from scipy.special import stdtr

    with_it, without = _level(error), _level(error + share)
    gain = (with_it**2 - without**2)[certain]
    n, spread = len(gain), float(gain.std(ddof=1))
    total = float(gain.sum())
    if spread <= 1e-12 * max(1e-12, float(np.abs(gain).max())):
        chance = 0.5 if total == 0.0 else float(total < 0.0)
    else:
        chance = float(stdtr(n - 1, -gain.mean() / standard_error(gain)))
    return total, chance, 1.0 - chance


def _evidence(
    one: Stack,
    p: int,
    error: FloatArray,
    shares: FloatArray,
    p_value: float,
    *,
    contradicted: bool = False,
    supported: bool = False,
) -> DriverEvidence:
    certain = one.certain[:, p]
    claim, seen = _level(shares[:, p])[certain], _level(error + shares[:, p])[certain]
    square = float(claim @ claim)
    # What is claimed of every decision alike cannot be told from the common level, so it earns no trust.
    supported = supported and square >= TESTABLE * float(shares[certain, p] @ shares[certain, p])
    slope = float(claim @ seen) / square if square > 0 else 1.0
    size = float(np.abs(shares[certain, p]).mean())
    return DriverEvidence(
        one.players[p].name, one.output, int(certain.sum()), size, slope * size, slope, p_value, contradicted, supported
    )


def _level(values: FloatArray) -> FloatArray:
    centred: FloatArray = values - values.mean()
    return centred


def damped(before: Damping, drivers: list[DriverEvidence], settings: FeedbackSettings) -> dict[str, dict[str, float]]:
    """Multipliers after a window: down toward what is borne out where contradicted, up where supported."""
    after = {component: dict(players) for component, players in before.items()}
    for driver in drivers:
        trust = after.setdefault(driver.component, {})
        old = trust.get(driver.player, 1.0)
        if driver.contradicted:
            goal = min(max(driver.slope, settings.damping_floor), 1.0)
            trust[driver.player] = min(old, max(goal, old - settings.damping_step))
        elif driver.supported and old < 1.0:
            trust[driver.player] = min(1.0, old + settings.damping_step)
    doubted = {c: {p: m for p, m in trust.items() if m < 1.0} for c, trust in after.items()}
    return {c: trust for c, trust in doubted.items() if trust}


@dataclass(frozen=True)
class Coupling:
    """Whether what drives one component to the good drives another there, too.

    Attributes:
        matrix: Cosines of the certain shares, each signed so that more is better and those of damped drivers reduced; 1
            on the diagonal, (3, 3).
        advocates: Per pair of components the driver behind most of it, and its part of the sum of sizes.
        decisions: Explained decisions behind it.
    """

    matrix: FloatArray
    advocates: Mapping[tuple[str, str], tuple[str, float]]
    decisions: int


def coupling(window: Window, damping: Damping, settings: FeedbackSettings) -> Coupling:
    """How the components hang together in the window; the identity if too few decisions were explained."""
    rows = window.comparable()
    if len(rows) < settings.fewest:
        return Coupling(np.eye(3), {}, 0)
    explanations = [explanation for i in rows if (explanation := window.explanations[i]) is not None]
    pulls, sizes = [], []
    for component, sign in zip(COMPONENTS, SIGNS, strict=True):
        one = stack(explanations, component)
        trust = np.array([damping.get(component, {}).get(player.name, 1.0) for player in one.players])
        claimed = np.where(one.certain, np.nan_to_num(one.shares), 0.0)
        pulls.append(claimed * trust * sign)
        # Sizes are those claimed: where a large part is not trusted, little is left, not the rest made large.
        sizes.append(float(np.sqrt((claimed**2).sum())))
    names = [player.name for player in one.players]
    together = np.array([[(a * b).sum() for b in pulls] for a in pulls])
    scale = np.outer(sizes, sizes)
    matrix = np.divide(together, scale, out=np.zeros((3, 3)), where=scale > 0)
    np.fill_diagonal(matrix, 1.0)
    advocates = {}
    for a, first in enumerate(COMPONENTS):
        for b, second in enumerate(COMPONENTS):
            each = np.abs((pulls[a] * pulls[b]).sum(axis=0))
            if a != b and each.sum() > 0:
                advocates[first, second] = (names[int(each.argmax())], float(each.max() / each.sum()))
    return Coupling(matrix, advocates, len(rows))
