"""Gradient-boosted trees: grown by scikit-learn, kept as plain arrays, evaluated by a small compiled loop.

Plain arrays can be saved without pickle and give the same bits after loading, because the same loop adds the
same leaves in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.attribution.energy_features import CounterFeatures
from attribution_sched.errors import CheckpointError, problem
from attribution_sched.types import FloatArray

N_TREES, LEARNING_RATE, MAX_LEAVES = 200, 0.06, 15


@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    """All trees in one row of nodes; children are absolute positions, a leaf is its own child.

    Attributes:
        baseline: Prediction before any tree, ``(1,)``.
        roots: Position of each tree's root, ``(n_trees,)``.
        feature: Feature compared at each node; -1 at a leaf.
        threshold: A row goes left where its feature is at most this.
        left: Position of the left child.
        right: Position of the right child.
        value: What a leaf adds to the prediction.
    """

    baseline: FloatArray
    roots: NDArray[np.int64]
    feature: NDArray[np.int64]
    threshold: FloatArray
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: FloatArray

    def predict(self, x: FloatArray) -> FloatArray:
        """Predict rows ``(n, d)``, giving ``(n,)``."""
        rows = np.ascontiguousarray(x, dtype=np.float64)
        arrays = (self.roots, self.feature, self.threshold, self.left, self.right, self.value)
        return np.asarray(_kernel()(rows, float(self.baseline[0]), *arrays))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything needed to rebuild the ensemble."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]], n_features: int) -> TreeEnsemble:
        """Rebuild an ensemble, refusing arrays that could send the loop outside them or round in circles."""
        trees = TreeEnsemble(**{f.name: arrays[f.name] for f in fields(TreeEnsemble)})
        n = len(trees.feature)
        here = np.arange(n)
        leaf = trees.feature < 0
        sound = len({len(a) for a in (trees.threshold, trees.left, trees.right, trees.value)} | {n}) == 1
        sound = sound and bool((trees.feature < n_features).all() and (trees.roots >= 0).all())
        sound = sound and bool((trees.roots < n).all() and trees.baseline.shape == (1,))
        # Children lie to the right of their parent, so every walk ends.
        for child in (trees.left, trees.right):
            sound = sound and bool(((child > here) | leaf).all() and (child < n).all())
        if not sound:
            raise CheckpointError(
                problem("trees", n, "node arrays contradict each other", "The file was tampered with: save again")
            )
        return trees


@lru_cache(maxsize=1)
def _kernel() -> Any:
    import numba

    @numba.njit(cache=False)  # type: ignore[untyped-decorator]
    def predict(
        x: Any, baseline: Any, roots: Any, feature: Any, threshold: Any, left: Any, right: Any, value: Any
    ) -> Any:
        out = np.full(x.shape[0], baseline)
        for root in roots:
            for i in range(x.shape[0]):
                node = root
                while feature[node] >= 0:
                    node = left[node] if x[i, feature[node]] <= threshold[node] else right[node]
                out[i] += value[node]
        return out

    return predict


def fit_trees(x: FloatArray, y: FloatArray, seed: int) -> TreeEnsemble:
    """Grow trees on rows ``(n, d)`` for the absolute error, which shrugs off seconds that straddle two loads.

    Args:
        x: Features.
        y: Targets.
        seed: Seed of the growth.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    grower = HistGradientBoostingRegressor(
        loss="absolute_error",
        learning_rate=LEARNING_RATE,
        max_iter=N_TREES,
        max_leaf_nodes=MAX_LEAVES,
        min_samples_leaf=min(20, max(2, len(x) // 20)),
        early_stopping=False,
        random_state=seed,
    ).fit(x, y)
    return export_trees(grower)


def export_trees(grower: Any) -> TreeEnsemble:
    """Copy the trees of a fitted ``HistGradientBoostingRegressor`` with numeric features."""
    nodes = [stage[0].nodes for stage in grower._predictors]
    starts = np.cumsum([0, *(len(n) for n in nodes)])
    joined = np.concatenate(nodes)
    offset = np.repeat(starts[:-1], [len(n) for n in nodes])
    leaf = joined["is_leaf"].astype(bool)
    here = np.arange(len(joined))
    return TreeEnsemble(
        baseline=np.asarray(grower._baseline_prediction, dtype=np.float64).reshape(1),
        roots=starts[:-1].astype(np.int64),
        feature=np.where(leaf, -1, joined["feature_idx"]).astype(np.int64),
        threshold=np.where(leaf, 0.0, joined["num_threshold"]).astype(np.float64),
        left=np.where(leaf, here, joined["left"].astype(np.int64) + offset).astype(np.int64),
        right=np.where(leaf, here, joined["right"].astype(np.int64) + offset).astype(np.int64),
        value=joined["value"].astype(np.float64),
    )


@dataclass(frozen=True, eq=False)
class BoostingPredictor:
    """Trees over counters and their ratios."""

    features: CounterFeatures
    trees: TreeEnsemble

    @staticmethod
    def fit(x: FloatArray, y: FloatArray, names: tuple[str, ...], seed: int) -> BoostingPredictor:
        """Fit on counters ``(n, d)``."""
        features = CounterFeatures.fit(x, names)
        return BoostingPredictor(features, fit_trees(features.trees(x), y, seed))

    def predict(self, x: FloatArray) -> FloatArray:
        """Predict counters ``(n, d)``."""
        return self.trees.predict(self.features.trees(x))
