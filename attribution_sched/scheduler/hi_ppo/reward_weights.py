"""Reward weights: how much efficiency, utilisation and cost count, fixed, by the network's state, or by preference.

All three modes answer one question, ``weights(bandwidth_gbps, base_gbps)``, so whoever pays rewards or conditions a
policy on the weights need not know which one is in force.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.world import Reward
from attribution_sched.errors import NetworkError, SettingsError, nearest, problem
from attribution_sched.types import FloatArray


@dataclass(frozen=True)
class RewardWeights:
    """Weights of ``R = eff·R_eff + util·R_util − cost·R_cost``.

    Attributes:
        eff: Weight of training efficiency.
        util: Weight of utilisation.
        cost: Weight of cost.
    """

    eff: float
    util: float
    cost: float

    def __post_init__(self) -> None:
        for name in ("eff", "util", "cost"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                fix = "Use a non-negative number"
                raise SettingsError(problem(f"weights.{name}", value, "must be finite and >= 0", fix))
        if self.total <= 0:
            raise SettingsError(problem("weights", (0.0, 0.0, 0.0), "one must be > 0", "Raise what you care about"))

    @property
    def total(self) -> float:
        """Sum of the three."""
        return self.eff + self.util + self.cost

    @classmethod
    def of(cls, reward: Reward) -> RewardWeights:
        """The weights of a reward."""
        return cls(reward.w_eff, reward.w_util, reward.w_cost)

    def put_into(self, reward: Reward) -> Reward:
        """The same reward with these weights."""
        return replace(reward, w_eff=self.eff, w_util=self.util, w_cost=self.cost)


class WeightMode(Protocol):
    """A way to choose the weights."""

    def weights(self, bandwidth_gbps: ArrayLike, base_gbps: ArrayLike) -> RewardWeights:
        """Choose weights for a network: bandwidth now and as it usually is, both ``(K, K)``."""
        ...


@dataclass(frozen=True)
class FixedWeights:
    """The same weights in every state.

    Attributes:
        w: The weights.
    """

    w: RewardWeights

    def weights(self, bandwidth_gbps: ArrayLike, base_gbps: ArrayLike) -> RewardWeights:
        """Return the weights."""
        return self.w


@dataclass(frozen=True)
class AdaptiveWeights:
    """Traffic weighs more while the network is worse than usual, and less while it is better.

    With the congestion ``c = mean_{i≠j} (1 − B_ij / B_ij^base)``, taken over the links that exist, and S the sum of
    the base weights::

        w_cost = min(base.cost · clip(exp(sensitivity · c), 1/most, most), max(base.cost, 0.9·S))
        w_eff  = base.eff  · (S − w_cost) / (S − base.cost)
        w_util = base.util · (S − w_cost) / (S − base.cost)

    So the sum stays S and the ratio of efficiency to utilisation stays as it was, the base weights hold when c = 0,
    and a weight of 0 stays 0. At the usual ±30 % and a sensitivity of 2, the weight of cost moves between 0.55 and
    1.82 times its base.

    Attributes:
        base: Weights of a network in its usual state.
        sensitivity: Logarithm of the factor on the cost weight if all bandwidth is gone.
        most: Largest factor; its inverse is the smallest.
    """

    base: RewardWeights
    sensitivity: float = 2.0
    most: float = 3.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sensitivity) and self.sensitivity >= 0):
            fix = "Use 0 for fixed weights"
            raise SettingsError(problem("weights.sensitivity", self.sensitivity, "must be finite and >= 0", fix))
        if not (math.isfinite(self.most) and self.most >= 1):
            fix = "Use 1 for fixed weights"
            raise SettingsError(problem("weights.most", self.most, "must be finite and >= 1", fix))

    def weights(self, bandwidth_gbps: ArrayLike, base_gbps: ArrayLike) -> RewardWeights:
        """Return the weights for a network."""
        factor = math.exp(self.sensitivity * congestion(bandwidth_gbps, base_gbps))
        factor = min(max(factor, 1.0 / self.most), self.most)
        base, total = self.base, self.base.total
        rest = base.eff + base.util
        if base.cost == 0 or rest == 0:
            return base
        cost = min(base.cost * factor, max(base.cost, 0.9 * total))
        scale = (total - cost) / rest
        return RewardWeights(base.eff * scale, base.util * scale, cost)


class ParetoWeights:
    """Weights drawn anew at every call, to train one policy that is told its weights and serves them all.

    Args:
        generator: Source of chance.
        concentration: Of the Dirichlet distribution over (eff, util, cost); 1 draws evenly from all weights, less
            draws extremes, more draws balanced ones.
        total: Sum of the three weights.
    """

    def __init__(
        self,
        generator: np.random.Generator,
        concentration: tuple[float, float, float] = (1.0, 1.0, 1.0),
        total: float = 1.0,
    ) -> None:
        values = np.asarray(concentration, dtype=float)
        if values.shape != (3,) or not (np.isfinite(values).all() and (values > 0).all()):
            rule = "must be three finite numbers > 0"
            raise SettingsError(problem("weights.concentration", concentration, rule, "Use (1, 1, 1)"))
        self.generator, self.concentration, self.total = generator, values, _checked_total(total)

    def sample(self, n: int) -> FloatArray:
        """Draw n weights, shape ``(n, 3)``, columns eff, util, cost."""
        return self.total * self.generator.dirichlet(self.concentration, size=n)

    def weights(self, bandwidth_gbps: ArrayLike, base_gbps: ArrayLike) -> RewardWeights:
        """Draw weights; they do not depend on the network."""
        eff, util, cost = self.sample(1)[0].tolist()
        return RewardWeights(eff, util, cost)


MODES: tuple[str, ...] = ("fixed", "adaptive", "pareto")
"""Ways to choose weights that have a name."""


def weight_mode(name: str, base: RewardWeights, seed: int = 0) -> WeightMode:
    """The way of choosing weights that a name means, around the weights of a reward.

    Raises:
        SettingsError: If no way has this name.
    """
    checked_mode(name)
    if name == "fixed":
        return FixedWeights(base)
    if name == "adaptive":
        return AdaptiveWeights(base)
    return ParetoWeights(np.random.default_rng(seed), total=base.total)


def checked_mode(name: str) -> str:
    """The name of a way of choosing weights.

    Raises:
        SettingsError: If no way has this name.
    """
    if name not in MODES:
        raise SettingsError(problem("wishes", name, f"must be one of {MODES}", nearest(name, MODES)))
    return name


def weighed(view: Decision, mode: WeightMode | str | None) -> Decision:
    """The same decision with the weights that a way chooses for its network; None leaves them as they are."""
    if mode is None:
        return view
    if isinstance(mode, str):
        # A draw of the moment, so that the same decision is weighed alike when it is asked about again.
        mode = weight_mode(mode, RewardWeights.of(view.reward), seed=int(view.time_s))
    now = view.bandwidth_gbps if view.link_gbps is None else view.link_gbps
    wanted = mode.weights(now, view.cost.cluster.wan.bandwidth_gbps)
    return replace(view, reward=wanted.put_into(view.reward))


def congestion(bandwidth_gbps: ArrayLike, base_gbps: ArrayLike) -> float:
    """Mean share of their usual bandwidth that the links between domains lack; negative if they have more.

    Args:
        bandwidth_gbps: Bandwidth now, ``(K, K)``.
        base_gbps: Bandwidth as it usually is, ``(K, K)``; 0 where there is no link. The diagonals are not read.

    Returns:
        At most 1; 0 if there is no link at all.
    """
    now, base = np.asarray(bandwidth_gbps, dtype=float), np.asarray(base_gbps, dtype=float)
    if now.ndim != 2 or now.shape[0] != now.shape[1] or now.shape != base.shape:
        rule = "must be two square arrays of one shape"
        raise NetworkError(problem("bandwidth_gbps, base_gbps", (now.shape, base.shape), rule, "Use (K, K) for both"))
    between = ~np.eye(len(now), dtype=bool)
    for name, values in (("bandwidth_gbps", now[between]), ("base_gbps", base[between])):
        if not (np.isfinite(values).all() and (values >= 0).all()):
            wrong = values[~(np.isfinite(values) & (values >= 0))][0]
            raise NetworkError(problem(name, float(wrong), "must be finite and >= 0", "Repair the measurement"))
    links = between & (base > 0)
    return float(np.mean(1.0 - now[links] / base[links])) if links.any() else 0.0


def _checked_total(total: float) -> float:
    if not (math.isfinite(total) and total > 0):
        raise SettingsError(problem("weights.total", total, "must be finite and > 0", "Use 1"))
    return total
