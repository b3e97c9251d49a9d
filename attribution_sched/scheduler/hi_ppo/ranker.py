"""The ranker: what experience adds to the agents' log-odds of every candidate, by a small graph network.

    h_k      = GINE(domains, links)                         free devices, next releases; bandwidth of the links
    logit(a) = κ·min(0, log π(a) − log π(own)) + f(a, mean h, max h, h of a's domain),   π of the agents
    π_high(g) ∝ Σ_{a ∈ g} exp logit(a),   π_low(a | g) = softmax of logit within g;   g = task and domain, or waiting

f is 0 before anything was learnt: then the agents decide. Critics of its own trunk say what a candidate earns over the
agents' choice, per component of R. Learnt by PPO on the fork (:mod:`~attribution_sched.scheduler.hi_ppo.fork_ppo`);
deciding needs no more than these few matrix products in numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attribution_sched.errors import ModelFitError, problem
from attribution_sched.scheduler.hi_ppo.candidate_features import EDGE, FEATURES, NODE, Described
from attribution_sched.types import FloatArray

HIDDEN, WIDE = 12, 48
"""Numbers of a domain after the encoder, and of the trunks' layers."""

_INPUT = len(FEATURES) + 3 * HIDDEN
SHAPES: dict[str, tuple[int, ...]] = {
    "centre": (len(FEATURES),), "scale": (len(FEATURES),), "kappa": (),
    "node": (len(NODE), HIDDEN), "edge": (len(EDGE), HIDDEN), "edge_bias": (HIDDEN,),
    "conv": (HIDDEN, HIDDEN), "conv_bias": (HIDDEN,),
    "policy_1": (_INPUT, WIDE), "policy_1_bias": (WIDE,), "policy_2": (WIDE, WIDE), "policy_2_bias": (WIDE,),
    "policy_3": (WIDE, 1),
    "critic_node": (len(NODE), HIDDEN), "critic_1": (_INPUT, WIDE), "critic_1_bias": (WIDE,),
    "critic_2": (WIDE, WIDE), "critic_2_bias": (WIDE,), "critic_3": (WIDE, 3),
}  # fmt: skip
"""Names and shapes of everything that is learnt."""

UPPER, LOWER = FEATURES.index("upper"), FEATURES.index("lower")


@dataclass(frozen=True, eq=False)
class Ranker:
    """The learnt numbers, by the names of :data:`SHAPES`.

    Attributes:
        arrays: What was learnt.
    """

    arrays: Mapping[str, FloatArray]

    def __post_init__(self) -> None:
        for name, shape in SHAPES.items():
            found = self.arrays.get(name)
            if found is None or found.shape != shape or not np.isfinite(found).all():
                given = "none" if found is None else found.shape
                rule = f"must be finite numbers of shape {shape}"
                raise ModelFitError(problem(f"ranker.{name}", given, rule, "Train again: attribution-sched train"))

    def logits(self, seen: Described) -> FloatArray:
        """Log-odds of the candidates, up to a constant, shape ``(A,)``."""
        w = self.arrays
        x = (seen.candidates - w["centre"]) / w["scale"]
        odds = seen.candidates[:, UPPER] + seen.candidates[:, LOWER]
        found = float(w["kappa"]) * np.minimum(odds - odds[0], 0.0) + self._trunk("policy", x, seen, w["node"])[:, 0]
        return np.asarray(found, dtype=np.float64)

    def components(self, seen: Described) -> FloatArray:
        """R_eff, R_util and R_cost that each candidate is expected to earn over the agents' choice, ``(A, 3)``."""
        w = self.arrays
        x = (seen.candidates - w["centre"]) / w["scale"]
        found = self._trunk("critic", x, seen, w["critic_node"])
        return np.asarray(found - found[:1], dtype=np.float64)

    def _trunk(self, name: str, x: FloatArray, seen: Described, node: FloatArray) -> FloatArray:
        w = self.arrays
        h = encode(seen, node, w["edge"], w["edge_bias"], w["conv"], w["conv_bias"])
        here = np.where((seen.domain >= 0)[:, None], h[np.maximum(seen.domain, 0)], 0.0)
        n = len(x)
        pooled = np.concatenate([np.repeat(h.mean(0)[None], n, 0), np.repeat(h.max(0)[None], n, 0), here], axis=1)
        y = np.concatenate([x, pooled], axis=1)
        y = np.maximum(y @ w[f"{name}_1"] + w[f"{name}_1_bias"], 0.0)
        y = np.maximum(y @ w[f"{name}_2"] + w[f"{name}_2_bias"], 0.0)
        return np.asarray(y @ w[f"{name}_3"])


def encode(
    seen: Described, node: FloatArray, edge: FloatArray, edge_bias: FloatArray, conv: FloatArray, conv_bias: FloatArray
) -> FloatArray:
    """Domains as the ranker sees them, shape ``(K, HIDDEN)``.

    One round of GINE with mean aggregation (Hu et al., ICLR 2020), h' = relu(W(h_i + mean_j relu(h_j + E·e_ji))), as
    torch-geometric has it, written densely: a cluster is a complete graph of few domains.
    """
    h = np.tanh(seen.nodes @ node)
    k = len(h)
    if k > 1:
        said = np.maximum(h[:, None, :] + seen.edges @ edge + edge_bias, 0.0)
        said[np.arange(k), np.arange(k)] = 0.0
        h = h + said.sum(axis=0) / (k - 1)
    return np.asarray(np.maximum(h @ conv + conv_bias, 0.0))


def as_levels(ranker: Ranker, seen: Described) -> list[tuple[float, float]]:
    """Log π_high and log π_low of every candidate by what was learnt: they take the place of the agents' own."""
    upper, lower = levels(ranker.logits(seen), seen.group.astype(np.float64))
    return list(zip(upper.tolist(), lower.tolist(), strict=True))


def levels(logits: FloatArray, group: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Log-probability of every candidate's upper choice, and of itself within it, each of shape ``(A,)``."""
    top = logits.max()
    weight = np.exp(logits - top)
    together = np.array([weight[group == g].sum() for g in group])
    return np.log(together / weight.sum()), np.log(weight / together)
