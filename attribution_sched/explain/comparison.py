"""What changed: the drivers of decisions before and after training or a feedback step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attribution_sched.errors import ExplanationError, nearest, problem
from attribution_sched.explain.digits import alike, number
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.overview import RESAMPLES, Overview, spoken_of
from attribution_sched.explain.stacking import Stack, stack
from attribution_sched.explain.wording import output_name
from attribution_sched.stats.bootstrap import PairedBootstrap, limits
from attribution_sched.types import FloatArray
from attribution_sched.words.names import input_name
from attribution_sched.words.say import check_language, say, spaced

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Changes:
    """Influence of each player on one output before and after, and the difference; the largest difference first.

    Attributes:
        output: The output.
        names: Players that both sides have.
        before: Mean |φ| before.
        after: Mean |φ| after.
        size: ``after − before``.
        size_low: Lower 95 % limit of that.
        size_high: Upper limit.
        signed: Difference of the means of φ.
        signed_low: Lower limit.
        signed_high: Upper limit.
    """

    output: str
    names: tuple[str, ...]
    before: FloatArray
    after: FloatArray
    size: FloatArray
    size_low: FloatArray
    size_high: FloatArray
    signed: FloatArray
    signed_low: FloatArray
    signed_high: FloatArray

    @property
    def certain(self) -> NDArray[np.bool_]:
        """Players whose influence changed for certain: the interval of the difference excludes 0."""
        found: NDArray[np.bool_] = (self.size_low > 0) | (self.size_high < 0)
        return found


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two sets of explanations side by side.

    Influence is the mean of |φ|, which counts estimation noise: explain both sides to like precision.

    Attributes:
        before: Explanations before.
        after: Explanations after.
        paired: Whether decisions are compared one by one; then both sides hold the same decisions, in one order.
        outputs: Outputs that all have.
        resamples: Bootstrap draws behind each interval.
        seed: Of these draws.
    """

    before: tuple[Explanation, ...]
    after: tuple[Explanation, ...]
    paired: bool
    outputs: tuple[str, ...]
    resamples: int
    seed: int

    @property
    def main(self) -> str:
        """The output to show if only one is."""
        main = self.before[0].main
        return main if main in self.outputs else self.outputs[0]

    def changes(self, output: str | None = None) -> Changes:
        """Differences of one output, with bootstrap intervals: paired where decisions are the same."""
        output = output or self.main
        if output not in self.outputs:
            raise ExplanationError(problem("output", output, "is not shared by all", nearest(output, self.outputs)))
        one, other = stack(self.before, output), stack(self.after, output)
        shared = {player.name for player in one.players} & {player.name for player in other.players}
        names = [player.name for player in one.players if player.name in shared]
        if not names:
            raise ExplanationError(problem("players", [], "have no name in common", "Explain with the same players"))
        old, new = _columns(one, names), _columns(other, names)
        if self.paired:
            both = np.isfinite(old) & np.isfinite(new)
            old, new = np.where(both, old, np.nan), np.where(both, new, np.nan)
        sides = [np.hstack([np.abs(values), values]) for values in (old, new)]
        # Decisions that are the same ones are resampled alike, others each on its own.
        first, second = (
            PairedBootstrap(len(side), self.seed + (0 if self.paired else at), self.resamples).means(side)
            for at, side in enumerate(sides)
        )
        low, high = limits(second - first, np.minimum(*map(spoken_of, sides)))
        k = len(names)
        before, after = first[0, :k], second[0, :k]
        order = np.argsort(-np.nan_to_num(np.abs(after - before)), kind="stable")
        return Changes(
            output=output,
            names=tuple(names[i] for i in order),
            before=before[order],
            after=after[order],
            size=(after - before)[order],
            size_low=low[:k][order],
            size_high=high[:k][order],
            signed=(second - first)[0, k:][order],
            signed_low=low[k:][order],
            signed_high=high[k:][order],
        )

    def to_frame(self) -> pd.DataFrame:
        """One row per output and player."""
        import pandas as pd

        tables = []
        for output in self.outputs:
            found = self.changes(output)
            tables.append(
                pd.DataFrame(
                    {
                        "output": output, "player": found.names, "before": found.before, "after": found.after,
                        "change": found.size, "change low": found.size_low, "change high": found.size_high,
                        "change of mean φ": found.signed, "change of mean φ low": found.signed_low,
                        "change of mean φ high": found.signed_high, "certain": found.certain,
                    }
                )
            )  # fmt: skip
        return pd.concat(tables, ignore_index=True).set_index(["output", "player"])

    def sentence(self, lang: str = "en", *, output: str | None = None, most: int = 3) -> str:
        """What changed, in words; only changes whose interval excludes 0 are named."""
        check_language(lang)
        found = self.changes(output)
        named = [i for i in range(len(found.names)) if found.certain[i]][:most]
        return _sentence(self, found, named, lang)

    def plot(self, ax: Axes | None = None, *, output: str | None = None, most: int = 10, lang: str = "en") -> Axes:
        """Before and after; see :func:`~attribution_sched.explain.plots.changes.changes`."""
        from attribution_sched.explain.plots.changes import changes

        return changes(self, ax, output=output, most=most, lang=lang)


