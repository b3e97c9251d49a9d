"""The global view: what drives many decisions, per input and per family of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from attribution_sched.errors import ExplanationError, nearest, problem
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.stacking import stack
from attribution_sched.stats.bootstrap import PairedBootstrap, limits
from attribution_sched.types import FloatArray

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

RESAMPLES = 2000

LEAST_DECISIONS = 5
"""With fewer decisions nothing is said about the spread between them."""

By = Literal["player", "group"]


def spoken_of(values: FloatArray) -> NDArray[np.int64]:
    """Decisions that have each number of ``(N, K)``, shape ``(K,)``; 0 where they are too few for an interval."""
    count = np.isfinite(values).sum(axis=0)
    return np.where(count >= LEAST_DECISIONS, count, 0)


@dataclass(frozen=True, eq=False)
class Shares:
    """Statistics of one output over the decisions, one entry per player or group.

    Attributes:
        names: Of the players or groups, the largest mean size first.
        count: Decisions that have it.
        size: Mean of |φ| over these; low and high are its 95 % bootstrap limits.
        size_low: Lower limit.
        size_high: Upper limit.
        signed: Mean of φ.
        signed_low: Lower limit.
        signed_high: Upper limit.
        top: Part of all decisions in which it is the largest certain driver.
    """

    names: tuple[str, ...]
    count: NDArray[np.int64]
    size: FloatArray
    size_low: FloatArray
    size_high: FloatArray
    signed: FloatArray
    signed_low: FloatArray
    signed_high: FloatArray
    top: FloatArray


@dataclass(frozen=True, eq=False)
class Overview:
    """Explanations of many decisions, summed up.

    The mean of sizes counts estimation noise as influence: compare it only between explanations of like precision.

    Attributes:
        explanations: What it is an overview of.
        labels: What sort of decision each is, such as the task's kind; empty if not told.
        outputs: Outputs that all explanations have.
        resamples: Bootstrap draws behind each interval.
        seed: Of these draws.
    """

    explanations: tuple[Explanation, ...]
    labels: tuple[str, ...]
    outputs: tuple[str, ...]
    resamples: int
    seed: int

    @classmethod
    def of(
        cls,
        explanations: Sequence[Explanation],
        labels: Sequence[str] | None = None,
        *,
        resamples: int = RESAMPLES,
        seed: int = 0,
    ) -> Overview:
        """Sum up explanations; players may differ between them, and count where they are.

        Args:
            explanations: At least one, all of the same target.
            labels: What sort of decision each is, for :meth:`split`.
            resamples: Bootstrap draws.
            seed: Of these draws.

        Raises:
            ExplanationError: If there is none, targets are mixed, or labels do not fit.
        """
        if not explanations:
            raise ExplanationError(problem("explanations", [], "there must be at least one", "Explain some decisions"))
        targets = sorted({explanation.target for explanation in explanations})
        if len(targets) > 1:
            raise ExplanationError(
                problem("target", targets, "must be one and the same", "Make an overview of each target")
            )
        if labels is not None and len(labels) != len(explanations):
            rule = f"must be {len(explanations)}, one per explanation"
            raise ExplanationError(problem("labels", len(labels), rule, "Give each its label"))
        first = explanations[0].outputs
        outputs = tuple(output for output in first if all(output in other.outputs for other in explanations))
        if not outputs:
            raise ExplanationError(problem("outputs", first, "are not shared by all", "Explain the same outputs"))
        return cls(tuple(explanations), tuple(labels or ()), outputs, resamples, seed)

    def __len__(self) -> int:
        return len(self.explanations)

    @property
    def main(self) -> str:
        """The output to show if only one is."""
        main = self.explanations[0].main
        return main if main in self.outputs else self.outputs[0]

    def shares(self, output: str | None = None, by: By = "player") -> Shares:
        """Statistics of one output.

        Args:
            output: Which; the main one by default.
            by: ``player``, or ``group``: shares of a family are added up within each decision first.
        """
        output = output or self.main
        if output not in self.outputs:
            raise ExplanationError(problem("output", output, "is not shared by all", nearest(output, self.outputs)))
        if by not in ("player", "group"):
            raise ExplanationError(problem("by", by, "must be player or group", "Use player"))
        names, values, certain = self._table(output, by)
        # Both statistics come from the same draws, so that they can be set side by side.
        both = np.hstack([np.abs(values), values])
        draws = PairedBootstrap(len(both), self.seed, self.resamples).means(both)
        low, high = limits(draws, spoken_of(both))
        k = len(names)
        size, signed = draws[0, :k], draws[0, k:]
        claimed = np.where(certain, np.abs(values), 0.0)
        best, any_sure = claimed.argmax(axis=1), claimed.max(axis=1, initial=0.0) > 0
        top = np.bincount(best[any_sure], minlength=k) / len(values)
        order = np.argsort(-size, kind="stable")
        return Shares(
            names=tuple(names[i] for i in order),
            count=np.isfinite(values).sum(axis=0)[order],
            size=size[order],
            size_low=low[:k][order],
            size_high=high[:k][order],
            signed=signed[order],
            signed_low=low[k:][order],
            signed_high=high[k:][order],
            top=top[order],
        )

    def split(self) -> dict[str, Overview]:
        """One overview per label, in the order labels first appear."""
        if not self.labels:
            raise ExplanationError(problem("labels", (), "were not told", "Pass labels to Overview.of"))
        return {
            label: Overview.of(
                [e for e, own in zip(self.explanations, self.labels, strict=True) if own == label],
                resamples=self.resamples,
                seed=self.seed,
            )
            for label in dict.fromkeys(self.labels)
        }

    def to_frame(self, by: By = "player") -> pd.DataFrame:
        """One row per output and player (or group), with label ``all`` and, if there are labels, each of them."""
        import pandas as pd

        parts = {"all": self} | (self.split() if self.labels else {})
        tables = []
        for label, part in parts.items():
            for output in part.outputs:
                found = part.shares(output, by)
                tables.append(
                    pd.DataFrame(
                        {
                            "label": label, "output": output, by: found.names, "decisions": found.count,
                            "mean |φ|": found.size, "mean |φ| low": found.size_low, "mean |φ| high": found.size_high,
                            "mean φ": found.signed, "mean φ low": found.signed_low, "mean φ high": found.signed_high,
                            "top driver": found.top,
                        }
                    )
                )  # fmt: skip
        return pd.concat(tables, ignore_index=True).set_index(["label", "output", by])

    def plot(
        self, ax: Axes | None = None, *, output: str | None = None, by: By = "player", most: int = 10, lang: str = "en"
    ) -> Axes:
        """Bars of mean |φ| with intervals; see :func:`~attribution_sched.explain.plots.influence.influence`."""
        from attribution_sched.explain.plots.influence import influence

        return influence(self, ax, output=output, by=by, most=most, lang=lang)

    def timeline(self, ax: Axes | None = None, *, output: str | None = None, most: int = 8, lang: str = "en") -> Axes:
        """Shares from decision to decision."""
        from attribution_sched.explain.plots.timeline import timeline

        return timeline(self.explanations, ax, output=output or self.main, most=most, lang=lang)

    def _table(self, output: str, by: By) -> tuple[list[str], FloatArray, NDArray[np.bool_]]:
        """Names, shares ``(N, K)`` with NaN for what is absent, and which of them may be claimed."""
        found = stack(self.explanations, output)
        if by == "player":
            return [player.name for player in found.players], found.shares, found.certain
        groups = list(dict.fromkeys(player.group for player in found.players))
        member = np.array([[player.group == group for group in groups] for player in found.players])
        present = found.present.astype(np.float64) @ member > 0
        sums = np.where(present, np.nan_to_num(found.shares) @ member, np.nan)
        # A family is claimed if what is certain of it is: the shares of its certain members, added up.
        claimed = found.certain.astype(np.float64) @ member > 0
        return groups, sums, claimed
