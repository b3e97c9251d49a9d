"""Beeswarm: the shares of many decisions, one row of points per input, coloured by what the input was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.plots import style
from attribution_sched.explain.stacking import stack
from attribution_sched.explain.wording import output_name
from attribution_sched.types import FloatArray
from attribution_sched.words.say import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes


ROW_HALF = 0.38
"""How far points may leave the middle of their row."""


def relative(numbers: FloatArray, usual: FloatArray) -> FloatArray:
    """Readings against what is usual, −1 to 1: 0 is usual, ±1 as far off as 95 % of this input's readings are."""
    gap = numbers - usual
    known = np.isfinite(gap)
    scale = float(np.quantile(np.abs(gap[known]), 0.95)) if known.any() else 0.0
    found: FloatArray = np.clip(gap / scale, -1.0, 1.0) if scale > 0 else np.where(known, 0.0, np.nan)
    return found


def offsets(shares: FloatArray, width: float, bins: int = 70) -> FloatArray:
    """Vertical offsets that keep points of one row apart: those in the same bin are laid out around the middle.

    Args:
        shares: Horizontal positions, shape ``(n,)``.
        width: Extent of the horizontal axis.
        bins: Points closer than ``width / bins`` share a bin.
    """
    found = np.zeros(len(shares))
    if not len(shares) or width <= 0:
        return found
    bucket = np.floor((shares - shares.min()) / (width / bins)).astype(np.int64)
    crowd = int(np.bincount(bucket).max())
    step = min(0.11, 2 * ROW_HALF / max(crowd - 1, 1))
    for b in np.unique(bucket):
        members = np.flatnonzero(bucket == b)
        rank = np.arange(len(members))
        # 0, 1, −1, 2, −2, …
        found[members] = step * np.where(rank % 2, (rank + 1) // 2, -(rank // 2))
    return np.clip(found, -ROW_HALF, ROW_HALF)


def beeswarm(
    explanations: Sequence[Explanation],
    ax: Axes | None = None,
    *,
    output: str | None = None,
    most: int = 10,
    lang: str = "en",
) -> Axes:
    """Draw every decision's share as a point; teal readings are above what is usual, brown below, grey as usual.

    Args:
        explanations: Decisions; players may differ between them.
        ax: Where to draw; new axes by default.
        output: Which output; the main one by default.
        most: Inputs at most, by mean size of the share.
        lang: ``en`` or ``zh``.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    lang = style.drawn_language(lang)
    found = stack(explanations, output)
    order = found.order(most)
    ax = style.axes(ax, 1.5 + 0.4 * len(order))
    finite = found.shares[:, order][found.present[:, order]]
    width = float(np.ptp(finite)) if len(finite) else 0.0
    tones = style.low_to_high()
    for row, i in enumerate(order):
        has = found.present[:, i]
        shares = found.shares[has, i]
        reading = relative(found.numbers[has, i], found.usual[has, i])
        colours = np.where(np.isfinite(reading)[:, None], tones((np.nan_to_num(reading) + 1) / 2), (0.85,) * 3 + (1.0,))
        ax.scatter(
            shares, row + offsets(shares, width), s=14, c=colours, edgecolors="white", linewidths=0.3, zorder=3,
            rasterized=len(explanations) > 500,
        )  # fmt: skip
    ax.axvline(0.0, color=style.INK, linewidth=0.8, zorder=1)
    wide, lines = style.characters(ax, 0.27), style.lines_per_row(ax, len(order))
    ax.set_yticks(range(len(order)), [style.player_label(found.players[i], lang, wide, lines) for i in order])
    ax.set_ylim(len(order) - 0.5, -0.5)
    style.spread(ax, [*finite.tolist(), 0.0], 0.04)
    ax.set_xlabel(style.share_label(explanations[0], found.output, lang), fontsize=8)
    style.finish(ax, lang)
    name = output_name(found.output, lang)
    style.title(ax, say("beeswarm.title", lang, name=name, count=len(explanations)))
    label = say("beeswarm.reading", lang)
    bar = style.colour_bar(ax, ScalarMappable(Normalize(-1, 1), tones), label, lang, ticks=[-1, 0, 1], aspect=40)
    bar.ax.set_yticklabels(
        [say(level, lang) for level in ("beeswarm.low", "beeswarm.usual", "beeswarm.high")], fontsize=8
    )
    style.in_font(bar.ax, lang)
    ax.tick_params(axis="y", length=0)
    return style.in_font(ax, lang)
