"""Counterfactual plot: how far each quantity is from where the choice flips, in its own unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.digits import apart, number
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.plots import style
from attribution_sched.explain.wording import FAMILIES, plan_words, unit_of
from attribution_sched.words.names import input_name
from attribution_sched.words.say import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Gauge:
    """One row: a quantity on a scale of its own.

    Attributes:
        player: The input.
        quantity: What of it.
        unit: Its unit.
        value: What it was.
        flip: Where the choice flips, or where the counterfactual moves it.
        rule: Whether it flips the choice alone (a threshold), not only with the other changes.
        low: Left end of the scale.
        high: Right end.
    """

    player: str
    quantity: str
    unit: str
    value: float
    flip: float
    rule: bool
    low: float
    high: float

    def place(self, number: float) -> float:
        """Where a number lies on the scale, 0 to 1."""
        return (number - self.low) / (self.high - self.low)


def gauges(explanation: Explanation) -> list[Gauge]:
    """Rows of the plot: thresholds first, then what the counterfactual moves."""
    found = [_gauge(r.player, r.quantity, r.unit, r.value, r.threshold, True) for r in explanation.rules]
    if explanation.counterfactual is not None:
        changes = explanation.counterfactual.changes
        found += [_gauge(c.player, c.quantity, c.unit, c.before, c.after, False) for c in changes]
    return found


def counterfactual(explanation: Explanation, ax: Axes | None = None, *, lang: str = "en") -> Axes:
    """Draw thresholds and the smallest flip: blue is where the choice holds, orange where it does not.

    Rows have scales of their own and are read in the units written beside them. A dot is what the quantity was; a bar
    is the threshold it flips at, all else being equal; arrows belong together and flip the choice jointly.

    Args:
        explanation: An explanation with rules or a counterfactual.
        ax: Where to draw; new axes by default.
        lang: ``en`` or ``zh``.

    Raises:
        ExplanationError: If neither was found.
    """
    lang = style.drawn_language(lang)
    rows = gauges(explanation)
    if not rows:
        fix = "Explain the decision with rules or a counterfactual"
        raise ExplanationError(problem("rules, counterfactual", None, "nothing was found to draw", fix))
    ax = style.axes(ax, 1.5 + 0.55 * len(rows))
    wide, lines = style.characters(ax, 0.27), style.lines_per_row(ax, len(rows))
    labels = []
    for y, row in enumerate(rows):
        value, flip = row.place(row.value), row.place(row.flip)
        if row.rule:
            _track(ax, y, value, flip)
            ax.plot([flip, flip], [y - 0.24, y + 0.24], color=style.INK, linewidth=2.2, zorder=4)
        else:
            ax.barh(y, 1.0, height=0.16, color="#E9E9E9", zorder=1)
            how = {"arrowstyle": "-|>", "color": style.BAD, "linewidth": 1.8, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", (flip, y), (value, y), arrowprops=how, zorder=4)
        ax.plot([value], [y], "o", color=style.INK, markersize=6.5, markeredgecolor="white", zorder=5)
        _ends(ax, y, row, lang)
        labels.append(_label(row, lang, wide, lines))
    joint = sum(not row.rule for row in rows)
    if joint > 1:
        first = len(rows) - joint
        ax.plot([-0.03, -0.03], [first - 0.3, len(rows) - 0.7], color=style.BAD, linewidth=1.6, clip_on=False)
    ax.set_yticks(range(len(rows)), labels)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(-0.04, 1.04)
    ax.set_xticks([])
    style.key(ax, say("counterfactual.key", lang))
    style.finish(ax, lang, grid="")
    ax.spines["bottom"].set_visible(False)
    ax.spines["left"].set_visible(False)
    style.title(ax, _title(explanation, lang))
    ax.tick_params(axis="y", length=0)
    return style.in_font(ax, lang)


def _gauge(player: str, quantity: str, unit: str, value: float, flip: float, rule: bool) -> Gauge:
    low, high = min(0.0, value, flip), max(0.0, value, flip)
    reach = (high - low) or 1.0
    # A flip close by would be invisible on a scale from 0: then the scale is cut around the two numbers.
    if abs(value - flip) < 0.12 * reach:
        middle, reach = (value + flip) / 2, 4.0 * (abs(value - flip) or 0.1 * reach)
        low, high = middle - reach / 2, middle + reach / 2
    return Gauge(player, quantity, unit, value, flip, rule, low - 0.08 * reach * (low < 0), high + 0.22 * reach)


def _track(ax: Axes, y: int, value: float, flip: float) -> None:
    """Two colours that meet at the threshold."""
    left, right = (style.GOOD, style.BAD) if value < flip else (style.BAD, style.GOOD)
    ax.barh(y, flip, height=0.16, color=left, alpha=0.55, zorder=1)
    ax.barh(y, 1.0 - flip, left=flip, height=0.16, color=right, alpha=0.55, zorder=1)


def _ends(ax: Axes, y: int, row: Gauge, lang: str) -> None:
    """Write both numbers, on the outer sides so that they never meet."""
    words = apart(row.value, row.flip, unit_of(row.quantity, row.unit, lang))
    value, flip = row.place(row.value), row.place(row.flip)
    for place, text, tone, right in (
        (value, words[0], style.INK, value >= flip),
        (flip, words[1], style.BAD, value < flip),
    ):
        near = abs(value - flip) < 0.3
        side = ("left" if right else "right") if near else "center"
        edge = "left" if place < 0.12 and not near else "right" if place > 0.9 else side
        ax.text(place, y - 0.27, text, ha=edge, va="bottom", fontsize=8, color=tone, zorder=6)


def _label(row: Gauge, lang: str, wide: int, lines: int) -> str:
    player, quantity = style.input_label(row.player, lang), input_name(row.quantity, lang)
    if row.quantity in FAMILIES or row.quantity == row.player:
        return style.fitted(player, wide, min(2, lines))
    label = style.fitted(player, wide, max(1, min(2, lines - 1)))
    return f"{label}\n{quantity}"


def _title(explanation: Explanation, lang: str) -> str:
    found = explanation.counterfactual
    if found is None:
        what = say("counterfactual.title", lang)
    else:
        size = number(found.size, 2)
        what = say("counterfactual.title_nearest", lang, size=size, plan=plan_words(found.plan, lang))
    return say("plot.decision", lang, decision=explanation.decision, what=what)
