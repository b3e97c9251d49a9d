"""Drivers waterfall: from the background's mean to the decision, one input after the other, with error bars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain import facts
from attribution_sched.explain.digits import alike, number, share
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.findings import Player
from attribution_sched.explain.plots import style
from attribution_sched.explain.wording import output_name, output_unit, plan_words
from attribution_sched.words.say import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Step:
    """One bar of the waterfall.

    Attributes:
        player: Whose share it is; None for all that are not shown by name.
        start: Where the bar begins.
        share: Its length, with sign.
        half: Half-width of the 95 % interval; NaN for the folded rest.
        certain: Whether the interval excludes 0.
        folded: How many players the bar stands for.
    """

    player: Player | None
    start: float
    share: float
    half: float
    certain: bool
    folded: int = 1


def steps(explanation: Explanation, output: str | None = None, most: int = 8) -> list[Step]:
    """Bars from ``base`` to ``value``: the largest first, what is left over folded into one.

    Args:
        explanation: The explanation.
        output: Which output; the main one by default.
        most: Bars at most, the folded one included.
    """
    if most < 2:
        raise ExplanationError(problem("most", most, "must be >= 2", "Use 8"))
    output = output or explanation.main
    c = explanation.column(output)
    shares, half, certain = (
        explanation.values[:, c],
        facts.half_widths(explanation)[:, c],
        facts.sure(explanation, output),
    )
    kept = facts.shown(explanation, output, most)
    at, found = float(explanation.base[c]), []
    for i in kept:
        found.append(Step(explanation.players[i], at, float(shares[i]), float(half[i]), bool(certain[i])))
        at += float(shares[i])
    if len(kept) < len(shares):
        # Ends at the value, so that a gap left by rounding shows here and not as a break.
        rest = float(explanation.value[c]) - at
        found.append(Step(None, at, rest, float("nan"), False, len(shares) - len(kept)))
    return found


def waterfall(
    explanation: Explanation, ax: Axes | None = None, *, output: str | None = None, most: int = 8, lang: str = "en"
) -> Axes:
    """Draw how the shares lead from the background's mean to the decision's value.

    Blue speaks for the choice, vermilion against it, grey cannot be told from 0; whiskers are 95 % intervals. Of a
    contrast it shows why this plan and not the other.

    Args:
        explanation: The explanation.
        ax: Where to draw; new axes by default.
        output: Which output; the main one by default.
        most: Bars at most; the rest is folded into one.
        lang: ``en`` or ``zh``.
    """
    lang = style.drawn_language(lang)
    output = output or explanation.main
    bars = steps(explanation, output, most)
    ax = style.axes(ax, 1.3 + 0.4 * (len(bars) + 2))
    c = explanation.column(output)
    base, value = float(explanation.base[c]), float(explanation.value[c])
    wide, lines = style.characters(ax, 0.27), style.lines_per_row(ax, len(bars) + 2)
    shown_base, shown_value = alike(base, value)
    labels = [say("waterfall.background", lang)]
    marks = [shown_base]
    _level(ax, 0, base)
    for row, bar in enumerate(bars, start=1):
        tone = style.colour(explanation, output, bar.share, bar.certain)
        ax.barh(row, bar.share, left=bar.start, height=0.58, color=tone, zorder=2)
        end = bar.start + bar.share
        if np.isfinite(bar.half) and bar.half > 0:
            ax.errorbar(end, row, xerr=bar.half, color=style.INK, elinewidth=1.0, capsize=2.5, zorder=4)
        ax.plot(
            [end, end], [row - 0.29, row + (1.29 if row < len(bars) else 1.0)], color="#9A9A9A", linewidth=0.7, zorder=1
        )
        if bar.player is None:
            labels.append(say("plot.others", lang, count=bar.folded))
            marks.append(number(facts.rounded(explanation, output, bar.share), 2, signed=True))
        else:
            labels.append(style.player_label(bar.player, lang, wide, lines, reading=True))
            marks.append(share(bar.share, bar.half))
    last = len(bars) + 1
    _level(ax, last, value)
    labels.append(say("waterfall.difference" if explanation.against else "waterfall.decision", lang))
    marks.append(shown_value)
    ax.plot([base, base], [0, 1.29], color="#9A9A9A", linewidth=0.7, zorder=1)
    ax.set_yticks(range(last + 1), labels)
    ax.set_ylim(last + 0.6, -0.6)
    edges = [base, value, *(bar.start for bar in bars)]
    edges += [bar.start + bar.share + sign * np.nan_to_num(bar.half) for bar in bars for sign in (1, -1)]
    style.spread(ax, edges)
    for row, (mark, bar_at) in enumerate(zip(marks, [None, *bars, None], strict=True)):
        faint = bar_at is not None and not bar_at.certain
        ax.text(
            1.02, row, mark, transform=ax.get_yaxis_transform(), va="center", fontsize=8,
            fontweight="bold" if bar_at is None else "normal", color=style.FAINT if faint else style.INK,
        )  # fmt: skip
    _key(ax, explanation, output, lang)
    style.title(ax, _title(explanation, output, lang))
    style.finish(ax, lang)
    for row, tick in enumerate(ax.get_yticklabels()):
        tick.set_fontweight("bold" if row in (0, last) else "normal")
        tick.set_color(style.INK)
    ax.tick_params(axis="y", length=0)
    return ax


def _level(ax: Axes, row: int, value: float) -> None:
    ax.plot([value], [row], "D", color=style.INK, markersize=5.5, zorder=5)


def _key(ax: Axes, explanation: Explanation, output: str, lang: str) -> None:
    first = style.with_unit(output_name(output, lang), output_unit(output, explanation.target, lang), lang)
    speaks = "waterfall.key.choice" if facts.direction(explanation, output) else "waterfall.key.plain"
    style.key(ax, say(speaks, lang), first=first)


def _title(explanation: Explanation, output: str, lang: str) -> str:
    """One line: what, and against what."""
    message = "waterfall.title_against" if explanation.against else "waterfall.title"
    what = say(message, lang, name=output_name(output, lang), plan=plan_words(explanation.against, lang))
    return say("plot.decision", lang, decision=explanation.decision, what=what)
