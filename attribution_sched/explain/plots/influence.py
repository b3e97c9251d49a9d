"""Influence bars: how much each input, or family of inputs, drives many decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.explain import facts
from attribution_sched.explain.digits import percent
from attribution_sched.explain.plots import style
from attribution_sched.explain.wording import output_name, output_unit
from attribution_sched.types import FloatArray
from attribution_sched.words.say import plural, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from attribution_sched.explain.overview import By, Overview


def influence(
    overview: Overview,
    ax: Axes | None = None,
    *,
    output: str | None = None,
    by: By = "player",
    most: int = 10,
    lang: str = "en",
) -> Axes:
    """Draw mean |φ| as bars and mean φ as diamonds, each with its 95 % bootstrap interval.

    Bars are blue where the mean share speaks for the choices made, vermilion where it speaks against them, grey where
    its interval includes 0.

    Args:
        overview: The overview.
        ax: Where to draw; new axes by default.
        output: Which output; the main one by default.
        by: ``player`` or ``group``.
        most: Rows at most.
        lang: ``en`` or ``zh``.
    """
    lang = style.drawn_language(lang)
    output = output or overview.main
    found = overview.shares(output, by)
    n = min(most, max(1, int((found.size > facts.ROUNDING * found.size.max()).sum())))
    ax = style.axes(ax, 1.7 + 0.34 * n)
    first = overview.explanations[0]
    certain = (found.signed_low > 0) | (found.signed_high < 0)
    rows = np.arange(n, dtype=np.float64)
    good = facts.direction(first, output)
    tones = [style.colour(first, output, float(found.signed[i]), bool(certain[i])) for i in range(n)]
    ax.barh(rows, found.size[:n], height=0.6, color=tones, alpha=0.6, zorder=2)
    _whiskers(ax, rows - 0.12, found.size[:n], found.size_low[:n], found.size_high[:n], "|")
    _whiskers(ax, rows + 0.12, found.signed[:n], found.signed_low[:n], found.signed_high[:n], "D")
    for i in range(n):
        words = "–" if found.top[i] == 0 else percent(float(found.top[i]))
        ax.text(1.02, i, words, transform=ax.get_yaxis_transform(), va="center", fontsize=8, color=style.INK)
    ax.text(
        1.02, -0.75, say("influence.top", lang), transform=ax.get_yaxis_transform(), va="center",
        fontsize=7.5, color=style.FAINT,
    )  # fmt: skip
    ax.axvline(0.0, color=style.INK, linewidth=0.8, zorder=3)
    wide, lines = style.characters(ax, 0.27), style.lines_per_row(ax, n)
    names = [style.input_label(name, lang) for name in found.names[:n]]
    ax.set_yticks(rows, [style.fitted(name, wide, min(2, lines)) for name in names])
    ax.set_ylim(n - 0.4, -1.0)
    limits = (found.size_low, found.size_high, found.signed_low, found.signed_high, found.size, found.signed)
    style.spread(ax, [0.0, *(float(value) for limit in limits for value in limit[:n])])
    unit = output_unit(output, first.target, lang)
    name = output_name(output, lang)
    axis = style.with_unit(say("plot.share_of", lang, name=name), unit, lang)
    keys = ["influence.key", "influence.key.choice"] if good else ["influence.key"]
    style.key(ax, " · ".join(say(key, lang) for key in keys), first=axis)
    style.finish(ax, lang)
    decisions = say("plot.decisions", lang, variant=plural(len(overview)), count=len(overview))
    style.title(ax, say("influence.title", lang, name=name, decisions=decisions))
    ax.tick_params(axis="y", length=0)
    return style.in_font(ax, lang)


def _whiskers(ax: Axes, rows: FloatArray, at: FloatArray, low: FloatArray, high: FloatArray, marker: str) -> None:
    # Percentile limits need not enclose the mean of few decisions: a bar of negative length is no bar.
    errors = np.nan_to_num(np.maximum([at - low, high - at], 0.0))
    ax.errorbar(
        at, rows, xerr=errors, fmt=marker, markersize=4.0, color=style.INK, elinewidth=0.9, capsize=2.0, zorder=4
    )
