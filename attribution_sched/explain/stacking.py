"""Many explanations as arrays over the union of their players, and as one ``shap.Explanation``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain import facts
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.findings import Player
from attribution_sched.types import BoolArray, FloatArray

if TYPE_CHECKING:
    import shap


@dataclass(frozen=True, eq=False)
class Stack:
    """One output of N explanations over the union of their P players; NaN where a decision lacks a player.

    Attributes:
        output: The output.
        decisions: Identifiers, in the order given.
        players: Each as in the first decision that has it.
        shares: φ, shape ``(N, P)``.
        certain: Whether the interval excludes 0, shape ``(N, P)``.
        numbers: Main numbers of the players, shape ``(N, P)``.
        usual: What these are on average in the background, shape ``(N, P)``.
        base: Mean output over the background, shape ``(N,)``.
    """

    output: str
    decisions: tuple[str, ...]
    players: tuple[Player, ...]
    shares: FloatArray
    certain: BoolArray
    numbers: FloatArray
    usual: FloatArray
    base: FloatArray

    @property
    def present(self) -> BoolArray:
        """Which decisions have which players, shape ``(N, P)``."""
        found: BoolArray = ~np.isnan(self.shares)
        return found

    def mean_size(self) -> FloatArray:
        """Mean of |φ| over the decisions that have the player, shape ``(P,)``."""
        return _mean(np.abs(self.shares), self.present)

    def order(self, most: int | None = None) -> list[int]:
        """Players by their mean size, the largest first; those without any share are left out, if others have one."""
        sizes = self.mean_size()
        ranked = [int(i) for i in np.argsort(-sizes, kind="stable")]
        return ([i for i in ranked if sizes[i] > facts.ROUNDING * sizes.max(initial=0.0)] or ranked)[:most]


def stack(explanations: Sequence[Explanation], output: str | None = None) -> Stack:
    """Put explanations side by side.

    Args:
        explanations: At least one, all of the same output.
        output: Which; the main one of the first by default.

    Raises:
        ExplanationError: If there is none, or one does not have the output.
    """
    if not explanations:
        raise ExplanationError(problem("explanations", [], "there must be at least one", "Explain some decisions"))
    output = output or explanations[0].main
    players: dict[str, Player] = {}
    for explanation in explanations:
        for player in explanation.players:
            players.setdefault(player.name, player)
    at = {name: p for p, name in enumerate(players)}
    shape = (len(explanations), len(players))
    shares, numbers, usual = (np.full(shape, np.nan) for _ in range(3))
    certain = np.zeros(shape, dtype=np.bool_)
    for n, explanation in enumerate(explanations):
        columns = [at[name] for name in explanation.names]
        shares[n, columns] = explanation.values[:, explanation.column(output)]
        certain[n, columns] = facts.sure(explanation, output)
        numbers[n, columns] = [player.number for player in explanation.players]
        usual[n, columns] = [player.usual_number for player in explanation.players]
    base = np.array([float(explanation.base[explanation.column(output)]) for explanation in explanations])
    decisions = tuple(explanation.decision for explanation in explanations)
    return Stack(output, decisions, tuple(players.values()), shares, certain, numbers, usual, base)


def stack_shap(explanations: Sequence[Explanation], output: str | None = None) -> shap.Explanation:
    """Many explanations as one, for shap's beeswarm, bar and heatmap; a player that a decision lacks has share 0.

    Args:
        explanations: At least one, all of the same output.
        output: Which; the main one of the first by default.
    """
    import shap

    found = stack(explanations, output)
    return shap.Explanation(
        values=np.nan_to_num(found.shares),
        base_values=found.base,
        data=found.numbers,
        feature_names=[player.name for player in found.players],
        compute_time=float(sum(explanation.seconds for explanation in explanations)),
    )


def _mean(values: FloatArray, present: BoolArray) -> FloatArray:
    count = np.maximum(present.sum(axis=0), 1)
    found: FloatArray = np.where(present, values, 0.0).sum(axis=0) / count
    return found