def compare(
    before: Sequence[Explanation],
    after: Sequence[Explanation],
    *,
    paired: bool | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Compare explanations from before and after training or a feedback step.

    Args:
        before: At least one.
        after: At least one, of the same target.
        paired: Compare decision by decision, using the decisions that both sides have; by default if all of the
            smaller side are among the other's.
        resamples: Bootstrap draws.
        seed: Of these draws.

    Raises:
        ExplanationError: If a side is empty, targets differ, ids repeat, or a pairing is asked for that there is not.
    """
    Overview.of([*before, *after])
    old, new = Overview.of(before), Overview.of(after)
    outputs = tuple(output for output in old.outputs if output in new.outputs)
    if not outputs:
        raise ExplanationError(problem("outputs", old.outputs, f"are not among {new.outputs}", "Explain the same"))
    one, other = _by_id(before, paired is True), _by_id(after, paired is True)
    common = [name for name in one if name in other]
    if paired is None:
        paired = bool(common) and len(common) == min(len(before), len(after))
    if not paired:
        return Comparison(tuple(before), tuple(after), False, outputs, resamples, seed)
    if not common:
        raise ExplanationError(problem("decision", sorted(one)[:3], "is not on both sides", "Compare unpaired"))
    return Comparison(
        tuple(one[name] for name in common), tuple(other[name] for name in common), True, outputs, resamples, seed
    )


def _by_id(explanations: Sequence[Explanation], strict: bool) -> dict[str, Explanation]:
    """Explanations by decision; none at all if an id repeats, for then decisions cannot be told apart."""
    twice = [name for name, n in Counter(explanation.decision for explanation in explanations).items() if n > 1]
    if twice and strict:
        raise ExplanationError(problem("decision", twice[0], "is there twice", "Explain each decision once"))
    return {} if twice else {explanation.decision: explanation for explanation in explanations}


def _columns(found: Stack, names: Sequence[str]) -> FloatArray:
    at = {player.name: p for p, player in enumerate(found.players)}
    return found.shares[:, [at[name] for name in names]]


def _sentence(comparison: Comparison, found: Changes, named: list[int], lang: str) -> str:
    paired = "comparison.paired" if comparison.paired else "comparison.unpaired"
    over = say(paired, lang, before=len(comparison.before), after=len(comparison.after))
    name = output_name(found.output, lang)
    parts = []
    for i in named:
        old, new = alike(float(found.before[i]), float(found.after[i]))
        low, high = (number(float(limit[i]), 2, signed=True) for limit in (found.size_low, found.size_high))
        message = "comparison.gained" if found.size[i] > 0 else "comparison.lost"
        player = input_name(found.names[i], lang)
        parts.append(say(message, lang, player=player, old=old, new=new, low=low, high=high))
    rest = int(found.certain.sum()) - len(named)
    more = say("comparison.more", lang, count=rest) if rest else ""
    if named:
        text = say("comparison.sentence", lang, over=over, name=name, parts=tuple(parts), more=more)
    else:
        text = say("comparison.nothing", lang, over=over, name=name)
    return text if lang == "en" else spaced(text)
