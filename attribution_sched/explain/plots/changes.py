"""Changes plot: the influence of each input before and after, joined by a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.explain.digits import share
from attribution_sched.explain.plots import style
from attribution_sched.explain.wording import output_name, output_unit
from attribution_sched.words.say import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from attribution_sched.explain.comparison import Comparison


def changes(
    comparison: Comparison, ax: Axes | None = None, *, output: str | None = None, most: int = 10, lang: str = "en"
) -> Axes:
    """Draw mean |φ| before (open) and after (filled); changes that are not certain are grey.

    Args:
        comparison: The comparison.
        ax: Where to draw; new axes by default.
        output: Which output; the main one by default.
        most: Inputs at most, by the size of the change.
        lang: ``en`` or ``zh``.
    """
    lang = style.drawn_language(lang)
    found = comparison.changes(output)
    n = min(most, len(found.names))
    ax = style.axes(ax, 1.7 + 0.34 * n)
    certain = found.certain
    for row in range(n):
        tone = style.UNSURE if not certain[row] else style.GOOD if found.size[row] > 0 else style.BAD
        before, after = float(found.before[row]), float(found.after[row])
        low, high = after - found.size[row] + found.size_low[row], after - found.size[row] + found.size_high[row]
        ax.plot([low, high], [row, row], color=tone, linewidth=6.0, alpha=0.3, solid_capstyle="butt", zorder=1)
        ax.plot([before, after], [row, row], color=tone, linewidth=1.8, zorder=2)
        ax.plot(
            [before], [row], "o", color="white", markeredgecolor=tone, markersize=6.0, markeredgewidth=1.5, zorder=3
        )
        ax.plot([after], [row], "o", color=tone, markersize=6.5, zorder=4)
        half = float(found.size_high[row] - found.size_low[row]) / 2
        ax.text(
            1.02, row, share(float(found.size[row]), half), transform=ax.get_yaxis_transform(), va="center", fontsize=8,
            color=style.INK if certain[row] else style.FAINT,
        )  # fmt: skip
    wide, lines = style.characters(ax, 0.27), style.lines_per_row(ax, n)
    names = [style.input_label(name, lang) for name in found.names[:n]]
    ax.set_yticks(range(n), [style.fitted(name, wide, min(2, lines)) for name in names])
    ax.set_ylim(n - 0.4, -0.6)
    reach = [0.0, *found.before[:n], *found.after[:n], *(found.before + found.size_low)[:n]]
    style.spread(ax, [float(value) for value in np.append(reach, (found.before + found.size_high)[:n])])
    unit = output_unit(found.output, comparison.before[0].target, lang)
    name = output_name(found.output, lang)
    axis = style.with_unit(say("changes.axis", lang, name=name), unit, lang)
    style.key(ax, say("changes.key", lang), first=axis)
    style.finish(ax, lang)
    style.title(ax, say("changes.title", lang, name=name))
    ax.tick_params(axis="y", length=0)
    return style.in_font(ax, lang)
