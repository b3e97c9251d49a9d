"""Exact Shapley values of a decision tree, leaf by leaf: shap's interventional tree path.

With the background state z, coalition S reaches a leaf exactly if on every comparison of its way the input's owner is
in S where only x goes that way (a owners), is not in S where only z does (b owners), and nobody goes another way. Such
a leaf of value v is a game of unanimity and dummies, of which Shapley's value is known:

    φ_i += v·(a−1)!·b!/(a+b)!   for those who must be in S
    φ_i −= v·a!·(b−1)!/(a+b)!   for those who must not

The sum over leaves is the tree's; no coalition is enumerated, so thirty inputs cost no more than three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np

from attribution_sched.shapley.estimate import Estimate
from attribution_sched.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class FlatTree:
    """A decision tree that reads flat vectors.

    Attributes:
        feature: Input that a node compares; −1 at a leaf. The root is node 0.
        threshold: A row goes left where its input is at most this.
        left: Left child.
        right: Right child.
        value: What a leaf says.
    """

    feature: IntArray
    threshold: FloatArray
    left: IntArray
    right: IntArray
    value: FloatArray

    def __call__(self, x: FloatArray) -> FloatArray:
        """What it says of inputs ``(n, f)``, shape ``(n,)``."""
        node = np.zeros(len(x), dtype=np.int64)
        rows = np.arange(len(x))
        while (inner := self.feature[node] >= 0).any():
            goes = x[rows, np.maximum(self.feature[node], 0)] <= self.threshold[node]
            node = np.where(inner, np.where(goes, self.left[node], self.right[node]), node)
        return np.asarray(self.value[node], dtype=np.float64)

    def leaves(self) -> list[tuple[float, list[tuple[int, float, bool]]]]:
        """Value of each leaf and the comparisons on its way: input, threshold, whether left."""
        found, open_ = list[tuple[float, list[tuple[int, float, bool]]]](), [(0, list[tuple[int, float, bool]]())]
        while open_:
            node, way = open_.pop()
            at = int(self.feature[node])
            if at < 0:
                found.append((float(self.value[node]), way))
                continue
            limit = float(self.threshold[node])
            open_.append((int(self.left[node]), [*way, (at, limit, True)]))
            open_.append((int(self.right[node]), [*way, (at, limit, False)]))
        return found


def tree_shapley(tree: FlatTree, x: FloatArray, background: FloatArray, member: IntArray, d: int) -> FloatArray:
    """Shapley values ``(B, d)`` of what a tree says of an input ``(f,)`` against each background state ``(B, f)``.

    Args:
        tree: The tree.
        x: The input.
        background: The states.
        member: Player that owns each input, shape ``(f,)``.
        d: Number of players.
    """
    b = len(background)
    values = np.zeros((b, d))
    weight = np.array([[factorial(p) * factorial(q) / factorial(p + q + 1) for q in range(d)] for p in range(d)])
    rows = np.arange(b)
    for value, way in tree.leaves():
        own: BoolArray = np.ones(d, dtype=np.bool_)
        other: BoolArray = np.ones((b, d), dtype=np.bool_)
        for at, limit, left in way:
            own[member[at]] &= (x[at] <= limit) == left
            other[:, member[at]] &= (background[:, at] <= limit) == left
        reached = (own | other).all(axis=1)
        must, must_not = own & ~other, other & ~own
        in_, out = must.sum(axis=1), must_not.sum(axis=1)
        gain = np.where(reached & (in_ > 0), value * weight[np.maximum(in_ - 1, 0), np.minimum(out, d - 1)], 0.0)
        loss = np.where(reached & (out > 0), value * weight[np.maximum(out - 1, 0), np.minimum(in_, d - 1)], 0.0)
        values[rows] += must * gain[:, None] - must_not * loss[:, None]
    return values


def explain_tree(
    tree: FlatTree, x: FloatArray, background: FloatArray, players: Sequence[str], member: IntArray, output: str
) -> list[Estimate]:
    """Exact Shapley values of what a tree says of inputs ``(n, f)``, over the whole background.

    Args:
        tree: The tree.
        x: The inputs.
        background: States ``(B, f)`` that absent inputs are taken from; they are all there is.
        players: Names of the d players.
        member: Player that owns each input, shape ``(f,)``.
        output: What the tree's value is called.
    """
    d, base, none = len(players), np.array([float(tree(background).mean())]), np.zeros(1)
    told = []
    for row, full in zip(x, tree(x)[:, None], strict=True):
        values = tree_shapley(tree, row, background, member, d).mean(axis=0)[:, None]
        values += (full - base - values.sum(axis=0)) / d
        told.append(
            Estimate(
                tuple(players), (output,), values, np.zeros_like(values), base, none, full,
                evaluations=len(background) * len(tree.leaves()), method="exact", background=len(background), seed=0,
                reading="population",
            )
        )  # fmt: skip
    return told
