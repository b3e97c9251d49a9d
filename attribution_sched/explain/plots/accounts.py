"""Accounts of tasks: where the joules of each go, as shares of that task's own whole, with whiskers."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.digits import number
from attribution_sched.explain.plots import style
from attribution_sched.explain.plots.attributions import COUNTERS
from attribution_sched.stats.interval import half_width
from attribution_sched.words.names import counter_name
from attribution_sched.words.say import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes

IDLE = "#c9c9c9"
HOST, MOVEMENT, COMPUTE = ("#7a5195", "#bc8fd0"), ("#e69f00", "#f3cf7a"), ("#0072b2", "#56b4e9", "#9ad1f5")
PAINT = dict(zip(COUNTERS, (*HOST, *MOVEMENT, *COMPUTE), strict=True))
"""One hue for each margin of the account: host, movement, compute."""

LEAST_SHARE = 0.03
"""Parts smaller than this get no whisker: it would hide them."""


def accounts(
    parts: ArrayLike,
    idle: ArrayLike,
    errors: ArrayLike,
    task_labels: Sequence[str],
    ax: Axes | None = None,
    *,
    names: Sequence[str] = COUNTERS,
    unit: str = "J",
    lang: str = "en",
) -> Axes:
    """Draw one bar a task: idle, then each counter's joules, as shares of the task; whiskers are 95 % intervals.

    Args:
        parts: Joules of each counter, shape ``(n_tasks, n_counters)``.
        idle: Joules of the idle machine, shape ``(n_tasks,)``.
        errors: Standard errors of the parts, like ``parts``.
        task_labels: One per task; the task's joules are written beside its bar.
        ax: Where to draw; new axes by default.
        names: Names of the counters.
        unit: Unit of the joules.
        lang: ``en`` or ``zh``.

    Raises:
        ExplanationError: If shapes do not fit the labels, or a number is not finite or below zero.
    """
    lang = style.drawn_language(lang)
    table, base, wide = (np.asarray(each, dtype=np.float64) for each in (parts, idle, errors))
    n, d = len(task_labels), len(names)
    if table.shape != (n, d) or wide.shape != (n, d) or base.shape != (n,) or not table.size:
        rule = f"must be {(n, d)}, {(n,)} and {(n, d)}, and not empty"
        given = (table.shape, base.shape, wide.shape)
        raise ExplanationError(
            problem("parts, idle, errors", given, rule, "Give one label per task, a name per counter")
        )
    if not all((np.isfinite(each) & (each >= 0.0)).all() for each in (table, base, wide)):
        raise ExplanationError(problem("parts", "not joules", "must be finite and >= 0", "Leave out such tasks"))
    whole = np.maximum(base + table.sum(axis=1), 1e-300)
    ax = style.axes(ax, min(9.0, 1.9 + 0.3 * n))
    rows, left = np.arange(n), base / whole
    ax.barh(rows, left, color=IDLE, height=0.72, label=say("accounts.idle", lang))
    for j in range(d):
        share = table[:, j] / whole
        if share.any():
            ax.barh(rows, share, left=left, height=0.72, color=PAINT.get(names[j], IDLE), edgecolor="white",
                    linewidth=0.4, label=counter_name(names[j], lang))  # fmt: skip
        left = left + share
        seen = share >= LEAST_SHARE
        # Around the end of its part: how far that end may lie.
        reach = half_width(wide[seen, j], inf) / whole[seen]
        ax.errorbar(left[seen], rows[seen], xerr=reach, fmt="none", ecolor="black", elinewidth=0.8, capsize=1.8,
                    capthick=0.8)  # fmt: skip
    for row in range(n):
        ax.annotate(number(float(whole[row])), (1.0, row), xytext=(4, 0), textcoords="offset points",
                    va="center", fontsize=7, annotation_clip=False)  # fmt: skip
    step = int(np.ceil(n / style.rows_that_fit(ax)))
    wide_label = style.characters(ax, 0.25)
    ax.set_yticks(rows[::step], [style.shortened(label, wide_label) for label in task_labels[::step]])
    ax.invert_yaxis()
    ax.set_xlim(0.0, 1.0)
    ax.set_xticks(np.linspace(0.0, 1.0, 6), [f"{tick:.0%}" for tick in np.linspace(0.0, 1.0, 6)])
    ax.set_xlabel(say("accounts.share", lang))
    style.finish(ax, lang, grid="x")
    ax.tick_params(axis="y", length=0)
    entries = len(ax.get_legend_handles_labels()[1])
    columns = min(entries, 4 if style.characters(ax, 1.0) > 75 else 2)
    ax.legend(ncols=columns, fontsize=7, frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0),
              borderaxespad=0.2, handlelength=1.1, columnspacing=1.1)  # fmt: skip
    words = style.with_unit(say("accounts.title", lang), unit, lang)
    style.title(ax, words, above=8.0 + 11.0 * float(np.ceil(entries / columns)))
    return style.in_font(ax, lang)
