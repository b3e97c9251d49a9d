"""Driver timeline: how the shares of the strongest inputs move from decision to decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.plots import style
from attribution_sched.explain.stacking import Stack, stack
from attribution_sched.explain.wording import output_name
from attribution_sched.types import FloatArray
from attribution_sched.words.say import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Kind = Literal["heatmap", "lines"]


def timeline(
    explanations: Sequence[Explanation],
    ax: Axes | None = None,
    *,
    output: str | None = None,
    most: int = 8,
    kind: Kind = "heatmap",
    times_h: Sequence[float] | None = None,
    lang: str = "en",
) -> Axes:
    """Draw the shares of the strongest inputs over decisions.

    In the heatmap a cell is white where the interval includes 0, and grey where the decision has no such input.

    Args:
        explanations: Decisions in order.
        ax: Where to draw; new axes by default.
        output: Which output; the main one by default.
        most: Inputs at most, by mean size of the share.
        kind: ``heatmap`` or ``lines``.
        times_h: When each decision was made, in hours; the order by default.
        lang: ``en`` or ``zh``.
    """
    from matplotlib.ticker import MaxNLocator

    if kind not in ("heatmap", "lines"):
        raise ExplanationError(problem("kind", kind, "must be heatmap or lines", "Use heatmap"))
    lang = style.drawn_language(lang)
    found = stack(explanations, output)
    at = np.arange(len(explanations), dtype=np.float64) if times_h is None else np.asarray(times_h, dtype=np.float64)
    if at.shape != (len(explanations),) or not np.isfinite(at).all() or (np.diff(at) < 0).any():
        rule = f"must be {len(explanations)} finite numbers that do not fall"
        raise ExplanationError(problem("times_h", times_h, rule, "Sort decisions by time"))
    order = found.order(most)
    ax = style.axes(ax, 1.6 + 0.3 * len(order) if kind == "heatmap" else 3.6)
    draw = _heatmap if kind == "heatmap" else _lines
    draw(ax, explanations[0], found, order, at, lang)
    if times_h is None:
        first = say("timeline.order", lang)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    else:
        first = style.with_unit(say("timeline.time", lang), "h", lang)
    style.key(ax, say("timeline.key", lang) if kind == "heatmap" else "", first=first)
    return style.in_font(ax, lang)


def _heatmap(ax: Axes, first: Explanation, found: Stack, order: list[int], at: FloatArray, lang: str) -> None:
    shares, certain, present = found.shares[:, order].T, found.certain[:, order].T, found.present[:, order].T
    limit = float(np.quantile(np.abs(shares[present]), 0.99)) if present.any() else 0.0
    limit = limit or 1.0
    # Cells lie between the midpoints of decisions, so that unequal times show as unequal widths.
    middle = (at[1:] + at[:-1]) / 2
    half = float(np.median(np.diff(at))) / 2 if len(at) > 1 else 0.5
    edges = np.concatenate([[at[0] - half], middle, [at[-1] + half]])
    shown = np.where(certain, shares, 0.0)
    mesh = ax.pcolormesh(
        edges, np.arange(len(order) + 1) - 0.5, shown, cmap=style.diverging(), vmin=-limit, vmax=limit, rasterized=True
    )
    if not present.all():
        absent = np.ma.masked_where(present, np.ones_like(shown))
        ax.pcolormesh(edges, np.arange(len(order) + 1) - 0.5, absent, cmap="Greys", vmin=0, vmax=5, rasterized=True)
    for row in range(1, len(order)):
        ax.axhline(row - 0.5, color="white", linewidth=1.5)
    wide, lines = style.characters(ax, 0.25), style.lines_per_row(ax, len(order))
    ax.set_yticks(range(len(order)), [style.player_label(found.players[i], lang, wide, lines) for i in order])
    ax.set_ylim(len(order) - 0.5, -0.5)
    style.colour_bar(ax, mesh, style.share_label(first, found.output, lang), lang, extend="both")
    name = output_name(found.output, lang)
    style.finish(ax, lang, grid="")
    style.title(ax, say("timeline.title", lang, name=name))
    ax.tick_params(axis="y", length=0)


def _lines(ax: Axes, first: Explanation, found: Stack, order: list[int], at: FloatArray, lang: str) -> None:
    wide = style.characters(ax, 0.24)
    for rank, i in enumerate(order):
        tone = style.LINES[rank % len(style.LINES)]
        dashes = "-" if rank < len(style.LINES) else "--"
        label = style.player_label(found.players[i], lang, wide)
        ax.plot(at, found.shares[:, i], dashes, color=tone, linewidth=1.5, label=label)
        sure = found.certain[:, i]
        ax.plot(at[sure], found.shares[sure, i], "o", color=tone, markersize=3.2)
    ax.axhline(0.0, color=style.INK, linewidth=0.8)
    name = output_name(found.output, lang)
    ax.set_ylabel(style.fitted(style.share_label(first, found.output, lang), 44), fontsize=8)
    style.finish(ax, lang, grid="y")
    heading = say("timeline.title_lines", lang, name=name)
    narrow = style.characters(ax, 1.0) <= 75
    style.title(ax, heading)
    ax.legend(
        loc="upper left" if not narrow else "upper center", bbox_to_anchor=(1.0, 1.0) if not narrow else (0.4, -0.16),
        fontsize=7.5, frameon=False, ncols=1 if not narrow else 2,
    )  # fmt: skip
